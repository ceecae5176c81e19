"""Points of a survey as leaves: which arrays of the objective differ between points, and their values at each point.

Only these leaves are kept once per slot; all others are shared by the whole batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import tree_flatten_with_path

from shardfit.core.mesh import n_shards
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.precision import cast, in_its_precision
from shardfit.core.problem import Problem
from shardfit.core.rows import place_rows
from shardfit.core.terms import RowTerm
from shardfit.surveys.axes import Axis, Start, apply, check_axes


class Family(Protocol):
    """What an engine runs: one problem whose members differ in leaves of the objective and in their start."""

    @property
    def problem(self) -> Problem:
        """What all have in common: coordinates and their bounds."""
        ...

    @property
    def precision(self) -> str:
        """The problem's."""
        ...

    def leaves_of(self, point: Mapping[str, Any]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return the leaves that differ and the start z (n,) of one member; of any for an empty point."""
        ...

    def placed(self, mesh: Mesh | None) -> Objective:
        """Return any member's objective on the mesh."""
        ...

    def places(self, placed: Objective) -> tuple[int, ...]:
        """Return the positions of the leaves that differ in the placed objective."""
        ...


@dataclass(frozen=True, eq=False)
class Variants:
    """A problem and its axes, ready to give the leaves of any point.

    varied: positions of the leaves that differ between points; dtypes: what they are kept as; home: for each of them
    the order of its rows on the mesh, None where it has no rows or they are not split.
    """

    problem: Problem
    axes: Mapping[str, Axis]
    varied: tuple[int, ...] = ()
    dtypes: tuple[np.dtype, ...] = ()
    home: tuple[np.ndarray | None, ...] = ()

    @property
    def precision(self) -> str:
        """The problem's."""
        return self.problem.precision

    @property
    def weighted(self) -> bool:
        """Whether an axis changes the weight of a term."""
        paths = [path for path, _ in tree_flatten_with_path(self.problem.objective)[0]]
        return any(getattr(key, "name", "") == "weight" for i in self.varied for key in paths[i])

    def leaves_of(self, point: Mapping[str, Any]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return the varied leaves and the start z (n,) of one point."""
        start = self._start(point)
        leaves = jax.tree.leaves(start.objective)
        base = jax.tree.leaves(self.problem.objective)
        changed = [i for i, (a, b) in enumerate(zip(leaves, base, strict=True)) if a is not b]
        for i in set(changed) - set(self.varied):
            if not np.array_equal(np.asarray(leaves[i], np.asarray(base[i]).dtype), base[i]):
                raise ValueError(
                    f"survey: at {dict(point)} the axes change an array that none of them changes by itself. Let each "
                    "axis change its own part of the objective."
                )
        found = []
        for i, dtype, order in zip(self.varied, self.dtypes, self.home, strict=True):
            leaf = np.asarray(leaves[i], dtype)
            if leaf.shape != np.shape(base[i]):
                raise ValueError(_other_shape(str(dict(point)), base[i], leaf))
            found.append(leaf if order is None else leaf[order])
        return tuple(found), self._z(start.params)

    @in_its_precision
    def warm(self, params: Any, *, lift: bool) -> np.ndarray:
        """Return coordinates z (n,) to begin at for parameters that a fit has found.

        lift: where a transform has places that a fit cannot leave, its `lifted` moves the numbers off them.
        """
        leaves, tree = jax.tree.flatten(cast(params, self.precision))
        moved = [
            t.lifted(leaf) if lift and hasattr(t, "lifted") else leaf  # pyright: ignore[reportAttributeAccessIssue]
            for t, leaf in zip(self.problem.space.transforms, leaves, strict=True)
        ]
        return self._z(tree.unflatten(moved))

    def unplaced(self) -> "Variants":
        """Return these variants with rows in the host's order, which is the same for every mesh."""
        return replace(self, home=(None,) * len(self.varied))

    def _start(self, point: Mapping[str, Any]) -> Start:
        problem = self.problem
        start = apply(Start(problem.objective, problem.x0), self.axes, point)
        if jax.tree.structure(start.objective) != jax.tree.structure(problem.objective):
            raise ValueError(
                f"survey: at {dict(point)} the objective has other terms or functions than the problem's. Axes change "
                "values only; make one survey for each such choice."
            )
        return start

    @in_its_precision
    def _z(self, params: Any) -> np.ndarray:
        if params is self.problem.x0:
            return self.problem.z0()
        problem = self.problem
        if jax.tree.map(np.shape, params) != jax.tree.map(np.shape, problem.x0):
            raise ValueError("survey: a start has other parameters or shapes than the problem's x0.")
        params = cast(jax.tree.map(_fractional, params), problem.precision)
        moved = problem.space.moved(params)
        if moved:
            raise ValueError(
                f"survey: an axis starts {', '.join(moved)} elsewhere, but the problem holds it. Free it, or make one "
                "problem for each value to hold."
            )
        z = problem.space.host_z(params)
        if not np.isfinite(z).all():
            raise ValueError("survey: a start is not finite, or outside its transform's range. Start strictly inside.")
        return z if problem.box is None else np.clip(z, *problem.box).astype(z.dtype)

    def placed(self, mesh: Mesh | None) -> Objective:
        """Return the problem's objective on the mesh."""
        return self.problem.objective.place(mesh)

    def places(self, placed: Objective) -> tuple[int, ...]:
        """Return the positions of the varied leaves in the placed objective, where padded rows have counts besides."""
        there = {path: i for i, (path, _) in enumerate(tree_flatten_with_path(placed)[0])}
        paths = [path for path, _ in tree_flatten_with_path(self.problem.objective)[0]]
        return tuple(there[paths[i]] for i in self.varied)


def _fractional(leaf: Any) -> np.ndarray:
    """Return a start as floating numbers: whole ones too are moved by fractions."""
    array = np.asarray(leaf)
    return array.astype(float) if np.issubdtype(array.dtype, np.integer) else array


def bind(objective: Objective, places: tuple[int, ...], leaves: Sequence[Any]) -> Objective:
    """Return a placed objective with these leaves at these positions."""
    all_leaves, tree = jax.tree.flatten(objective)
    for i, leaf in zip(places, leaves, strict=True):
        all_leaves[i] = leaf
    return jax.tree.unflatten(tree, all_leaves)


def variants(problem: Problem, axes: Mapping[str, Axis], mesh: Mesh | None = None) -> Variants:
    """Return the variants of a problem along its axes; raise for an axis that changes a shape, or nothing at all."""
    check_axes(problem, axes)
    if problem.objective.mesh is not None:
        raise ValueError(
            "survey: these rows are on a mesh already. Give the problem as it was made, and mesh=... here."
        )
    bare = Variants(problem, axes)
    base, z0 = jax.tree.leaves(problem.objective), problem.z0()
    kept: dict[int, np.dtype] = {}
    for name, axis in axes.items():
        moves = False
        for value in axis.values:
            start = bare._start({name: value})
            changed = _changed(f"axis {name!r} = {value!r}", problem, base, jax.tree.leaves(start.objective))
            for i, dtype in changed.items():  # a whole number in the problem may be a fraction at some point
                kept[i] = dtype if np.issubdtype(dtype, np.inexact) else kept.get(i, dtype)
            moves = moves or bool(changed) or not np.array_equal(bare._z(start.params), z0)
        if not moves:
            raise ValueError(f"survey: axis {name!r} changes nothing: all its points would be the same. Leave it out.")
    varied = tuple(sorted(kept))
    dtypes = tuple(kept[i] for i in varied)
    return Variants(problem, axes, varied, dtypes, _homes(problem.objective, varied, mesh))


def _changed(where: str, problem: Problem, base: list, leaves: list) -> dict[int, np.dtype]:
    """Return the positions of leaves with other values than the problem's, and the types that hold those."""
    changed = {}
    for i, (new, old) in enumerate(zip(leaves, base, strict=True)):
        if new is old:
            continue
        if np.shape(new) != np.shape(old):
            raise ValueError(_other_shape(where, old, new))
        new, old = cast(np.asarray(new), problem.precision), np.asarray(old)
        if not np.all(np.isfinite(new)):
            raise ValueError(f"survey: {where} puts NaN or infinity into the objective.")
        if not np.array_equal(new, old):
            changed[i] = old.dtype if np.issubdtype(old.dtype, np.inexact) else new.dtype
    return changed


def _other_shape(where: str, old: Any, new: Any) -> str:
    return (
        f"survey: {where} changes the shape of an array from {np.shape(old)} to {np.shape(new)}. Points of one batch "
        "need equal shapes: make one survey for each shape."
    )


def _homes(objective: Objective, varied: tuple[int, ...], mesh: Mesh | None) -> tuple[np.ndarray | None, ...]:
    """Return for every varied leaf which row of the host's array each placed row is."""
    if n_shards(mesh) == 1:
        return (None,) * len(varied)
    marks = []
    for i, term in enumerate(objective.terms):
        nothing = jax.tree.map(lambda _: -1, term)
        has_rows = isinstance(term, RowTerm)
        marks.append(replace(nothing, rows=jax.tree.map(lambda _, i=i: i, term.rows)) if has_rows else nothing)
    owner = jax.tree.leaves(replace_terms(objective, marks))
    orders = {}
    for i in {owner[k] for k in varied} - {-1}:
        numbers = np.arange(objective.terms[i].n_rows)
        orders[i] = np.asarray(place_rows(numbers, None, mesh)[0])  # type: ignore[arg-type]
    return tuple(orders.get(owner[k]) for k in varied)
