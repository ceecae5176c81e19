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
