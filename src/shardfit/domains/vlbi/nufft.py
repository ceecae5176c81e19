"""Non-uniform FFT operator, on the optional package jax-finufft.

The package's own batching rule and its gradient on split rows are not right on every version, so its two transforms
are wrapped: a batch of images becomes one stacked transform, and the pull-back of type 2 is type 1 with the same
exponent sign, which adds up over visibilities wherever they live. `rows_for` runs a small check of value, gradient and
batch against exact sums before anything is fitted.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.extras import MissingPart
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.arrays import Array, Complex, Float
from shardfit.domains.vlbi.grid import Grid


@dataclass(frozen=True)
class Nufft:
    """Settings of the NUFFT operator; pass it in place of the name 'nufft'.

    tolerance: relative accuracy (not below 1e-6 in float32). threads: 0 lets the library use all cores; 1 is right when
    devices or processes already share them.
    """

    tolerance: float = 1e-9
    threads: int = 1

    def __post_init__(self):
        if not 1e-15 <= self.tolerance < 0.1:
            raise ValueError(f"Nufft: tolerance={self.tolerance!r} must lie between 1e-15 and 0.1.")
        if self.threads < 0:
            raise ValueError(f"Nufft: threads={self.threads!r} must be 0 (all cores) or a number of threads.")


def available() -> bool:
    """Whether jax-finufft is installed."""
    return find_spec("jax_finufft") is not None


def rows_for(
    grid: Grid, u: Float[np.ndarray, " n"], v: Float[np.ndarray, " n"], settings: Nufft
) -> dict[str, Float[np.ndarray, " n"]]:
    """Points and factors of the transform. u, v: (n,) wavelengths → x, y (n,) radians per pixel; real, imag (n,)."""
    if not available():
        raise MissingPart(
            "operator 'nufft' needs jax-finufft: pip install 'shardfit[vlbi]', or use operator='separable'.",
            name="jax_finufft",
        )
    if grid.nx % 2 or grid.ny % 2:
        raise ValueError(
            f"operator 'nufft' needs even numbers of pixels, not {grid.ny} x {grid.nx}. Add a row or column, or use "
            "operator='separable'."
        )
    x, y = (2 * np.pi * w * grid.pixel_rad for w in (u, v))
    longest = max(np.abs(x).max(initial=0.0), np.abs(y).max(initial=0.0))
    if longest > np.pi:
        raise ValueError(
            f"pixels of {grid.pixel_rad:.3g} rad are {longest / np.pi:.3g} times too large for the longest baseline "
            "(|2π u p| must not exceed π). Use smaller pixels, or operator='separable'."
        )
    self_test(settings)
    return _rows(grid, u, v)


def visibilities(
    image: Float[Array | np.ndarray, "*stack ny nx"], rows: dict[str, Float[Array | np.ndarray, " n"]], settings: Nufft
) -> Complex[Array, "*stack n"]:
    """Model visibilities. image: (..., ny, nx) real; rows: from rows_for → (..., n) complex."""
    stack = image.reshape(-1, *image.shape[-2:])
    factor = jax.lax.complex(rows["real"], rows["imag"])
    source = jnp.swapaxes(stack, 1, 2).astype(factor.dtype)
    vis = _transform(settings, source.shape[1:])(source, rows["x"], rows["y"]) * factor
    return vis.reshape(*image.shape[:-2], vis.shape[-1])


def _rows(grid, u, v):
    # pixel i lies at -(i - n/2 + 1/2) p: mode number i - n/2, and half a pixel that becomes this phase
    phase = -np.pi * grid.pixel_rad * (u + v)
    pulse = grid.pulse_factor(u) * grid.pulse_factor(v)
    x, y = (2 * np.pi * w * grid.pixel_rad for w in (u, v))
    return {"x": x, "y": y, "real": pulse * np.cos(phase), "imag": pulse * np.sin(phase)}


@lru_cache
def _transform(settings: Nufft, shape: tuple[int, int]):
    """Type-2 transform of a stack (s, *shape) at points x, y (n,) → (s, n), with its own derivative and batching."""
    import jax_finufft

    def options(points):
        floor = 1e-6 if points.dtype == np.float32 else 0.0
        from jax_finufft.options import Opts

        opts = Opts(nthreads=settings.threads)
        return {"iflag": -1, "eps": max(settings.tolerance, floor), "opts": opts}

    type2 = _stacked(lambda source, x, y: jax_finufft.nufft2(source, x, y, **options(x)))
    type1 = _stacked(lambda values, x, y: jax_finufft.nufft1(shape, values, x, y, **options(x)))

    @jax.custom_vjp
    def transform(source, x, y):
        return type2(source, x, y)

    def forward(source, x, y):
        return type2(source, x, y), (x, y)

    def backward(points, cotangent):
        # points are data: nothing asks for their derivative
        return type1(cotangent, *points), *map(jnp.zeros_like, points)

    transform.defvjp(forward, backward)
    return transform


def _stacked(fn):
    """Let vmap of fn(stack, x, y) widen the stack instead of reaching the primitive."""
    wrapped = jax.custom_batching.custom_vmap(fn)

    @wrapped.def_vmap
    def rule(size, batched, stack, x, y):
        if batched[1] or batched[2]:
            spread = [
                a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip((stack, x, y), batched, strict=True)
            ]
            return jax.lax.map(lambda args: wrapped(*args), tuple(spread)), True
        out = wrapped(stack.reshape(-1, *stack.shape[2:]), x, y)
        return out.reshape(size, -1, *out.shape[1:]), True

    return wrapped


@lru_cache
def self_test(settings: Nufft) -> None:
    """Compare value, gradient and a batch of both with exact sums on a tiny case; raise if they differ."""
    grid = Grid(8, 6, 1.0)
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-0.45, 0.45, (2, 5))
    images, data = rng.normal(size=(3, 6, 8)), rng.normal(size=5) + 1j * rng.normal(size=5)
    pulse = grid.pulse_factor(u) * grid.pulse_factor(v)
    phase = 2j * np.pi * (u[:, None, None] * grid.x + v[:, None, None] * grid.y[:, None])
    matrix = pulse[:, None] * np.exp(phase).reshape(5, -1)
    difference = images.reshape(3, -1) @ matrix.T - data

    def misfit(image, rows, data):
        off = visibilities(image, rows, settings) - data
        return jnp.sum(off.real**2 + off.imag**2)

    remedy = "Use operator='separable', or another version of jax-finufft."
    try:
        with arithmetic("float64"):
            found = jax.jit(jax.vmap(jax.value_and_grad(misfit), (0, None, None)))(images, _rows(grid, u, v), data)
    except Exception as error:
        raise RuntimeError(f"jax-finufft does not work with this jax ({error}). {remedy}") from error
    expected = np.sum(np.abs(difference) ** 2, 1), 2 * np.real(difference.conj() @ matrix).reshape(3, 6, 8)
    error = max(np.abs(np.asarray(a) - b).max() / np.abs(b).max() for a, b in zip(found, expected, strict=True))
    if not error <= max(100 * settings.tolerance, 1e-11):
        raise RuntimeError(
            f"jax-finufft gives visibilities or gradients wrong by {error:.1e} on this machine (allowed: "
            f"{max(100 * settings.tolerance, 1e-11):.0e}). {remedy}"
        )
