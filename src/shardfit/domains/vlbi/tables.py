"""Measured products as plain arrays: which visibilities each number is made of, its value and its error.

These functions apply what an imager does to data before χ²: signal-to-noise cuts, systematic noise, debiasing and
weighting. They return new arrays and drop measurements; the visibilities themselves stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.constants import DEGREE
from shardfit.domains.vlbi.observation import Observation

ALIGNED = (
    "vis",
    "amp",
    "logamp",
    "calvis",
    "pvis",
    "m",
    "vvis",
    "v",
)  # one number a visibility, or one for each orientation
CLOSURES = ("bs", "cphase", "camp", "logcamp", "cphase_cov", "logcamp_cov")
USUAL_GAIN = 0.1  # of ln|g|, where nothing is said of it
LEAST_GAIN = 0.01  # no station is calibrated better before it is observed with
WEIGHTINGS = ("natural", "uniform")


@dataclass(frozen=True, eq=False)
class Product:
    """Measurements of one kind.

    index: (n,) or (n, legs), positions of the visibilities each is made of; value: (n, ...) in Jy, radians or natural
    logarithm; sigma: like value, real, infinite for a measurement that is left out; sign: (n, legs), -1 where a leg
    runs against its visibility; share: (n_vis,) σ/|V| of every visibility, for products with a full covariance (sigma
    is then not used). gain, tolerance: (n, 2), for a product whose gains are solved for: the numbers of the two gains
    of each measurement, and how far their ln|g| is expected to be from 0.
    """

    index: np.ndarray
    value: np.ndarray
    sigma: np.ndarray
    sign: np.ndarray | None = None
    share: np.ndarray | None = None
    gain: np.ndarray | None = None
    tolerance: np.ndarray | None = None

    def __post_init__(self):
        if len(self.index) != len(self.value) or np.shape(self.value) != np.shape(self.sigma):
            raise ValueError(
                f"Product: {len(self.index)} indices, values {np.shape(self.value)}, sigmas {np.shape(self.sigma)} do "
                "not fit together. Give one value and one sigma per index."
            )
        if not len(self.index):
            raise ValueError("Product: no measurements are left. Lower the signal-to-noise cut, or drop this product.")
        good = np.isfinite(self.value) & (np.asarray(self.sigma) > 0)
        if not good.all():
            raise ValueError(
                f"Product: {np.sum(~good)} of {good.size} measurements have no finite value or no positive sigma. "
                "Flag these samples first (Stokes parameters that a file does not carry cannot be fitted)."
            )
        if not self.n:
            raise ValueError("Product: all measurements are left out. Leave out fewer, or drop this product.")

    @property
    def n(self) -> int:
        """Number of measurements that are not left out, less what gains take: half of one for each free phase."""
        kept = np.isfinite(self.sigma)
        if self.gain is None:
            return int(kept.sum())
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        known, which = np.unique(self.gain[kept], return_inverse=True)
        ends = which.reshape(-1, 2).T
        sets, _ = connected_components(coo_array((np.ones(ends.shape[1]), tuple(ends)), (len(known), len(known))))
        return int(np.ceil(kept.sum() - 0.5 * (len(known) - sets)))


@dataclass(frozen=True, eq=False)
class DataSet:
    """One observation as the imager needs it.

    u, v: (n_vis,) wavelengths; products: by name ('vis', 'amp', 'logamp', 'calvis', 'bs', 'cphase', 'camp', 'logcamp',
    'cphase_cov', 'logcamp_cov', 'pvis', 'm', 'vvis', 'v'); log_ratio: ln(frequency / reference frequency); ref_hz: that
    reference, None if unknown; late: (n_vis,) for a movie, 0 at the frame before and 1 at the frame after.
    """

    u: np.ndarray
    v: np.ndarray
    products: Mapping[str, Product] = field(default_factory=dict)
    log_ratio: float = 0.0
    ref_hz: float | None = None
    late: np.ndarray | None = None


def split(data: DataSet, held: np.ndarray) -> tuple[DataSet, DataSet]:
    """Return what is made of none of the visibilities held (n_vis,), and all the rest.

    Both have every measurement in its place, and each is left out of one of them: they share their shapes. Closures one
    leg of which is held belong to the second, so nothing of a held visibility is in the first.
    """
    parts: tuple[dict[str, Product], dict[str, Product]] = ({}, {})
    for name, product in data.products.items():
        if name.endswith("_cov"):
            raise ValueError(f"{name!r} cannot be split: its errors are correlated. Use {name.removesuffix('_cov')!r}.")
        if (
            product.gain is not None
            and np.intersect1d(product.gain[held[product.index]], product.gain[~held[product.index]]).size
        ):
            raise ValueError(
                f"{name!r} cannot be split within a time: both parts would have its gains. Hold whole times."
            )
        touched = held[product.index].reshape(len(product.index), -1).any(1)
        touched = touched.reshape(-1, *[1] * (np.ndim(product.sigma) - 1))
        for part, out in zip(parts, (touched, ~touched), strict=True):
            if out.all():
                raise ValueError(f"a part of the data has no {name!r}. Make fewer parts, or drop this product.")
            part[name] = replace(product, sigma=np.where(out, np.inf, product.sigma))
    first, second = (replace(data, products=part) for part in parts)
    return first, second


def debias_amplitude(amplitude: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Amplitude freed of its noise bias: sqrt(A² - σ²) where A > σ, else 0. All (n,) Jy."""
    return np.sqrt(np.maximum(amplitude**2 - sigma**2, 0.0))


def inflate(sigma: np.ndarray, amplitude: np.ndarray, systematic, i1=None, i2=None) -> tuple[np.ndarray, np.ndarray]:
    """Add systematic noise in quadrature. sigma, amplitude: (n,) Jy → new sigma (n,), mask of rows kept (n,).

    systematic: fraction f, σ² += 2 f² A²; or (n_stations,) fractions with the stations i1, i2 (n,) of every row,
    σ² += (f₁² + f₂²) A², where a negative fraction drops the rows of its station.
    """
    if np.ndim(systematic) == 0:
        return np.sqrt(sigma**2 + 2 * (systematic * amplitude) ** 2), np.ones(len(sigma), bool)
    if i1 is None or i2 is None:
        raise ValueError("systematic noise per station needs the stations i1 and i2 of every visibility.")
    first, second = np.asarray(systematic)[i1], np.asarray(systematic)[i2]
    return np.sqrt(sigma**2 + (first**2 + second**2) * amplitude**2), (first >= 0) & (second >= 0)


def weigh(sigma: np.ndarray, weighting: str) -> np.ndarray:
    """Sigmas as they are ('natural'), or all equal to their median ('uniform')."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"unknown weighting {weighting!r}. Use one of {', '.join(WEIGHTINGS)}.")
    return np.full_like(sigma, np.median(sigma)) if weighting == "uniform" else sigma


def visibility_product(
    kind: str, vis, sigma, *, debias=False, snrcut=0.0, systematic=0.0, i1=None, i2=None, weighting="natural"
) -> Product:
    """Product 'vis', 'amp' or 'logamp' of complex visibilities vis (n,) Jy with sigma (n,) Jy.

    The cut A/σ >= snrcut sees sigma without systematic noise; see `inflate` for systematic, i1 and i2.
    """
    vis, sigma = np.asarray(vis), np.asarray(sigma, float)
    amplitude = debias_amplitude(np.abs(vis), sigma) if debias else np.abs(vis)
    inflated, kept = inflate(sigma, amplitude, systematic, i1, i2)
    index = np.flatnonzero(_some_left(kind, kept & (amplitude >= snrcut * sigma)))
    value = {"vis": vis, "amp": amplitude, "logamp": amplitude}[kind][index]
    return Product(index, value, weigh(inflated[index], weighting))


def calibrated_product(obs: Observation, *, snrcut: float = 0.0, systematic: Any = 0.0) -> Product:
    """Product 'calvis': visibilities of which every station may have a gain of its own at every time.

    systematic: how far ln|g| is expected to be from 0, one number (0: `USUAL_GAIN`) or (n_stations,), at least
    `LEAST_GAIN`; negative drops a station.
    """
    systematic = systematic if np.ndim(systematic) or systematic else USUAL_GAIN
    stations = np.stack([obs.ant1, obs.ant2], 1)
    tolerance = np.broadcast_to(np.asarray(systematic, float), len(obs.stations.names))[stations]
    kept = (tolerance >= 0).all(1) & (np.abs(obs.vis["I"]) >= snrcut * obs.sigma["I"])
    index = np.flatnonzero(_some_left("calvis", kept))
    stamp = np.unique(obs.time, return_inverse=True)[1]
    gain = stamp[index, None] * len(obs.stations.names) + stations[index]
    tolerance = np.maximum(tolerance[index], LEAST_GAIN)
    return Product(index, obs.vis["I"][index], obs.sigma["I"][index], gain=gain, tolerance=tolerance)


def closure_product(
    kind: str, index, sign, value, sigma, *, snrcut=0.0, systematic_deg=0.0, weighting="natural", share=None
) -> Product:
    """Product 'bs', 'cphase', 'camp', 'logcamp', 'cphase_cov' or 'logcamp_cov' of closures.

    index: (n, legs) positions of the visibilities; sign: (n, legs), -1 for a leg that runs against its visibility;
    value, sigma: (n,), closure phases in degrees; systematic_deg: added in quadrature to closure phases after the cut;
    share: (n_vis,) σ/|V|, for the two products with covariance.
    """
    index, sign, value, sigma = (np.asarray(a) for a in (index, sign, value, sigma))
    if kind.startswith("cphase"):
        value, sigma = value * DEGREE, sigma * DEGREE
    snr = np.abs(value) / sigma if kind in ("bs", "camp") else 1 / sigma
    kept = _some_left(kind, snr >= snrcut)
    noise = np.hypot(sigma, systematic_deg * DEGREE) if systematic_deg else sigma
    if kind.endswith("_cov") and share is None:
        raise ValueError(f"{kind} needs share, σ/|V| of every visibility, to build the covariance.")
    return Product(index[kept], value[kept], weigh(noise[kept], weighting), sign[kept], share)


def unformable(obs: Observation, products: Iterable[str], *, count: str = "min", cp_uv_min: float = 0.0) -> list[str]:
    """Return the closures among some products that no time has enough stations for."""
    made = {
        **dict.fromkeys(("bs", "cphase", "cphase_cov"), lambda: triangles(obs, count=count, uv_min=cp_uv_min)),
        **dict.fromkeys(("camp", "logcamp", "logcamp_cov"), lambda: quadrangles(obs, count=count)),
    }
    return [name for name in products if name in made and not len(made[name]().row)]


def _some_left(kind: str, kept: np.ndarray) -> np.ndarray:
    if not len(kept):
        raise ValueError(
            f"no {kind!r} can be formed: too few baselines share a time. Closure phases need three stations, "
            "closure amplitudes four. Name the products without it: --products of a command, data= in Python."
        )
    if not kept.any():
        raise ValueError(
            f"none of {len(kept)} measurements of {kind!r} is left. Lower the signal-to-noise cut, keep more stations, "
            "or drop this product."
        )
    return kept


def polarised_product(kind: str, stokes: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]) -> Product:
    """Product 'pvis', 'm', 'vvis' or 'v' of Stokes visibilities {'I','Q','U','V': (n,) Jy} with errors of these names.

    'pvis' and 'm' = P/I count both orientations of a baseline, so value and sigma are (n, 2): P(u) and P(-u) = Q* +
    iU*. 'm' and 'v' = V/I do not depend on gains that are the same for both hands.
    """
    needed = "V" if kind in ("vvis", "v") else "QU"
    for name in needed:
        if name not in sigma or not np.isfinite(sigma[name]).any():
            raise ValueError(f"product {kind!r} needs Stokes {name}, which these data do not carry. Drop the product.")
    index = np.flatnonzero(np.all([np.isfinite(sigma[name]) for name in needed], 0))
    stokes, sigma = ({k: np.asarray(a)[index] for k, a in one.items()} for one in (stokes, sigma))
    if kind == "vvis":
        return Product(index, stokes["V"], sigma["V"])
    if kind == "v":
        share = stokes["V"] / stokes["I"]
        return Product(index, share, np.hypot(sigma["V"], sigma["I"] * np.abs(share)) / np.abs(stokes["I"]))
    q, u = stokes["Q"], stokes["U"]
    value = np.stack([q + 1j * u, np.conj(q) + 1j * np.conj(u)], 1)
    noise = np.repeat(np.hypot(sigma["Q"], sigma["U"])[:, None], 2, 1)
    if kind == "pvis":
        return Product(index, value, noise)
    total = np.stack([stokes["I"], np.conj(stokes["I"])], 1)
    value = value / total
    return Product(index, value, np.hypot(noise, sigma["I"][:, None] * np.abs(value)) / np.abs(total))


def data_set(
    obs: Observation,
    products: Iterable[str],
    *,
    ref_hz: float | None = None,
    count: str = "min",
    cp_uv_min: float = 0.0,
    snrcut: float = 0.0,
    debias: bool = False,
    systematic: float | Mapping[str, float] = 0.0,
    systematic_cphase_deg: float = 0.0,
    weighting: str = "natural",
) -> DataSet:
    """Prepare an observation for imaging_problem.

    products: names, see DataSet; ref_hz: reference frequency of a multi-frequency image (None: of these data); count:
    closure sets 'min' or 'max'; cp_uv_min: wavelengths below which baselines are left out of triangles; systematic:
    fraction of |V| added to 'vis', 'amp' and 'logamp' errors, one number or by station name (negative drops the
    station). Polarised products take the data as they are.

    Example: `data_set(obs, ("amp", "cphase", "logcamp"), cp_uv_min=1e8)`.
    """
    if isinstance(systematic, Mapping):
        systematic = np.array([systematic.get(name, 0.0) for name in obs.stations.names])  # type: ignore[assignment]
    if ref_hz is not None and not (np.isfinite(ref_hz) and ref_hz > 0):
        raise ValueError(f"data_set: ref_hz={ref_hz!r} must be a positive frequency in Hz.")
    share = obs.sigma["I"] / np.abs(obs.vis["I"])
    cuts = {"snrcut": snrcut, "weighting": weighting}
    made = {}
    for name in products:
        if name in ("vis", "amp", "logamp"):
            noise = {"debias": debias, "systematic": systematic, "i1": obs.ant1, "i2": obs.ant2}
            made[name] = visibility_product(name, obs.vis["I"], obs.sigma["I"], **noise, **cuts)
        elif name in ("bs", "cphase", "cphase_cov"):
            table = triangles(obs, count=count, uv_min=cp_uv_min)
            value = (table.bispectrum, table.bispectrum_sigma) if name == "bs" else (table.value, table.sigma)
            sign = np.where(table.conjugate, -1, 1)
            extra = {"systematic_deg": 0.0 if name == "bs" else systematic_cphase_deg, "share": share}
            made[name] = closure_product(name, table.row, sign, *value, **extra, **cuts)
        elif name in ("camp", "logcamp", "logcamp_cov"):
            table = quadrangles(obs, count=count, debias=debias, log=name != "camp")
            sign = np.ones_like(table.row)  # amplitudes do not care
            made[name] = closure_product(name, table.row, sign, table.value, table.sigma, share=share, **cuts)
        elif name == "calvis":
            made[name] = calibrated_product(obs, snrcut=snrcut, systematic=systematic)
        elif name in ALIGNED:
            made[name] = polarised_product(name, obs.vis, obs.sigma)
        else:
            raise ValueError(f"data_set: unknown product {name!r}.{suggestion(str(name), ALIGNED + CLOSURES)}")
    reference = obs.freq_hz if ref_hz is None else ref_hz
    return DataSet(obs.u, obs.v, made, float(np.log(obs.freq_hz / reference)), reference)
