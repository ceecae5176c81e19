"""`shardfit xpcs sample`: fit a correlation file, then draw from the posterior of its parameters."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.xpcs.fit import add_data_arguments, configured
from shardfit.cli.xpcs.outputs import write_json

FOLDER = "cmc"


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the configuration and the chains."""
    parser.add_argument("file", metavar="FILE", help="correlation file")
    parser.add_argument("--config", metavar="FILE", help="TOML, or YAML of the package homodyne")
    parser.add_argument("--out", metavar="DIR", default="xpcs-posterior", help="folder to write (xpcs-posterior)")
    add_data_arguments(parser)
    parser.add_argument("--draws", metavar="N", type=int, default=1000, help="draws of each chain (1000)")
    parser.add_argument("--warmup", metavar="N", type=int, default=500, help="steps before them (500)")
    parser.add_argument("--chains", metavar="N", type=int, default=4, help="chains (4)")
    parser.add_argument("--devices", metavar="N", type=int, help="devices to spread the chains over (1)")


def run(args: argparse.Namespace) -> int:
    """Fit and sample; 0 if the chains agree."""
    devices = request_devices(args.devices)
    config = configured(args)
    from shardfit import RunOptions, mesh
    from shardfit.domains.xpcs import curved, fit_correlation, sample_correlation

    data, out = config.load(args.file), Path(args.out)
    model = config.model()
    if config.mode != "two_component" and not {*config.start, *config.fixed, *config.bounds} & {*model.names}:
        model = curved(model, data)  # whoever names a power law's own parameters gets these
    fit = fit_correlation(data, model, config.options(data), RunOptions(seed=config.seed))
    print(fit, flush=True)
    split = mesh(rows=1, runs=devices) if devices > 1 else None
    how = RunOptions(mesh=split, seed=config.seed, run_dir=out)
    posterior = sample_correlation(fit, args.draws, run=how, chains=args.chains, warmup=args.warmup)
    print(posterior)
    if writes_files():
        print(f"draws: {_write(out / FOLDER, posterior, config.mode)}")
    return 0 if _largest_rhat(posterior) <= 1.05 else 1


def _largest_rhat(posterior: Any) -> float:
    from shardfit.sampling.quality.diagnostics import rhat

    return max(float(np.max(rhat(np.asarray(draws)))) for draws in posterior.draws.values())


def _write(folder: Path, posterior: Any, mode: str) -> Path:
    """Write means, deviations and draws under the names that scripts of the field read."""
    from shardfit.io.files import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    draws = {name: np.asarray(values) for name, values in posterior.draws.items()}
    moments = {n: {"mean": float(v.mean()), "std": float(v.std(ddof=1))} for n, v in draws.items()}
    write_json(folder / "parameters.json", {"analysis_mode": mode, "parameters": moments, "note": posterior.note})
    chains, count = next(iter(draws.values())).shape
    diverging = int(np.sum(posterior.stats["diverging"]))
    write_json(folder / "diagnostics.json", {"divergences": diverging, "n_chains": chains, "n_samples": count})
    content: dict[str, Any] = {"posterior_samples": np.stack(list(draws.values()), axis=-1), "param_names": list(draws)}
    content |= {"divergences": diverging, "analysis_mode": mode, "n_chains": chains, "n_samples": count}
    write_atomic(folder / "samples.npz", lambda file: np.savez(file, **content))
    return folder
