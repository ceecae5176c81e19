"""`shardfit serve DIR`: a run in the browser while it runs; the gallery of a survey; an index of a folder of runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.core.errors import folder_not_found_error
from shardfit.core.extras import require_extra

PORT = 8650
EXAMPLES = (
    "shardfit serve runs/m87           # a fit, inversion, posterior or survey, running or ended",
    "shardfit serve runs               # an index of all runs in the folder",
    "ssh -L 8650:127.0.0.1:8650 cluster    # then open the printed address on your desk",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the folder and where to listen."""
    parser.add_argument("run_dir", metavar="DIR", help="run directory, or a folder of run directories")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--port", metavar="PORT", type=_port, default=PORT, help=f"port; 0: any free one (default {PORT})"
    )
    parser.add_argument("--write", action="store_true", help="let a gallery keep tags and notes in its ledger")
    parser.add_argument("--no-token", action="store_true", help="let everyone who can log in to this machine look")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    with require_extra("`shardfit serve`", "serve"):
        from shardfit.report.server import is_loopback, new_token, serve
    if args.no_token and args.write:
        raise ValueError("--write needs the token: without it any program of this machine could write. Leave one out.")
    if args.no_token and not is_loopback(args.host):
        raise ValueError(f"--no-token with --host {args.host} would let the whole network look. Leave one of them out.")
    if not is_loopback(args.host):
        print("The page is not encrypted: on a network you do not trust, use an SSH tunnel to 127.0.0.1 instead.")
    app, source = _application(Path(args.run_dir), args.write)
    try:
        serve(app, args.host, args.port, None if args.no_token else new_token(), _announce, source.give_up)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        source.close()
    return 0


def _application(folder: Path, write: bool) -> tuple[Any, Any]:
    """Return what to serve of a folder, and what to let go of at the end."""
    from shardfit.report.folders import LEDGER
    from shardfit.report.gallery.query import Points
    from shardfit.report.live.server import Runs
    from shardfit.report.server import gallery

    if not folder.is_dir():
        raise folder_not_found_error(folder)
    if (folder / LEDGER).is_file():
        points = Points.open(folder)
        return gallery(points, write=write), points
    runs = Runs(folder, write)
    return runs, runs


def _announce(address: str) -> None:
    print(f"page: {address}\nCtrl-C ends it; the runs are not touched.", flush=True)


def _port(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is not a port, a whole number below 65536")
    return number
