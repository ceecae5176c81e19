"""`shardfit survey run`: from a configuration file to a ledger full of fits."""

import argparse
import json
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.processes import request_devices
from shardfit.cli.surveys.config import SAVED, Config, PlaceSection, checked, make, read_config, with_seed

EXAMPLES = (
    "shardfit init survey survey.toml",
    "shardfit survey run survey.toml --out runs/m87",
    "shardfit survey run survey.toml --out runs/m87      # once more: goes on where it stopped",
    "shardfit survey run survey.toml --workers 4 --seed 1 --out runs/m87-1",
)
PARTS_EACH = 4  # parts of a worker: it compiles once, and the last part is short


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and where to run."""
    options.add_config(parser, "shardfit init survey")
    options.add_out(parser, otherwise="`out` of the file")
    options.add_seed(parser, otherwise="`seed` of the file, and of its [design]")
    options.add_resume(parser)
    add_places(parser)


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add options that say where and how long, not what."""
    add_slots(parser)
    options.add_devices(parser, "devices that share the slots (1)")
    options.add_declared(parser, PlaceSection, workers="N", limit="N")
    options.add_json(parser)


def add_slots(parser: argparse.ArgumentParser) -> None:
    """Add how many fits share a batch."""
    options.add_declared(parser, PlaceSection, slots="N")


def run(args: argparse.Namespace) -> int:
    """Run the survey."""
    config = read_config(args.config)
    text = Path(args.config).read_text(encoding="utf-8")
    if args.seed is not None:  # into what is kept with the survey: going on finds the same
        text = with_seed(text, args.seed, args.config)
        config = checked(tomllib.loads(text), args.config)
    out = options.directory(args.out or config.out)
    return run_config(config, text, out, args, resume=args.resume)


def run_config(config: Config, text: str, out: Path, args: argparse.Namespace, **more: Any) -> int:
    """Run, resume, retry or continue what a configuration describes; print a line at the end.

    more: resume, retry or more, see `SurveyControl`.
    """
    place = replace(config.run, **options.given(args, "slots", "devices", "workers", "limit"))
    devices = request_devices(place.devices)
    if "config" in args:  # begun here; going on keeps the first record
        record.begin(args, out, config.seed, draws=False)
    else:
        record.go_on(args, out)
    began = time.perf_counter()
    content = json.dumps(tomllib.loads(text))
    mesh = options.devices_mesh(devices, place.rows)
    print(f"shardfit serve {out}    # to look at it while it runs")
    workers = place.workers or 1
    if workers > 1 and (mesh is not None or place.limit is not None):
        raise ValueError(
            "--workers cannot be combined with --devices or --limit: a worker has one device and runs all its points."
        )

    anew = more.get("resume") == "never"

    def keep(_: Any = None) -> None:  # that of another survey stays until the ledger has agreed
        nonlocal anew
        if anew or not (out / SAVED).exists():
            save(out, text)
            anew = False

    if workers > 1:
        from shardfit.surveys.parts import survey_parts

        keep()
        shares = {"workers": workers, "parts": PARTS_EACH * workers}
        done = survey_parts(make, (content, config.path, place.slots), run_dir=out, progress=True, **shares, **more)
    else:
        from shardfit.surveys.run import survey

        problem, axes, chosen = make(content, config.path, place.slots)
        how = {"limit": place.limit, "progress": True, "on_points": keep, **more}
        chosen["control"] = replace(chosen["control"], **how)
        done = survey(problem, axes, run_dir=out, mesh=mesh, **chosen)
    save(out, text)
    print(summary(done, time.perf_counter() - began))
    return done.verdict().exit


def save(out: Path, text: str) -> None:
    """Keep the configuration with the survey, for `resume`."""
    from shardfit.io.files import write_atomic

    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / SAVED, lambda file: file.write(text.encode()))


def summary(survey: Any, seconds: float | None = None) -> str:
    """Return what a survey has come to, in a few lines."""
    from shardfit.io.progress import duration

    failed = len(survey.ledger.ids(failed=True))
    lines = [
        f"{survey.heading.name}: {len(survey):,} of {survey.heading.total:,} points"
        + (f", {failed} failed" if failed else "")
        + (f", {survey.converged:.1%} converged" if len(survey) else "")
    ]
    lines += [f"  {count:>7,}  {name.lower().replace('_', ' ')}" for name, count in sorted(survey.status().items())]
    if survey.complete and (unconverged := len(survey.ledger.unconverged())):
        lines.append(f"  {unconverged:,} points did not converge: `shardfit survey continue {survey.run_dir}`")
    if slots := survey.ledger.told("slots"):
        lines.append(f"  {slots}")
    last = survey.last_run
    if last.get("seconds"):
        useful = last["useful"] / max(1, last["total"])
        lines.append(
            f"  last run: {duration(last['seconds'])} after {duration(last['compile_seconds'])} of compiling, "
            f"{last['total'] / last['seconds']:,.0f} evaluations/s, {useful:.0%} of them useful"
        )
    if seconds is not None:
        lines.append(f"  {duration(seconds)} in all, {survey.run_dir}")
    return "\n".join(lines)
