"""Points of a survey as leaves: which arrays of the objective differ between points, and their values at each point.

Only these leaves are kept once per slot; all others are shared by the whole batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import tree_flatten_with_path

from shardfit.core.current import working_on_it
from shardfit.core.digests import digest_each
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.precision import cast
from shardfit.core.problem import Problem
from shardfit.core.rows import placed_order
from shardfit.core.terms import RowTerm
from shardfit.surveys.axes import Axis, CannotMake, Start, apply, check_axes

FIRST = 2  # values of an axis that usually change all the leaves that any of them changes
NOT_FINITE = "survey: {} puts NaN or infinity into the objective."


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
    the order of its rows where they are placed, None where that is their own. digests: of what the values of
    an axis do, by axis; unmade: values by axis that cannot be made.
    """

    problem: Problem
    axes: Mapping[str, Axis]
    varied: tuple[int, ...] = ()
    dtypes: tuple[np.dtype, ...] = ()
    home: tuple[np.ndarray | None, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    unmade: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

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
        """Return the varied leaves and the start z (n,) of one point; raise CannotMake where they cannot be made."""
        start = self._start(point)
        return self.leaves_at(start, point), self._z(start.params)

    def kept_by(self, kept: Mapping[int, np.dtype]) -> bool:
        """Return whether these are the leaves that differ, and their types."""
        return tuple(sorted(kept)) == self.varied and tuple(kept[i] for i in self.varied) == self.dtypes

    def leaves_at(self, start: Start, point: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """Return the varied leaves of the start of a point."""
        leaves = jax.tree.leaves(start.objective)
        base = jax.tree.leaves(self.problem.objective)
        changed = [i for i, (a, b) in enumerate(zip(leaves, base, strict=True)) if a is not b]
        known = set(changed)
        for i in known - set(self.varied):
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
            if i in known and not np.all(np.isfinite(leaf)):
                raise CannotMake(NOT_FINITE.format(f"{dict(point)}"))
            found.append(leaf if order is None else leaf[order])
        return tuple(found)

    @working_on_it
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

    @working_on_it
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
            raise CannotMake("survey: a start is not finite, or outside its transform's range. Start strictly inside.")
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


def variants(
    problem: Problem,
    axes: Mapping[str, Axis],
    mesh: Mesh | None = None,
    left_out: Mapping[str, Sequence[Any]] | None = None,
) -> Variants:
    """Return the variants of a problem along its axes; raise for an axis that changes a shape, or nothing at all.

    left_out: values by axis that digests leave out; None: no digests are made.
    """
    check_axes(problem, axes)
    if problem.objective.mesh is not None:
        raise ValueError(
            "survey: these rows are on a mesh already. Give the problem as it was made, and mesh=... here."
        )
    look = _Look(problem, axes, left_out)
    return replace(look.found(), home=_homes(problem.objective, tuple(sorted(look.kept)), mesh))


class _Look:
    """Makes every value of every axis, one at a time, to find out which leaves they change.

    kept: positions of those leaves, and the types that hold their values; unmade: values that cannot be made, by axis,
    and why the first of them cannot.
    """

    def __init__(self, problem: Problem, axes: Mapping[str, Axis], left_out: Mapping[str, Sequence[Any]] | None):
        self.problem, self.left_out = problem, left_out
        self.axes = {name: axis for name, axis in axes.items() if not axis.option}
        self.options = {name: axis for name, axis in axes.items() if axis.option}
        self.base, self.z0 = jax.tree.leaves(problem.objective), problem.z0()
        self.bare = Variants(problem, axes)
        self.kept: dict[int, np.dtype] = {}
        self.unmade: dict[str, tuple[Any, ...]] = {}

    @property
    def precision(self) -> str:
        """The problem's: what axes compute must not depend on who asks."""
        return self.problem.precision

    @working_on_it
    def found(self) -> Variants:
        """Return the variants, of rows that are on no mesh."""
        for name, axis in self.axes.items():
            for value in islice(axis.values, FIRST):  # they tell which leaves differ, so that all are made only once
                with suppress(CannotMake):
                    self._made(name, value)
        digests: dict[str, str] = {}
        for _ in range(2):  # a second time if later values change leaves that the first ones did not
            before, now = dict(self.kept), self._variants()
            digests = {name: digest_each(self._all(name, now)) for name in self.axes}
            if self.kept == before:
                break
        digests |= {name: digest_each([(axis.option, repr(tuple(axis.values)))]) for name, axis in self.options.items()}
        return replace(self._variants(), digests=digests, unmade=self.unmade)

    def _variants(self) -> "Variants":
        varied = tuple(sorted(self.kept))
        return replace(self.bare, varied=varied, dtypes=tuple(self.kept[i] for i in varied), home=(None,) * len(varied))

    def _all(self, name: str, now: "Variants") -> Iterator[Any]:
        """Yield leaves and start at all values of an axis; raise where it changes nothing, or none can be made."""
        moves, unmade, why = False, [], None
        known = set((self.left_out or {}).get(name, ()))
        for value in self.axes[name].values:
            try:
                start, z, changed = self._made(name, value)
            except CannotMake as error:
                unmade.append(value)
                why = why or error
                continue
            moves = moves or changed or not np.array_equal(z, self.z0)
            if self.left_out is not None and value not in known and now.kept_by(self.kept):
                yield now.leaves_at(start, {name: value}), z
        if why is not None and len(unmade) == len(list(self.axes[name].values)):
            raise why.__cause__ or why
        if not moves:
            raise ValueError(f"survey: axis {name!r} changes nothing: all its points would be the same. Leave it out.")
        self.unmade |= {name: tuple(unmade)} if unmade else {}

    def _made(self, name: str, value: Any) -> tuple[Start, np.ndarray, bool]:
        """Return start and coordinates at a value, and whether it changes the objective; take note of what it changes.

        A value that cannot be made changes nothing.
        """
        start = self.bare._start({name: value})
        changed = _changed(f"axis {name!r} = {value!r}", self.problem, self.base, jax.tree.leaves(start.objective))
        z = self.bare._z(start.params)
        for i, dtype in changed.items():  # a whole number in the problem may be a fraction at some point
            self.kept[i] = dtype if np.issubdtype(dtype, np.inexact) else self.kept.get(i, dtype)
        return start, z, bool(changed)


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
            raise CannotMake(NOT_FINITE.format(where))
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
    marks = []
    for i, term in enumerate(objective.terms):
        nothing = jax.tree.map(lambda _: -1, term)
        has_rows = isinstance(term, RowTerm)
        marks.append(replace(nothing, rows=jax.tree.map(lambda _, i=i: i, term.rows)) if has_rows else nothing)
    owner = jax.tree.leaves(replace_terms(objective, marks))
    orders = {}
    for i in {owner[k] for k in varied} - {-1}:
        term: Any = objective.terms[i]
        order = placed_order(term.rows, term.counts, mesh)
        orders[i] = None if np.array_equal(order, np.arange(term.n_rows)) else order
    return tuple(orders.get(owner[k]) for k in varied)
