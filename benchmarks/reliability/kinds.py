"""Every kind of run, small: how it is done in a folder, and what its answer is there."""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.reliability import small
from shardfit.cli import main

BOUNDS = {"a": (0.1, 5.0), "k": (0.05, 3.0)}
SHARE = 0.2  # of evaluations, or rows, that a storm makes NaN
SEISMIC = """
show_every = 4
film = false
[model]
file = "vp.npy"
dh = 40.0
[start]
metres = 150.0
[survey]
dt = 0.005
nt = 120
f_peak = 4.0
delay = 0.3
source_step = 320.0
receiver_step = 80.0
receiver_depth = 80.0
[simulation]
widths = 8
[inversion]
epochs = 4
batchsize = 2
[inversion.conditioning]
rows = 3
"""
Work = Callable[[Path, str], Any]


class Refused(RuntimeError):
    """A command ended with its exit code for errors; its message is on standard error."""


@dataclass(frozen=True)
class Kind:
    """A kind of run. work(folder, storm) does it; storm: '' or what is not finite: 'evaluations', 'rows' or 'data'."""

    name: str
    work: Work
    storms: tuple[str, ...] = ("evaluations", "rows")


def answer(folder: Path) -> dict[str, np.ndarray]:
    """Return all numbers that the runs in a folder have found."""
    from shardfit.io.results import load_result
    from shardfit.report.folders import KINDS, RESULT, numbers_of

    found: dict[str, np.ndarray] = {}
    for place in sorted({path.parent for kind in KINDS for path in folder.rglob(kind.file)}):
        title = place.relative_to(folder).as_posix()
        found |= {f"{title}: {name}": np.asarray(numbers) for name, numbers in numbers_of(place).items()}
        if (place / RESULT).is_file():
            found[f"{title}: steps"] = np.asarray(load_result(place).steps)
    return found


def stormy(model: Callable[..., Any], storm: str) -> Callable[..., Any]:
    """Return a model that gives NaN at some points of parameter space, or there for some rows; '': the model itself.

    It depends on parameters and rows alone, so that a run that goes on meets the same storm; the start is clear.
    """

    def changed(params: Any, rows: Any, *more: Any) -> Any:
        clear = model(params, rows, *more)
        total = sum(jnp.sum(leaf) for leaf in params.values())
        luck = jnp.abs(jnp.sin(1e4 * total)) * 43758.5453
        bad = (luck - jnp.floor(luck) < SHARE) & (jnp.abs(total - (2.0 if "k" in params else 0.0)) > 1e-9)
        return jnp.where(bad & ((jnp.arange(len(clear)) == 3) | (storm == "evaluations")), jnp.nan, clear)

    return changed if storm else model


def _fit(solver: str, bounds: Any = BOUNDS, **options: Any) -> Work:
    def work(folder: Path, storm: str) -> None:
        problem = small.decay(False, stormy(small.residual, storm), bounds=bounds)
        run = sf.RunDir(folder, seconds=0.0)
        sf.fit(problem, solver, run_dir=run, progress=False, certify=False, every=1, callback=lambda _: None, **options)

    return work


def _sample(folder: Path, storm: str) -> None:
    problem = small.decay(model=stormy(small.residual, storm))
    run = sf.RunDir(folder, seconds=0.0)
    sf.sample(problem, chains=2, width=1, warmup=60, draws=60, run_dir=run, progress=False)


def _consensus(folder: Path, storm: str) -> None:
    from shardfit.sampling.shards.shard_consensus import consensus
    from shardfit.sampling.shards.shard_control import ShardControl

    problem = small.decay(model=stormy(small.residual, storm))
    control = ShardControl(slots=2, progress=False)
    consensus(problem, 3, run_dir=folder, chains=2, warmup=40, draws=30, control=control)


def _rto(folder: Path, storm: str) -> None:
    from shardfit.sampling.refits.rto import rto

    problem = small.decay(False, stormy(small.residual, storm))
    rto(problem, draws=40, run_dir=folder, progress=False, slots=8)


def _survey(folder: Path, storm: str) -> None:
    small.make_survey(folder, 48, stormy(small.line, storm)).close()


def parts_of(storm: str) -> tuple[Any, Any, dict[str, Any]]:
    """Return problem, axes and options of a survey in parts, which every worker makes anew."""
    from shardfit.surveys.control import SurveyControl
    from shardfit.surveys.designs import grid

    problem, axes = small.survey_of(48, stormy(small.line, storm))
    return problem, axes, {"design": grid(axes), "maxiter": 60, "control": SurveyControl(4)}


def _survey_parts(folder: Path, storm: str) -> None:
    from shardfit.surveys.parts import survey_parts

    with ThreadPoolExecutor(1) as pool:
        survey_parts(parts_of, (storm,), run_dir=folder, parts=3, executor=pool, progress=False).close()


def _command(*words: Any) -> None:
    code = main([*map(str, words)])
    if code == 2:
        raise Refused("exit code 2")


def _seismic(folder: Path, storm: str) -> None:
    with _beside(folder):
        speeds = np.linspace(1500, 3000, 24)[:, None] * np.ones(40)
        if storm:
            speeds[5, 7] = np.nan
        np.save("vp.npy", speeds.astype(np.float32))
        Path("line.toml").write_text(SEISMIC)
        _command("seismic", "invert", "line.toml", "--out", folder.name, "--seed", 3, "--devices", 1)


def _image(folder: Path, storm: str) -> None:
    with _beside(folder):
        if not Path("ring.uvfits").exists():
            _command("vlbi", "simulate", "--out", "ring.uvfits", "--seed", 3)
        if storm:
            _spoil_visibilities(Path("ring.uvfits"))
        size = ("--npix", 16, "--maxiter", 20, "--restarts", 1, "--flux", 0.6)
        _command("vlbi", "image", "ring.uvfits", "--preset", "eht", "--out", folder.name, "--devices", 1, *size)


def _spoil_visibilities(path: Path) -> None:
    """Make a share of all samples NaN."""
    from astropy.io import fits

    with fits.open(path, mode="update") as units:
        first: Any = units[0]
        data = first.data["DATA"]
        data[:: round(1 / SHARE)] = np.nan


def _xpcs(folder: Path, storm: str) -> None:
    with _beside(folder):
        if not Path("s.npz").exists():
            _command("xpcs", "simulate", "s.npz", "--frames", "1:16", "--seed", 3)
        if storm:
            with np.load("s.npz") as content:
                arrays = dict(content)
            arrays["c2_exp"] = np.where(
                np.random.default_rng(0).random(arrays["c2_exp"].shape) < SHARE, np.nan, arrays["c2_exp"]
            )
            arrays["c2_exp"] = 0.5 * (arrays["c2_exp"] + np.swapaxes(arrays["c2_exp"], 1, 2))
            np.savez("s.npz", **arrays)
        _command("xpcs", "fit", "s.npz", "--hold", "D_offset=800", "--start", "D0=12000", "--out", folder.name)


@contextlib.contextmanager
def _beside(folder: Path) -> Any:
    """Work in a folder of data beside the run directory, so that commands have names that do not change."""
    before, place = os.getcwd(), folder.parent
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


KINDS = (
    Kind("fit, lbfgs", _fit("lbfgs", bounds=None)),
    Kind("fit, lbfgsb", _fit("lbfgsb")),
    Kind("fit, adam", _fit("adam", maxiter=60)),
    Kind("fit, mini-batches", _fit("adam", maxiter=40, batch=20)),
    Kind("least squares", _fit("lm")),
    Kind("swarm", _fit("swarm", maxiter=25)),
    Kind("cmaes", _fit("cmaes", maxiter=30)),
    Kind("sampling, NUTS", _sample),
    Kind("consensus", _consensus),
    Kind("RTO", _rto),
    Kind("survey", _survey),
    Kind("survey in parts", _survey_parts),
    Kind("seismic inversion, command", _seismic, ("data",)),
    Kind("VLBI image, command", _image, ("data",)),
    Kind("XPCS fit, command", _xpcs, ("data",)),
)
