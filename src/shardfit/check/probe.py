"""What a certificate looks at: rows, a point near a given one, a direction, and an order to split the rows by."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective, replace_terms
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.rules import called
from shardfit.core.size_classes import full_class, room_for
from shardfit.core.terms import RowTerm, StatisticTerm
from shardfit.core.transforms import Identity

PROBE_BYTES = 1 << 20
PROBE_ROWS = 4096
FEW_ROWS, FEW_BYTES = 1024, 1 << 15  # what is smaller than both is probed whole
WIDE_ROW = 1 << 12  # bytes; of more rows a quarter at most is probed, of wide ones, which cost much each, an eighth
RUN = 16  # neighbouring rows in a probe: what a function mixes is mostly next to each other
SMALL_BLOCK = 64


class Probe(NamedTuple):
    """An objective on a sample of its rows, which rows these are, by term, and the sample that a mesh shares."""

    objective: Objective
    index: dict[str, np.ndarray]
    shared: Objective


class Setting(NamedTuple):
    """One draw of all random numbers. points: (2, n) the given one and one near it; direction: (n,)."""

    points: np.ndarray
    direction: np.ndarray
    steps: np.ndarray  # (2 s,) along the direction: h, -h for each h
    scale: np.ndarray  # (n,) by which coordinates are measured
    orders: tuple  # one permutation per term, None without two rows
    signs: tuple  # ±1 per row


def choose_rows(objective: Objective, shards: int, seed: int) -> Probe:
    """Return the objective on a sample of the rows: half of them in runs of neighbours, the others anywhere.

    A chunk bounds the sample: whoever sets it says that more rows at once are too many. A mesh gets one more row than
    divides evenly over its shards, so that padding is seen too. Its size is that of a class: the last row of a set that
    is probed whole may be there several times.
    """
    chosen, index = {}, {}

    def share(position, n):
        term = objective.terms[position]
        rng, size = np.random.default_rng([seed, position, 7919]), _probe_size(term, n)
        if shards > 1:
            size = size // shards * shards + 1 if size >= shards else shards + 1
        rows = _sample(rng, n, min(n, size))
        room = min(room_for(term.rows, len(rows)), term.chunk or n + size)
        chosen[position] = np.append(rows, np.repeat(rows[-1], max(0, room - len(rows))))
        return chosen[position]

    def examine(position, n):
        few = np.arange(min(n, objective.terms[position].chunk or n))
        index[objective.names[position]] = chosen[position][few]
        return few

    shared = objective.take(share)
    shared = replace_terms(shared, [t.sampled() if isinstance(t, RowTerm) else t for t in shared.terms])
    examined = shared.take(examine)
    same = all(len(index[objective.names[i]]) == len(chosen[i]) for i in chosen)
    return Probe(examined, index, examined if same else shared)


def completed(problem: Problem, probe: Probe) -> Probe | None:
    """Return the probe with the totals that its other rows have at x0 added to its own; None if no term needs them.

    A loss need not be defined for the totals of some rows: a bin that few rows fall into is empty there.
    """
    names = [name for name, term in problem.objective.items() if _needs_all(term, len(probe.index.get(name, ())))]
    if not names:
        return None
    totals = problem.objective.only(*names).sums(problem.x0)

    def beside(objective: Objective) -> Objective:
        own = objective.only(*names).sums(problem.x0)
        terms = [
            _beside(term, jax.tree.map(jnp.subtract, totals[name], own[name])) if name in names else term
            for name, term in objective.items()
        ]
        return replace_terms(objective, terms)

    examined = beside(probe.objective)
    return Probe(examined, probe.index, examined if probe.shared is probe.objective else beside(probe.shared))


def _needs_all(term: Any, n_probed: int) -> bool:
    plain = isinstance(term, StatisticTerm) and not (term.stochastic or term.slopes or term.equations)
    return plain and not term.linear and n_probed < term.n_rows


def _beside(term: Any, rest: Any) -> Any:
    if getattr(term, "has_aux", False):
        rest = rest[0]
    return replace(term, fn=_Fn(term.fn), loss=_LossOfAll(term.loss), args=(*term.args, rest), scale=1.0)


@dataclass(frozen=True)
class _Fn:
    """A term's function where args end with the totals of other rows."""

    fn: Callable

    def __call__(self, *given):
        return called(self.fn, *given[:-1])


@dataclass(frozen=True)
class _LossOfAll:
    """A term's loss of its totals and those of other rows, which end its args."""

    loss: Callable

    def __call__(self, totals, *given):
        *args, rest = given
        return called(self.loss, jax.tree.map(jnp.add, totals, rest), *args)


def _probe_size(term: RowTerm, n: int) -> int:
    n_bytes = max(1, sum(leaf.nbytes for leaf in jax.tree.leaves(term.rows)))
    few = min(FEW_ROWS, FEW_BYTES * n // n_bytes)
    share = n // (4 if n_bytes < WIDE_ROW * n else 8)
    most = min(PROBE_ROWS, PROBE_BYTES * n // n_bytes, max(few, share))
    size = max(2, most)  # one row alone cannot be split
    size = size if size >= n else full_class(size)
    return size if term.chunk is None else min(size, term.chunk)


def _sample(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Return `size` different row numbers below n, in ascending order."""
    if size == n:
        return np.arange(n)
    slots = rng.choice(n // RUN, size // (2 * RUN), replace=False)
    runs = (slots[:, None] * RUN + np.arange(RUN)).ravel()
    anywhere = rng.choice(n, size, replace=False, shuffle=False)
    others = anywhere[~np.isin(anywhere // RUN, slots)]
    return np.sort(np.concatenate([runs, others[: size - len(runs)]]))


def small_block(n_rows: int) -> int:
    """Return the size of the smaller of two unequal blocks."""
    return min(SMALL_BLOCK, max(1, n_rows // 3))


def choose_setting(
    objective: Objective, space: Space, z: np.ndarray, box: Any, how: tuple[float, tuple], rng: np.random.Generator
) -> Setting:
    """Return a setting near z (n,); how: relative distance of the second point, and the sizes of steps."""
    near, scale = beside(space, z, box, how[0], rng)
    sizes = [jax.tree.leaves(t.rows)[0].shape[0] if isinstance(t, RowTerm) else 0 for t in objective.terms]
    return Setting(
        points=np.stack([z, near]),
        direction=scale * rng.standard_normal(z.shape),
        steps=np.ravel([[h, -h] for h in how[1]]),
        scale=scale,
        orders=tuple(rng.permutation(n).astype(np.int32) if n > 1 else None for n in sizes),
        signs=tuple(rng.choice([-1.0, 1.0], n) for n in sizes),
    )


def beside(
    space: Space, z: np.ndarray, box: Any, distance: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a point (n,) at a relative distance from z, and the natural size of every coordinate."""
    scale = _scales(space, z, box)
    # a little off the given point: flat images and zeros are the kinks of common penalties
    nudge = distance * scale * rng.uniform(0.5, 1, z.shape) * rng.choice([-1, 1], z.shape)
    near = z + nudge
    if box is not None:  # inside, not at the edge, so that differences have room on both sides
        near = np.clip(np.where((near < box[0]) | (near > box[1]), z - nudge, near), *box)
    return near, scale


def _scales(space: Space, z: np.ndarray, box: Any) -> np.ndarray:
    """Return the natural size of every coordinate: its own, or its leaf's where it is zero; 1 below a transform."""
    scale, start = np.abs(z), 0
    for transform, size in zip(space.transforms, space.leaf_sizes(), strict=True):
        leaf = slice(start, start := start + size)
        if isinstance(transform, Identity):
            scale[leaf] = np.where(scale[leaf] > 0, scale[leaf], np.max(scale[leaf], initial=0.0) or 1.0)
        else:
            scale[leaf] = np.maximum(scale[leaf], 1.0)
    if box is not None:
        scale = np.minimum(scale, box[1] - box[0])
    return scale
