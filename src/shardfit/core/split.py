"""Shards of an objective: equal shapes, every row in one of them, objectives that add up to the whole.

Equal shapes let one compiled program serve all shards. Where rows do not divide evenly, a shard is filled up with
masked copies of its own rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.mesh import fetch
from shardfit.core.rows import take
from shardfit.core.terms import Penalty, RowTerm, Term


def split_terms(terms: Mapping[str, Term], shards: int, by: Any, seed: int) -> list[tuple[Term, ...]]:
    """Return the terms of every shard; see Objective.split."""
    if isinstance(shards, bool) or not isinstance(shards, int | np.integer) or shards < 1:
        raise ValueError(f"split: shards={shards!r} must be a whole number, at least 1.")
    labels = _labels(terms, by)
    columns = []
    for position, (name, term) in enumerate(terms.items()):
        if isinstance(term, RowTerm):
            index, counts = _deal(name, term.n_rows, int(shards), labels.get(name), [seed, position])
            columns.append(_with_rows(term, index, counts))
        else:
            columns.append([divided(term, shards)] * shards)
    return list(zip(*columns, strict=True))


def divided(term: Term, shards: int) -> Term:
    """Return a shard's share of a term: a penalty (the prior) is divided among shards, rows are dealt to them."""
    if not isinstance(term, Penalty):
        return term
    return replace(term, weight=jax.tree.map(lambda weight: weight / shards, term.weight))


def _deal(name: str, n: int, shards: int, labels: np.ndarray | None, seed: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers (shards, m) and how many of each shard's are its own, the others being copies.

    Shuffled rows in the order of their labels are dealt like cards: every shard gets its share of every label, and
    the shards' sizes differ by one row at most.
    """
    if n < shards:
        raise ValueError(f"split: term {name!r} has {n} rows for {shards} shards. Use at most {n} shards.")
    order = np.random.default_rng(seed).permutation(n)
    if labels is not None:
        found, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        rarest = int(np.argmin(sizes))
        if sizes[rarest] < shards:
            raise ValueError(
                f"split: term {name!r} has {sizes[rarest]} rows labelled {found[rarest]} for {shards} shards, so some "
                f"shard would have none. Use at most {sizes[rarest]} shards, or coarser labels."
            )
        order = order[np.argsort(codes.reshape(-1)[order], kind="stable")]
    dealt = [np.sort(order[k::shards]) for k in range(shards)]  # in their old order: neighbours stay neighbours
    most = -(-n // shards)
    return np.stack([np.resize(own, most) for own in dealt]), np.array([len(own) for own in dealt], np.int32)


def _with_rows(term: RowTerm, index: np.ndarray, counts: np.ndarray) -> list[RowTerm]:
    shards, most = index.shape
    chosen = take(term.rows, index.ravel(), term.counts)
    stacked = jax.tree.map(lambda leaf: leaf.reshape(shards, most, *leaf.shape[1:]), chosen)
    uneven = bool((counts < most).any())
    return [
        replace(
            term, rows=jax.tree.map(lambda leaf, k=k: leaf[k], stacked), counts=counts[k : k + 1] if uneven else None
        )
        for k in range(shards)
    ]


def _labels(terms: Mapping[str, Term], by: Any) -> dict[str, np.ndarray]:
    """Return the label of every row, by term; by: as Objective.split takes it."""
    with_rows = {name: term for name, term in terms.items() if isinstance(term, RowTerm)}
    if by is None:
        by = {name: term.strata for name, term in with_rows.items() if term.strata is not None}
    if isinstance(by, str):
        labels = {name: _entry(term, by) for name, term in with_rows.items()}
        labels = {name: entry for name, entry in labels.items() if entry is not None}
        if not labels:
            known = {key for term in with_rows.values() if isinstance(term.rows, Mapping) for key in term.rows}
            raise ValueError(f"split: no term has rows with an entry {by!r}.{suggestion(by, known)}")
        return labels
    if not isinstance(by, Mapping):
        if len(with_rows) != 1:
            raise ValueError(
                f"split: labels for which of {', '.join(map(repr, with_rows))}? Give a dict of labels by term."
            )
        by = {next(iter(with_rows)): by}
    labels = {}
    for name, given in by.items():
        if name not in with_rows:
            raise ValueError(f"split: no term {name!r} with rows.{suggestion(str(name), with_rows)}")
        found = _entry(with_rows[name], given) if isinstance(given, str) else np.asarray(given)
        if found is None:
            raise ValueError(f"split: the rows of term {name!r} have no entry {given!r}.")
        if found.shape != (with_rows[name].n_rows,):
            raise ValueError(
                f"split: labels of shape {found.shape} for term {name!r}. Give one label for each of its "
                f"{with_rows[name].n_rows} rows."
            )
        labels[name] = found
    return labels


def _entry(term: RowTerm, name: str) -> np.ndarray | None:
    """Return a named entry of a term's real rows."""
    if not isinstance(term.rows, Mapping) or name not in term.rows:
        return None
    if term.counts is None:
        return fetch(term.rows[name])
    return take(term.rows[name], np.arange(term.n_rows), term.counts)
