"""imaging_problem: from prepared data to a Problem that `fit`, surveys and samplers take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.terms import penalty, residual_term
from shardfit.domains.vlbi import penalties, penalties_pol, penalties_spectral, transforms
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.forward import Nufft, as_operator
from shardfit.domains.vlbi.grid import Grid, embed, mask_index
from shardfit.domains.vlbi.packing import ALIGNED, CLOSURES, pack
from shardfit.domains.vlbi.penalties import Scales
from shardfit.domains.vlbi.products import DataModel
from shardfit.domains.vlbi.tables import DataSet

REGULARISERS = (*penalties.PENALTIES, *penalties_pol.PENALTIES, *penalties_spectral.NAMES, "flux_mf")
OPTIONS = {"epsilon_tv": 0.0, "alpha_a": 1.0, "major": 50 * UAS, "minor": 50 * UAS, "pa": 0.0, "vflux": None}
UNITS = {"I": "Jy/pixel", "phi": "rad", "psi": "rad", "rm": "rad"}


@dataclass(frozen=True)
class RegModel:
    """Function of the regularisation term: (params, kept, scales, spectral) → value per regulariser."""

    names: tuple[str, ...]

    def __call__(self, params: Mapping, kept: Mapping, scales: Scales, spectral: Mapping) -> dict[str, Any]:
        """Value of every regulariser of the maps at the reference frequency."""
        maps = transforms.physical(params, kept)
        out = {}
        for name in self.names:
            if name in penalties.PENALTIES:
                out[name] = penalties.evaluate(name, maps["I"], scales)
            elif name in penalties_pol.PENALTIES:
                out[name] = penalties_pol.evaluate(name, maps, scales)
            elif name == "flux_mf":
                out[name] = penalties_spectral.flux_mf(maps, spectral["log_ratios"], spectral["mf_flux"], scales)
            else:
                out[name] = penalties_spectral.evaluate(name, maps, spectral["priors"], scales)
        return out


def _offsets(params: Any, counts: Mapping[str, Any]) -> dict[str, Any]:
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
    mode: str = "I",
    transform: str = "log",
    spectral: Sequence[str] = (),
    fraction: str = "odds",
    mf_flux: Sequence[float] | None = None,
    operator: str | Nufft = "auto",
    clipfloor: float = 0.0,
    norm_reg: bool = True,
    norm_init: bool = True,
    precision: str = "float64",
    name: str = "image",
    **options: float,
) -> Problem:
    """Make the imaging problem J = Σ w_d (χ²_d - 1) + Σ w_r R_r.

    data: one DataSet, or one per frequency. prior, init: (ny, nx) Jy per pixel, or a dict of such maps: 'I', 'm',
    'phi', 'v' and spectral ones; init is prior unless given. Both are scaled to flux (Jy) over the mask
    prior > clipfloor, init only with norm_init. beam: rad, the nominal resolution. data_weights, reg_weights: by name.
    mode and transform: see `transforms`; spectral: names of spectral maps to solve ('alpha', 'beta', 'alphap', 'betap',
    'rm'); fraction: see `transforms.at_frequency`; mf_flux: Jy per DataSet, for flux_mf.
    operator: 'auto', 'separable', 'dense', 'nufft' or Nufft(...). options: epsilon_tv, alpha_a, major, minor, pa (rad),
    vflux (Jy, flux unless given).

    Parts of the objective: 'data.<product>' is χ² (data0, data1, ... for several DataSets), 'reg.<name>' a regulariser,
    'offset.<product>' the constant. Change data weights with `with_data_weights`, so that the constant follows.

    Example: `imaging_problem(data, grid, prior, data_weights={"vis": 1}, reg_weights={"tv": 1}, flux=0.6, beam=1e-10)`.
    """
    sets = [data] if isinstance(data, DataSet) else list(data)
    mode = transforms.check_mode(mode, transform)
    _check_names("data_weights", data_weights, ALIGNED + CLOSURES)
    _check_names("reg_weights", reg_weights, REGULARISERS)
    _check_names("options", options, OPTIONS, required=False)
    for what, value in (("flux", flux), ("beam", beam)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"imaging_problem: {what}={value!r} must be a positive number.")
    prior, init = _maps(prior), _maps(prior if init is None else init)
    index = mask_index(grid, prior["I"], clipfloor)
    prior, init = (_masked(grid, maps, index, what) for maps, what in ((prior, "prior"), (init, "init")))
    prior["I"] = prior["I"] * (flux / prior["I"].sum())
    if norm_init:
        init["I"] = init["I"] * (flux / init["I"].sum())
    x0, kept = transforms.start_of(mode, init)
    maps_needed = _spectral_maps(sets, spectral, init, reg_weights)
    x0.update({k: a for k, a in maps_needed.items() if k in spectral})
    kept.update({k: a for k, a in maps_needed.items() if k not in spectral})
    _check_polarised(mode, data_weights, reg_weights, kept)

    terms = _data_terms(sets, grid, data_weights, operator, fraction, kept, index)
    counts = {k: float(len(sets)) for k in data_weights}
    terms["offset"] = penalty(_offsets, counts, weight=_floats(data_weights))
    chosen = {**OPTIONS, "vflux": flux, **options}
    chosen |= {k: chosen[k] / grid.pixel_rad for k in ("major", "minor")}
    scales = Scales(
        flux=flux, beam=beam / grid.pixel_rad, prior=prior["I"], index=index, grid=grid, norm=norm_reg, **chosen
    )
    extra: dict[str, Any] = {"priors": {k: prior.get(k, np.zeros_like(prior["I"])) for k in maps_needed}}
    if "flux_mf" in reg_weights:
        extra["log_ratios"] = tuple(float(s.log_ratio) for s in sets)
        extra["mf_flux"] = _fluxes(mf_flux, len(sets))
    regs = RegModel(tuple(reg_weights))
    terms["reg"] = penalty(regs, kept, scales, extra, weight=_floats(reg_weights))
    return Problem(
        Objective(terms),
        x0,
        transforms=transforms.transforms_of(mode, transform),
        units={k: UNITS[k] for k in x0 if k in UNITS},
        name=name,
        precision=precision,
    )


def image_maps(problem: Problem, params: Any = None) -> dict[str, np.ndarray]:
    """Physical maps (ny, nx) of fitted parameters (default: the start): I in Jy per pixel, m, phi, v, spectral maps."""
    kept, scales, _ = dict(problem.objective.items())["reg"].args
    maps = transforms.physical(problem.x0 if params is None else params, kept)
    return {k: np.asarray(embed(scales.grid, jnp.asarray(a), scales.index)) for k, a in maps.items()}


def with_data_weights(objective: Objective, **weights: Any) -> Objective:
    """Copy of an imaging objective with other data weights, its constant included."""
    names = [n for n in objective.names if n.startswith("data") or n == "offset"]
    return objective.with_weights(**dict.fromkeys(names, weights))


def _data_terms(sets, grid, weights, operator, fraction, kept, index):
    terms = {}
    for i, one in enumerate(sets):
        missing = [p for p in weights if p not in one.products]
        if missing:
            raise ValueError(
                f"data_weights names {missing[0]!r}, but the data hold {', '.join(one.products)}. Make that product "
                "(see tables), or drop its weight."
            )
        chosen = DataSet(one.u, one.v, {p: one.products[p] for p in weights}, one.log_ratio)
        kind = as_operator(operator, grid, len(one.u))
        model = DataModel(grid, kind, tuple(weights), fraction)
        fixed = {"kept": kept, "index": index, "log_ratio": float(one.log_ratio)}
        term = residual_term(model, pack(chosen, grid, kind), fixed, weight=_floats(weights))
        terms["data" if len(sets) == 1 else f"data{i}"] = term
    return terms


def _floats(weights):
    return {k: float(w) for k, w in weights.items()}


def _check_names(what, given, known, required=True):
    if required and not given:
        raise ValueError(f"{what} is empty. Give at least one of: {', '.join(known)}.")
    for name in given:
        if name not in known:
            raise ValueError(f"{what}: unknown name {name!r}.{suggestion(name, known)}")


def _maps(image):
    if not isinstance(image, Mapping):
        return {"I": image}
    known = ("I", "m", "phi", "v", *transforms.SPECTRAL)
    _check_names("maps of an image", image, known)
    if "I" not in image:
        raise ValueError("a dict of maps needs 'I', the intensity.")
    return dict(image)


def _masked(grid, maps, index, what):
    out = {}
    for name, values in maps.items():
        flat = np.asarray(values, float).ravel()
        if flat.size != grid.n_pixels:
            raise ValueError(f"{what} {name!r} has {flat.size} pixels, the grid {grid.ny} x {grid.nx}. Regrid it.")
        out[name] = flat if index is None else flat[index]
    if not (out["I"] > 0).all():
        raise ValueError(f"{what} must be positive on every pixel of the mask. Add a faint floor, or raise clipfloor.")
    return out


def _spectral_maps(sets, spectral, init, reg_weights):
    for name in spectral:
        if name not in transforms.SPECTRAL:
            raise ValueError(f"spectral: unknown map {name!r}.{suggestion(name, transforms.SPECTRAL)}")
    named = {name.partition("_")[2] for name in reg_weights if name in penalties_spectral.NAMES}
    wanted = [name for name in transforms.SPECTRAL if name in spectral or name in init or name in named]
    return {name: init.get(name, np.zeros_like(init["I"])) for name in wanted}


def _check_polarised(mode, data_weights, reg_weights, kept):
    polarised = [n for n in (*data_weights, *reg_weights) if n in ("pvis", "m", "vvis") or n in penalties_pol.PENALTIES]
    if mode == "I" and polarised:
        raise ValueError(f"{polarised[0]!r} needs polarisation. Choose mode 'P', 'IP', 'V', 'IV' or 'IPV'.")


def _fluxes(mf_flux, n):
    if mf_flux is None or len(mf_flux) != n:
        raise ValueError(f"flux_mf needs mf_flux, one flux in Jy for each of the {n} DataSets.")
    return tuple(float(f) for f in mf_flux)
