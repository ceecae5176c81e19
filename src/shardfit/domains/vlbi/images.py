"""Images of the sky and their visibilities.

Arrays are (ny, nx): row 0 is the north edge, column 0 the east edge. x is positive to the east, y to the north.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA, STOKES
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.observation import Observation, frozen

FAINTEST = 1e-12  # of the peak: a prior of zero would forbid flux, and far out a Gaussian is zero to the computer
SAME_BAND = 0.005  # relative difference of frequencies below which an image and data count as one band


@dataclass(frozen=True, eq=False)
class Image:
    """An image of square pixels. values: (ny, nx) Jy/pixel by Stokes parameter, "I" always; pixel_rad: rad.

    pulse: shape that each pixel stands for ("delta", "rect", "triangle", "gaussian"). Make an empty one with `blank`.
    """

    values: Mapping[str, np.ndarray]
    pixel_rad: float
    ra_hours: float = 0.0
    dec_deg: float = 0.0
    freq_hz: float = 230e9
    mjd: int = 0
    source: str = ""
    pulse: str = "triangle"
    grid: Grid = field(init=False, repr=False)

    def __post_init__(self):
        if "I" not in self.values or set(self.values) - set(STOKES):
            raise ValueError(f"Image: values has {list(self.values)}; it needs I, and Q, U, V where known.")
        shape = np.shape(self.values["I"])
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"Image: values have shape {shape}, expected (ny, nx).")
        planes = {k: frozen(self.values[k], float, shape, f"Image.values[{k!r}]") for k in STOKES if k in self.values}
        if not all(np.isfinite(plane).all() for plane in planes.values()):
            raise ValueError("Image: a pixel is NaN or infinite. Replace it, for instance by zero.")
        object.__setattr__(self, "values", MappingProxyType(planes))
        object.__setattr__(self, "grid", Grid(shape[1], shape[0], self.pixel_rad, self.pulse))

    @property
    def shape(self) -> tuple[int, int]:
        """(ny, nx)."""
        return self.values["I"].shape

    @property
    def x(self) -> np.ndarray:
        """East coordinate of every column, (nx,) rad, descending."""
        return self.grid.x

    @property
    def y(self) -> np.ndarray:
        """North coordinate of every row, (ny,) rad, descending."""
        return self.grid.y

    @property
    def flux(self) -> float:
        """Total flux, Jy."""
        return float(self.values["I"].sum())

    def replace(self, **changes: Any) -> "Image":
        """Return a copy with other fields."""
        return dataclasses.replace(self, **changes)

    def normalise(self, flux_jy: float) -> "Image":
        """Return the image scaled to this total flux, Jy; polarised planes are scaled alike."""
        if not self.flux > 0:
            raise ValueError(
                f"normalise: the total flux is {self.flux} Jy. An image to be scaled needs a positive one."
            )
        return self.replace(values={k: plane * (flux_jy / self.flux) for k, plane in self.values.items()})

    def blur(self, fwhm_rad: float) -> "Image":
        """Return the image blurred with a circular Gaussian of this FWHM, rad; edges reflect."""
        if not fwhm_rad >= 0:
            raise ValueError(f"blur: fwhm_rad={fwhm_rad} must not be negative.")
        sigma = fwhm_rad * FWHM_TO_SIGMA / self.pixel_rad
        along_y, along_x = (_smoothing(n, sigma) for n in self.shape)
        return self.replace(values={k: along_y @ plane @ along_x.T for k, plane in self.values.items()})


def _smoothing(n: int, sigma: float) -> np.ndarray:
    """Matrix (n, n) that smooths n pixels with a Gaussian of `sigma` pixels, cut at 4 sigma; edges reflect."""
    reach = int(4 * sigma + 0.5)
    away = np.arange(-reach, reach + 1)
    weight = np.exp(-0.5 * (away / sigma) ** 2) if reach else np.ones(1)
    at = (np.arange(n)[:, None] + away) % (2 * n)  # the pixels and their mirror image, again and again
    matrix = np.zeros((n, n))
    np.add.at(matrix, (np.arange(n)[:, None], np.minimum(at, 2 * n - 1 - at)), weight / weight.sum())
    return matrix


def blank(nx: int, fov_rad: float, ny: int | None = None, **about: Any) -> Image:
    """Return an empty image of nx columns over fov_rad, and ny rows (as many as columns if None).

    about: other fields of Image, such as ra_hours, dec_deg, freq_hz.
    """
    return Image({"I": np.zeros((nx if ny is None else ny, nx))}, fov_rad / nx, **about)


def gaussian(grid: Image, flux_jy: float, fwhm_rad: float, *, x_rad: float = 0.0, y_rad: float = 0.0) -> Image:
    """Return a circular Gaussian of this flux and FWHM, centred at (x, y), on the pixels of `grid`."""
    sigma = fwhm_rad * FWHM_TO_SIGMA
    distance = (grid.x[None, :] - x_rad) ** 2 + (grid.y[:, None] - y_rad) ** 2
    values = np.exp(-0.5 * distance / sigma**2)
    if not values.sum() > 0:
        raise ValueError(f"gaussian: a FWHM of {fwhm_rad} rad at ({x_rad}, {y_rad}) leaves nothing on the grid.")
    return grid.replace(values={"I": values / values.sum() * flux_jy})


def ring(
    grid: Image,
    flux_jy: float,
    radius_rad: float,
    fwhm_rad: float,
    *,
    asymmetry: float = 0.0,
    position_angle_rad: float = 0.0,
) -> Image:
    """Return a ring of Gaussian profile on the pixels of `grid`, brightest towards the position angle (east of north).

    asymmetry: relative excess of the bright side over the mean, 0 to 1.
    """
    x, y = np.meshgrid(grid.x, grid.y)
    profile = np.exp(-0.5 * ((np.hypot(x, y) - radius_rad) / (fwhm_rad * FWHM_TO_SIGMA)) ** 2)
    values = profile * (1 + asymmetry * np.cos(np.arctan2(x, y) - position_angle_rad))
    return grid.replace(values={"I": values}).normalise(flux_jy)


def prior(grid: Image, flux_jy: float, fwhm_rad: float) -> Image:
    """Return the usual prior: a Gaussian, and a thousandth of it one FWHM to the east and north.

    The displaced part breaks the symmetry that keeps closure-only imaging from moving off its start.
    """
    main = gaussian(grid, flux_jy, fwhm_rad)
    aside = gaussian(grid, 1e-3 * flux_jy, fwhm_rad, x_rad=fwhm_rad, y_rad=fwhm_rad)
    values = main.values["I"] + aside.values["I"]
    return grid.replace(values={"I": np.maximum(values, FAINTEST * values.max())})


def visibilities(image: Image, u: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    """Return the visibilities, (n,) Jy by Stokes parameter, at u, v (n,) wavelengths, by direct summation."""
    u, v = np.asarray(u, float), np.asarray(v, float)
    pulse = image.grid.pulse_factor(u) * image.grid.pulse_factor(v)
    along_x, along_y = np.exp(2j * np.pi * np.outer(u, image.x)), np.exp(2j * np.pi * np.outer(v, image.y))
    return {k: pulse * ((along_y @ plane) * along_x).sum(1) for k, plane in image.values.items()}


def check_frequency(image: Image, obs: Observation) -> None:
    """Raise if an image and an observation are of different bands: more than 0.5 % apart in frequency."""
    if abs(image.freq_hz - obs.freq_hz) > SAME_BAND * obs.freq_hz:
        raise ValueError(
            f"the image is of {image.freq_hz / 1e9:.6g} GHz, the data of {obs.freq_hz / 1e9:.6g} GHz. Use "
            "image.replace(freq_hz=obs.freq_hz) if the source looks the same at both, or fit spectral maps to data "
            "made with data_set(..., ref_hz=image.freq_hz)."
        )
