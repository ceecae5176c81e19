"""Many data sets of one problem: their rows as they were given, what is wrong with them, and groups of one shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import replace_terms
from shardfit.core.params import label_of
from shardfit.core.precision import cast
from shardfit.core.problem import Problem
from shardfit.core.size_classes import size_class
from shardfit.core.terms import RowTerm


@dataclass(frozen=True, eq=False)
class Varied:
    """One entry of a term's rows that differs between sets. arrays: by set, each (n, ...)."""

    term: str
    label: str
    arrays: Any
    ragged: bool


@dataclass(frozen=True, eq=False)
class Sets:
    """places: positions of what differs in the objective of a group: entries, then counts of terms that are padded.

    counts: (sets,) rows by padded term; wrong: what is wrong with a set, '' if nothing is; starts: (sets, p).
    """

    problem: Problem
    varied: tuple[Varied, ...]
    counts: dict[str, np.ndarray]
    places: tuple[int, ...]
    starts: np.ndarray
    wrong: tuple[str, ...]

    def __len__(self):
        return len(self.starts)

    def groups(self, chosen: list[int]) -> Iterator[np.ndarray]:
        """Yield the chosen sets in groups of like lengths, up to a factor of two: these are padded to the longest."""
        numbers = np.array(chosen, int)
        if not self.counts:
            yield from [numbers] if len(numbers) else []
            return
        sizes = np.stack([np.ceil(np.log2(n[numbers])) for n in self.counts.values()], axis=1)
        for size in np.unique(sizes, axis=0):
            yield numbers[np.all(sizes == size, axis=1)]

    def leaves_of(self, i: int, group: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what differs in set i, padded as its group is, with copies of the last row, which do not count."""
        leaves = []
        for one in self.varied:
            leaf = one.arrays[i]
            if one.ragged:
                fill = size_class(int(self.counts[one.term][group].max())) - len(leaf)
                leaf = np.concatenate([leaf, np.repeat(leaf[-1:], fill, axis=0)]) if fill else leaf
            leaves.append(leaf)
        return (*leaves, *(n[i : i + 1].astype(np.int32) for n in self.counts.values()))

    def problem_of(self, i: int, like: np.ndarray | None = None) -> Problem:
        """Return the problem of set i alone; like: padded as this group is."""
        leaves, tree = jax.tree.flatten(_counted(self.problem, self.counts))
        alone = self.leaves_of(i, np.array([i]) if like is None else like)
        for place, leaf in zip(self.places, alone, strict=True):
            leaves[place] = leaf
        objective = tree.unflatten(leaves)
        if like is None:
            objective = replace_terms(objective, [_uncounted(term) for term in objective.terms])
        return self.problem.with_checked(objective)


def _uncounted(term: Any) -> Any:
    return replace(term, counts=None) if isinstance(term, RowTerm) else term


def _counted(problem: Problem, padded: Any) -> Any:
    """Return the objective with a place for the number of rows in terms that are padded."""
    one = np.ones(1, np.int32)
    terms = [replace(term, counts=one) if name in padded else term for name, term in problem.objective.items()]
    return replace_terms(problem.objective, terms)


def read_sets(problem: Problem, rows: Any, x0: Any) -> Sets:
    """Return the sets as given to `fit_many`, or raise for what is wrong with all of them."""
    if problem.objective.mesh is not None:
        raise ValueError("fit_many: these rows are on a mesh already. Give the problem as it was made, and mesh= here.")
    terms = {name: term for name, term in problem.objective.items() if isinstance(term, RowTerm)}
    if not isinstance(rows, Mapping) or not rows or any(name not in terms for name in rows):
        wrong = next((str(name) for name in rows if name not in terms), "") if isinstance(rows, Mapping) else ""
        raise ValueError(f"fit_many: rows go by term, {{name: rows of all sets}}.{suggestion(wrong, terms)}")
    varied = [one for name, given in rows.items() for one in _varied(problem, name, terms[name], given)]
    sizes = {f"rows of {one.term!r}, {one.label}": len(one.arrays) for one in varied}
    starts = _starts(problem, x0, next(iter(sizes.values())))
    if len(set(sizes.values())) > 1 or len(starts) != len(varied[0].arrays):
        told = ", ".join(f"{label} has {n}" for label, n in (sizes | {"x0": len(starts)}).items())
        raise ValueError(f"fit_many: numbers of sets differ: {told}.")
    counts = {one.term: np.array([len(each) for each in one.arrays]) for one in varied if one.ragged}
    wrong = [_wrong_start(problem, z) for z in starts]
    for one in varied:
        if not one.ragged and not _wrong_rows(one, one.arrays):
            continue  # one look at all of them
        wrong = [told or _wrong_rows(one, rows) for told, rows in zip(wrong, one.arrays, strict=True)]
    clipped = starts if problem.box is None else np.clip(starts, *problem.box).astype(starts.dtype)
    return Sets(problem, tuple(varied), counts, _places(problem, varied, counts), clipped, tuple(wrong))


def _varied(problem: Problem, name: str, term: RowTerm, given: Any) -> Iterator[Varied]:
    """Yield the entries of a term's rows that differ between sets."""
    known = {label_of(path) or "rows": leaf for path, leaf in jax.tree_util.tree_flatten_with_path(term.rows)[0]}
    ragged = isinstance(given, list | tuple)
    if ragged:
        if not given:
            raise ValueError(f"fit_many: rows of {name!r} is an empty list; give the rows of each set.")
        trees = [_labelled(each) for each in given]
        for i, tree in enumerate(trees):
            if tree.keys() != known.keys():
                raise ValueError(f"fit_many: set {i} of {name!r} has entries {sorted(tree)}, not {sorted(known)}.")
        stacks: dict[str, Any] = {label: [tree[label] for tree in trees] for label in known}
    else:
        stacks = dict(_labelled(given))
    for label, arrays in stacks.items():
        if not ragged and not arrays.ndim:
            raise ValueError(f"fit_many: {label!r} of {name!r} is a number; its leading axis must be the sets.")
        if label not in known:
            raise ValueError(f"fit_many: rows of {name!r} have no entry {label!r}.{suggestion(label, known)}")
        like = known[label]
        shape = like.shape[1:] if ragged else like.shape
        for i, each in enumerate(arrays if ragged else arrays[:1]):
            if (each.shape[1:] if ragged else each.shape) != shape:
                rows = ("n", *shape) if ragged else shape
                raise ValueError(
                    f"fit_many: {label!r} of set {i} of term {name!r} has shape {each.shape}, not {rows}. Sets of "
                    "different lengths are given as a list of their rows."
                )
        typed = [_as(each, like.dtype) for each in arrays] if ragged else _as(arrays, like.dtype)
        yield Varied(name, label, cast(typed, problem.precision), ragged)
    if ragged:
        _require_one_length(name, stacks)


def _labelled(rows: Any) -> dict[str, np.ndarray]:
    paths = jax.tree_util.tree_flatten_with_path(rows)[0]
    return {label_of(path) or "rows": np.asarray(leaf) for path, leaf in paths}


def _as(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return rows in the type of the problem's, so that all sets share a program."""
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"fit_many: rows of {array.dtype} where the problem has {dtype}. Give the problem such rows too."
        )
    return array.astype(dtype)


def _require_one_length(name: str, stacks: Mapping[str, list]) -> None:
    for i, each in enumerate(zip(*stacks.values(), strict=True)):
        if len({len(leaf) for leaf in each}) > 1:
            told = ", ".join(f"{label} {len(leaf)}" for label, leaf in zip(stacks, each, strict=True))
            raise ValueError(f"fit_many: entries of set {i} of {name!r} have different lengths ({told}).")


def _wrong_rows(one: Varied, rows: np.ndarray) -> str:
    if not len(rows):
        return f"There are no rows in {one.term!r}."
    if jnp.issubdtype(rows.dtype, np.inexact) and not np.isfinite(rows).all():
        first = int(np.argwhere(~np.isfinite(rows))[0][0])
        return f"{one.label!r} of {one.term!r} holds NaN or infinity, first in row {first}."
    if one.label.rpartition(".")[2] == "sigma" and not (rows > 0).all():
        return f"{one.label!r} of {one.term!r} must be positive, but row {int(np.argwhere(~(rows > 0))[0][0])} is not."
    return ""


def _wrong_start(problem: Problem, z: np.ndarray) -> str:
    if not np.isfinite(z).all():
        return "The start is not finite, or outside its transform's range."
    if problem.box is not None and (np.any(z < problem.box[0]) or np.any(z > problem.box[1])):
        return "The start is outside the bounds."
    return ""


def _starts(problem: Problem, x0: Any, sets: int) -> np.ndarray:
    """Return the starts of all sets as coordinates (sets, p)."""
    if x0 is None:
        return np.broadcast_to(problem.z0(), (sets, problem.space.size))
    shapes = [(leaf.shape[1:] if leaf.ndim else None) for leaf in map(np.asarray, jax.tree.leaves(x0))]
    if jax.tree.structure(x0) != jax.tree.structure(problem.x0) or shapes != [*problem.space.shapes]:
        raise ValueError("fit_many: x0 must be like the problem's, with the sets as leading axis of every number.")
    x0 = cast(jax.tree.map(lambda leaf: np.asarray(leaf, float), x0), problem.precision)
    if any(mask is not None for mask in problem.space.masks):
        for i in range(len(jax.tree.leaves(x0)[0])):
            moved = problem.space.moved(jax.tree.map(lambda leaf, i=i: leaf[i], x0))
            if moved:
                raise ValueError(f"fit_many: x0 starts {', '.join(moved)} elsewhere, but the problem holds it.")
    return np.asarray(jax.vmap(problem.space.pack)(x0))


def _places(problem: Problem, varied: list[Varied], counts: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of varied entries and counts among the leaves of the objective."""
    marks, objective = {}, _counted(problem, counts)
    terms = []
    for name, term in objective.items():
        if isinstance(term, RowTerm):
            paths, tree = jax.tree_util.tree_flatten_with_path(term.rows)
            labels = [f"{name}/{label_of(path) or 'rows'}" for path, _ in paths]
            term = replace(term, rows=tree.unflatten(labels))
            if name in counts:
                term = replace(term, counts=f"{name}/counts")
        terms.append(term)
    for place, leaf in enumerate(jax.tree.leaves(replace_terms(objective, terms))):
        if isinstance(leaf, str):
            marks[leaf] = place
    wanted = [f"{one.term}/{one.label}" for one in varied] + [f"{name}/counts" for name in counts]
    return tuple(marks[one] for one in wanted)
