"""`shardfit xpcs plot`: the correlations of a file as pictures."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options, record
from shardfit.cli.outcome import record_output
from shardfit.cli.xpcs.fit import add_data_arguments, configured

EXAMPLES = ("shardfit xpcs plot c2.h5 --out figures",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and where pictures go."""
    parser.add_argument("file", metavar="FILE", help="correlation file")
    options.add_config_option(parser, "TOML or YAML, whose section [data] selects")
    options.add_out(parser, "xpcs-plots", what="folder of pictures")
    add_data_arguments(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Draw one picture per angle."""
    from shardfit.domains.xpcs.plots import data_map
    from shardfit.io.files import write_atomic
    from shardfit.report.style import png_bytes

    out = options.directory(args.out)
    data, files = configured(args).load(args.file), []
    record.begin(args, out)
    out.mkdir(parents=True, exist_ok=True)
    for k, (matrix, phi, q) in enumerate(zip(data.c2, data.phi, data.q, strict=True)):
        png = png_bytes(data_map(matrix, data.t, f"φ = {phi:.1f}°, q = {q:.4g} 1/Å"))
        files.append(out / f"c2_{k:03d}_phi_{phi:.1f}.png")
        write_atomic(files[-1], lambda file, png=png: file.write(png))
    record_output(args, files=files)
    print(f"{out}: {len(data.phi)} pictures")
    return 0
