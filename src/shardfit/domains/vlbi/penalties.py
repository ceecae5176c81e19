"""Regularisers of a Stokes I image, all of them penalties: larger is worse.

Each is a sum over the pixels of the mask, divided by a scale of its own when `Scales.norm` is on, so that weights mean
about the same for any field, flux and pixel size. Differences see zero beyond the last row and column and nothing
before the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.domains.vlbi.arrays import Array, Float
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.transforms import Pixels, filled

Whole = Float[Array | np.ndarray, " pixels"]  # all pixels, those beyond the mask too
Steps = tuple[Whole, Whole]  # differences to the pixel below and to the one on the right
Scalar = Float[Array, ""]

L1W_SOFT = 1e-10
OF_LOG = ("tvlog", "tv2log")  # measure ln I, so need a positive image
MOMENTS = ("cm", "compact", "compact2")  # in rad² where not normalised


@register_dataclass
@dataclass(frozen=True)
class Scales:
    """What regularisers measure against: grid, flux (Jy), beam (pixels), prior image (n,) Jy per pixel, and options.

    index: (n,) pixels of the mask, None for all; vflux: Jy of circular polarisation; epsilon_tv: added under the root
    of total variation; alpha_a: of lA; major, minor (pixels), pa (rad): of rgauss. All but grid and norm may be swept.
    Lengths are in pixels because powers of radians leave the range of float32.
    """

    flux: Any
    beam: Any
    prior: Any
    index: Any
    vflux: Any
    epsilon_tv: Any
    alpha_a: Any
    major: Any
    minor: Any
    pa: Any
    grid: Grid = field(metadata={"static": True})
    norm: bool = field(default=True, metadata={"static": True})

    def coordinates(self, origin: str = "centre") -> tuple[Any, Any]:
        """East and north coordinate of the mask's pixels, (n,) pixels; origin 'index' counts from n // 2."""
        grid = self.grid
        x, y = (
            (grid.x / grid.pixel_rad, grid.y / grid.pixel_rad)
            if origin == "centre"
            else (grid.nx // 2 - np.arange(grid.nx), grid.ny // 2 - np.arange(grid.ny))
        )
        y, x = (a.ravel().astype(self.prior.dtype) for a in np.meshgrid(y, x, indexing="ij"))
        return (x, y) if self.index is None else (jnp.asarray(x)[self.index], jnp.asarray(y)[self.index])


def differences(whole: Whole, grid: Grid) -> Steps:
    """Differences to the pixel below and to the one on the right, each (ny * nx,); beyond the edge the sky is dark.

    In flat order either is a fixed number of places on: loops over pixels as one row are vectorised.
    """
    last = np.arange(grid.n_pixels) % grid.nx == grid.nx - 1
    return _later(whole, grid.nx) - whole, jnp.where(last, 0, _later(whole, 1)) - whole


def _later(whole: Whole, places: int) -> Whole:
    """Return the pixels so many places on, and zeros from the end on."""
    # split, for its derivative is one concatenation; that of a slice is a sum of padded arrays
    _, rest = jnp.split(whole, [places])
    return jnp.concatenate([rest, jnp.zeros_like(whole[:places])])


def steps(image: Pixels, s: Scales) -> Steps:
    """Differences of a map that is zero beyond the mask."""
    return differences(filled(s.grid, image, s.index), s.grid)


def log_steps(image: Pixels, s: Scales) -> Steps:
    """Differences of ln I; beyond the mask the sky is as faint as the faintest pixel of the prior."""
    faintest = 0.0 if s.index is None else jnp.log(jnp.min(s.prior))
    return differences(filled(s.grid, jnp.log(image), s.index, faintest), s.grid)


def squares(of: Steps) -> Whole:
    """Sum of the squared differences below and on the right, (ny * nx,)."""
    below, right = of
    return below**2 + right**2


@jax.custom_jvp
def variation(of: Steps, epsilon: Any) -> Scalar:
    """Σ sqrt(squares + epsilon); its derivative is zero where the image is flat and epsilon zero."""
    return _lengths(of, epsilon)[0]


def _lengths(of, epsilon):
    """Return the summed length of all differences, and one over each."""
    square = squares(of) + epsilon
    real = square > 0
    inverse = jnp.where(real, jax.lax.rsqrt(jnp.where(real, square, 1.0)), 0.0)
    return jnp.sum(square * inverse), inverse


@variation.defjvp
def _variation_slope(primals, tangents):
    # by hand, for one root serves value and derivative: half the time of the automatic one
    (below, right), _ = primals
    (down, across), epsilon = tangents
    value, inverse = _lengths(*primals)
    return value, jnp.sum(inverse * (below * down + right * across)) + 0.5 * epsilon * jnp.sum(inverse)


def flux(image: Pixels, s: Scales) -> Scalar:
    """(Σ I - F)²."""
    return (jnp.sum(image) - s.flux) ** 2


def simple(image: Pixels, s: Scales) -> Scalar:
    """Σ I ln(I/q), relative entropy."""
    return jnp.sum(_entropy(image, s.prior))


def gs(image: Pixels, s: Scales) -> Scalar:
    """Σ (I ln(I/q) - I + q)."""
    return jnp.sum(_entropy(image, s.prior) - image + s.prior)


def _entropy(image: Pixels, prior: Pixels) -> Pixels:
    positive = image > 0
    return jnp.where(positive, image * jnp.log(jnp.where(positive, image, 1.0) / prior), 0.0)


def l1(image: Pixels, s: Scales) -> Scalar:
    """Σ |I|."""
    return jnp.sum(jnp.abs(image))


def l1w(image: Pixels, s: Scales) -> Scalar:
    """Σ sqrt(I² + e) / (sqrt(q² + e) + e)."""
    return jnp.sum(jnp.sqrt(image**2 + L1W_SOFT) / (jnp.sqrt(s.prior**2 + L1W_SOFT) + L1W_SOFT))


def l_a(image: Pixels, s: Scales) -> Scalar:
    """Σ (2/π) ((1 + a)/a) atan((π a/2) |I|/F): area that carries flux."""
    a = s.alpha_a
    return jnp.sum(2 / jnp.pi * (1 + a) / a * jnp.arctan(jnp.pi * a / 2 * jnp.abs(image) / s.flux))


def patch(image: Pixels, s: Scales) -> Scalar:
    """½ Σ (I - q)²."""
    return 0.5 * jnp.sum((image - s.prior) ** 2)


def cm(image: Pixels, s: Scales) -> Scalar:
    """(Σ I X)² + (Σ I Y)² in pixel² Jy², about the pixel of index n // 2."""
    x, y = s.coordinates("index")
    return jnp.sum(image * x) ** 2 + jnp.sum(image * y) ** 2


def tv(of: Steps, s: Scales) -> Scalar:
    """Total variation of I, or of ln I."""
    return variation(of, s.epsilon_tv)


def tv2(of: Steps, s: Scales) -> Scalar:
    """Sum of squared differences (TSV in the papers) of I, or of ln I."""
    return jnp.sum(squares(of))


def compact(image: Pixels, s: Scales) -> Scalar:
    """Σ I |X - X₀|² in pixel² Jy, with the centroid X₀ = Σ I X / F."""
    x, y = s.coordinates()
    x0, y0 = jnp.sum(image * x) / s.flux, jnp.sum(image * y) / s.flux
    return jnp.sum(image * ((x - x0) ** 2 + (y - y0) ** 2))


def compact2(image: Pixels, s: Scales) -> Scalar:
    """Σ I² |X|² in pixel² Jy²."""
    x, y = s.coordinates()
    return jnp.sum(image**2 * (x**2 + y**2))


def rgauss(image: Pixels, s: Scales) -> Scalar:
    """Squared distance of the second moments from those of a Gaussian, over major² minor²."""
    x, y = s.coordinates()
    share = image / jnp.sum(image)
    x, y = x - jnp.sum(share * x), y - jnp.sum(share * y)
    small, large = (w**2 / (8 * np.log(2)) for w in (s.minor, s.major))
    cos, sin = jnp.cos(s.pa), jnp.sin(s.pa)
    xx = jnp.sum(share * x * x) - (small * cos**2 + large * sin**2)
    yy = jnp.sum(share * y * y) - (small * sin**2 + large * cos**2)
    xy = jnp.sum(share * x * y) - (large - small) * sin * cos
    return (xx**2 + yy**2 + 2 * xy**2) / (s.major * s.minor) ** 2


def _log_scale(s):
    n = s.grid.n_pixels
    return n * jnp.abs(jnp.log(s.flux / n))


def _area(s):
    a = s.alpha_a
    return (1 / (1 + a) + a * s.beam**2) / (1 / (1 + a) + a)


def _one(s):
    return 1.0


# name: (value, divisor when normalised)
PENALTIES: dict[str, tuple[Callable, Callable]] = {
    "flux": (flux, lambda s: s.flux**2),
    "simple": (simple, lambda s: s.flux),
    "gs": (gs, lambda s: s.flux),
    "l1": (l1, lambda s: s.flux),
    "l1w": (l1w, _one),
    "lA": (l_a, _area),
    "patch": (patch, lambda s: s.flux**2),
    "cm": (cm, lambda s: (s.beam * s.flux) ** 2),
    "tv": (tv, lambda s: s.flux / s.beam),
    "tv2": (tv2, lambda s: s.flux**2 / s.beam**4),
    "tvlog": (tv, lambda s: _log_scale(s) / s.beam),
    "tv2log": (tv2, lambda s: _log_scale(s) ** 2 / s.beam**4),
    "compact": (compact, lambda s: s.flux * s.beam**2),
    "compact2": (compact2, lambda s: (s.flux * s.beam) ** 2),
    "rgauss": (rgauss, _one),
}


# what a regulariser is of, where it is not the image itself
VIEWS = {"tv": steps, "tv2": steps, "tvlog": log_steps, "tv2log": log_steps}


def evaluate(names: Sequence[str], image: Pixels, scales: Scales) -> dict[str, Scalar]:
    """Values of Stokes I regularisers by name. image: (n,) Jy per pixel over the mask."""
    seen = {None: image}  # those with one view share it, and the way back from it in a derivative
    seen |= {view: view(image, scales) for view in dict.fromkeys(VIEWS[name] for name in names if name in VIEWS)}
    values = {}
    for name in names:
        value, divisor = PENALTIES[name]
        found = value(seen[VIEWS.get(name)], scales)
        moment = scales.grid.pixel_rad**2 if name in MOMENTS else 1.0
        values[name] = found / divisor(scales) if scales.norm else found * moment
    return values
