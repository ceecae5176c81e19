"""The models that a configuration names: the true one, and the start."""

import numpy as np

from shardfit.cli.seismic.config import Config
from shardfit.core.errors import suggestion

MADE = ("layers", "lens", "faulted")
STARTS = ("smoothed", "linear", "file")


def true_model(config: Config, folder: str | None) -> tuple[np.ndarray | None, tuple[float, float]]:
    """Return the true model, None where there is none, and the spacing (dz, dx)."""
    from shardfit.domains.seismic import models
    from shardfit.domains.seismic.files import load_model
    from shardfit.domains.seismic.public_models import marmousi

    section, velocity, told = config.model, None, None
    if section.name is not None and section.file is not None:
        raise ValueError("[model]: give a name or a file, not both.")
    if section.name not in (None, "marmousi", *MADE):
        raise ValueError(f"[model]: unknown name {section.name!r}.{suggestion(section.name, (*MADE, 'marmousi'))}")
    dz, dx = np.broadcast_to(0.0 if section.dh is None else section.dh, 2).tolist()
    dh = None if section.dh is None else (dz, dx)
    if section.file is not None:
        velocity, told = load_model(config.path(section.file), shape=section.shape, dtype=section.dtype)
    elif section.name == "marmousi":
        velocity, told = marmousi(30.0 if dh is None else dh[0], folder, section.download)
    if dh is not None and told is not None and not np.allclose(dh, told, rtol=1e-4):
        raise ValueError(f"[model]: dh = {section.dh}, but the model has {told} m. Leave dh out.")
    dh = dh or told
    if dh is None:
        raise ValueError("[model]: dh is missing: the spacing of the cells in metres.")
    if section.name in MADE:
        if section.shape is None:
            raise ValueError("[model]: shape is missing: [nz, nx] cells.")
        make = {"layers": models.layers, "lens": models.lens}.get(section.name)
        velocity = make(section.shape, dh) if make else models.faulted_section(section.shape, dh, section.seed)
    return velocity, dh


def start_model(config: Config, truth: np.ndarray | None, dh: tuple[float, float]) -> np.ndarray:
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
