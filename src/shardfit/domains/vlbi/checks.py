"""What imaging_problem refuses before any work starts, and why."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi import penalties_pol, transforms
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.tables import DataSet

# products, regularisers and spectral maps; not the map 'cm', which changes nothing and shares a regulariser's name
POLARISED = ("pvis", "m", "vvis", "v", *penalties_pol.PENALTIES, "alphap", "betap", "rm")


def check_weights(what: str, given: Mapping[str, float], known: Sequence[str], least: float = -np.inf) -> None:
    """Raise unless there are weights, all of known names, finite and not below least."""
    if not given:
        raise ValueError(f"{what} is empty. Give at least one of: {', '.join(known)}.")
    for name, weight in given.items():
        if name not in known:
            raise ValueError(f"{what}: unknown name {name!r}.{suggestion(name, known)}")
        if not (np.isfinite(weight) and weight >= least):
            limit = "" if least == -np.inf else f", at least {least:g}"
            raise ValueError(f"{what}[{name!r}]={weight!r} must be a finite number{limit}.")


def check_positive(**numbers: float) -> None:
    """Raise unless every number is positive and finite."""
    for name, value in numbers.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"imaging_problem: {name}={value!r} must be a positive number.")


def check_channels(channels: Sequence[DataSet], products: Mapping[str, Any]) -> None:
    """Raise unless there are channels and each holds the products."""
    if not channels:
        raise ValueError("imaging_problem: data is empty. Give one DataSet, or one per channel.")
    for i, one in enumerate(channels):
        for name in products:
            if name not in one.products:
                where = "the data hold" if len(channels) == 1 else f"channel {i} holds"
                raise ValueError(
                    f"data_weights names {name!r}, but {where} {', '.join(one.products) or 'nothing'}. Make that "
                    "product (see tables), or drop its weight."
                )


def check_reference(channels: Sequence[DataSet]) -> None:
    """Raise if channels of one spectral image refer to different frequencies."""
    known = sorted({round(one.ref_hz, 3) for one in channels if one.ref_hz is not None})
    if len(known) > 1:
        listed = ", ".join(f"{hz / 1e9:.6g}" for hz in known)
        raise ValueError(
            f"the channels refer to different frequencies ({listed} GHz), so their spectral maps would not mean the "
            "same. Pass one ref_hz to data_set for all of them."
        )


def check_polarised(mode: str, names: Iterable[str]) -> None:
    """Raise if a product, regulariser or spectral map needs polarisation and the mode has none."""
    wrong = [name for name in names if name in POLARISED]
    if mode == "I" and wrong:
        raise ValueError(f"{wrong[0]!r} needs polarisation. Choose mode 'P', 'IP', 'V', 'IV' or 'IPV'.")


def maps_of(image: Any, what: str) -> dict[str, Any]:
    """Return an image, or a dict of maps, as a dict of maps with known names."""
    if not isinstance(image, Mapping):
        return {"I": image}
    known = ("I", "m", "phi", "v", *transforms.SPECTRAL)
    for name in image:
        if name not in known:
            raise ValueError(f"{what}: unknown map {name!r}.{suggestion(str(name), known)}")
    if "I" not in image:
        raise ValueError(f"{what}: a dict of maps needs 'I', the intensity.")
    return dict(image)


def masked(grid: Grid, maps: Mapping[str, Any], index: np.ndarray | None, what: str) -> dict[str, np.ndarray]:
    """Return the pixels of the mask of every map, (n,), all finite and the intensity positive."""
    out = {}
    for name, values in maps.items():
        flat = np.asarray(values, float).ravel()
        if flat.size != grid.n_pixels:
            raise ValueError(f"{what} {name!r} has {flat.size} pixels, the grid {grid.ny} x {grid.nx}. Regrid it.")
        out[name] = flat if index is None else flat[index]
        if not np.isfinite(out[name]).all():
            raise ValueError(f"{what} {name!r} holds NaN or infinity. Replace these pixels, for instance by a floor.")
    if not (out["I"] > 0).all():
        raise ValueError(f"{what} must be positive on every pixel of the mask. Add a faint floor, or raise clipfloor.")
    return out
