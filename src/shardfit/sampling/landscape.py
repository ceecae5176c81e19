"""What can be asked of a density: minima, values of many points, curvatures; each is one compiled program."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.centring import centred
from shardfit.core.gram import Gram
from shardfit.core.mesh import replicate
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.curvature import hessian
from shardfit.sampling.density import as_objective, values_on_z
from shardfit.solve.base import Finish, Task
from shardfit.solve.lbfgsb import LBFGSB
from shardfit.solve.monitor import Monitor
from shardfit.stats.laplace import hessian_product

DENSE = 200  # coordinates up to which a Hessian is formed
STEPS = 300
GATOL = 1e-6  # slopes of a density, in nats, that are none
BATCH = 256  # points whose values are asked for at once: always as many, so that they share a program
POLISHING = 12  # steps by curvature
LENGTHS = 2.0 ** -np.arange(-3, 13)  # of such a step
STEEP, HALVINGS = 3.0, 120  # rise of -log density at one width, of which a Gaussian has 0.5, above which it is halved
PROBES, LEAST = 16, 0.1  # products with the Hessian for its diagonal; least entry, in typical ones
FLAT = 1e-11  # curvature, relative to the largest, below which a direction may have no end


class Landscape:
    """A problem in unconstrained coordinates, seen as a density of them. density: the same as one objective."""

    def __init__(self, problem: Problem, mesh: Any = None, seed: int = 0):
        self.problem, self.mesh, self.seed = problem, mesh, seed
        self.density = as_objective(problem)
        self.space: Space = problem.space

    @cached_property
    def objective(self) -> Objective:
        """-log density, placed."""
        return centred(self.density.objective.place(self.mesh), self.problem.x0)

    @cached_property
    def curved(self) -> bool:
        """Whether a Hessian can be had: not of too many coordinates, nor of a model without second derivatives."""
        z = self._at(self.problem.z0())
        if z.size > DENSE:
            return False
        try:
            jax.eval_shape(_curvature, self.space, self.objective, z)
        except (
            Exception
        ):  # JAX refuses in several ways, before anything is computed; first derivatives were there for the fit
            return False
        return True

    def widths(self, z: np.ndarray) -> np.ndarray | None:
        """Return about what standard deviations (n,) there are around z, from random probes of the curvature; None
        where there are none.
        """
        try:
            diagonal = np.asarray(_diagonal(self.space, self.objective, self._at(z)), float)
        except Exception:  # a model without second derivatives, as in `curved`
            return None
        typical = np.median(np.abs(diagonal))
        if not (np.isfinite(diagonal).all() and typical > 0):
            return None
        return 1 / np.sqrt(np.maximum(diagonal, LEAST * typical))

    def descend(self, z: np.ndarray, steps: int = STEPS) -> Finish:
        """Minimise -log density from z."""
        monitor = Monitor(None, None, None, None)
        z = np.asarray(z, self.problem.z0().dtype)
        task = Task(self.density, self.space, z, None, self.objective, self.mesh, self.seed, monitor, trusted=True)
        finish = LBFGSB(maxiter=steps, gatol=GATOL).solve(task)
        if finish.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return finish

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return -log density at points (m, n)."""
        placed, dtype = self._plain, self.problem.z0().dtype
        found = []
        for i in range(0, len(points), BATCH):
            batch = np.resize(points[i : i + BATCH], (BATCH, points.shape[1])).astype(dtype)  # copies fill it
            found.append(np.asarray(values_on_z(placed, self.space, jnp.asarray(batch)), float)[: len(points) - i])
        return np.concatenate(found) if found else np.zeros(0)

    def around(self, z: np.ndarray) -> Gram:
        """Return value, gradient (n,) and Hessian (n, n) at z."""
        return jax.device_get(_curvature(self.space, self.objective, self._at(z)))

    @cached_property
    def _plain(self) -> Objective:
        return self.problem.objective.place(self.mesh)

    def _at(self, z: np.ndarray) -> jax.Array:
        return replicate(jnp.asarray(z), self.mesh)


@dataclass(frozen=True)
class Bowl:
    """The quadratic that a density has at a point z: value, gradient in units of its widths, root (n, n) of the inverse
    of |Hessian|, and log of its determinant. flat, upward: directions (k, n) without curvature, or with the wrong one.
    """

    z: np.ndarray
    value: float
    slope: np.ndarray
    root: np.ndarray
    log_det: float
    flat: np.ndarray
    upward: np.ndarray

    @property
    def minimum(self) -> bool:
        """Whether the point is a minimum, to a small part of the widths."""
        return not len(self.upward) and bool(np.linalg.norm(self.slope) < 0.3)

    @property
    def log_weight(self) -> float:
        """Laplace's log of the integral of the density around the minimum."""
        return float(0.5 * self.z.size * np.log(2 * np.pi) - self.value + self.log_det)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Return how far points (..., n) are, in widths."""
        return np.linalg.norm(
            np.linalg.solve(self.root, np.moveaxis(points - self.z, -1, 0).reshape(self.z.size, -1)), axis=0
        ).reshape(points.shape[:-1])


def bowl(landscape: Landscape, z: np.ndarray, floor: float = FLAT**0.5) -> Bowl | None:
    """Return the quadratic at z, None where it has no finite curvature. floor: least, relative to the largest."""
    here = landscape.around(z)
    if not (np.isfinite(here.matrix).all() and np.isfinite(here.gradient).all() and np.isfinite(here.value)):
        return None
    matrix = np.asarray(here.matrix, float)
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny ** 0.5))
    size, direction = np.linalg.eigh(matrix / np.outer(scale, scale))
    if not np.abs(size).max() > 0:  # as of a kink between straight lines
        return None
    turned = (direction / scale[:, None]).T
    bounded = np.maximum(np.abs(size), floor * np.abs(size).max())
    root = np.linalg.cholesky((turned.T / bounded) @ turned)
    return Bowl(
        z=np.asarray(z),
        value=float(here.value),
        slope=root.T @ np.asarray(here.gradient, float),
        root=root,
        log_det=float(np.sum(np.log(np.diag(root)))),
        flat=turned[size < FLAT * size[-1]],
        upward=turned[size < -1e-6 * size[-1]],
    )


def polished(landscape: Landscape, here: Bowl) -> Bowl:
    """Return the minimum that steps by curvature lead to from near it, or where they end.

    A fit may stop early, for its tolerances know nothing of the widths: with gradients of 1e-9 it does at once.
    """
    for _ in range(POLISHING):
        if here.minimum:
            break
        points = here.z - np.outer(LENGTHS, here.root @ here.slope)
        values = np.nan_to_num(landscape.values(points), nan=np.inf)
        best = int(np.argmin(values))
        there = bowl(landscape, points[best]) if values[best] < here.value else None
        if there is None:
            break
        here = there
    return here


def narrowed(landscape: Landscape, here: Bowl) -> Bowl:
    """Return the quadratic with smaller widths along axes where the density rises faster than its curvature says.

    So it does along a bent ridge, which curvature takes for a straight one without end.
    """
    unit = np.linalg.norm(here.root, axis=1)
    turned, size, _ = np.linalg.svd(here.root / unit[:, None])
    axes = (unit[:, None] * turned * size).T
    share, steep = np.ones(len(axes)), np.arange(len(axes))
    for _ in range(HALVINGS):
        ends = here.z + np.array([1, -1])[:, None, None] * share[steep, None] * axes[steep]
        rises = landscape.values(ends.reshape(-1, here.z.size)).reshape(2, -1) - here.value
        steep = steep[~(np.min(rises, axis=0) < STEEP)]
        if not len(steep):
            break
        share[steep] /= 2
    if (share == 1).all():
        return here
    root = np.linalg.cholesky((axes.T * share**2) @ axes)
    return replace(here, root=root, log_det=float(np.sum(np.log(np.diag(root)))))


@jax.jit
def _curvature(space: Space, objective: Objective, z: jax.Array) -> Gram:
    return hessian(objective, space, z)


@jax.jit
def _diagonal(space: Space, objective: Objective, z: jax.Array) -> jax.Array:
    signs = jax.random.rademacher(jax.random.key(0), (PROBES, z.size), z.dtype)
    return jnp.mean(jax.lax.map(lambda sign: sign * hessian_product(space, objective, z, sign), signs), 0)
