"""From an image to visibilities: V(u, v) = pulse(u, v) Σ I_ji exp(+2πi (u x_i + v y_j)), by one of three operators.

- 'separable' holds two short rows per visibility and does two small matrix products. Exact. Pixel columns come in
  pairs ±x, so cosines act on sums and sines on differences of mirrored pixels, which halves the work again.
- 'dense' holds the whole matrix, n x npix numbers, for pixels come in pairs about the centre, too. Exact;
  (nx ny)/(nx + ny) times the memory of 'separable' and slower for one image, but several times faster for a batch of
  images (a survey).
- 'nufft' (package jax-finufft) costs O(n + npix log npix) and is accurate to its tolerance. Even grids only.

`choose` resolves 'auto'. Every operator has the same rows → visibilities interface: terms never know which runs.
"""

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi import nufft
from shardfit.domains.vlbi.arrays import Array, Complex, Float
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.nufft import Nufft

Points = Float[np.ndarray, " n"]  # wavelengths
Pictures = Float[Array | np.ndarray, "*stack ny nx"]  # Jy per pixel
Rows = dict[str, Float[Array | np.ndarray, "n ..."]]

OPERATORS = ("separable", "dense", "nufft")
# ns of value and gradient, fitted to float64 timings on one core of an AMD EPYC, 200 to 20,000 visibilities on 32² to
# 512² pixels; good to a factor of 1.5, of which the ratio of the two operators is what counts
SEPARABLE_PIXEL, SEPARABLE_EDGE = 0.18, 2.6  # for each visibility: by nx ny, and by nx + ny
NUFFT_CALL, NUFFT_POINT, NUFFT_PIXEL = 4e5, 300.0, 450.0
NUFFT_CACHED = 64 * 64  # pixels whose transform stays in a core's own cache, and costs next to nothing
ADVANTAGE = 2.0  # the separable product is exact, so NUFFT must be this much cheaper
INTERMEDIATE_BYTES = 1 << 25  # of one block; the C library reuses memory up to this size, more costs page faults


def as_operator(kind: str | Nufft) -> str | Nufft:
    """Resolve the name of an operator: 'separable', 'dense' or Nufft settings."""
    if isinstance(kind, Nufft) or kind in ("separable", "dense"):
        return kind
    if kind == "nufft":
        return Nufft()
    raise ValueError(f"unknown operator {kind!r}.{suggestion(str(kind), (*OPERATORS, 'auto'))}")


def choose(kind: str | Nufft, grid: Grid, n: int, images: int = 1) -> tuple[str | Nufft, str]:
    """Operator for n visibilities of `images` images, and a sentence that says why.

    'auto' is 'separable' unless NUFFT is predicted to be at least twice as fast on a CPU core, is installed, and can
    take the grid. For surveys (batches of small images) ask for 'dense'.

    Example: `choose("auto", Grid(40, 40, 1e-11), 2595)` gives 'separable' and 'separable: ...'.
    """
    if kind != "auto":
        operator = as_operator(kind)
        return operator, f"{'nufft' if isinstance(operator, Nufft) else operator}: as given"
    exact, fast = seconds(grid, n, images)
    work = f"{n:,} visibilities on {grid.nx} x {grid.ny} pixels" + (f", {images} images" if images > 1 else "")
    if exact < ADVANTAGE * fast:
        other = f"{_times(fast / exact)} cheaper than NUFFT" if exact < fast else "exact, and NUFFT hardly cheaper"
        return "separable", f"separable: {other} for {work}"
    if grid.nx % 2 or grid.ny % 2:
        return "separable", f"separable: NUFFT needs even numbers of pixels, not {grid.nx} x {grid.ny}"
    if jax.default_backend() != "cpu":
        return "separable", f"separable: what NUFFT costs is known for CPUs only, and this is {jax.default_backend()}"
    if not nufft.available():
        return "separable", f"separable: NUFFT would be {_times(exact / fast)} cheaper, but jax-finufft is missing"
    return Nufft(), f"nufft: {_times(exact / fast)} cheaper than the separable product for {work}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


def seconds(grid: Grid, n: int, images: int = 1) -> tuple[float, float]:
    """Predicted time of value and gradient on one CPU core: separable product, NUFFT."""
    separable = n * (SEPARABLE_PIXEL * grid.n_pixels + SEPARABLE_EDGE * (grid.nx + grid.ny))
    fast = images * (NUFFT_CALL + NUFFT_PIXEL * max(0, grid.n_pixels - NUFFT_CACHED)) + NUFFT_POINT * n
    return 1e-9 * separable, 1e-9 * fast


def block_size(kind: str | Nufft, grid: Grid, stokes: int) -> int | None:
    """Visibilities to work on at once, so that intermediate arrays stay small; None: any number."""
    if kind != "separable":
        return None
    return max(1, INTERMEDIATE_BYTES // (4 * 8 * grid.ny * stokes))  # four arrays of float64, forward and backward


def rows_for(grid: Grid, u: Points, v: Points, kind: str | Nufft) -> dict[str, Float[np.ndarray, "n ..."]]:
    """Per-visibility arrays of an operator. u, v: (n,) wavelengths → dict of (n, ...) arrays, float64.

    kind: 'separable', 'dense', 'nufft' or Nufft(...); 'points' gives u and v themselves, for models without pixels.
    Slices of these arrays along the first axis are operators too.
    """
    u, v = np.asarray(u, float), np.asarray(v, float)
    if u.shape != v.shape or u.ndim != 1:
        raise ValueError(f"u has shape {u.shape}, v {v.shape}. Give two vectors of equal length, in wavelengths.")
    if kind == "points":
        return {"u": u, "v": v}
    kind = as_operator(kind)
    if isinstance(kind, Nufft):
        return nufft.rows_for(grid, u, v, kind)
    if kind == "dense":
        return _dense_rows(grid, u, v)
    return {**_half_table(u, grid.x, grid.pulse_factor(u), "x"), **_half_table(v, grid.y, grid.pulse_factor(v), "y")}


def visibilities(kind: str | Nufft, image: Pictures, rows: Rows) -> Complex[Array, "*stack n"]:
    """Model visibilities. image: (..., ny, nx) Jy per pixel; rows: from rows_for, (n, ...) → (..., n) complex Jy."""
    kind = as_operator(kind)
    if isinstance(kind, Nufft):
        return nufft.visibilities(image, rows, kind)
    return _separable(image, rows) if kind == "separable" else _dense(image, rows)


def _half_table(u, x, pulse, axis):
    """Cosine and sine of half the columns; the centre of an odd axis is its own mirror image, so it counts half."""
    half = (len(x) + 1) // 2
    phase = 2 * np.pi * u[:, None] * x[:half]
    share = np.where(x[:half] == x[::-1][:half], 0.5, 1.0) * pulse[:, None]
    return {f"cos_{axis}": share * np.cos(phase), f"sin_{axis}": share * np.sin(phase)}


def _fold(image: Float[Array | np.ndarray, "..."], axis: int) -> tuple[jax.Array, jax.Array]:
    """Sum and difference of the two halves of an axis, mirrored onto each other; a pixel in the middle meets itself."""
    n = image.shape[axis]
    # split, for its derivative is one concatenation; that of a slice is a sum of padded arrays
    first, middle, last = jnp.split(image, [n // 2, n - n // 2], axis)
    last = jnp.flip(last, axis)
    if n % 2:
        first, last = (jnp.concatenate([half, middle], axis) for half in (first, last))
    return first + last, first - last


def _quarters(image: Pictures) -> tuple[Float[Array, "*stack hy hx"], ...]:
    """Parts of the image that are (even, even), (even, odd), (odd, even), (odd, odd) in (y, x)."""
    even_y, odd_y = _fold(image, image.ndim - 2)
    return (*_fold(even_y, image.ndim - 1), *_fold(odd_y, image.ndim - 1))


def _separable(image: Pictures, rows: Rows) -> Complex[Array, "*stack n"]:
    ee, eo, oe, oo = _quarters(image)
    half = ee.shape[-2]
    by_cos = jnp.einsum("nx,...yx->...ny", rows["cos_x"], jnp.concatenate([ee, oe], -2))
    by_sin = jnp.einsum("nx,...yx->...ny", rows["sin_x"], jnp.concatenate([eo, oo], -2))
    cos, sin = rows["cos_y"], rows["sin_y"]
    real = jnp.sum(cos * by_cos[..., :half] - sin * by_sin[..., half:], -1)
    imag = jnp.sum(cos * by_sin[..., :half] + sin * by_cos[..., half:], -1)
    return jax.lax.complex(real, imag)


def _dense_rows(grid: Grid, u: Points, v: Points) -> dict[str, np.ndarray]:
    """Cosine and sine of the first half of the pixels; one in the middle is its own mirror image, so it counts half."""
    half = (grid.n_pixels + 1) // 2
    x, y = grid.x, grid.y[: (grid.ny + 1) // 2]
    along_x, along_y = (
        grid.pulse_factor(w)[:, None] * np.exp(2j * np.pi * w[:, None] * at) for w, at in ((u, x), (v, y))
    )
    wave = (along_y[:, :, None] * along_x[:, None, :]).reshape(len(u), -1)[:, :half]
    if grid.n_pixels % 2:
        wave[:, -1] *= 0.5
    return {"real": np.real(wave).copy(), "imag": np.imag(wave).copy()}


def _dense(image: Pictures, rows: Rows) -> Complex[Array, "*stack n"]:
    # about the centre the k-th pixel from the front mirrors the k-th from the back
    even, odd = _fold(image.reshape(*image.shape[:-2], -1), image.ndim - 2)
    real, imag = (jnp.einsum("np,...p->...n", rows[part], half) for part, half in (("real", even), ("imag", odd)))
    return jax.lax.complex(real, imag)
