"""`shardfit xpcs simulate`: correlations of a sample whose parameters are known."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.xpcs.fit import add_data_arguments, configured

EXAMPLES = ("shardfit xpcs simulate c2.npz --mode laminar_flow --phi 0,30,90 --q 0.0054 --dt 0.1",)
DEFAULTS = {"q": 0.0054, "dt": 0.1, "gap": 2e6}
TRUTH = {
    "static": {"D0": 15000.0, "alpha": -0.3, "D_offset": 800.0},
    "laminar_flow": {
        "D0": 8000.0,
        "alpha": -0.25,
        "D_offset": 300.0,
        "gamma_dot_t0": 2e-3,
        "beta": -0.2,
        "gamma_dot_t_offset": 1e-4,
        "phi0": -4.0,
    },
}


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the sample and the experiment."""
    parser.add_argument("out", metavar="FILE", help="NPZ file to write")
    options.add_config_option(parser, "TOML or YAML; its [start] and [fixed] are the truth")
    add_data_arguments(parser)
    parser.add_argument("--start", metavar="NAME=VALUE", action="append", default=[], help="a parameter's true value")
    parser.add_argument("--phi", metavar="DEG,DEG", default="-30,0,85", help="azimuths in degrees (-30,0,85)")
    parser.add_argument("--contrast", metavar="C", type=float, default=0.3, help="contrast (0.3)")
    parser.add_argument("--offset", metavar="O", type=float, default=1.0, help="offset (1)")
    parser.add_argument(
        "--speckles", metavar="N", type=options.positive, help="speckles per angle: noise of a measurement"
    )
    options.add_seed(parser, 0, of="the noise")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the data."""
    from shardfit.domains.xpcs import Experiment, simulate, write

    config = configured(args)
    model = config.model()
    truth = {**TRUTH.get(config.mode, {}), **config.start, **config.fixed}
    geometry = {n: getattr(config.data, n) or DEFAULTS[n] for n in DEFAULTS}
    sigma = config.data.sigma if isinstance(config.data.sigma, float) else 0.01
    try:
        phi = tuple(float(word) for word in args.phi.split(","))
    except ValueError:
        raise ValueError(f"--phi {args.phi}: give numbers with commas between, such as -30,0,85.") from None
    experiment = Experiment(
        phi=phi,
        n_frames=config.data.frames[1] if config.data.frames[1] > 0 else 200,
        contrast=args.contrast,
        offset=args.offset,
        sigma=None if args.speckles else sigma,
        speckles=args.speckles,
        **geometry,
    )
    data = simulate(model, truth, experiment, args.seed)
    write(args.out, data)
    record_output(
        args, files=[args.out], angles=len(phi), frames=data.n_frames, mode=config.mode, truth=truth, seed=args.seed
    )
    values = ", ".join(f"{n} {v:g}" for n, v in truth.items())
    print(f"{args.out}: {len(phi)} angles, {data.n_frames} frames of {config.mode} ({values}), seed {args.seed}")
    return 0
