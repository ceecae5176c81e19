"""Functions with many minima or a curved valley, shifted and rotated by a random draw per seed; the minimum is 0.

Every function works on NumPy and on JAX arrays (xp) along the last axis, so that each peer is given its own kind.
"""

from typing import Any, NamedTuple

import numpy as np


def ackley(y: Any, xp: Any) -> Any:
    d = y.shape[-1]
    root = xp.sqrt(xp.sum(y**2, -1) / d)
    return 20 + np.e - 20 * xp.exp(-0.2 * root) - xp.exp(xp.sum(xp.cos(2 * np.pi * y), -1) / d)


def rastrigin(y: Any, xp: Any) -> Any:
    return xp.sum(y**2 - 10 * xp.cos(2 * np.pi * y) + 10, -1)


def rosenbrock(y: Any, xp: Any) -> Any:
    y = y + 1
    return xp.sum(100 * (y[..., 1:] - y[..., :-1] ** 2) ** 2 + (1 - y[..., :-1]) ** 2, -1)


def griewank(y: Any, xp: Any) -> Any:
    scale = np.sqrt(np.arange(1, y.shape[-1] + 1))
    return 1 + xp.sum(y**2, -1) / 4000 - xp.prod(xp.cos(y / scale), -1)


def spec_ackley(y: Any, xp: Any) -> Any:
    """The 4-D demonstration: centred, along the axes, with factors 1/2 instead of 1/d."""
    root = xp.sqrt(xp.sum(y**2, -1) / 2)
    return np.e**2 - 20 * xp.exp(-0.2 * root) + 20 - xp.exp(xp.sum(xp.cos(2 * np.pi * y), -1) / 2)


def ellipsoid(y: Any, xp: Any) -> Any:
    return xp.sum(10.0 ** (6 * np.arange(y.shape[-1]) / (y.shape[-1] - 1)) * y**2, -1)


def cigar(y: Any, xp: Any) -> Any:
    return y[..., 0] ** 2 + 1e6 * xp.sum(y[..., 1:] ** 2, -1)


def powers(y: Any, xp: Any) -> Any:
    """Different powers: a valley that grows flatter towards the minimum, on some axes more than on others."""
    return xp.sum(xp.abs(y) ** (2 + 4 * np.arange(y.shape[-1]) / (y.shape[-1] - 1)), -1)


def levy(y: Any, xp: Any) -> Any:
    w = 1 + y / 4
    inner = (w[..., :-1] - 1) ** 2 * (1 + 10 * xp.sin(np.pi * w[..., :-1] + 1) ** 2)
    last = (w[..., -1] - 1) ** 2 * (1 + xp.sin(2 * np.pi * w[..., -1]) ** 2)
    return xp.sin(np.pi * w[..., 0]) ** 2 + xp.sum(inner, -1) + last


def schaffer(y: Any, xp: Any) -> Any:
    """Schaffer's F7: rings around the minimum, whose heights shrink towards it."""
    s = xp.sqrt(y[..., :-1] ** 2 + y[..., 1:] ** 2 + 1e-300)
    return xp.mean(xp.sqrt(s) * (1 + xp.sin(50 * s**0.2) ** 2), -1) ** 2


def alpine(y: Any, xp: Any) -> Any:
    """Kinks and many minima, without the structure of a grid."""
    return xp.sum(xp.abs(y * xp.sin(y) + 0.1 * y), -1)


class Landscape(NamedTuple):
    """A function on [-half, half]^dims; solved when the value is below `solved`: in the right basin."""

    name: str
    function: Any
    dims: int
    half: float
    solved: float
    steps: int
    moved: bool = True

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the minimum is (dims,) and a rotation (dims, dims)."""
        if not self.moved:
            return np.zeros(self.dims), np.eye(self.dims)
        rng = np.random.default_rng([seed, self.dims])
        rotation, _ = np.linalg.qr(rng.standard_normal((self.dims, self.dims)))
        return rng.uniform(-0.6, 0.6, self.dims) * self.half, rotation


KINDS = ((ackley, 5.0, 0.05), (rastrigin, 5.12, 0.5), (rosenbrock, 5.0, 0.5), (griewank, 50.0, 0.05))
LANDSCAPES = {
    "ackley-spec": Landscape("ackley-spec", spec_ackley, 4, 5.0, 0.05, 100, moved=False),
    **{
        f"{function.__name__}-{dims}": Landscape(f"{function.__name__}-{dims}", function, dims, half, solved, steps)
        for dims, steps in ((4, 100), (10, 300))
        for function, half, solved in KINDS
    },
}

# all in 10 dimensions, 12,000 evaluations at 20 a step
TEN = {
    function.__name__: Landscape(function.__name__, function, 10, half, 1e-6, 600)
    for function, half in (
        *((ellipsoid, 5.0), (cigar, 5.0), (powers, 5.0), (rosenbrock, 5.0), (ackley, 5.0)),
        *((levy, 10.0), (griewank, 50.0), (rastrigin, 5.12), (schaffer, 10.0), (alpine, 10.0)),
    )
}
