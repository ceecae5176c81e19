"""Box bounds: what a user says of parameters, as lower and upper ends of the free coordinates."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shardfit.core.params import Space, broadcast_prefix, element_label, leaf_labels
from shardfit.core.transforms import MONOTONE, Box, Chain, Identity, Transform


def by_name(bounds: Any, params: Any) -> Any:
    """Return bounds as scipy writes them, (lower numbers, upper numbers), as one pair per entry of params.

    The numbers are in the order in which params, a dict or list of single numbers, is written.
    """
    if not (isinstance(bounds, tuple) and len(bounds) == 2 and all(_is_sequence(end) for end in bounds)):
        return bounds
    entries = list(params.values()) if isinstance(params, Mapping) else params
    if not isinstance(entries, list | tuple) or not jax.tree_util.all_leaves(entries) or any(map(np.ndim, entries)):
        return bounds
    if any(len(end) != len(entries) for end in bounds):
        raise ValueError(
            f"bounds: {len(bounds[0])} lower and {len(bounds[1])} upper ends for {len(entries)} parameters. Give one "
            "of each per parameter, or a dict: bounds={'name': (lower, upper)}."
        )
    pairs = list(zip(*bounds, strict=True))
    return dict(zip(params, pairs, strict=True)) if isinstance(params, Mapping) else pairs


def _is_sequence(end: Any) -> bool:
    return (isinstance(end, Sequence) and not isinstance(end, str)) or (isinstance(end, np.ndarray) and end.ndim == 1)


def pinned(params: Any, bounds: Any) -> list[np.ndarray]:
    """Return for every leaf which numbers have equal bounds, in its own precision."""
    masks = []
    pairs = broadcast_prefix("bounds", bounds, params)
    for label, leaf, pair in zip(leaf_labels(params), jax.tree.leaves(params), pairs, strict=True):
        lo, hi = ends_of(label, pair, np.shape(leaf))
        masks.append(np.isfinite(lo) & (lo.astype(leaf.dtype) == hi.astype(leaf.dtype)))
    return masks


def box(space: Space, params: Any, bounds: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (lower, upper) of every coordinate, ±inf where free; None when nothing is bounded.

    bounds follow the structure of params: (lower, upper) for a leaf or for all leaves of a subtree, or a list with one
    entry each. params must lie inside, held ones too.
    """
    lower, upper = [], []
    pairs = broadcast_prefix("bounds", bounds, params)
    for i, (leaf, pair) in enumerate(zip(jax.tree.leaves(params), pairs, strict=True)):
        label, t, inner = space.labels[i], space.transforms[i], space.inner_shapes[i]
        lo, hi = np.full(inner, -np.inf), np.full(inner, np.inf)
        if pair is not None:
            ends = ends_of(label, pair, np.shape(leaf))
            _check_inside(label, np.asarray(leaf), *ends)
            if not (isinstance(t, MONOTONE) or getattr(t, "increasing", False)):
                raise ValueError(f"{label}: bounds and transform {t} cannot be combined. Use one of the two.")
            lo, hi = (_inner_bound(t, end, free) for end, free in zip(ends, (-np.inf, np.inf), strict=True))
        free = ... if space.masks[i] is None else ~space.held_at(i)
        lower.append(np.ravel(lo[free]))
        upper.append(np.ravel(hi[free]))
    lower, upper = np.concatenate(lower), np.concatenate(upper)
    return (lower, upper) if (np.isfinite(lower) | np.isfinite(upper)).any() else None


def boxed(space: Space, ends: tuple[np.ndarray, np.ndarray]) -> list[Transform]:
    """Return a transform for every leaf that keeps its free coordinates between the ends of a box."""
    stops = np.cumsum(space.leaf_sizes())[:-1]
    transforms = []
    for i, (lower, upper) in enumerate(zip(*(np.split(end, stops) for end in ends), strict=True)):
        outer, inner = space.transforms[i], space.inner_shapes[i]
        low, high = np.full(inner, -np.inf), np.full(inner, np.inf)
        free = np.ones(inner, bool) if space.masks[i] is None else ~space.held_at(i)
        low[free], high[free] = lower, upper
        if not (np.isfinite(low) | np.isfinite(high)).any():
            transforms.append(outer)
            continue
        kept = Box(tuple(low.ravel().tolist()), tuple(high.ravel().tolist()))
        transforms.append(kept if isinstance(outer, Identity) else Chain(outer, kept))
    return transforms


def inside(z: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return coordinates strictly between their ends: those on one are moved by a thousandth of the width, or of 1."""
    width = np.where(np.isfinite(lower) & np.isfinite(upper), upper - lower, 1.0)
    margin = 1e-3 * np.where(np.isfinite(width), width, 1.0)
    return np.clip(z, np.minimum(lower + margin, upper), np.maximum(upper - margin, lower)).astype(z.dtype)


def ends_of(label: str, pair: Any, shape: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper) arrays of a leaf from what bounds say of it, ±inf where free."""
    if isinstance(pair, list) and shape and len(pair) == shape[0] and all(_is_pair(entry) for entry in pair):
        ends = [ends_of(f"{label}[{i}]", entry, shape[1:]) for i, entry in enumerate(pair)]
        return np.stack([lo for lo, _ in ends]), np.stack([hi for _, hi in ends])
    try:
        lo, hi = (None, None) if pair is None else pair
        lo, hi = np.broadcast_to(_end(lo, -np.inf), shape), np.broadcast_to(_end(hi, np.inf), shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds of {label} are {pair!r}; give (lower, upper) that fit its shape {shape}, or a list of such pairs."
        ) from None
    if np.isnan(lo).any() or np.isnan(hi).any() or (lo > hi).any():
        raise ValueError(f"bounds of {label}: lower {lo} must not exceed upper {hi}.")
    return lo, hi


def _end(end: Any, free: float) -> np.ndarray:
    if isinstance(end, list | tuple):
        return np.array([_end(entry, free) for entry in end])
    return np.asarray(free if end is None else end, float)


def _is_pair(entry):
    return entry is None or (isinstance(entry, list | tuple) and len(entry) == 2)


def _check_inside(label, leaf, lo, hi):
    # in the leaf's own precision: a float32 start may lie on its bound
    outside = (leaf < lo.astype(leaf.dtype)) | (leaf > hi.astype(leaf.dtype))
    if outside.any():
        i = np.unravel_index(np.argmax(outside), outside.shape)
        raise ValueError(
            f"x0 of {element_label(label, i)} is {leaf[i]:g}, outside its bounds [{lo[i]:g}, {hi[i]:g}]. Move one of "
            "the two."
        )


def _inner_bound(transform, bound, free):
    if isinstance(transform, Identity):
        return bound
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.asarray(transform.inverse(np.where(np.isfinite(bound), bound, 1.0)))
    outside = np.isneginf(bound) if free < 0 else np.isposinf(bound)
    return np.where(outside | ~np.isfinite(inner), free, inner)
