"""The models that a configuration names: the true one, and the start."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shardfit.cli.seismic.config import Config

# keys that belong to one kind of wave, by section; the first of these are the parameters of its medium besides vp
OWN = {
    "elastic": {"model": ("vs", "rho", "vp_over_vs"), "start": ("vs",), "simulation": ("source", "receiver")},
    "vti": {"model": ("epsilon", "delta"), "start": ("epsilon", "delta"), "simulation": ()},
    "viscoacoustic": {"model": ("q",), "start": ("q",), "simulation": ("f_ref", "band", "mechanisms")},
}
LOSSLESS = 1e4  # of q, in water


def media(config: "Config", folder: str | None, need_start: bool) -> tuple[Any, Any, tuple[float, ...]]:
    """Return what waves travel in: the true model and the start, None where there is none, and the spacing.

    Velocities (nz, nx), or a medium such as {"vp", "vs", "rho"} of other waves.
    """
    waves = config.simulation.waves
    _refuse_foreign_keys(config)
    truth, dh = true_model(config, folder)
    start = start_model(config, truth, dh) if need_start else None
    if waves == "acoustic":
        return truth, start, dh
    make = _solid if waves == "elastic" else _rock
    whole = None if truth is None else make(config, truth, "model")
    if start is None:
        return whole, None, dh
    if config.start.kind == "smoothed" and whole is not None:
        return whole, _smoothed(config, start, whole, dh), dh
    return whole, make(config, start, "start"), dh


def speed(model: Any) -> Any:
    """Return the velocity of P waves of a model, whatever its waves are."""
    return model["vp"] if isinstance(model, dict) else model


def _refuse_foreign_keys(config: "Config") -> None:
    for waves, sections in OWN.items():
        for section, keys in () if waves == config.simulation.waves else sections.items():
            found = getattr(config, section)
            for key in keys:
                if getattr(found, key) != getattr(type(found)(), key):
                    raise ValueError(f"[{section}]: {key} is for {waves} waves. Set waves = '{waves}' in [simulation].")


def _water(config: "Config", vp: np.ndarray) -> np.ndarray:
    from shardfit.domains.seismic import models

    return models.water_cells(vp, config.start.water or models.WATER)


def _solid(config: "Config", vp: np.ndarray, section: str) -> dict[str, np.ndarray]:
    """Return the elastic medium of a velocity of P waves. section: that says where vs is from."""
    model, vs = config.model, getattr(config, section).vs
    derived = np.where(_water(config, vp), 0.0, vp / model.vp_over_vs)
    found = {"vp": vp, "vs": derived if vs is None else _field(config, "vs", vs, vp.shape)}
    return {**found, "rho": _field(config, "rho", model.rho, vp.shape)}


def _rock(config: "Config", vp: np.ndarray, section: str) -> dict[str, np.ndarray]:
    """Return the VTI or viscoacoustic medium of a velocity of P waves. A number is for rock, a file for all cells."""
    found, water = {"vp": vp}, _water(config, vp)
    for name in OWN[config.simulation.waves]["model"]:
        own = getattr(getattr(config, section), name)
        given = getattr(config.model, name) if own is None else own
        values = _field(config, name, given, vp.shape)
        found[name] = values if isinstance(given, str) else np.where(water, LOSSLESS if name == "q" else 0.0, values)
    return found


def _field(config: "Config", key: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    from shardfit.domains.seismic.files import load_model

    if not isinstance(given, str):
        return np.full(shape, float(given))
    found = load_model(config.path(given), shape=shape, dtype=config.model.dtype, of=key).velocity
    if found.shape != shape:
        raise ValueError(f"{key} = {given!r} has shape {found.shape}, vp {shape}.")
    return found


def _smoothed(config: "Config", vp: np.ndarray, whole: dict, dh: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Return the medium whose fields are as smooth as the velocity of P waves, or as [start] has them; water stays."""
    from shardfit.domains.seismic import models

    elastic = config.simulation.waves == "elastic"
    water = whole["vs"] == 0 if elastic else _water(config, whole["vp"])
    own = {} if elastic else {n: getattr(config.start, n) for n in whole if n != "vp"}
    named = {name for name, value in own.items() if value is not None}
    given = _rock(config, whole["vp"], "start") if named else {}
    smooth = {n: models.smoothed(x, config.start.metres, dh, water) for n, x in whole.items() if n != "vp"}
    return {"vp": vp, **smooth, **{name: given[name] for name in named}}


def true_model(config: "Config", folder: str | None) -> tuple[np.ndarray | None, tuple[float, ...]]:
    """Return the true model, None where there is none, and the spacing along its axes."""
    from shardfit.domains.seismic import models
    from shardfit.domains.seismic.files import load_model
    from shardfit.domains.seismic.public_models import marmousi

    section, velocity, told = config.model, None, None
    if section.name is not None and section.file is not None:
        raise ValueError("[model]: give a name or a file, not both.")
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
    if section.name not in (None, "marmousi"):
        if section.shape is None:
            raise ValueError("[model]: shape is missing: [nz, nx] cells, or [nz, ny, nx].")
        make = {"layers": models.layers, "lens": models.lens}.get(section.name)
        velocity = make(section.shape, dh) if make else models.faulted_section(section.shape, dh, section.seed)
    return velocity, dh


def start_model(config: "Config", truth: np.ndarray | None, dh: tuple[float, ...]) -> np.ndarray:
    """Return the model that an inversion begins with, or that is migrated in."""
    from shardfit.domains.seismic import models
    from shardfit.domains.seismic.files import load_model

    section = config.start
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
