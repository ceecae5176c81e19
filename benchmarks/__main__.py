"""`python -m benchmarks NAME [NAME ...] [--quick]`: a table, and as the last line all cases as one JSON object.

`python -m benchmarks report` writes docs/measured.md from the figures that were kept, `python -m benchmarks.reproduce`
runs what other systems published.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

from benchmarks import record, report
from benchmarks.peers import PeerMissingError
from shardfit.core.errors import suggestion

HERE = Path(__file__).parent


def main(words: list[str] | None = None) -> None:
    """Run the named suites and keep their figures."""
    names = known()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join([*names, "report"]))
    parser.add_argument("--quick", action="store_true", help="fewer cases; nothing is kept")
    options = parser.parse_args(words)
    if options.names == ["report"]:
        report.write()
        return
    for name in options.names:
        if name not in names:
            parser.error(f"no benchmark {name!r}.{suggestion(name, names)}")
    shown = {}
    for name in options.names:
        shown |= _run(name, options.quick)
    if not options.quick:
        report.write()
    print(json.dumps(shown, allow_nan=False))


def known() -> list[str]:
    """Return the suites: every file here with a function run(quick)."""
    return sorted(file.stem for file in HERE.glob("*.py") if "\ndef run(quick" in file.read_text())


def _run(name: str, quick: bool) -> dict[str, dict]:
    suite = importlib.import_module(f"benchmarks.{name}")
    provenance, began = record.begin(), time.perf_counter()
    try:
        cases = suite.run(quick)
    except PeerMissingError as missing:
        print(f"\n{name}: left out. {missing}\n", flush=True)
        return {}
    figures = {case: {k: v for k, v in given.items() if k != "runs"} for case, given in cases.items()}
    print(f"\n{name} on {provenance['cores']} cores of {provenance['cpu']}\n\n{report.table(figures)}\n", flush=True)
    if not quick:
        provenance = record.finish(provenance, suite.PEERS, suite.SETTINGS, time.perf_counter() - began)
        # our runs are part of every case: once is enough
        runs = {solver: records for given in cases.values() for solver, records in given.get("runs", {}).items()}
        report.keep(name, {"record": provenance, "cases": figures, "runs": runs})
    return figures


if __name__ == "__main__":
    main()
