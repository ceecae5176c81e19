"""`shardfit serve RUN_DIR`: the gallery of a survey in the browser, live."""

import argparse
from collections.abc import Sequence

PORT = 8650


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory and where to listen."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder that holds ledger.sqlite")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port; 0: any free one (default {PORT})")
    parser.add_argument("--write", action="store_true", help="let the page keep tags and notes in the ledger")
    parser.add_argument("--no-token", action="store_true", help="let everyone who can log in to this machine look")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    try:
        from shardfit.report.server import is_loopback, new_token, serve
    except ModuleNotFoundError as error:
        raise ImportError(f"`shardfit serve` needs {error.name}: pip install 'shardfit[serve]'.") from None
    from shardfit.report.gallery.query import Points

    if args.no_token and args.write:
        raise ValueError("--write needs the token: without it any program of this machine could write. Leave one out.")
    if args.no_token and not is_loopback(args.host):
        raise ValueError(f"--no-token with --host {args.host} would let the whole network look. Leave one of them out.")
    if not is_loopback(args.host):
        print("The page is not encrypted: on a network you do not trust, use an SSH tunnel to 127.0.0.1 instead.")
    points = Points.open(args.run_dir)
    try:
        serve(points, args.host, args.port, None if args.no_token else new_token(), _announce, write=args.write)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        points.close()
    return 0


def _announce(address: str) -> None:
    print(f"gallery: {address}\nCtrl-C ends it; the survey is not touched.", flush=True)
