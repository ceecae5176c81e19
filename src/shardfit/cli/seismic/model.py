"""`shardfit seismic model`: shot gathers of a velocity model, as recorded data to try things on."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from shardfit.cli import record
from shardfit.cli.options import directory, given
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.seismic.setup import add_common, build, model_data
from shardfit.cli.seismic.velocities import speed

EXAMPLES = ("shardfit seismic model line.toml --out shots", "shardfit seismic model line.toml --format sgy --devices 2")
FORMATS = ("npz", "sgy", "npy", "bin")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the configuration and what may differ from it."""
    add_common(parser, "seismic-model")
    parser.add_argument("--format", choices=FORMATS, default="npz", help="of the gathers: npz, sgy, npy or bin (npz)")


def run(args: argparse.Namespace) -> int:
    """Model the data and write them with pictures."""
    began = time.perf_counter()
    out = directory(args.out)
    request_devices(args.devices)

    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.pictures import save, save_film, save_survey
    from shardfit.domains.seismic import plots
    from shardfit.domains.seismic.files import save_gathers, save_model
    from shardfit.domains.seismic.gathers import Gathers
    from shardfit.report.values import seconds

    config = read_config(args.config)
    config = replace(config, data=replace(config.data, file=None), **given(args, "seed"))
    setup = build(config, args.data, args.max_shots, need_start=False)
    sim = setup.sim
    if args.format == "sgy" and len(sim.shape) > 2:
        raise ValueError("--format sgy: SEG-Y is written of lines (z, x). Use npz for three dimensions.")
    record.begin(args, out, config.seed)
    print(f"{setup.n_shots} shots, {setup.receivers.shape[1]} receivers, {sim.nt} samples of {1e3 * sim.dt:g} ms")
    traces = model_data(setup, config, lambda text: print(text, flush=True))
    if not writes_files():
        return 0
    out.mkdir(parents=True, exist_ok=True)
    metres = (setup.sources * sim.dh, setup.receivers * sim.dh)
    file = save_gathers(out / f"gathers.{args.format}", Gathers(traces, sim.dt, *metres))
    save_model(out / "model.npz", speed(setup.truth), sim.dh)
    for name in setup.truth if isinstance(setup.truth, dict) else ():
        if name != "vp":
            save_model(out / f"{name}.npz", setup.truth[name], sim.dh, of=name)
    save(out, "model", plots.model(setup.section(speed(setup.truth)), setup.spacing, **setup.places()))
    save_survey(out, setup, traces)
    if config.film and len(sim.shape) == 2:
        save_film(out, setup, setup.truth, config.simulation.engine)
    print(f"gathers: {file}  ({traces.nbytes / 1e6:.0f} MB, {seconds(time.perf_counter() - began)} in all)")
    return 0
