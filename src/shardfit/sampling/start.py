"""Where chains begin: in the modes of the density, each with the Gaussian around it.

A good covariance is most of a warm-up, so fits come first. Where there is no mode (a hierarchy whose density grows
without end in a corner), or one whose Gaussian is not like the density, chains begin at the point on the way there
whose Gaussian is: that of the largest evidence lower bound (Zhang, Carpenter, Gelman and Vehtari, JMLR 23, 2022).
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.check.certificate import certify, certify_answer
from shardfit.core.current import working_on_it
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.fitting import fit
from shardfit.sampling.endless import require_end, require_fall
from shardfit.sampling.landscape import BATCH, DENSE, GATOL, STEPS, Bowl, Landscape, bowl
from shardfit.sampling.modes import Modes, caveats, end_of, find_modes, minimum
from shardfit.sampling.run_arrays import read_run_arrays, write_run_arrays

TRIED = 16  # draws of a Gaussian that are compared with the density
UNLIKE = 10.0  # difference of -log density from a Gaussian's, at half of its draws, beyond which it is of no use
WIDTHS = 6.0 ** -np.arange(BATCH // TRIED)
LEAST_CURVATURE = 1e-6  # relative to the largest, on the way to a mode
FIT, X0 = "fit", "x0"


class Start(NamedTuple):
    """z (n,), a factor of the covariance: root (n, n) with root @ root.T, or about (n,) standard deviations; a note.

    modes: all that matter, None where none is known. points: (chains, n) where chains begin, None for around z.
    """

    z: np.ndarray
    root: np.ndarray | None
    note: str = ""
    modes: Modes | None = None
    points: np.ndarray | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What a sampler begins with."""
        return {} if self.root is None else {"root": self.root}

    def gaussians(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return mean and covariance of every mode, or of what is known of where chains begin."""
        if self.modes is not None and self.modes.roots is not None:
            return [(z, root @ root.T) for z, root in zip(self.modes.z, self.modes.roots, strict=True)]
        if self.root is None or self.root.ndim == 1:
            return []
        root = np.asarray(self.root, float)
        return [(np.asarray(self.z, float), root @ root.T)]

    def of_group(self, number: int, groups: int) -> dict[str, Any]:
        """Return what one of several groups of chains begins with."""
        own = {} if self.points is None else {"points": np.split(self.points, groups)[number].astype(self.z.dtype)}
        return self.given | own

    def for_chains(self, chains: int, seed: int) -> "Start":
        """Return the start with points for so many chains, where they do not all begin around z."""
        if self.points is not None and len(self.points) != chains:
            raise ValueError(f"start: {len(self.points)} points for {chains} chains. Give each chain its own.")
        if self.points is not None or self.root is None or self.modes is None or not self.modes.several:
            return self
        spread = np.random.default_rng([seed, chains])
        points = self.modes.starts(chains, spread)
        if self.root.ndim == 1:  # the modes have no widths of their own
            points = points + self.root * spread.standard_normal(points.shape)
        return self._replace(points=points)


def read_start(path: Path, run: str) -> Start | None:
    """Return a start that was kept, None if there is none; raise for that of another run."""
    if not path.exists():
        return None
    arrays = read_run_arrays(path, run, "Start anew with resume='never'.")
    modes = None
    if "mode_z" in arrays:
        modes = Modes(arrays["mode_z"], arrays["mode_weight"], arrays.get("mode_roots"), float(arrays["mode_log_z"]))
    return Start(arrays["z"], arrays.get("root"), str(arrays["note"]), modes, arrays.get("points"))


def write_start(path: Path, start: Start, run: str) -> None:
    """Keep a start, so that a run goes on as it began whatever the devices. run: digest of what is computed."""
    arrays = {"z": start.z, **start.given, "note": start.note, "points": start.points}
    if start.modes is not None:
        modes = start.modes
        arrays |= {"mode_z": modes.z, "mode_weight": modes.weight, "mode_roots": modes.roots, "mode_log_z": modes.log_z}
    write_run_arrays(path, {name: array for name, array in arrays.items() if array is not None}, run)


@working_on_it
def find_start(problem: Problem, mesh: Any = None, seed: int = 0, how: Any = FIT) -> Start:
    """Return where to begin. problem: in unconstrained coordinates; how: 'fit', 'x0', or points, one for each chain.

    Points are parameters: a pytree like x0 whose leaves have an axis of chains before their own, or an array of all
    their free numbers (chains, p).
    """
    landscape, points = Landscape(problem, mesh, seed), None
    if isinstance(how, str):
        if how not in (FIT, X0):
            raise ValueError(f"start={how!r} must be 'fit', 'x0', or points: parameters with an axis of chains first.")
    else:
        points = _coordinates(problem, how)
    # of the user's terms, whatever the seed: a problem is certified once
    certificate = certify(problem, mesh=mesh) if points is None and how == FIT else None
    if certificate is not None:
        # on the host: a loop on the device would be a program of its own, which takes longer to compile than to run
        result = fit(
            landscape.density, "lbfgsb", maxiter=STEPS, gatol=GATOL, mesh=mesh, seed=seed, certify=False, progress=False
        )
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        z = problem.space.host_z(result.params)
        if landscape.curved and (here := bowl(landscape, z)) is not None:
            require_end(landscape, here)
            require_fall(landscape, here)
        certify_answer(problem, certificate, z, mesh=mesh)
        return _from_fit(landscape, z, result.value, result.status, seed)
    z0 = problem.z0()
    if landscape.curved and (here := bowl(landscape, z0)) is not None:
        require_end(landscape, here)
    modes = find_modes(landscape, minimum(landscape, z0), z0, seed)
    start = _in_modes(landscape, modes) if modes is not None else Start(z0, None)
    return Start(
        z0 if points is None else points[0], None, start.note if modes and modes.several else "", modes, points
    )


def _from_fit(landscape: Landscape, z: np.ndarray, value: float, status: Status, seed: int) -> Start:
    """Return the start in the modes around the answer of a fit, and of others."""
    z0 = landscape.problem.z0()
    if status is Status.NONFINITE or not np.isfinite(z).all():
        modes = find_modes(landscape, None, z0, seed)
        if modes is not None:
            return _in_modes(landscape, modes)
        return Start(z0, None, "The density has no mode that a fit could reach: chains began at x0.")
    first = end_of(landscape, z, value, status.converged)
    modes = find_modes(landscape, first, z, seed)
    if landscape.curved and not (modes is not None and (modes.several or _alike(landscape, modes))):
        return _on_the_way(landscape, z)
    if landscape.curved and modes is not None:
        return _in_modes(landscape, modes)
    widths = landscape.widths(z) if z.size > DENSE else None
    note = "" if z.size > DENSE else "The model has no second derivatives: chains began with scales of their own."
    return Start(z, None if widths is None else widths.astype(z.dtype), note, modes)


def _in_modes(landscape: Landscape, modes: Modes) -> Start:
    dtype = landscape.problem.z0().dtype
    root = None if modes.roots is None else modes.roots[0].astype(dtype)
    note = f"The density has {len(modes)} modes (weights by Laplace: {caveats(modes, landscape.space)})."
    return Start(modes.z[0].astype(dtype), root, note if modes.several else "", modes)


def _alike(landscape: Landscape, modes: Modes) -> bool:
    """Return whether the density is like its Gaussian at draws of it around the heaviest mode."""
    assert modes.roots is not None
    noise = np.random.default_rng(0).standard_normal((TRIED, modes.z.shape[1]))
    values = landscape.values(np.vstack([modes.z[:1], modes.z[0] + noise @ modes.roots[0].T]))
    away = np.abs(values[1:] - values[0] - 0.5 * np.sum(noise**2, axis=1))
    return bool(np.median(np.where(np.isnan(away), np.inf, away)) < max(UNLIKE, modes.z.shape[1]))


def _on_the_way(landscape: Landscape, z: np.ndarray) -> Start:
    """Return the point of a fit's path, its end included, whose Gaussian is most like the density."""
    z0, points = landscape.problem.z0(), []
    for steps in (1, 2, 4, 8, 16, 32, 64, 128):
        finish = landscape.descend(z0, steps)
        points.append(finish.z)
        if finish.steps < steps:
            break
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for point in (z0, *points, z):
        here = bowl(landscape, point, LEAST_CURVATURE)
        if here is None:
            continue
        step = (
            here.slope * min(1.0, 2 * np.sqrt(z.size) / np.linalg.norm(here.slope)) if here.slope.any() else here.slope
        )
        for centre in (here.z, here.z - here.root @ step):
            bound, width = _lower_bound(landscape, here, centre)
            if best is None or bound > best[0]:
                best = bound, centre, width * here.root
    if best is None or not np.isfinite(best[0]):
        return Start(z0, None, "The curvature is finite nowhere on the way to the mode: chains began at x0.")
    note = "The density has no mode like a Gaussian: chains began on the way there, where one fits best."
    return Start(best[1].astype(z0.dtype), best[2].astype(z0.dtype), note)


def _lower_bound(landscape: Landscape, here: Bowl, centre: np.ndarray) -> tuple[float, float]:
    """Return the largest evidence lower bound of Gaussians around a centre, up to a constant, and its width in widths
    of the quadratic, which are too long where the density is nearly flat.
    """
    noise = np.random.default_rng(0).standard_normal((TRIED, here.z.size)) @ here.root.T
    values = landscape.values((centre + WIDTHS[:, None, None] * noise).reshape(-1, here.z.size)).reshape(-1, TRIED)
    bounds = here.log_det + here.z.size * np.log(WIDTHS) - np.mean(np.where(np.isnan(values), np.inf, values), axis=1)
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(WIDTHS[best])


def _coordinates(problem: Problem, points: Any) -> np.ndarray:
    """Return coordinates (chains, n) of points, which are parameters with an axis of chains before their own."""
    space = problem.space
    own = [(len(leaf), *shape) for leaf, shape in zip(_leaves(space, points), space.shapes, strict=True)]
    given = [np.shape(leaf) for leaf in _leaves(space, points)]
    if given != own or len({shape[0] for shape in own}) != 1:
        raise ValueError(
            f"start: points have shapes {given}. Give each parameter an axis of chains before its own, "
            f"{[('chains', *shape) for shape in space.shapes]}, or an array (chains, {space.size})."
        )
    params = space.treedef.unflatten([jnp.asarray(leaf) for leaf in _leaves(space, points)])
    z = np.asarray(jax.vmap(space.pack)(params))
    if not np.isfinite(z).all():
        raise ValueError("start: a point lies outside the range of its parameters. Give points inside the bounds.")
    return z


def _leaves(space: Space, points: Any) -> list[np.ndarray]:
    """Return points leaf by leaf; of an array (chains, p) of free numbers, its columns in their places."""
    if jax.tree.structure(points) == space.treedef:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(points)]
    free = [int(np.sum(~space.held_at(i))) for i in range(len(space.shapes))]
    numbers = np.asarray(points)
    if numbers.ndim != 2 or numbers.shape[1] != sum(free):
        return [np.zeros(0)] * len(free) if numbers.dtype == object else [numbers] * len(free)
    leaves = []
    for i, columns in enumerate(np.split(numbers, np.cumsum(free)[:-1], axis=1)):
        kept = np.zeros(space.shapes[i]) if space.masks[i] is None else np.asarray(space.held[i])
        leaf = np.broadcast_to(kept, (len(numbers), *space.shapes[i])).copy()
        leaf[:, ~space.held_at(i)] = columns
        leaves.append(leaf)
    return leaves
