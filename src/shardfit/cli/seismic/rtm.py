"""`shardfit seismic rtm`: an image of the reflectors, by reverse-time migration of shot gathers."""

import argparse
import io
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shardfit.cli import record
from shardfit.cli.options import directory, given, positive
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.seismic.setup import add_common, build, model_data, split
from shardfit.cli.seismic.velocities import speed

EXAMPLES = (
    "shardfit seismic rtm line.toml --out migration",
    "shardfit seismic rtm line.toml --velocity inversion/model.npy",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the configuration and what may differ from it."""
    add_common(parser, "seismic-rtm")
    parser.add_argument("--velocity", metavar="FILE", help="smooth model to migrate in ([start])")
    parser.add_argument("--batchsize", metavar="N", type=positive, help="shots at once (as configured)")


def run(args: argparse.Namespace) -> int:
    """Migrate."""
    began = time.perf_counter()
    out = directory(args.out)
    devices = request_devices(args.devices)

    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.pictures import save, save_survey
    from shardfit.domains.seismic import Recording, WaveOptions, plots
    from shardfit.domains.seismic.models import WATER, water_cells
    from shardfit.domains.seismic.recipes import MigrationOptions, rtm
    from shardfit.io.files import write_atomic
    from shardfit.report.values import seconds

    config = read_config(args.config)
    options = replace(config.rtm, **given(args, "batchsize"))
    waves = options.part(WaveOptions, engine=config.simulation.engine)
    if args.velocity is not None:
        config = replace(config, start=replace(config.start, kind="file", file=str(Path(args.velocity).resolve())))
    config = replace(config, **given(args, "seed"))
    setup = build(config, args.data, args.max_shots, need_start=True)
    options.check(setup.sim)
    record.begin(args, out, config.seed)
    print(f"migrating {setup.n_shots} shots of {setup.receivers.shape[1]} receivers", flush=True)
    observed = setup.observed
    if observed is None:
        observed = model_data(setup, config, lambda text: print(text, flush=True))
    recording = Recording(setup.shots, setup.wavelet, observed, setup.weights)
    image = rtm(setup.sim, setup.start, recording, options.part(MigrationOptions), waves=waves, mesh=split(devices))
    if not writes_files():
        return 0
    buffer = io.BytesIO()
    np.save(buffer, image.astype(np.float32), allow_pickle=False)
    water = water_cells(speed(setup.start), config.start.water or WATER)
    water |= np.roll(water, 1, axis=0)  # the high-pass filter smears the sea floor over one more row
    save(out, "image", plots.image(setup.section(image), setup.spacing, mute=setup.section(water)))
    save(out, "model", plots.model(setup.section(speed(setup.start)), setup.spacing, **setup.places()))
    save_survey(out, setup, observed)
    write_atomic(out / "image.npy", lambda file: file.write(buffer.getvalue()))
    print(f"image: {out / 'image.npy'}, {out / 'image.png'}  ({seconds(time.perf_counter() - began)} in all)")
    return 0
