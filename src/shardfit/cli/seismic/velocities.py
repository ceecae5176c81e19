"""The models that a configuration names: the true one, and the start."""

from typing import Any

import numpy as np

from shardfit.cli.seismic.config import Config
from shardfit.core.errors import suggestion

MADE = ("layers", "lens", "faulted")
STARTS = ("smoothed", "linear", "file")


WAVES = ("acoustic", "elastic")


def media(config: Config, folder: str | None, need_start: bool) -> tuple[Any, Any, tuple[float, ...]]:
    """Return what waves travel in: the true model and the start, None where there is none, and the spacing.

    Velocities (nz, nx), or {"vp", "vs", "rho"} of elastic waves.
    """
    if config.simulation.waves not in WAVES:
        given = config.simulation.waves
        raise ValueError(f"[simulation]: unknown waves {given!r}.{suggestion(given, WAVES)}")
    truth, dh = true_model(config, folder)
    start = start_model(config, truth, dh) if need_start else None
    if config.simulation.waves == "acoustic":
        _refuse_elastic_keys(config)
        return truth, start, dh
    solid = None if truth is None else _solid(config, truth, config.model.vs)
    if start is None:
        return solid, None, dh
    if config.start.kind == "smoothed" and solid is not None:
        return solid, _smoothed(config, start, solid, dh), dh
    return solid, _solid(config, start, config.start.vs), dh


def speed(model: Any) -> Any:
    """Return the velocity of P waves of a model, whatever its waves are."""
    return model["vp"] if isinstance(model, dict) else model


def _refuse_elastic_keys(config: Config) -> None:
    own = {"model": ("vp_over_vs", "vs", "rho"), "start": ("vs",), "simulation": ("source", "receiver")}
    for section, keys in own.items():
        found = getattr(config, section)
        for key in keys:
            if getattr(found, key) != getattr(type(found)(), key):
                raise ValueError(f"[{section}]: {key} is for elastic waves. Set waves = 'elastic' in [simulation].")


def _solid(config: Config, vp: np.ndarray, vs: str | None) -> dict[str, np.ndarray]:
    """Return the medium of a velocity of P waves. vs: the name of a file, None to derive it."""
    from shardfit.domains.seismic import models

    section, water = config.model, models.water_cells(vp, config.start.water or models.WATER)
    if not section.vp_over_vs > 1:
        raise ValueError(f"[model]: vp_over_vs = {section.vp_over_vs} must be above 1; it is 1.4 to 4 in rock.")
    found = {"vp": vp, "vs": np.where(water, 0.0, vp / section.vp_over_vs)}
    if vs is not None:
        found["vs"] = _field(config, "vs", vs, vp.shape)
    one = not isinstance(section.rho, str)
    rho = np.full(vp.shape, float(section.rho)) if one else _field(config, "rho", str(section.rho), vp.shape)
    return {**found, "rho": rho}


def _field(config: Config, key: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    from shardfit.domains.seismic.files import load_model

    found = load_model(config.path(name), shape=shape, dtype=config.model.dtype, shear=key == "vs").velocity
    if found.shape != shape:
        raise ValueError(f"{key} = {name!r} has shape {found.shape}, vp {shape}.")
    return found


def _smoothed(config: Config, vp: np.ndarray, solid: dict, dh: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Return the medium whose fields are as smooth as the velocity of P waves; water stays."""
    from shardfit.domains.seismic import models

    water = solid["vs"] == 0
    smooth = {name: models.smoothed(solid[name], config.start.metres, dh, water) for name in ("vs", "rho")}
    return {"vp": vp, **smooth}


def true_model(config: Config, folder: str | None) -> tuple[np.ndarray | None, tuple[float, ...]]:
    """Return the true model, None where there is none, and the spacing along its axes."""
    from shardfit.domains.seismic import models
    from shardfit.domains.seismic.files import load_model
    from shardfit.domains.seismic.public_models import marmousi

    section, velocity, told = config.model, None, None
    if section.name is not None and section.file is not None:
        raise ValueError("[model]: give a name or a file, not both.")
    if section.name not in (None, "marmousi", *MADE):
        raise ValueError(f"[model]: unknown name {section.name!r}.{suggestion(section.name, (*MADE, 'marmousi'))}")
    if section.file is not None:
        velocity, told = load_model(config.path(section.file), shape=section.shape, dtype=section.dtype)
    elif section.name == "marmousi":
        velocity, told = marmousi(30.0 if section.dh is None else np.ravel(section.dh)[0], folder, section.download)
    shape = section.shape if velocity is None else velocity.shape
    axes = 2 if shape is None else len(shape)
    if section.dh is not None and np.size(section.dh) not in (1, axes):
        raise ValueError(f"[model]: dh = {section.dh} for {axes} axes. Give one number, or one for each.")
    dh = None if section.dh is None else tuple(np.broadcast_to(section.dh, axes).tolist())
    if dh is not None and told is not None and not np.allclose(dh, told, rtol=1e-4):
        raise ValueError(f"[model]: dh = {section.dh}, but the model has {told} m. Leave dh out.")
    dh = dh or told
    if dh is None:
        raise ValueError("[model]: dh is missing: the spacing of the cells in metres.")
    if section.name in MADE:
        if section.shape is None:
            raise ValueError("[model]: shape is missing: [nz, nx] cells, or [nz, ny, nx].")
        make = {"layers": models.layers, "lens": models.lens}.get(section.name)
        velocity = make(section.shape, dh) if make else models.faulted_section(section.shape, dh, section.seed)
    return velocity, dh


def start_model(config: Config, truth: np.ndarray | None, dh: tuple[float, ...]) -> np.ndarray:
    """Return the model that an inversion begins with, or that is migrated in."""
    from shardfit.domains.seismic import models
    from shardfit.domains.seismic.files import load_model

    section = config.start
    if section.kind not in STARTS:
        raise ValueError(f"[start]: unknown kind {section.kind!r}.{suggestion(section.kind, STARTS)}")
    if section.kind == "file":
        if section.file is None:
            raise ValueError("[start]: kind = 'file' needs file.")
        shape = config.model.shape if truth is None else truth.shape
        start = load_model(config.path(section.file), shape=shape, dtype=section.dtype).velocity
        if truth is not None and start.shape != truth.shape:
            raise ValueError(f"[start]: {section.file} has shape {start.shape}, the true model {truth.shape}.")
        return start
    water = None if truth is None or section.water is None else models.water_cells(truth, section.water)
    if section.kind == "smoothed":
        if truth is None:
            raise ValueError("[start]: only a true model can be smoothed. Use kind = 'linear' or 'file'.")
        return models.smoothed(truth, section.metres, dh, water)
    shape = config.model.shape if truth is None else truth.shape
    if shape is None:
        raise ValueError("[start]: kind = 'linear' needs shape = [nz, nx] in [model].")
    return models.linear_in_depth(shape, dh, section.top, section.bottom, water)
