"""imaging_problem: from prepared data to a Problem that `fit`, surveys and samplers take."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term
from shardfit.core.terms import ResidualTerm
from shardfit.core.transforms import TanInterval
from shardfit.domains.vlbi import checks, penalties, penalties_pol, penalties_spectral, transforms
from shardfit.domains.vlbi.forward import block_size, choose
from shardfit.domains.vlbi.grid import Grid, mask_index
from shardfit.domains.vlbi.options import ProblemOptions, options_of
from shardfit.domains.vlbi.packing import pack
from shardfit.domains.vlbi.penalties import Scales
from shardfit.domains.vlbi.products import DataModel, stokes_needed
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, DataSet

REGULARISERS = (*penalties.PENALTIES, *penalties_pol.PENALTIES, *penalties_spectral.NAMES, "flux_mf")
SHARED = 8  # devices that a few channels are divided for
UNITS = {"I": "Jy/pixel", "phi": "rad", "psi": "rad", "rm": "rad"}


@dataclass(frozen=True)
class RegModel:
    """Function of the regularisation term: (params, kept, scales, spectral) → value per regulariser."""

    names: tuple[str, ...]

    def __call__(self, params: Mapping, kept: Mapping, scales: Scales, spectral: Mapping) -> dict[str, Any]:
        """Value of every regulariser of the maps at the reference frequency."""
        maps = transforms.physical(params, kept)
        out = penalties.evaluate([name for name in self.names if name in penalties.PENALTIES], maps["I"], scales)
        for name in self.names:
            if name in penalties_pol.PENALTIES:
                out[name] = penalties_pol.evaluate(name, maps, scales)
            elif name == "flux_mf":
                out[name] = penalties_spectral.flux_mf(maps, spectral["log_ratios"], spectral["mf_flux"], scales)
            elif name not in out:
                out[name] = penalties_spectral.evaluate(name, maps, spectral["priors"], scales)
        return {name: out[name] for name in self.names}


def offsets(params: Any, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constant of every product: χ² counts from 1, so that a fit to the noise has about zero."""
    return {name: -1.0 * count for name, count in counts.items()}


def imaging_problem(
    data: DataSet | Sequence[DataSet],
    grid: Grid,
    prior: Any,
    *,
    data_weights: Mapping[str, float],
    reg_weights: Mapping[str, float],
    flux: float,
    beam: float,
    init: Any = None,
    norm_init: bool = True,
    name: str = "image",
    **options: Any,
) -> Problem:
    """Make the imaging problem J = Σ w_d (χ²_d - 1) + Σ w_r R_r.

    data: one DataSet, or one per channel. prior, init: (ny, nx) Jy per pixel, or a dict of such maps: 'I', 'm',
    'phi', 'v' and spectral ones; init is prior unless given. Both are scaled to flux (Jy) over the mask, init only with
    norm_init; with transform='power' no pixel of the start is below a thousandth of the mean. beam: rad, the nominal
    resolution. data_weights, reg_weights: by name.
    options: `regularisation=Regularisation(...)`, `polarisation=Polarisation(...)`, `spectrum=Spectrum(...)`,
    `computation=Computation(...)` of vlbi.options, or fields of these by themselves, such as `epsilon_tv=1e-10`.

    Parts of the objective: 'data.<product>' is χ², summed over channels (`channel_chi2` has them apart), 'reg.<name>' a
    regulariser, 'offset.<product>' the constant. Change data weights with `with_data_weights`, so that the constant
    follows.

    Example: `imaging_problem(data, grid, prior, data_weights={"vis": 1}, reg_weights={"tv": 1}, flux=0.6, beam=1e-10)`.
    """
    channels = [data] if isinstance(data, DataSet) else list(data)
    chosen = options_of(options)
    mode, spectral = chosen.polarisation.mode, tuple(chosen.spectrum.spectral)
    intensity = chosen.polarisation.intensity(reg_weights)
    checks.check_weights("data_weights", data_weights, ALIGNED + CLOSURES, least=0.0)
    checks.check_weights("reg_weights", reg_weights, REGULARISERS)
    checks.check_positive(flux=flux, beam=beam)
    checks.check_channels(channels, data_weights)
    if not chosen.computation.coarse_pixels:
        for one in channels:
            grid.check_baselines(one.u, one.v)
    prior, init = checks.maps_of(prior, "prior"), checks.maps_of(prior if init is None else init, "init")
    index = mask_index(grid, prior["I"], chosen.regularisation.clipfloor)
    prior = _scaled(checks.masked(grid, prior, index, "prior"), flux)
    init = _scaled(checks.masked(grid, init, index, "init"), flux if norm_init else None)
    maps = _spectral_names(spectral, init, reg_weights)
    solved = transforms.transforms_of(chosen.polarisation.solved, intensity, flux / len(prior["I"]))
    x0, kept = _split(init, [name for name in maps if name in spectral], maps, solved)
    checks.check_polarised(mode, (*data_weights, *reg_weights, *maps))
    if maps:
        checks.check_reference(channels)

    fixed = {"kept": kept, "index": index}
    terms = {
        "data": data_term(channels, grid, data_weights, fixed, chosen, own_images=bool(maps)),
        "offset": penalty(offsets, {k: float(len(channels)) for k in data_weights}, weight=_floats(data_weights)),
    }
    scales = scales_of(chosen, grid, flux, beam, prior["I"], index)
    extra = _spectral_targets(channels, prior, maps, chosen, "flux_mf" in reg_weights)
    terms["reg"] = penalty(RegModel(tuple(reg_weights)), kept, scales, extra, weight=_floats(reg_weights))
    return Problem(
        Objective(terms),
        x0,
        transforms=solved | {name: TanInterval(*ends) for name, ends in chosen.spectrum.limits.items()},
        units={k: UNITS[k] for k in x0 if k in UNITS},
        name=name,
        precision=chosen.computation.precision,
    )


def _scaled(maps: dict[str, np.ndarray], flux: float | None) -> dict[str, np.ndarray]:
    return maps if flux is None else {**maps, "I": maps["I"] * (flux / maps["I"].sum())}


def with_start(problem: Problem, init: Any, *, norm_init: bool = True) -> Problem:
    """Copy of an imaging problem that starts from other maps; what was compiled for the one serves the other.

    init, norm_init: as for imaging_problem.

    Example: `with_start(problem, image.blur(beam).values["I"])`.
    """
    terms = dict(problem.objective.items())
    kept, scales, targets = terms["reg"].args
    maps = checks.masked(scales.grid, checks.maps_of(init, "init"), scales.index, "init")
    maps = _scaled(maps, float(scales.flux) if norm_init else None)
    spectral = [name for name in problem.x0 if name in transforms.SPECTRAL]
    every = [*spectral, *(name for name in kept if name in transforms.SPECTRAL)]
    x0, new = _split(maps, spectral, every, {k: v for k, v in problem.transforms.items() if k not in spectral})
    if all(np.array_equal(kept[name], values) for name, values in new.items()):
        return problem.replace(x0=x0)
    fixed = {"kept": new, "index": scales.index}
    return problem.replace(x0=x0, objective=problem.objective.with_args(data=(fixed,), reg=(new, scales, targets)))


@working_on_it
def image_maps(problem: Problem, params: Any = None) -> dict[str, np.ndarray]:
    """Physical maps (ny, nx) of fitted parameters (default: the start): I in Jy per pixel, m, phi, v, spectral maps."""
    kept, scales, _ = dict(problem.objective.items())["reg"].args
    maps = transforms.physical(problem.x0 if params is None else params, kept)
    if "q" in maps:
        maps["phi"] = np.arctan2(maps.pop("u"), maps.pop("q"))
    return {name: scales.grid.embed(np.asarray(values), scales.index) for name, values in maps.items()}


def with_data_weights(objective: Objective, **weights: Any) -> Objective:
    """Copy of an imaging objective with other data weights, its constant included."""
    return objective.with_weights(data=weights, offset=weights)


def channel_chi2(problem: Problem, params: Any = None) -> dict[str, np.ndarray]:
    """χ² of every channel by product, (n_channels,), of fitted parameters (default: the start).

    Example: `channel_chi2(problem, result.params)["vis"]`.
    """
    data = problem.objective.only("data")
    term: Any = data.terms[0]
    channel = np.asarray(term.rows["channel"])
    params = problem.x0 if params is None else params
    each = [
        data.take(lambda term, n, c=c: np.flatnonzero(channel == c)).totals(params)["data"]
        for c in range(channel.max() + 1)
    ]
    return {name: np.array([float(one[name]) for one in each]) for name in each[0]}


def data_term(
    channels: Sequence[DataSet],
    grid: Grid,
    weights: Mapping[str, float],
    fixed: Mapping[str, Any],
    options: ProblemOptions,
    *,
    own_images: bool,
    pooled: bool = False,
) -> ResidualTerm:
    """Return the term of all measurements. own_images: each channel has an image of its own; pooled: see `pack`."""
    compute = options.computation
    n_vis = sum(len(c.u) for c in channels)
    operator, note = choose(compute.operator, grid, n_vis, images=len(channels) if own_images else 1)
    model = DataModel(grid, operator, tuple(weights), options.spectrum.fraction, note)
    used = [replace(c, products={p: c.products[p] for p in weights if p in c.products}) for c in channels]
    limit = compute.chunk or block_size(operator, grid, len(stokes_needed(weights)))
    blocks = (compute.blocks or _blocks([len(c.u) for c in channels], limit or n_vis)) if own_images else None
    rows = pack(used, grid, operator, blocks=blocks, pooled=pooled)
    places = next(iter(rows["operator"].values())).shape[: 2 if blocks is None else 3]
    chunk = None if limit is None else max(1, limit // int(np.prod(places[1:])))
    return residual_term(model, rows, fixed, weight=_floats(weights), chunk=chunk)  # pyright: ignore[reportReturnType]


def _blocks(sizes: Sequence[int], limit: int) -> int:
    """Parts of every channel: so many that up to eight devices get equal work and none holds more than the limit.

    The devices present do not matter: a run goes on with the same rows wherever it is resumed.
    """
    n = len(sizes)
    busy = 1 if n >= SHARED else SHARED // gcd(SHARED, n)
    return max(busy, -(-max(sizes) // limit))


def scales_of(options: ProblemOptions, grid: Grid, flux: Any, beam: float, prior: Any, index: Any) -> Scales:
    """Return what regularisers measure against. beam: rad; prior: (n,) over the mask."""
    given = asdict(options.regularisation)
    norm, _ = given.pop("norm_reg"), given.pop("clipfloor")
    given |= {k: given[k] / grid.pixel_rad for k in ("major", "minor")}
    given["vflux"] = flux if given["vflux"] is None else given["vflux"]
    return Scales(flux=flux, beam=beam / grid.pixel_rad, prior=prior, index=index, grid=grid, norm=norm, **given)


def _spectral_names(spectral, init, reg_weights) -> list[str]:
    """Spectral maps that are solved, given or regularised."""
    named = {name.partition("_")[2] for name in reg_weights if name in penalties_spectral.NAMES}
    return [name for name in transforms.SPECTRAL if name in spectral or name in init or name in named]


def _split(init, solved, spectral, variables) -> tuple[dict, dict]:
    """Return the start of what is solved, and what is kept; spectral maps that are not given are zero.

    variables: transforms of the maps that are no spectral ones; a start is lifted to where it moves in them.
    """
    x0, kept = transforms.start_of(*transforms.mode_of(variables), init)
    x0 = {k: variables[k].lifted(v) if hasattr(variables[k], "lifted") else v for k, v in x0.items()}
    for name in spectral:
        (x0 if name in solved else kept)[name] = init.get(name, np.zeros_like(init["I"]))
    return x0, kept


def _spectral_targets(channels, prior, maps, options: ProblemOptions, fluxes: bool) -> dict[str, Any]:
    targets: dict[str, Any] = {"priors": {k: prior.get(k, np.zeros_like(prior["I"])) for k in maps}}
    if fluxes:
        given = options.spectrum.mf_flux
        if given is None or len(given) != len(channels):
            raise ValueError(f"flux_mf needs mf_flux, one flux in Jy for each of the {len(channels)} channels.")
        targets["log_ratios"] = tuple(float(c.log_ratio) for c in channels)
        targets["mf_flux"] = tuple(float(f) for f in given)
    return targets


def _floats(weights):
    return {k: float(w) for k, w in weights.items()}
