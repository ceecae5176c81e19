"""`shardfit doctor`: is everything here that a run needs, and does it work?"""

import argparse
from collections.abc import Callable, Iterable, Sequence

from shardfit.cli import options
from shardfit.cli.doctor.finding import BAD, GOOD, NOTE, Finding
from shardfit.cli.outcome import record_output
from shardfit.core import extras

EXAMPLES = ("shardfit doctor", "shardfit doctor --quick --json")
MARKS = {GOOD: ("✓", "green"), NOTE: ("•", "yellow"), BAD: ("✗", "red")}


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add how much to look at."""
    parser.add_argument("--quick", action="store_true", help="leave out what starts processes or compiles kernels")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Look at everything; 0 if nothing is wrong."""
    findings = []
    for finding in look(args.quick):
        findings.append(finding)
        _show(finding)
    bad = [finding.name for finding in findings if finding.state == BAD]
    record_output(args, findings=findings, wrong=bad)
    print(f"wrong: {', '.join(bad)}" if bad else "nothing is wrong")
    return 1 if bad else 0


def look(quick: bool = False) -> Iterable[Finding]:
    """Yield what every check finds; a check that breaks is itself a finding."""
    from shardfit.cli.doctor import machine, work
    from shardfit.sciences import installed

    checks: list[Callable[[], Finding]] = [*machine.CHECKS, *work.CHECKS, *(() if quick else work.LONG)]
    for check in checks:
        yield _found(check)
    for each in installed():
        if each.science is None:
            yield Finding(f"science {each.name}", BAD, each.problem, f"Repair or remove the package {each.package}.")
        elif each.science.checks is not None and not quick:
            for check in each.science.module("checks").CHECKS:
                yield _found(check, each.name)


def _found(check: Callable[[], Finding], part: str = "") -> Finding:
    """Return what a check finds. part: the optional part that it belongs to, which need not be installed."""
    name = check.__name__.strip("_").replace("_", " ")
    try:
        return check()
    except ModuleNotFoundError as error:
        remedy = extras.remedy(error, part)
        return Finding(name, NOTE if remedy else BAD, f"not looked at: {error.name} is not installed", remedy)
    except Exception as error:  # whatever breaks here would break a run: that is what the doctor is for
        text = " ".join(str(error).split())
        return Finding(name, BAD, f"{type(error).__name__}: {text}")


def _show(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    mark, colour = MARKS[finding.state]
    console = Console(soft_wrap=True)
    console.print(Text.assemble((mark, colour), f" {finding.name:<22} {finding.text}"))
    if finding.remedy:
        console.print(Text(f"  {'':<22} → {finding.remedy}", style="bold"))
