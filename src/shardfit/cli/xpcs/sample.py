"""`shardfit xpcs sample`: fit a correlation file, then draw from the posterior of its parameters."""

import argparse
from collections.abc import Sequence
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.xpcs.fit import add_data_arguments, configured

EXAMPLES = ("shardfit xpcs sample c2.h5 --out posterior", "shardfit xpcs sample c2.h5 --shards 8 --draws 2000")
AUTO = "auto"


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the configuration, what is known before, and the chains."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="correlation file (the one that --config names)")
    options.add_config_option(parser, "TOML, or YAML of the package homodyne")
    options.add_out(parser, "xpcs-posterior")
    add_data_arguments(parser)
    parser.add_argument("--coordinates", metavar="NAME", default="curved", help="curved, or power: ridges (curved)")
    parser.add_argument("--priors", metavar="NAME", help="reference or weak (flat within bounds)")
    text = "a prior on a parameter, in place of the named ones"
    parser.add_argument("--prior", metavar="NAME=MEAN:SD", action="append", default=[], help=text)
    parser.add_argument("--shards", metavar="K", default="1", help="sample so many parts and combine them, or auto (1)")
    parser.add_argument("--draws", metavar="N", type=options.positive, default=1000, help="draws of each chain (1000)")
    parser.add_argument("--warmup", metavar="N", type=options.whole, default=500, help="steps before them (500)")
    parser.add_argument("--chains", metavar="N", type=options.positive, default=4, help="chains (4)")
    options.add_devices(parser, "devices that share the chains (1)")
    options.add_seed(parser, otherwise="as configured")
    options.add_resume(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Fit and sample; 0 if the draws can be trusted."""
    devices = request_devices(args.devices)
    config, priors = configured(args), _priors(args)
    if args.coordinates not in ("curved", "power"):
        raise ValueError(f"--coordinates {args.coordinates}: use curved, or power for the power laws' own parameters.")
    file = args.file or config.data.file
    if file is None:
        raise ValueError("no file: name one, or set file in section [data] of the configuration.")
    from shardfit import RunOptions, mesh
    from shardfit.cli.xpcs.posterior_files import judged, write_posterior
    from shardfit.domains.xpcs import fit_correlation, sample_correlation
    from shardfit.domains.xpcs.recipes.laws import without_ridges
    from shardfit.sampling.store import doubted

    data, out = config.load(file), options.directory(args.out)
    record.begin(args, out, config.seed)
    model, quiet = config.model(), RunOptions(seed=config.seed)
    fit = fit_correlation(data, model, config.options(data), quiet)
    named = {*config.start, *config.fixed, *config.bounds} & {*model.names}
    if args.coordinates == "curved" and not named:  # whoever names a power law's own parameters gets these
        model, settings = without_ridges(fit)
        fit = fit if model == fit.setup.model else fit_correlation(data, model, settings, quiet)
    print(fit, flush=True)
    split = mesh(rows=1, runs=devices) if devices > 1 else None
    how = RunOptions(mesh=split, seed=config.seed, run_dir=out, resume=args.resume)
    shards = _shards(args, fit)
    posterior = sample_correlation(fit, args.draws, priors, how, shards, chains=args.chains, warmup=args.warmup)
    posterior = doubted(posterior, [fit.misfit] if fit.misfit else [], out if writes_files() else None)
    report = judged(fit, posterior, priors)
    print(posterior)
    for warning in report["warnings"]:
        print(f"  note: {warning}")
    if writes_files():
        print(f"draws: {write_posterior(out, fit, posterior, report, config.mode)}")
    return posterior.verdict().exit


def _priors(args: argparse.Namespace) -> Any:
    """Return the priors asked for: a name, a table, or none."""
    if not args.prior:
        return args.priors
    if args.priors:
        raise ValueError("--priors and --prior: give a named set, or priors one by one.")
    table = {}
    for text in args.prior:
        name, _, numbers = text.partition("=")
        try:
            mean, sd = map(float, numbers.split(":"))
        except ValueError:
            raise ValueError(f"--prior {text}: give NAME=MEAN:SD, such as D0=15000:5000.") from None
        table[name.strip()] = mean, sd
    return table


def _shards(args: argparse.Namespace, fit: Any) -> int:
    from shardfit.cli.xpcs.shard_sizes import shard_count

    if args.shards == AUTO:
        return shard_count(fit, args.draws + args.warmup)
    if not args.shards.isdigit():
        raise ValueError(f"--shards {args.shards}: give a whole number, or auto.")
    return int(args.shards)
