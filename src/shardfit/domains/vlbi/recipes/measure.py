"""Numbers that compare an image with data or with another image."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.packing import pack
from shardfit.domains.vlbi.products import DataModel
from shardfit.domains.vlbi.recipes.options import PRODUCTS
from shardfit.domains.vlbi.tables import data_set


@arithmetic("float64")
def chi2(
    obs: Observation,
    model: Image,
    products: Iterable[str] = ("vis", "amp", "cphase", "logcamp"),
    **settings: Any,
) -> dict[str, float]:
    """Return χ² per measurement of an image, by data product; the observation is taken as it is.

    products: 'vis', 'amp', 'logamp', 'bs', 'cphase', 'camp', 'logcamp', 'cphase_cov', 'logcamp_cov'; settings: of
    `tables.data_set`, such as count, cp_uv_min, systematic, debias.

    Example: `chi2(prepare(obs, 0.6), image, ("cphase", "logcamp"))`.
    """
    products = tuple(products)
    for name in products:
        if name not in PRODUCTS:
            raise ValueError(f"chi2: unknown product {name!r}.{suggestion(name, PRODUCTS)}")
    data = data_set(obs, products, **settings)
    model.grid.check_baselines(data.u, data.v)
    rows = pack(data, model.grid, "separable")
    fixed = {"kept": {}, "index": None}
    residuals = jax.jit(DataModel(model.grid, "separable", products))({"I": model.values["I"].ravel()}, rows, fixed)
    return {name: float(0.5 * np.sum(np.abs(np.asarray(residuals[name])) ** 2)) for name in products}


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
