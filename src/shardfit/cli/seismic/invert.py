"""`shardfit seismic invert`: from shot gathers to a velocity model and its report."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardfit.cli import record
from shardfit.cli.options import add_resume, directory, given, positive
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.seismic.setup import Setup, add_common, build, model_data, split

if TYPE_CHECKING:
    from shardfit.cli.seismic.config import Config

EXAMPLES = (
    "shardfit seismic invert line.toml --out inversion",
    "shardfit seismic invert line.toml --data shots --epochs 50 --batchsize 8",
    "shardfit seismic invert line.toml --processes 2 --resume must",
)
STOPPED = 130  # exit code of an interrupted command
FADED = 8.0  # cells around sources and receivers in which pictures fade the gradient out


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the configuration and what may differ from it."""
    add_common(parser, "seismic-out")
    parser.add_argument("--epochs", metavar="N", type=positive, help="steps, the same in every band (as configured)")
    parser.add_argument("--batchsize", metavar="N", type=positive, help="shots per step, in every band (as configured)")
    parser.add_argument("--show-every", metavar="N", type=positive, help="epochs between pictures (as configured)")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    """Invert; 0 if the model can be trusted, 1 if not, 130 if it was interrupted."""
    began = time.perf_counter()
    devices = request_devices(args.devices)

    from shardfit import RunOptions
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.report import summary, write_run
    from shardfit.domains.seismic import Recording
    from shardfit.domains.seismic.recipes import Display, invert
    from shardfit.report.values import seconds

    config = _with_options(read_config(args.config), args)
    out = directory(args.out)
    options = inversion_options(config)
    setup = build(config, args.data, args.max_shots, need_start=True)
    options = options.of(setup.sim)
    options.check(setup.sim, setup.n_shots, devices)
    record.begin(args, out, config.seed)
    print(_headline(setup, options, devices), flush=True)
    if setup.observed is None:
        setup = replace(setup, observed=model_data(setup, config, lambda text: print(text, flush=True)))
    found = invert(
        setup.sim,
        setup.start,
        Recording(setup.shots, setup.wavelet, setup.observed, setup.weights),
        options,
        RunOptions(mesh=split(devices), seed=config.seed, run_dir=out, resume=args.resume),
        truth=setup.truth,
        display=Display(_pictures(out, setup, options), config.show_every) if writes_files() else None,
    )
    if found.interrupted:
        print("interrupted; run the same command again to continue")
        return STOPPED
    code = summary(found, setup).verdict().exit
    if not writes_files():
        return code
    report, table = write_run(out, found, setup, config)
    for name, value in table:
        print(f"  {name:<30} {value}")
    print(f"model: {out / 'model.npy'}\nreport: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return code


def inversion_options(config: "Config") -> Any:
    """Return the options of [inversion], with models of bounds from files and the engine of [simulation]."""
    from shardfit.domains.seismic.files import load_model
    from shardfit.domains.seismic.recipes import InversionOptions

    def loaded(ends: Any, of: str = "vp") -> tuple[Any, ...]:
        return tuple(load_model(config.path(end), of=of).velocity if isinstance(end, str) else end for end in ends)

    bounds: Any = config.inversion.bounds
    if isinstance(bounds, Mapping):
        bounds = {name: loaded(ends, name) for name, ends in bounds.items()}
    elif bounds is not None:
        bounds = loaded(bounds)
    return config.inversion.part(InversionOptions, bounds=bounds, engine=config.simulation.engine)


def _with_options(config: "Config", args: argparse.Namespace) -> "Config":
    inversion = replace(config.inversion, **given(args, "epochs", "batchsize"))
    return replace(config, inversion=inversion, **given(args, "seed", "show_every"))


def _headline(setup: Setup, options: Any, devices: int) -> str:
    from shardfit.domains.seismic.recipes import engine_used

    sim = setup.sim
    text = f"{' × '.join(map(str, sim.shape))} cells, {setup.n_shots} shots of {setup.receivers.shape[1]} receivers, "
    sizes = " then ".join(str(size or "all") for size, _ in groupby(options.batchsizes))
    text += f"{sim.nt} samples; {options.solver}, {' + '.join(map(str, options.steps))} epochs, "
    text += f"{sizes} shots per step, {devices} device{'s' * (devices > 1)}"
    return f"{text}\nengine {engine_used(sim, options, setup.n_shots, devices)}"


def _pictures(out: Path, setup: Setup, options: Any) -> Callable[..., None]:
    """Return the callback that draws epoch_XXXX.png and loss.png, and the survey if it is not there."""
    from shardfit.cli.seismic.pictures import save, save_survey
    from shardfit.domains.seismic import Conditioning, plots
    from shardfit.domains.seismic.conditioning import mask

    # at sources and receivers the gradient is many times what it is elsewhere, and nothing else would be seen
    away = mask(setup.sim, setup.shots, Conditioning(near=FADED))
    model, name = (setup.start, "start") if setup.truth is None else (setup.truth, "true")
    fitted = options.fitted or ("velocity",)
    shown = "vp" if "vp" in fitted else sorted(fitted)[0]
    reference = model[shown] if isinstance(model, dict) else model
    label = label_of(setup, shown)

    def show(epoch: int, velocity: np.ndarray, gradient: np.ndarray | None, losses: np.ndarray) -> None:
        save_survey(out, setup, setup.observed)
        sections = {name: setup.section(reference), f"inverted, epoch {epoch}": setup.section(velocity)}
        faded = None if gradient is None else setup.section(gradient * away)
        save(out, f"epoch_{epoch:04d}", plots.panels(sections, setup.spacing, faded, label))
        save(out, "loss", plots.loss(losses, bands=band_marks(options)))

    return show


def label_of(setup: Setup, name: str) -> str:
    """Return what a colour bar says of a field."""
    kinds = getattr(setup.sim, "parameters", {})
    if name not in kinds or kinds[name].unit == "m/s":
        return "velocity  (m/s)"
    return f"{name}  ({kinds[name].unit})" if kinds[name].unit else name


def band_marks(options: Any) -> list[tuple[int, str]]:
    """Return (first epoch, name) of every band, for a picture of the loss; a band has its start and its steps."""
    if not options.bands:
        return []
    names = ["all" if corner is None else f"{corner:g} Hz" for corner in options.corners]
    first = np.cumsum([0, *(steps + 1 for steps in options.steps)])
    return list(zip(first.tolist(), names, strict=False))
