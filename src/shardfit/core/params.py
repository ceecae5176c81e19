"""Parameters: any pytree, seen by solvers as one flat vector of the numbers that are free.

`Space` maps between the two, through a transform per leaf; numbers that are held fixed are not among the coordinates.
It is a pytree: which numbers are held is structure, their values are data, so that problems of equal structure share
their compiled functions whatever they hold.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.errors import suggestion
from shardfit.core.fast_compile import fast_compile_jit
from shardfit.core.precision import arithmetic, precision_of
from shardfit.core.ties import Tie, tied_together
from shardfit.core.transforms import Identity, Transform, as_transform, log_det

STRUCTURE = ("treedef", "labels", "shapes", "inner_shapes", "transforms", "masks", "ties")


@partial(register_dataclass, data_fields=("held",), meta_fields=STRUCTURE)
@dataclass(frozen=True, eq=False)
class Space:
    """The flat, unconstrained coordinates z (n,) of a parameter pytree."""

    treedef: Any
    labels: tuple[str, ...]  # one per leaf
    shapes: tuple[tuple[int, ...], ...]  # of the leaves, as parameters
    inner_shapes: tuple[tuple[int, ...], ...]  # of the leaves, as coordinates
    transforms: tuple[Transform, ...]
    masks: tuple[bytes | None, ...]  # which numbers of a leaf are held, as bytes of a boolean array; None: none
    held: tuple[Any, ...]  # leaves with held numbers, as parameters; None for the others
    ties: tuple[Tie, ...] = ()  # held numbers that follow the others

    def __hash__(self):
        return hash(tuple(getattr(self, name) for name in STRUCTURE))

    def __eq__(self, other: Any):
        """Compare structure and held values, for use as a static argument."""
        return (
            isinstance(other, Space)
            and all(getattr(self, name) == getattr(other, name) for name in STRUCTURE)
            and all(np.array_equal(a, b) for a, b in zip(self.held, other.held, strict=True) if a is not b)
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(self.leaf_sizes())

    @property
    def plain(self) -> bool:
        """Whether coordinates are the parameters themselves."""
        return all(isinstance(t, Identity) for t in self.transforms) and not any(self.masks)

    @property
    def direct(self) -> bool:
        """Whether coordinates are the free parameters themselves."""
        return all(isinstance(t, Identity) for t in self.transforms) and not self.ties

    def held_at(self, i: int) -> np.ndarray:
        """Return which numbers of leaf i are held, a boolean array of its shape."""
        mask = self.masks[i]
        return np.zeros(self.shapes[i], bool) if mask is None else np.frombuffer(mask, bool).reshape(self.shapes[i])

    def unpack(self, z: jax.Array) -> Any:
        """Return the parameter pytree of coordinates z, with the held numbers in their places."""
        leaves = []
        for i, (inner, t) in enumerate(zip(self._inner(z), self.transforms, strict=True)):
            if self.masks[i] is None:
                leaves.append(t.forward(inner))
                continue
            held, mask = self._held(i, z), self.held_at(i)
            leaves.append(held if mask.all() else jnp.where(mask, held, t.forward(inner)))
        return tied_together(self.ties, jax.tree.unflatten(self.treedef, leaves))

    def log_jacobian(self, z: jax.Array) -> jax.Array:
        """Return log |dx/dz| of the free numbers: what a density of parameters gains as a density of coordinates."""
        total = jnp.zeros((), z.dtype)
        for i, (inner, t) in enumerate(zip(self._inner(z), self.transforms, strict=True)):
            if isinstance(t, Identity) or not inner.size:
                continue
            slopes = log_det(t, inner)
            # held numbers have transforms that do not mix: one slope each
            total += jnp.sum(slopes if self.masks[i] is None else jnp.where(self.held_at(i), 0, slopes))
        return total

    def _inner(self, z: jax.Array) -> list[jax.Array]:
        """Return the coordinates of every leaf in its inner shape, those of held numbers among them."""
        whole = []
        for i, (piece, t) in enumerate(zip(self._pieces(z), self.transforms, strict=True)):
            mask = self.held_at(i)
            if self.masks[i] is not None and not mask.all():
                piece = jnp.ravel(t.inverse(self._held(i, z))).at[np.flatnonzero(~mask)].set(piece)
            whole.append(piece if self.masks[i] is not None and mask.all() else piece.reshape(self.inner_shapes[i]))
        return whole

    def _held(self, i: int, z: jax.Array) -> jax.Array:
        return jnp.asarray(self.held[i]).astype(z.dtype)

    def pack(self, params: Any) -> jax.Array:
        """Return the coordinates of params; what they say of held numbers is left out."""
        pieces = []
        for i, (leaf, t) in enumerate(zip(jax.tree.leaves(params), self.transforms, strict=True)):
            mask = self.held_at(i)
            if self.masks[i] is None:
                pieces.append(jnp.ravel(t.inverse(jnp.asarray(leaf))))
            elif mask.all():
                pieces.append(jnp.zeros(0, jnp.asarray(leaf).dtype))
            else:
                pieces.append(jnp.ravel(t.inverse(jnp.asarray(leaf)))[np.flatnonzero(~mask)])
        return jnp.concatenate(pieces)

    def moved(self, params: Any) -> list[str]:
        """Return the names of held leaves at which params have other numbers than those held."""
        leaves = enumerate(jax.tree.leaves(params))
        masks = [self._held_alone(i) for i in range(len(self.masks))]
        return [self.labels[i] for i, leaf in leaves if masks[i].any() and _differ(leaf, self.held[i], masks[i])]

    def _held_alone(self, i: int) -> np.ndarray:
        """Return which numbers of leaf i are held at a value, so follow no others."""
        mask = self.held_at(i).copy()
        for tie in self.ties:
            if tie.leaf == i:
                mask[tie.index] = False
        return mask

    def spread_out(self, z: Any, fill: float = 0.0) -> Any:
        """Return coordinates in the structure of the parameters, without transforms; fill stands for held numbers."""
        z, leaves = jnp.asarray(z), []
        for i, piece in enumerate(self._pieces(z)):
            if self.masks[i] is not None:
                free = np.flatnonzero(~self.held_at(i))
                piece = jnp.full(self.held_at(i).size, fill, z.dtype).at[free].set(piece)
            leaves.append(piece.reshape(self.inner_shapes[i]))
        return jax.tree.unflatten(self.treedef, leaves)

    def free(self, params: Any) -> np.ndarray:
        """Return the free numbers of params (n,), without transforms, in the order of the coordinates."""
        leaves = enumerate(jax.tree.leaves(params))
        return np.concatenate([np.ravel(np.asarray(leaf))[~self.held_at(i).ravel()] for i, leaf in leaves])

    def host_params(self, z: Any) -> Any:
        """Return the parameter pytree of coordinates z as NumPy arrays."""
        z = np.asarray(z)
        if self.direct:  # nothing to compute
            pieces = np.split(z.copy(), np.cumsum(self.leaf_sizes())[:-1])
            return jax.tree.unflatten(self.treedef, [self._with_held(i, piece) for i, piece in enumerate(pieces)])
        with arithmetic(precision_of(z)):
            return jax.tree.map(np.asarray, _unpack(self, z))

    def _with_held(self, i: int, piece: np.ndarray) -> np.ndarray:
        if self.masks[i] is None:
            return piece.reshape(self.shapes[i])
        leaf = np.array(self.held[i], piece.dtype)
        leaf[~self.held_at(i)] = piece
        return leaf

    def host_z(self, params: Any) -> np.ndarray:
        """Return the coordinates of params as a NumPy vector."""
        if self.direct:
            return self.free(params)
        with arithmetic(precision_of(params)):
            return np.asarray(_pack(self, params))

    def coordinate_labels(self) -> list[str]:
        """Return a name for every coordinate: 'a', 'w[0]', 'w[1]' ..."""
        names = []
        for i, (label, shape) in enumerate(zip(self.labels, self.inner_shapes, strict=True)):
            index = np.ndindex(*shape) if self.masks[i] is None else np.argwhere(~self.held_at(i))
            names += [element_label(label, at) for at in index]
        return names

    def held_labels(self) -> list[str]:
        """Return the names of what is held: a leaf that is held whole by its own, others number by number."""
        names = []
        for i, label in enumerate(self.labels):
            mask = self._held_alone(i)
            names += [label] if mask.size and mask.all() else [element_label(label, at) for at in np.argwhere(mask)]
        return names

    def tied_labels(self) -> list[str]:
        """Return the names of what follows other parameters."""
        return [tie.name for tie in self.ties]

    def leaf_sizes(self) -> list[int]:
        """Return the number of coordinates of every leaf."""
        return [
            int(np.prod(shape)) if mask is None else mask.count(0)
            for shape, mask in zip(self.inner_shapes, self.masks, strict=True)
        ]

    def _pieces(self, z: jax.Array) -> list[jax.Array]:
        return jnp.split(z, np.cumsum(self.leaf_sizes())[:-1]) if len(self.shapes) > 1 else [z]


def _differ(leaf: Any, held: Any, mask: np.ndarray) -> bool:
    return not np.array_equal(np.asarray(leaf)[mask], np.asarray(held)[mask])


@fast_compile_jit
def _unpack(space: Space, z: jax.Array) -> Any:
    return space.unpack(z)


@fast_compile_jit
def _pack(space: Space, params: Any) -> jax.Array:
    return space.pack(params)


def make_space(params: Any, transforms: Any = None, held: Any = None, ties: tuple[Tie, ...] = ()) -> Space:
    """Return the space of a parameter pytree.

    transforms follow its structure, missing names mean identity. held: for every leaf a boolean array of its shape,
    True where params gives a number that is held. ties: which of these follow other parameters.
    """
    leaves, treedef = jax.tree.flatten(params)
    chosen = [as_transform(t) for t in broadcast_prefix("transforms", transforms, params)]
    held = [None] * len(leaves) if held is None else [mask if mask.any() else None for mask in held]
    # a leaf held whole has no coordinates: what its transform can give does not matter
    chosen = [Identity() if m is not None and m.all() else t for t, m in zip(chosen, held, strict=True)]
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    inner = tuple(
        s if isinstance(t, Identity) else jax.eval_shape(t.inverse, jax.ShapeDtypeStruct(s, np.float32)).shape
        for t, s in zip(chosen, shapes, strict=True)
    )
    labels = leaf_labels(params)
    masks = tuple(None if mask is None else mask.tobytes() for mask in held)
    kept = tuple(None if mask is None else leaf for leaf, mask in zip(leaves, held, strict=True))
    for label, t, leaf, mask in zip(labels, chosen, kept, held, strict=True):
        if mask is not None and not mask.all() and not isinstance(t, Identity):
            _require_separate(label, t, leaf, mask)
    return Space(treedef, labels, shapes, inner, tuple(chosen), masks, kept, ties)


def _require_separate(label: str, transform: Any, leaf: Any, mask: np.ndarray) -> None:
    """Raise where a transform mixes numbers, some of which are held, or cannot give a held one."""
    z = np.asarray(transform.inverse(leaf))
    if z.shape == mask.shape:
        bad = mask & ~np.isfinite(z)
        if bad.any():
            name = element_label(label, np.argwhere(bad)[0])
            raise ValueError(f"fixed: the value {leaf[bad][0]:g} of {name} lies outside its transform's range.")
        steps = z + 0.1 * (1 + np.abs(z)) * mask, z + 0.1 * (1 + np.abs(z)) * ~mask
        x, of_held, of_free = (np.asarray(transform.forward(point)) for point in (z, *steps))
        if np.array_equal(of_held[~mask], x[~mask]) and np.array_equal(of_free[mask], x[mask]):
            return
    raise ValueError(f"fixed: {label} has a transform that mixes its numbers ({transform}). Hold all of them or none.")


def element_label(label: str, index: Any) -> str:
    """Return the name of one number of a leaf: 'a', or 'w[0,1]'."""
    return label + (f"[{','.join(map(str, index))}]" if len(index) else "")


def broadcast_prefix(what: str, spec: Any, params: Any) -> list:
    """Return one entry of spec per leaf of params.

    A dict names the entries of a dict, namedtuple or dataclass (names left out give None), a list has one for each; a
    tuple too, except for bounds, where it is (lower, upper). Anything else serves all leaves below.
    """
    below = jax.tree_util.tree_flatten_with_path(params, is_leaf=lambda x: x is not params)[0]
    if any(not path for path, _ in below):
        return [spec]  # params is a leaf
    if isinstance(spec, dict):
        names = [label_of(path) for path, _ in below]
        by_name = {str(name): entry for name, entry in spec.items()}
        for name in by_name:
            if name not in names:
                raise ValueError(f"{what}: no parameter {name!r}.{suggestion(name, names)}")
        entries = [by_name.get(name) for name in names]
    elif isinstance(spec, list) or (isinstance(spec, tuple) and (what != "bounds" or hasattr(spec, "_fields"))):
        if len(spec) != len(below):
            raise ValueError(f"{what}: {len(spec)} entries for {len(below)} parameters. Give one each, or one for all.")
        entries = spec
    else:
        entries = [spec] * len(below)
    return [x for entry, (_, child) in zip(entries, below, strict=True) for x in broadcast_prefix(what, entry, child)]


def leaf_labels(params: Any) -> tuple[str, ...]:
    """Return the name of every leaf; a parameter that is one number or array is 'x'."""
    return tuple(label_of(path) or "x" for path, _ in jax.tree_util.tree_flatten_with_path(params)[0])


def label_of(path: tuple) -> str:
    """Return a readable name of a pytree path: 'a.b[0]'."""
    parts = []
    for key in path:
        name = getattr(key, "key", getattr(key, "name", None))
        parts.append(f".{name}" if name is not None else f"[{getattr(key, 'idx', key)}]")
    return "".join(parts).lstrip(".")
