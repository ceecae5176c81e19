"""movie_problem: images at several times, held together by how fast a source can change.

All frames are fitted at once; between two of them the image is linear in time, so that data of any time say something
about both. Two penalties join the frames: what the few baselines of one time leave open is taken from others. A
frame without data is what its neighbours say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty
from shardfit.domains.vlbi import checks, penalties, transforms
from shardfit.domains.vlbi.arrays import Array, Float
from shardfit.domains.vlbi.grid import Grid, mask_index
from shardfit.domains.vlbi.options import options_of
from shardfit.domains.vlbi.penalties import Scalar, Scales
from shardfit.domains.vlbi.problem import data_term, offsets, scales_of
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, DataSet, Product

Frames = Float[Array | np.ndarray, "frames n"]
TEMPORAL = ("dt", "di")
REGULARISERS = (*penalties.PENALTIES, *TEMPORAL)


def dt(frames: Frames, hours: Float[Array | np.ndarray, " frames"], s: Scales) -> Scalar:
    """T ∫ |∂I/∂t|² dt as a sum over neighbouring frames, T the time from the first to the last: smooth change."""
    steps = (hours[1:] - hours[:-1]) / (hours[-1] - hours[0])
    return jnp.sum(jnp.sum(jnp.diff(frames, axis=0) ** 2, 1) / steps) * _scale(s)


def di(frames: Frames, hours: Float[Array | np.ndarray, " frames"], s: Scales) -> Scalar:
    """Mean squared distance of the frames from their mean: no more change than the data ask for."""
    return jnp.mean(jnp.sum((frames - jnp.mean(frames, 0)) ** 2, 1)) * _scale(s)


def _scale(s: Scales) -> Any:
    """Σ I² of a source as wide as the beam is about flux²/beam², so that a change of everything costs about 1."""
    return (s.beam / s.flux) ** 2 if s.norm else 1.0


@dataclass(frozen=True)
class FrameRegModel:
    """Function of the regularisation term: (params, scales, fluxes, hours) → mean over frames, or how frames differ."""

    names: tuple[str, ...]

    def __call__(self, params: Mapping, scales: Scales, fluxes: Any, hours: Any) -> dict[str, Any]:
        """Value of every regulariser; each frame is compared with its own flux."""
        frames, each = params["I"], [name for name in self.names if name not in TEMPORAL]
        values = jax.vmap(lambda one, flux: penalties.evaluate(each, one, replace(scales, flux=flux)))(frames, fluxes)
        joining = {"dt": dt, "di": di}
        return {
            name: joining[name](frames, hours, scales) if name in joining else jnp.mean(values[name])
            for name in self.names
        }


def split_times(data: DataSet, time_h: np.ndarray, hours: Any) -> list[DataSet]:
    """Return the measurements between each two frames. time_h: (n_vis,) of every visibility; hours: of the frames.

    Closures do not mix times. A part without any measurement of a product lacks it.
    """
    hours = np.asarray(hours, float)
    if time_h.min() < hours[0] or time_h.max() > hours[-1]:
        raise ValueError(
            f"split_times: data from {time_h.min():.3f} to {time_h.max():.3f} h lie outside the frames, {hours[0]:.3f} "
            f"to {hours[-1]:.3f} h. Add frames, or select the rows."
        )
    before = np.clip(np.searchsorted(hours, time_h, side="right") - 1, 0, len(hours) - 2)
    late = (time_h - hours[before]) / np.diff(hours)[before]
    place, parts = np.zeros(len(before), int), []
    for k in range(len(hours) - 1):
        rows = np.flatnonzero(before == k)
        place[rows] = np.arange(len(rows))
        products = {}
        for name, one in data.products.items():
            mine = (before[one.index].reshape(len(one.index), -1) == k).all(1)
            if mine.any():
                own = ("sign", "gain", "tolerance")
                optional = {n: None if getattr(one, n) is None else getattr(one, n)[mine] for n in own}
                optional["share"] = None if one.share is None else np.asarray(one.share)[rows]
                products[name] = Product(place[one.index[mine]], one.value[mine], one.sigma[mine], **optional)
        parts.append(replace(data, u=data.u[rows], v=data.v[rows], products=products, late=late[rows]))
    return parts


def movie_problem(
    data: Sequence[DataSet],
    hours: Any,
    grid: Grid,
    prior: Any,
    *,
    data_weights: Mapping[str, float],
    reg_weights: Mapping[str, float],
    fluxes: Any,
    beam: float,
    init: Any = None,
    name: str = "movie",
    **options: Any,
) -> Problem:
    """Make the problem of a movie, J = Σ w_d (χ²_d - 1) + Σ w_r R_r, with parameter I (frames, pixels), Jy per pixel.

    hours: (frames,) h, rising; data: one DataSet between each two frames, see `split_times`. prior: (ny, nx), of every
    frame; init: the same or (frames, ny, nx), the prior unless given. fluxes: Jy of each frame, or one number. χ² is
    per measurement of all together. reg_weights: regularisers of Stokes I, as means over frames, and 'dt'
    and 'di', which join frames. beam, options: as for `imaging_problem`.

    Example: `movie_problem(parts, hours, grid, prior, data_weights={"vis": 1}, reg_weights={"dt": 1}, fluxes=2.4,
    beam=1e-10)`.
    """
    parts, chosen = list(data), options_of(options)
    hours = np.asarray(hours, float)
    checks.check_weights("data_weights", data_weights, ALIGNED + CLOSURES, least=0.0)
    checks.check_weights("reg_weights", reg_weights, REGULARISERS)
    if not parts or hours.shape != (len(parts) + 1,) or not (np.diff(hours) > 0).all():
        raise ValueError(f"movie_problem: {len(parts)} data sets need {len(parts) + 1} rising hours of frames.")
    if chosen.polarisation.mode != "I" or chosen.spectrum.spectral:
        raise ValueError("movie_problem: movies are of Stokes I at one frequency. Leave mode and spectral out.")
    for product in data_weights:
        if not any(product in one.products for one in parts):
            raise ValueError(f"data_weights names {product!r}, which the data lack. Make that product, or drop it.")
    fluxes = np.broadcast_to(np.asarray(fluxes, float), hours.shape)
    flux = float(fluxes.mean())
    checks.check_positive(flux=float(fluxes.min()), beam=beam)
    if not chosen.computation.coarse_pixels:
        grid.check_baselines(*(np.concatenate([getattr(one, k) for one in parts]) for k in "uv"))
    index = mask_index(grid, prior, chosen.regularisation.clipfloor)
    calm = checks.masked(grid, {"I": prior}, index, "prior")["I"]
    solved = transforms.transforms_of(("I",), chosen.polarisation.intensity(reg_weights), flux / len(calm))
    start = np.broadcast_to(np.asarray(prior if init is None else init, float), (len(hours), *grid.shape))
    pixels = np.stack([checks.masked(grid, {"I": one}, index, "init")["I"] for one in start])
    pixels = pixels * (fluxes / pixels.sum(1))[:, None]
    lift = getattr(solved["I"], "lifted", lambda x: x)
    scales = scales_of(chosen, grid, flux, beam, calm * (flux / calm.sum()), index)
    counts, fixed = dict.fromkeys(data_weights, 1.0), {"kept": {}, "index": index}
    terms = {
        "data": data_term(parts, grid, data_weights, fixed, chosen, own_images=True, pooled=True),
        "offset": penalty(offsets, counts, weight=_floats(data_weights)),
        "reg": penalty(FrameRegModel(tuple(reg_weights)), scales, fluxes, hours, weight=_floats(reg_weights)),
    }
    return Problem(
        Objective(terms),
        {"I": lift(pixels)},
        transforms=solved,
        units={"I": "Jy/pixel"},
        name=name,
        precision=chosen.computation.precision,
    )


@working_on_it
def frame_maps(problem: Problem, params: Any = None) -> np.ndarray:
    """Images (frames, ny, nx), Jy per pixel, of fitted parameters (default: the start)."""
    scales = dict(problem.objective.items())["reg"].args[0]
    frames = np.asarray((problem.x0 if params is None else params)["I"])
    return np.stack([scales.grid.embed(one, scales.index) for one in frames])


@working_on_it
def part_chi2(problem: Problem, params: Any, data: Sequence[DataSet]) -> dict[str, np.ndarray]:
    """χ² per measurement between each two frames by product, (frames - 1,); NaN where none is. data: as fitted."""
    term: Any = dict(problem.objective.items())["data"]
    residuals = jax.jit(term.fn)(params, term.rows, *term.args)
    part, found = np.asarray(term.rows["channel"]), {}
    for name, values in residuals.items():
        square = np.abs(np.asarray(values).reshape(len(part), -1)) ** 2
        counts = np.array([one.products[name].n if name in one.products else 0 for one in data], float)
        total = 0.5 * np.bincount(part, square.sum(1), minlength=len(data)) * counts.sum()
        found[name] = np.divide(total, counts, out=np.full(len(data), np.nan), where=counts > 0)
    return found


def _floats(weights):
    return {k: float(w) for k, w in weights.items()}
