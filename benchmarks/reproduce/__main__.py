"""`python -m benchmarks.reproduce NAME [NAME ...] [--quick]` runs a published headline and prints it beside ours.

Without a name: what there is. `--show` prints the tables of the last runs and runs nothing.
"""

import argparse
import sys

from benchmarks import __main__ as runner
from benchmarks import report
from benchmarks.reproduce.headlines import HEADLINES
from shardfit.core.errors import suggestion


def main(words: list[str] | None = None) -> None:
    """Run the suites behind the headlines and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(HEADLINES))
    parser.add_argument("--quick", action="store_true", help="fewer cases; nothing is kept, and no table is printed")
    parser.add_argument("--show", action="store_true", help="the tables of the last runs")
    options = parser.parse_args(words)
    for name in options.names:
        if name not in HEADLINES:
            parser.error(f"no headline {name!r}.{suggestion(name, HEADLINES)}")
    if not options.names:
        for name, headline in HEADLINES.items():
            print(f"{name:18} {headline.title} (suite {', '.join(headline.suites)})")
        return
    suites = dict.fromkeys(suite for name in options.names for suite in HEADLINES[name].suites)
    if not options.show:
        runner.main([*suites, *(["--quick"] if options.quick else [])])
    if not options.quick:
        for name in options.names:
            print(report.headline(name))


if __name__ == "__main__":
    main(sys.argv[1:])
