"""`shardfit xpcs plot`: the correlations of a file as pictures."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli.xpcs.fit import add_data_arguments, configured

EXAMPLES = ("shardfit xpcs plot c2.h5 --out figures",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and where pictures go."""
    parser.add_argument("file", metavar="FILE", help="correlation file")
    parser.add_argument("--config", metavar="FILE", help="TOML or YAML, whose section [data] selects")
    parser.add_argument("--out", metavar="DIR", default="xpcs-plots", help="folder of the pictures (xpcs-plots)")
    add_data_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Draw one picture per angle."""
    from shardfit.domains.xpcs.plots import data_map
    from shardfit.io.files import write_atomic
    from shardfit.report.style import png_bytes

    data, out = configured(args).load(args.file), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for k, (matrix, phi, q) in enumerate(zip(data.c2, data.phi, data.q, strict=True)):
        png = png_bytes(data_map(matrix, data.t, f"φ = {phi:.1f}°, q = {q:.4g} 1/Å"))
        write_atomic(out / f"c2_{k:03d}_phi_{phi:.1f}.png", lambda file, png=png: file.write(png))
    print(f"{out}: {len(data.phi)} pictures")
    return 0
