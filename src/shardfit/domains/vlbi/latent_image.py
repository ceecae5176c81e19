"""A prior of images that describes compact sources without knowing their shape: a log-normal field in an envelope.

I = F softmax(s - r²/(2w²)), where s is a Gaussian field of standard deviation σ with the amplitude spectrum
(1 + l²k²)^(-p/2), and F the total flux. σ, l, p and w are hyper-parameters: the data choose them.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.domains.vlbi.arrays import Array, Float
from shardfit.domains.vlbi.grid import Grid

FLUX_SPREAD = 0.5  # standard deviation of ln F around what it is thought to be
HYPER = ("sigma", "length", "slope", "width")
SPREAD = np.array([0.7, 0.7, 0.4, 0.5])  # standard deviations of ln σ, ln l, ln(p - 1), ln w
SIGMA, SLOPE = 2.0, 1.5  # medians of σ and p - 1


@dataclass(frozen=True)
class Scene:
    """What the prior is around. flux: Jy; length, width: medians of l and w, rad."""

    grid: Grid
    flux: float
    length: float
    width: float

    @property
    def n(self) -> int:
        """Number of unit Gaussians: one for each pixel, one for the flux."""
        return self.grid.n_pixels + 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what `picture` needs."""
        k_y, k_x = (2 * np.pi * np.fft.fftfreq(n, self.grid.pixel_rad) for n in self.grid.shape)
        medians = np.log([SIGMA, self.length, SLOPE, self.width])
        return {
            "k2": k_y[:, None] ** 2 + k_x[: self.grid.nx // 2 + 1] ** 2,
            "r2": self.grid.y[:, None] ** 2 + self.grid.x**2,
            "medians": medians,
            "log_flux": np.log(self.flux),
        }

    def hyper(self, h: np.ndarray) -> dict[str, np.ndarray]:
        """Return hyper-parameters by name (lengths in rad) of unit Gaussians h (..., 4)."""
        values = np.exp(self.arrays()["medians"] + SPREAD * h)
        values[..., 2] += 1
        return dict(zip(HYPER, np.moveaxis(values, -1, 0), strict=True))

    def start(self, image: np.ndarray) -> np.ndarray:
        """Return unit Gaussians (n,) whose picture, at median hyper-parameters, is near an image (ny, nx) in Jy."""
        arrays, flux = self.arrays(), image.sum()
        field = np.log(np.maximum(image, 1e-4 * image.max())) + arrays["r2"] / (2 * self.width**2)
        spectrum = np.asarray(_spectrum(arrays["k2"], self.grid.shape, SIGMA, self.length, SLOPE + 1))
        # where the prior has hardly any power a field says nothing about its unit Gaussians
        inverse = spectrum / (spectrum**2 + (0.02 * spectrum.max()) ** 2)
        xi = np.fft.irfft2(inverse * np.fft.rfft2(field - field.mean()), self.grid.shape)
        xi *= min(1.0, 1.0 / xi.std())
        return np.append(xi.ravel(), (np.log(flux) - np.log(self.flux)) / FLUX_SPREAD)


def _spectrum(k2: Any, shape: tuple[int, int], sigma: Any, length: Any, slope: Any) -> Any:
    """Amplitude (ny, nx // 2 + 1) by which white noise of unit variance becomes a field of variance σ², mean zero."""
    power = jnp.where(k2 > 0, (1 + length**2 * k2) ** (-slope), 0.0)
    columns = jnp.arange(k2.shape[1])
    twice = jnp.where((columns == 0) | (2 * columns == shape[1]), 1.0, 2.0)  # the other half is its mirror image
    return sigma * jnp.sqrt(power / (jnp.sum(power * twice) / (shape[0] * shape[1])))


def picture(y: Float[Array, " n"], h: Float[Array, " 4"], arrays: dict[str, Any]) -> Float[Array, "ny nx"]:
    """Image, Jy per pixel, of unit Gaussians y and unit hyper-parameters h."""
    sigma, length, slope, width = jnp.exp(arrays["medians"] + SPREAD * h)
    shape = arrays["r2"].shape
    spectrum = _spectrum(arrays["k2"], shape, sigma, length, slope + 1)
    field = jnp.fft.irfft2(spectrum * jnp.fft.rfft2(y[:-1].reshape(shape)), shape) - arrays["r2"] / (2 * width**2)
    share = jnp.exp(field - jnp.max(field))
    return jnp.exp(arrays["log_flux"] + FLUX_SPREAD * y[-1]) * share / jnp.sum(share)
