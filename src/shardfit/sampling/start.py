"""Where chains begin: the mode of the density and the Gaussian around it.

A good covariance is most of a warm-up, so the fit comes first. A mode that does not exist (a hierarchy whose density
grows without end in a corner) or that is no Gaussian is no obstacle: chains then begin at x0 and find their own scales.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.certificate import certify, certify_answer
from shardfit.core.mesh import replicate
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import in_its_precision
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.curvature import hessian
from shardfit.fitting import fit
from shardfit.sampling.density import as_objective
from shardfit.sampling.owned import read_owned, write_owned
from shardfit.sampling.proper import FAR, LEAST_FALL, improper
from shardfit.solve.base import evaluate

DENSE = 200  # coordinates up to which a Hessian is formed
FLAT = 1e-11  # curvature, relative to the largest, below which a direction may have no end
STEPS = 300


class Start(NamedTuple):
    """z (n,), a factor of the covariance: root (n, n) with root @ root.T, or (n,) standard deviations; what to know."""

    z: np.ndarray
    root: np.ndarray | None
    note: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """What a sampler begins with."""
        return {} if self.root is None else {"root": self.root}


def read_start(path: Path, run: str) -> Start | None:
    """Return a start that was kept, None if there is none; raise for that of another run."""
    if not path.exists():
        return None
    arrays = read_owned(path, run, "Start anew with resume='never'.")
    return Start(arrays["z"], arrays.get("root"), str(arrays["note"]))


def write_start(path: Path, start: Start, run: str) -> None:
    """Keep a start, so that a run goes on as it began whatever the devices. run: digest of what is computed."""
    write_owned(path, {"z": start.z, **start.given, "note": start.note}, run)


@in_its_precision
def find_start(problem: Problem, mesh: Any = None, seed: int = 0, how: str = "fit") -> Start:
    """Return where to begin. problem: in unconstrained coordinates; how: 'fit', or 'x0' for no fit at all."""
    if how not in ("fit", "x0"):
        raise ValueError(f"start={how!r} must be 'fit' or 'x0'.")
    z0, density = problem.z0(), as_objective(problem)
    if how == "x0":
        _require_proper(problem, density.objective.place(mesh), replicate(jnp.asarray(z0), mesh))
        return Start(z0, None)
    # on the host: a loop on the device would be a program of its own, which takes longer to compile than to run
    certificate = certify(problem, mesh=mesh)  # of the user's terms, whatever the seed: a problem is certified once
    result = fit(density, "lbfgsb", maxiter=STEPS, mesh=mesh, seed=seed, certify=False, progress=False)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    z = problem.space.host_z(result.params)
    certify_answer(problem, certificate, z, mesh=mesh)
    if result.status is Status.NONFINITE or not np.isfinite(z).all():
        return Start(z0, None, "The density has no mode that a fit could reach: chains began at x0.")
    if z.size > DENSE:
        return Start(z, None)
    placed = density.objective.place(mesh)
    at = replicate(jnp.asarray(z), mesh)
    if not _differentiable_twice(problem.space, placed, at):
        return Start(z, None, "The model has no second derivatives: chains began at the mode with scales of their own.")
    curvature = np.asarray(_hessian(problem.space, placed, at))
    if not np.isfinite(curvature).all():
        return Start(z0, None, "The curvature at the mode is not finite: chains began at x0.")
    return _with_root(problem, placed, z, curvature)


def _require_proper(problem: Problem, placed: Objective, z: jax.Array) -> None:
    """Raise if the density has no end in some direction from z, as far as second derivatives can tell."""
    if z.size <= DENSE and _differentiable_twice(problem.space, placed, z):
        curvature = np.asarray(_hessian(problem.space, placed, z))
        if np.isfinite(curvature).all():
            _with_root(problem, placed, np.asarray(z), curvature)


def _with_root(problem: Problem, placed: Objective, z: np.ndarray, curvature: np.ndarray) -> Start:
    scale = np.sqrt(np.maximum(np.abs(np.diag(curvature)), np.finfo(z.dtype).tiny ** 0.5))
    size, direction = np.linalg.eigh(curvature / np.outer(scale, scale))
    _require_end(problem, placed, z, (direction[:, size < FLAT * size[-1]] / scale[:, None]).T)
    note = "The density curves upwards at the end of the fit." if (size < -1e-6 * size[-1]).any() else ""
    size = np.maximum(np.abs(size), FLAT**0.5 * np.abs(size[-1]))
    covariance = (direction / size) @ direction.T / np.outer(scale, scale)
    return Start(z, np.linalg.cholesky(covariance).astype(z.dtype), note)


def _require_end(problem: Problem, placed: Objective, z: np.ndarray, directions: np.ndarray) -> None:
    """Raise if the density does not fall along a direction without curvature: it has no integral then."""
    space = problem.space
    here = float(evaluate("value", space, placed, jnp.asarray(z), None))
    for direction in directions:
        unit = direction / np.max(np.abs(direction))
        for side in (FAR, -FAR):
            there = float(evaluate("value", space, placed, jnp.asarray(z + side * unit, z.dtype), None))
            if np.isfinite(there) and there - here < LEAST_FALL:
                raise improper(np.array(space.coordinate_labels())[np.abs(unit) > 0.1])


def _differentiable_twice(space: Space, objective: Objective, z: jax.Array) -> bool:
    try:
        jax.eval_shape(_hessian, space, objective, z)
    except (
        Exception
    ):  # JAX refuses in several ways, before anything is computed; first derivatives were there for the fit
        return False
    return True


@jax.jit
def _hessian(space: Space, objective: Objective, z: jax.Array) -> jax.Array:
    return hessian(objective, space, z).matrix
