"""Numbers that compare an image with data or with another image."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.images import Image, check_frequency
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.packing import pack
from shardfit.domains.vlbi.products import DataModel, stokes_needed
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, data_set


@arithmetic("float64")
def chi2(
    obs: Observation,
    model: Image,
    products: Iterable[str] = ("vis", "amp", "cphase", "logcamp"),
    *,
    any_frequency: bool = False,
    **settings: Any,
) -> dict[str, float]:
    """Return χ² per measurement of an image, by data product; the observation is taken as it is.

    products: 'vis', 'amp', 'logamp', 'bs', 'cphase', 'camp', 'logcamp', 'cphase_cov', 'logcamp_cov', and 'pvis', 'm',
    'vvis', 'v' where the image has Q and U, or V; any_frequency: accept an image of another band; settings: of
    `tables.data_set`, such as count, cp_uv_min, systematic, debias.

    Example: `chi2(prepare(obs), image, ("cphase", "logcamp"))`.
    """
    products = tuple(products)
    for name in products:
        if name not in ALIGNED + CLOSURES:
            raise ValueError(f"chi2: unknown product {name!r}.{suggestion(name, ALIGNED + CLOSURES)}")
        missing = set(stokes_needed([name])) - set(model.values)
        if missing:
            raise ValueError(
                f"chi2: product {name!r} needs Stokes {', '.join(sorted(missing))}, which the image lacks."
            )
    if not any_frequency:
        check_frequency(model, obs)
    data = data_set(obs, products, **settings)
    model.grid.check_baselines(data.u, data.v)
    rows = pack(data, model.grid, "separable")
    planes = {name: plane.ravel() for name, plane in model.values.items()}
    fixed = {"kept": _polarised(planes), "index": None}
    residuals = jax.jit(DataModel(model.grid, "separable", products))({"I": planes["I"]}, rows, fixed)
    return {name: float(0.5 * np.sum(np.abs(np.asarray(residuals[name])) ** 2)) for name in products}


def _polarised(planes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return fractions and angle, the maps that the data model takes Q, U and V from."""
    total = planes["I"]
    linear = planes.get("Q", np.zeros_like(total)) + 1j * planes.get("U", np.zeros_like(total))
    shares = {"m": np.abs(linear), "v": planes.get("V", np.zeros_like(total))}
    if any(np.any(part[total == 0]) for part in shares.values()):
        raise ValueError("chi2: a pixel of the image is polarised but has no Stokes I.")
    return {"phi": np.angle(linear)} | {
        name: np.divide(part, total, out=np.zeros_like(total), where=total != 0) for name, part in shares.items()
    }


def cross_correlation(one: Image, other: Image) -> float:
    """Return the normalised cross-correlation of two images of one shape at the best shift, 1 for equal images.

    The comparison ignores flux and position, which closure quantities leave free.
    """
    if one.shape != other.shape:
        raise ValueError(f"cross_correlation: images of {one.shape} and {other.shape} pixels. Regrid one of them.")
    a, b = (i.values["I"] - i.values["I"].mean() for i in (one, other))
    size = np.sqrt(np.sum(a**2) * np.sum(b**2))
    if not size > 0:
        raise ValueError("cross_correlation: an image is constant.")
    return float(np.fft.ifft2(np.fft.fft2(a) * np.fft.fft2(b).conj()).real.max() / size)
