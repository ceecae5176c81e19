"""`python -m benchmarks NAME [NAME ...] [--quick]`: a table, and as the last line all cases as one JSON object."""

import argparse
import importlib
import json
import os
import platform
from pathlib import Path

from shardfit.core.errors import suggestion

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FIRST = ("ours", "peer", "ratio", "quality_ours", "quality_peer")


def main() -> None:
    """Run the named suites and keep their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join(known()))
    parser.add_argument("--quick", action="store_true", help="fewer cases; nothing is kept")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in known():
            parser.error(f"no benchmark {name!r}.{suggestion(name, known())}")
    shown = {}
    for name in asked.names:
        cases = importlib.import_module(f"benchmarks.{name}").run(asked.quick)
        figures = {case: {k: v for k, v in found.items() if k != "runs"} for case, found in cases.items()}
        print(f"\n{name} on {machine()}\n\n{table(figures)}\n", flush=True)
        if not asked.quick:
            keep(name, cases, figures)
        shown |= figures
    print(json.dumps(shown))


def known() -> list[str]:
    """Return the suites: every file here with a function run(quick)."""
    return sorted(file.stem for file in HERE.glob("*.py") if "\ndef run(quick" in file.read_text())


def machine() -> str:
    """Return what the figures were measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def table(figures: dict[str, dict]) -> str:
    """Return an aligned Markdown table of the numbers all cases share."""
    shared = [
        key
        for key, value in next(iter(figures.values())).items()
        if not isinstance(value, dict) and all(key in found for found in figures.values())
    ]
    columns = [key for key in FIRST if key in shared] + [key for key in shared if key not in FIRST]
    rows = [["case", *columns], *([case, *(_short(found[key]) for key in columns)] for case, found in figures.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def keep(name: str, cases: dict, figures: dict) -> None:
    """Write the raw records and the table made from them."""
    RESULTS.mkdir(exist_ok=True)
    # our runs are part of every case: once is enough
    runs = {solver: records for found in cases.values() for solver, records in found.get("runs", {}).items()}
    raw = {"machine": machine(), "cases": figures, "runs": runs}
    (RESULTS / f"{name}.json").write_text(json.dumps(raw) + "\n")
    title = (importlib.import_module(f"benchmarks.{name}").__doc__ or name).splitlines()[0]
    note = "Times in seconds; ratio is peer over ours. Raw figures beside this file."
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{title}\n\n{machine()}. {note}\n\n{table(figures)}\n")


def _short(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
