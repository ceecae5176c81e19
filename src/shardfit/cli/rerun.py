"""`shardfit rerun DIR`: the command that made a run directory once more, on the same files, and what differs."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardfit.cli import options, outcome, record
from shardfit.cli.options import without_option

EXAMPLES = (
    "shardfit rerun runs/m87                      # into runs/m87-again",
    "shardfit rerun runs/m87 --out elsewhere --rtol 1e-4",
)
OUT = "--out"
VOICE = ("--json", "--quiet")


class Difference(NamedTuple):
    """A quantity of two runs: the largest difference relative to its own size, NaN where they cannot be compared."""

    name: str
    size: int
    largest: float


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory, where the second goes, and what counts as equal."""
    parser.add_argument("run_dir", metavar="DIR", help="run directory with command.json")
    options.add_out(parser, otherwise="DIR-again; must be new")
    parser.add_argument(
        "--rtol",
        metavar="T",
        type=options.size,
        default=1e-6,
        help="largest relative difference that counts as equal (1e-6)",
    )
    parser.add_argument("--changed", action="store_true", help="run even if input files have changed since")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Repeat and compare; 0 if every number agrees."""
    first = Path(args.run_dir)
    told = record.read(first)
    second = Path(args.out or f"{first}-again")
    if second.exists():
        raise FileExistsError(f"{second} exists. Name another folder with --out, or delete it.")
    second = second.resolve()
    for line in _environment_changes(told):
        print(line)
    words = [word for word in told["command"] if word not in VOICE]  # how to speak, this command's own options say
    words = [*without_option(words, OUT), OUT, str(second)]
    with record.in_original_cwd(first):  # the folder of the second is whole already
        print(f"$ cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['shardfit', *words])}", flush=True)
        _require_files(told["files"], args.changed)
        code = _repeat(words)
    if code != told.get("exit"):
        print(f"exit code {code}, before {told.get('exit')}")
    rows = differences(first, second)
    apart = [row for row in rows if not row.largest <= args.rtol]
    _tell(rows, apart, args.rtol)
    found = {"command": told["command"], "exit": code, "first_exit": told.get("exit"), "rtol": args.rtol}
    equal = all(row.largest == 0 for row in rows)
    quantities = [row._asdict() for row in rows]
    outcome.record_output(args, out=second, **found, same=not apart, bit_equal=equal, quantities=quantities)
    return 1 if apart else 0


def _repeat(words: Sequence[str]) -> int:
    """Run a recorded command in this process; only commands that record themselves are run."""
    from shardfit.cli.app import main

    fresh = without_option(words, "--resume")  # `must` would find nothing in a new folder
    code = main(fresh)
    if code not in (0, 1):  # 1: it ran, and says that its answer is not to be trusted
        raise RuntimeError(f"the command ended with exit code {code}; its message is above.")
    return code


def _require_files(files: Mapping[str, str], changed: bool) -> None:
    """Raise where a file is missing or holds something else than it did."""
    for name, known in files.items():
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name}, which the run read, no longer exists.")
        if record.digest(Path(name)) != known and not changed:
            raise ValueError(
                f"{name} has changed since the run. Bring back what it was, or add --changed to run on what it is now."
            )


def _environment_changes(told: Mapping[str, Any]) -> Iterator[str]:
    from shardfit.io.run_dir import environment

    then, now = dict(told.get("environment") or {}), environment()
    versions = {"python": then.get("python"), **dict(then.get("packages") or {})}
    present = {"python": now["python"], **now["packages"]}
    for name in sorted(set(versions) | set(present)):
        if versions.get(name) != present.get(name):
            yield f"{name}: {versions.get(name, 'missing')} then, {present.get(name, 'missing')} now"
    if then.get("devices") != now["devices"]:
        yield f"devices: {then.get('devices')} then, {now['devices']} now"


def differences(first: Path, second: Path) -> list[Difference]:
    """Compare all numbers of two run directories, and of the runs inside them."""
    from shardfit.report.folders import RESULT, numbers_of

    rows = []
    for folder in dict.fromkeys((first, *sorted(path.parent for path in first.rglob(RESULT)))):
        title = "" if folder == first else f"{folder.relative_to(first)}: "
        there = numbers_of(second / folder.relative_to(first))
        for name, numbers in numbers_of(folder).items():
            rows.append(Difference(title + name, numbers.size, _largest(numbers, there.get(name))))
    if not rows:
        raise FileNotFoundError(f"{first} holds no result to compare with.")
    return rows


def _largest(one: np.ndarray, other: np.ndarray | None) -> float:
    if other is None or one.shape != other.shape:
        return float("nan")
    if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        return 0.0
    if one.dtype.kind not in "fiu":
        return float("nan")
    scale = np.nanmax(np.abs(one)) if one.size else 1.0
    return float(np.nanmax(np.abs(one - other)) / (scale or 1.0))


def _tell(rows: Sequence[Difference], apart: Sequence[Difference], rtol: float) -> None:
    """Print what differs; apart: by more than rtol."""
    if all(row.largest == 0 for row in rows):
        print(f"equal to the bit: {len(rows)} quantities, {sum(row.size for row in rows):,} numbers")
    else:
        for row in rows:
            if row.largest != 0:
                shown = "not comparable" if np.isnan(row.largest) else f"{row.largest:.1e}"
                print(f"  {row.name:<40} {shown}{'' if row.largest <= rtol else '  differs'}")
        worst = max((row.largest for row in rows if not np.isnan(row.largest)), default=0.0)
        print(f"{len(rows)} quantities, largest relative difference {worst:.1e}")
    if apart:
        print(f"{len(apart)} differ by more than {rtol:g}")
