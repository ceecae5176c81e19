"""The command line speaks with one voice: the rule of docs/command-line.md as a table that every command is held to.

Every parser is built, those of the sciences too. A command that is not in the table, an option that a command of its
kind lacks, or a name that means two things fails here; what differs for a reason is listed with it.
"""

import argparse
import re
import shlex
from importlib import import_module

import pytest

from shardfit.cli import app, commands, options
from shardfit.options.kinds import Nothing
from tests.cli.test_commands import every_command

RUN = "computes in a run directory, and goes on with what it finds there"
GOES_ON = "goes on with a run directory that it is given"
FOLDER = "writes a folder, in one go"
FILE = "writes files, or into a ledger, that it is given"
PRINTS = "prints what it finds"
SERVES = "starts or serves other programs, and has no answer of its own"
KINDS = {
    RUN: {"--out", "--resume", "--seed", "--devices", "--json"},
    GOES_ON: {"--devices", "--json"},
    FOLDER: {"--out", "--json"},
    FILE: {"--json"},
    PRINTS: {"--json"},
    SERVES: set(),
}
OF_ALL = {"--help", "--debug", "--no-cache", "--quiet"}
TABLE = {
    RUN: """consensus; fit; sample; population fit; population swarm; seismic invert; survey point; survey run;
        vlbi image; vlbi movie; vlbi posterior; vlbi study; vlbi weights; xpcs fit; xpcs sample; xpcs watch""",
    GOES_ON: "survey continue; survey resume; survey retry",
    FOLDER: "calibrate; demo; rerun; seismic model; seismic rtm; vlbi errors; xpcs plot",
    FILE: """data get; init; population init; report; seismic init; survey export; survey tag; vlbi netcal;
        vlbi selfcal; vlbi simulate; xpcs init; xpcs simulate""",
    PRINTS: """bench; data list; devices; doctor; plan; schema; sciences; show; survey status; survey top; vlbi chi2;
        vlbi info; vlbi model; vlbi ring; xpcs validate""",
    SERVES: "completion; launch; rank; serve",
}
KIND = {name.strip(): kind for kind, names in TABLE.items() for name in names.split(";")}
# what a command lacks, and why
WITHOUT = {
    ("survey point", "--devices"): "one point has the rows of one fit, which one device holds",
    ("survey point", "--seed"): "its seed is that of the survey",
    ("vlbi posterior", "--devices"): "its fits are small matrices in data space, a few at a time",
}
# what an option of all commands is instead, and why
INSTEAD = {
    ("plan", "--devices"): "predicts for several numbers of devices at once: 64,512",
    ("vlbi netcal", "--out"): "writes one file, no folder",
    ("vlbi selfcal", "--out"): "writes one file, no folder",
    ("vlbi simulate", "--out"): "writes one file, no folder",
}
MEANING = {
    "--config": "configuration: ",
    "--out": "(run directory|folder of [a-z ]+) to write ",
    "--devices": "devices that share the ",
    "--processes": "processes of this machine that share the rows ",
    "--seed": "seed of ",
    "--resume": "auto: continue a run found in DIR; must: fail if there is none; never: start over ",
    "--json": "print one JSON object at the end, other text to stderr",
}
# names that mean two things, each the word of its field
TWO_THINGS = {
    "--by": "columns that rank points; whole scans or baselines that cross-validation holds out",
    "--data": "data that a survey is written for; the folder of public seismic models",
    "--errors": "a flag of images; how XPCS takes standard errors",
    "--frames": "how many a movie has; which ones of a measurement of XPCS are used",
    "--prior": "the width of a Gaussian image; mean and sd of a parameter of XPCS",
    "--products": "data products one by one; a named set of them, where it decides what is fitted",
    "--shards": "a number; of XPCS also `auto`, which knows how long a draw takes",
    "--start": "an image; a time of day; values of parameters",
    "--stop": "a tolerance; a time of day",
    "--tolerance": "of amplitudes, by station; of gains, of all stations",
}


def parsers():
    """Every command by name, with its parser."""
    found = {}
    for words, module in every_command():
        found[" ".join(words)] = parser = commands.Parser(prog="shardfit")
        module.add_arguments(parser, [])
    return found


PARSERS = parsers()


def reading(kind):
    """What texts a declared option takes."""
    parts = getattr(kind, "parts", (kind,))
    return " ".join(type(part).__name__ for part in parts if not isinstance(part, Nothing))


def shape(action):
    """What of an option a user has to know to write it."""
    kind = getattr(action.type, "__qualname__", None) or reading(getattr(action.type, "kind", None))
    return type(action).__name__, kind, action.metavar, action.nargs, action.const, tuple(action.choices or ())


def shared():
    """The options that all commands have in common, as options.py makes them."""
    parser = argparse.ArgumentParser(add_help=False)
    options.add_config_option(parser, "")
    options.add_out(parser)
    for add in (options.add_devices, options.add_processes, options.add_seed, options.add_resume, options.add_json):
        add(parser)
    return {action.option_strings[0]: shape(action) for action in parser._actions}


def test_every_command_is_in_the_table():
    assert sorted(PARSERS) == sorted(KIND)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_command_has_the_options_of_its_kind(name):
    known = set(PARSERS[name].options())
    lacking = (KINDS[KIND[name]] | OF_ALL) - known
    excused = {option for command, option in WITHOUT if command == name}
    assert lacking == excused, f"{name} ({KIND[name]}): lacks {lacking - excused}, has {excused - lacking}"
    if KIND[name] != RUN:
        assert "--resume" not in known, f"{name} {KIND[name]}: it has nothing to resume"


def test_options_of_all_commands_are_written_and_said_alike():
    usual, differing = shared(), set()
    assert set(usual) == set(MEANING)
    for name, parser in PARSERS.items():
        for action in parser._actions:
            for option in set(action.option_strings) & set(usual):
                if shape(action) != usual[option]:
                    differing.add((name, option))
                elif not re.match(MEANING[option], str(action.help)):
                    raise AssertionError(f"{name} {option}: says {action.help!r}")
    assert differing == set(INSTEAD)


def test_one_name_is_one_thing():
    shapes = {}
    for name, parser in PARSERS.items():
        for action in parser._actions:
            for option in action.option_strings:
                if (name, option) not in INSTEAD:
                    shapes.setdefault(option, {}).setdefault(shape(action), []).append(name)
    several = {option: found for option, found in shapes.items() if len(found) > 1}
    assert set(several) == set(TWO_THINGS), {o: f for o, f in several.items() if o not in TWO_THINGS}


def test_folders_are_named_alike():
    for name, parser in PARSERS.items():
        for action in parser._actions:
            if action.dest == "run_dir":
                assert action.metavar == ("RUN" if name.split()[0] in ("survey", "vlbi") else "DIR"), name


def test_examples_of_groups_parse():
    groups = [import_module(command.module) for command in commands.all_commands()]
    for line in (*app.EXAMPLES, *(line for group in groups for line in group.EXAMPLES)):
        words = shlex.split(re.split(r"[|>]", line.partition("#")[0])[0])
        if words[:1] == ["shardfit"] and "--help" not in words:
            assert app.parsed(words[1:]).run is not None, line
