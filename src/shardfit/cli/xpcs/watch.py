"""`shardfit xpcs watch`: fit files as they appear in a folder.

A file is taken when it has stopped growing. What was fitted is remembered in `watched.json`, so a new watch goes on
where the last one ended; a file that changes, or a changed configuration, is fitted again.
"""

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.outcome import record_output
from shardfit.cli.processes import request_devices
from shardfit.cli.xpcs.batch import converged, fit_or_report, write_summary
from shardfit.cli.xpcs.config import Config
from shardfit.cli.xpcs.fit import STOPPED, add_fit_arguments, configured, fit_file
from shardfit.core.errors import CheckpointError, folder_not_found_error

EXAMPLES = ("shardfit xpcs watch /data/tonight --pattern '*.hdf' --out fits",)
LEDGER = "watched.json"
ENDINGS = (".hdf", ".h5", ".hdf5", ".nxs", ".npz", ".npy")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the folder, how often to look, and what a fit takes."""
    parser.add_argument("folder", metavar="FOLDER", help="folder in which files appear")
    add_fit_arguments(parser)
    parser.add_argument("--pattern", metavar="GLOB", default="*", help="names of files to take (*)")
    parser.add_argument("--every", metavar="S", type=options.amount, default=2.0, help="seconds between looks (2)")
    settled = "seconds without a change after which a file counts as complete (5)"
    parser.add_argument("--settle", metavar="S", type=options.size, default=5.0, help=settled)
    parser.add_argument(
        "--idle", metavar="S", type=options.size, help="seconds without a new file until it stops (never)"
    )
    options.add_resume(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Watch until interrupted or idle; 0 if all files could be fitted."""
    devices = request_devices(args.devices)
    config = configured(args)
    if args.no_arrays:
        config = replace(config, arrays=False)
    folder, out = Path(args.folder), options.directory(args.out)
    if not folder.is_dir():
        raise folder_not_found_error(folder)
    from shardfit import mesh
    from shardfit.io.lock import only_writer

    split = mesh(rows=devices) if devices > 1 else None
    known = (out / LEDGER).is_file()
    if args.resume == "must" and not known:
        raise CheckpointError(f"{out} holds no watch to resume. Check the path, or use resume='auto'.")
    with only_writer(out, "watch.lock"):
        record.begin(args, out, config.seed)
        ledger = Ledger(out, config)
        if args.resume == "never":
            ledger.entries.clear()
        print(f"watching {folder} for {args.pattern}: {len(ledger.entries)} files are done, Ctrl-C ends", flush=True)
        try:
            _watch(args, folder, ledger, split)
        except KeyboardInterrupt:
            print(f"stopped; run the same command again to continue. Summary: {out / 'summary.html'}")
            return STOPPED
        finally:
            record_output(args, files=ledger.rows())
        return 0 if all(map(converged, ledger.rows())) else 1


def _watch(args: argparse.Namespace, folder: Path, ledger: "Ledger", split: Any) -> None:
    arrivals, last = Arrivals(args.settle), time.monotonic()
    while True:
        for file, stamp in arrivals.complete(sorted(folder.glob(args.pattern))):
            if ledger.knows(file, stamp):
                continue
            place = ledger.place(file)
            row = fit_or_report(file, lambda f=file, p=place: fit_file(f, p, ledger.config, split, "never"))
            if row["status"] == "interrupted":
                raise KeyboardInterrupt
            ledger.add(file, stamp, row)
            last = time.monotonic()
        if arrivals.waiting:
            last = time.monotonic()
        if args.idle is not None and time.monotonic() - last >= args.idle:
            return
        time.sleep(args.every)


@dataclass
class Arrivals:
    """Files by size and time of change, and since when these have not changed, by this machine's own clock."""

    settle: float
    seen: dict[Path, tuple[tuple[int, int], float]] = field(default_factory=dict)
    waiting: int = 0

    def complete(self, files: Sequence[Path]) -> list[tuple[Path, tuple[int, int]]]:
        """Return the files that have stopped changing, each with its stamp."""
        found, now = [], time.monotonic()
        for file in files:
            if file.suffix.lower() not in ENDINGS or file.name.startswith("."):
                continue
            try:
                status = file.stat()
            except OSError:  # it was taken away while looking
                continue
            stamp, old = (status.st_size, status.st_mtime_ns), time.time() - status.st_mtime > self.settle
            known, since = self.seen.get(file, (None, now))
            if known != stamp:
                since = now - self.settle if known is None and old else now
                self.seen[file] = stamp, since
            if stamp[0] > 0 and now - since >= self.settle:
                found.append((file, stamp))
        self.waiting = sum(now - since < self.settle for _, since in self.seen.values())
        return found


class Ledger:
    """What was fitted: per file name its stamp, the configuration's digest and the row of the summary."""

    def __init__(self, out: Path, config: Config):
        from shardfit.io.files import read_json

        self.out, self.config = out, config
        self.digest = hashlib.sha256(repr(config).encode()).hexdigest()
        path = out / LEDGER
        self.entries: dict[str, Any] = read_json(path)["files"] if path.is_file() else {}

    def knows(self, file: Path, stamp: tuple[int, int]) -> bool:
        """Whether this very file was fitted, or refused, as configured."""
        entry = self.entries.get(file.name)
        return entry is not None and entry["stamp"] == list(stamp) and entry["config"] == self.digest

    def add(self, file: Path, stamp: tuple[int, int], row: dict[str, Any]) -> None:
        """Keep a row, and write the summary anew."""
        from shardfit.io.files import write_json

        self.entries[file.name] = {"stamp": list(stamp), "config": self.digest, "row": row}
        write_json(self.out / LEDGER, {"files": self.entries})
        write_summary(self.out, self.rows(), [self.place(Path(name)) for name in self.entries])

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the summary, oldest first."""
        return [entry["row"] for entry in self.entries.values()]

    def place(self, file: Path) -> Path:
        """Return the folder of a file's run: its name, since names differ in their ending too."""
        return self.out / file.name.replace(".", "_")
