"""`shardfit rank -- SCRIPT`: one process of many. Joins the others, then runs the script as Python would.

`shardfit launch` starts its processes this way; under Slurm or MPI put it behind the launcher:
`srun shardfit rank -- script.py`, `mpiexec -n 4 shardfit rank -- script.py`.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli.processes import writes_files

EXAMPLES = ("srun shardfit rank -- script.py", "mpiexec -n 4 shardfit rank -- population fit smf.toml --out runs/smf")
FORMS = "script.py [ARGS], -m module [ARGS], or a shardfit command"


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command."""
    parser.add_argument("command", metavar="COMMAND", nargs="+", help=f"after `--`: {FORMS}")


def run(args: argparse.Namespace) -> int:
    """Join and run; an error ends all processes, without the barrier in which they would wait for each other."""
    from shardfit.distributed.launchers import JUDGED, STDIN, UNMET
    from shardfit.distributed.processes import die_with_input, die_with_parent, fail, join

    parent = os.environ.get("SHARDFIT_PARENT")
    if parent == STDIN:
        die_with_input()
    elif parent is not None:
        die_with_parent(int(parent))
    kind, name, rest = python_command(args.command)
    if name == "shardfit":
        keep_output_clean()
    try:
        join()
        sys.argv = [name, *rest]
        if name == "shardfit" and not writes_files():
            # one voice is enough; errors still go to standard error
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process lives)
        if kind == "script":
            sys.path[0] = str(Path(name).resolve().parent)
            runpy.run_path(name, run_name="__main__")
        else:
            sys.path[0] = os.getcwd()
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if name == "shardfit" and end.code == UNMET:  # all processes come to the same verdict, and end in order
            return UNMET if parent is None else JUDGED
        if end.code not in (None, 0):
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            fail(end)
    except BaseException as error:
        fail(error)
    return 0


def keep_output_clean() -> None:
    """Let standard output carry what this command prints and nothing else; libraries below Python go to standard error.

    The exchange between processes prints a line when they meet, which would stand before the object of --json.
    """
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = open(own, "w", buffering=1, encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115


def python_command(command: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return ('script' or 'module', its name, its arguments); raise for what is not Python."""
    first, *rest = command
    if Path(first).name.startswith("python"):
        first, *rest = rest or [""]
    if first == "-m" and rest:
        return "module", rest[0], rest[1:]
    if Path(first).name == "shardfit":
        return "module", "shardfit", rest
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise ValueError(f"there is no script {first!r} here ({os.getcwd()}).")
        return "script", first, rest
    raise ValueError(
        f"{' '.join(command)!r} cannot run as one of many processes: give {FORMS}. Options of Python itself go into "
        "its variables, such as PYTHONWARNINGS; other programs call shardfit.join() and are started by mpiexec or srun."
    )
