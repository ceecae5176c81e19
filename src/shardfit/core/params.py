"""Parameters: any pytree, seen by solvers as one flat vector.

`Space` maps between the two, through a transform per leaf, and carries box bounds. It is static and hashable: two
problems of equal structure share their compiled functions.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion


@runtime_checkable
class Transform(Protocol):
    """A map from unconstrained numbers to a parameter and back; must be hashable."""

    def forward(self, z: jax.Array) -> jax.Array:
        """Return the parameter."""
        ...

    def inverse(self, x: jax.Array) -> jax.Array:
        """Return the unconstrained numbers."""
        ...


@dataclass(frozen=True)
class Identity:
    """The parameter itself."""

    def forward(self, z):
        """Return z."""
        return z

    def inverse(self, x):
        """Return x."""
        return x


@dataclass(frozen=True)
class Log:
    """Positive parameter x = exp(z)."""

    def forward(self, z):
        """Return exp(z)."""
        return jnp.exp(z)

    def inverse(self, x):
        """Return log(x)."""
        return jnp.log(x)


@dataclass(frozen=True)
class Softplus:
    """Positive parameter x = log(1 + exp(z)): linear where large, so steps stay moderate."""

    def forward(self, z):
        """Return log(1 + exp(z))."""
        return jax.nn.softplus(z)

    def inverse(self, x):
        """Return log(exp(x) - 1), without overflow."""
        return x + jnp.log(-jnp.expm1(-x))


@dataclass(frozen=True)
class Interval:
    """Parameter between two numbers: x = lower + (upper - lower) / (1 + exp(-z))."""

    lower: float
    upper: float

    def __post_init__(self):
        if not (np.isfinite(self.lower) and np.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(f"Interval({self.lower}, {self.upper}): both ends must be finite and in ascending order.")

    def forward(self, z):
        """Return the logistic map of z onto the interval."""
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(z)

    def inverse(self, x):
        """Return the logit of x within the interval."""
        share = (x - self.lower) / (self.upper - self.lower)
        return jnp.log(share) - jnp.log1p(-share)


@dataclass(frozen=True)
class TanInterval:
    """Parameter between two numbers, x = middle + s·atan(z / s): slope 1 at the middle, where steps keep their size."""

    lower: float
    upper: float

    def __post_init__(self):
        Interval(self.lower, self.upper)  # the same demands

    def _middle_and_size(self):
        return 0.5 * (self.lower + self.upper), (self.upper - self.lower) / np.pi

    def forward(self, z):
        """Return the point of the interval."""
        middle, size = self._middle_and_size()
        return middle + size * jnp.arctan(z / size)

    def inverse(self, x):
        """Return the tangent of x within the interval; NaN on a bound, which is infinitely far away."""
        middle, size = self._middle_and_size()
        return jnp.where((x > self.lower) & (x < self.upper), size * jnp.tan((x - middle) / size), jnp.nan)


@dataclass(frozen=True)
class Above:
    """Parameter above a number, x = lower + (z + √(z² + 4)) / 2: slope 1 far inside, less and less near the bound."""

    lower: float

    def forward(self, z):
        """Return the number above the bound."""
        return self.lower + _hyperbola(z)

    def inverse(self, x):
        """Return d - 1/d of the distance d from the bound; NaN on it or beyond."""
        distance = x - self.lower
        return jnp.where(distance > 0, distance - 1 / distance, jnp.nan)


@dataclass(frozen=True)
class Below:
    """Parameter below a number: the mirror image of Above."""

    upper: float

    def forward(self, z):
        """Return the number below the bound."""
        return self.upper - _hyperbola(-z)

    def inverse(self, x):
        """Return 1/d - d of the distance d from the bound; NaN on it or beyond."""
        distance = self.upper - x
        return jnp.where(distance > 0, 1 / distance - distance, jnp.nan)


def _hyperbola(z):
    # for negative z the sum would cancel: the same number as a quotient
    root = jnp.sqrt(z * z + 4)
    return jnp.where(z < 0, 2 / (root - jnp.minimum(z, 0)), 0.5 * (root + z))


def within(lower: float | None = None, upper: float | None = None) -> "Transform":
    """Return the transform for open bounds: TanInterval, Above, Below, or Identity where neither end is finite."""
    low, high = -np.inf if lower is None else lower, np.inf if upper is None else upper
    if np.isfinite(low) and np.isfinite(high):
        return TanInterval(low, high)
    return Above(low) if np.isfinite(low) else Below(high) if np.isfinite(high) else Identity()


@dataclass(frozen=True)
class Simplex:
    """Non-negative numbers that add up to 1 along the last axis; n numbers have n - 1 coordinates."""

    def forward(self, z):
        """Return softmax(z, 0)."""
        return jax.nn.softmax(jnp.concatenate([z, jnp.zeros((*z.shape[:-1], 1), z.dtype)], -1), axis=-1)

    def inverse(self, x):
        """Return log(x / last x)."""
        return jnp.log(x[..., :-1]) - jnp.log(x[..., -1:])


NAMED = {"identity": Identity(), "log": Log(), "softplus": Softplus(), "simplex": Simplex()}
MONOTONE = (Identity, Log, Softplus)


def as_transform(value: Any) -> Transform:
    """Return a transform from an object or a name."""
    if value is None:
        return Identity()
    if isinstance(value, str):
        if value not in NAMED:
            raise ValueError(f"unknown transform {value!r}.{suggestion(value, [*NAMED, 'Interval(lower, upper)'])}")
        return NAMED[value]
    if not isinstance(value, Transform):
        raise TypeError(
            f"transform {value!r} has no forward and inverse. Use Log(), Interval(lo, hi) or your own class."
        )
    if type(value).__hash__ is None:
        raise TypeError(f"transform {value!r} cannot be hashed. Make its class a frozen dataclass.")
    return value


@dataclass(frozen=True)
class Space:
    """The flat, unconstrained coordinates z (n,) of a parameter pytree."""

    treedef: Any
    labels: tuple[str, ...]  # one per leaf
    shapes: tuple[tuple[int, ...], ...]  # of the leaves, as parameters
    inner_shapes: tuple[tuple[int, ...], ...]  # of the leaves, as coordinates
    transforms: tuple[Transform, ...]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(int(np.prod(shape)) for shape in self.inner_shapes)

    @property
    def plain(self) -> bool:
        """Whether coordinates are the parameters themselves."""
        return all(isinstance(t, Identity) for t in self.transforms)

    def unpack(self, z: jax.Array) -> Any:
        """Return the parameter pytree of coordinates z."""
        cuts = np.cumsum([int(np.prod(s)) for s in self.inner_shapes])[:-1]
        pieces = jnp.split(z, cuts) if len(self.inner_shapes) > 1 else [z]
        leaves = [
            t.forward(piece.reshape(shape))
            for t, piece, shape in zip(self.transforms, pieces, self.inner_shapes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)

    def pack(self, params: Any) -> jax.Array:
        """Return the coordinates of params."""
        leaves = jax.tree.leaves(params)
        return jnp.concatenate(
            [jnp.ravel(t.inverse(jnp.asarray(leaf))) for t, leaf in zip(self.transforms, leaves, strict=True)]
        )

    def host_params(self, z: Any) -> Any:
        """Return the parameter pytree of coordinates z as NumPy arrays."""
        return jax.tree.map(np.asarray, _unpack(self, np.asarray(z)))

    def coordinate_labels(self) -> list[str]:
        """Return a name for every coordinate: 'a', 'w[0]', 'w[1]' ..."""
        return [
            label + (f"[{','.join(map(str, index))}]" if shape else "")
            for label, shape in zip(self.labels, self.inner_shapes, strict=True)
            for index in np.ndindex(*shape)
        ]


@partial(jax.jit, static_argnums=0)
def _unpack(space: Space, z: jax.Array) -> Any:
    return space.unpack(z)


def make_space(params: Any, transforms: Any = None) -> Space:
    """Return the space of a parameter pytree; transforms follow its structure, missing names mean identity."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    chosen = [as_transform(t) for t in spread("transforms", transforms, params)]
    shapes = tuple(np.shape(leaf) for _, leaf in paths)
    inner = tuple(
        jax.eval_shape(t.inverse, jax.ShapeDtypeStruct(s, np.float32)).shape
        for t, s in zip(chosen, shapes, strict=True)
    )
    labels = tuple(label_of(path) or "x" for path, _ in paths)
    return Space(treedef, labels, shapes, inner, tuple(chosen))


def box(space: Space, params: Any, bounds: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (lower, upper) of every coordinate, ±inf where free; None when nothing is bounded.

    bounds follow the structure of params: (lower, upper) for a leaf or for all leaves of a subtree, or a list with one
    entry each. params must lie inside.
    """
    pairs = spread("bounds", bounds, params)
    if all(pair is None for pair in pairs):
        return None
    lower, upper = [], []
    for label, leaf, pair, t, inner in zip(
        space.labels, jax.tree.leaves(params), pairs, space.transforms, space.inner_shapes, strict=True
    ):
        if pair is None:
            lower.append(np.full(int(np.prod(inner)), -np.inf))
            upper.append(np.full(int(np.prod(inner)), np.inf))
            continue
        lo, hi = ends_of(label, pair, np.shape(leaf))
        if not (isinstance(t, MONOTONE) or getattr(t, "increasing", False)):
            raise ValueError(f"{label}: bounds and transform {t} cannot be combined. Use one of the two.")
        _check_inside(label, np.asarray(leaf), lo, hi)
        lower.append(np.broadcast_to(_inner_bound(t, lo, -np.inf), inner).ravel())
        upper.append(np.broadcast_to(_inner_bound(t, hi, np.inf), inner).ravel())
    return np.concatenate(lower), np.concatenate(upper)


def ends_of(label: str, pair: Any, shape: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return (lower, upper) arrays of a leaf from what bounds say of it, ±inf where free."""
    if isinstance(pair, list) and shape and len(pair) == shape[0] and all(_is_pair(entry) for entry in pair):
        ends = [ends_of(f"{label}[{i}]", entry, shape[1:]) for i, entry in enumerate(pair)]
        return np.stack([lo for lo, _ in ends]), np.stack([hi for _, hi in ends])
    try:
        lo, hi = (None, None) if pair is None else pair
        lo = np.broadcast_to(-np.inf if lo is None else np.asarray(lo, float), shape)
        hi = np.broadcast_to(np.inf if hi is None else np.asarray(hi, float), shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds of {label} are {pair!r}; give (lower, upper) that fit its shape {shape}, or a list of such pairs."
        ) from None
    if np.isnan(lo).any() or np.isnan(hi).any() or (lo > hi).any():
        raise ValueError(f"bounds of {label}: lower {lo} must not exceed upper {hi}.")
    return lo, hi


def _is_pair(entry):
    return entry is None or (isinstance(entry, list | tuple) and len(entry) == 2)


def _check_inside(label, leaf, lo, hi):
    # in the leaf's own precision: a float32 start may lie on its bound
    outside = (leaf < lo.astype(leaf.dtype)) | (leaf > hi.astype(leaf.dtype))
    if outside.any():
        i = np.unravel_index(np.argmax(outside), outside.shape)
        name = label + (f"[{','.join(map(str, i))}]" if i else "")
        raise ValueError(
            f"x0 of {name} is {leaf[i]:g}, outside its bounds [{lo[i]:g}, {hi[i]:g}]. Move one of the two."
        )


def _inner_bound(transform, bound, free):
    if isinstance(transform, Identity):
        return bound
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.asarray(transform.inverse(np.where(np.isfinite(bound), bound, 1.0)))
    outside = np.isneginf(bound) if free < 0 else np.isposinf(bound)
    return np.where(outside | ~np.isfinite(inner), free, inner)


def spread(what: str, spec: Any, params: Any) -> list:
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
    return [x for entry, (_, child) in zip(entries, below, strict=True) for x in spread(what, entry, child)]


def label_of(path: tuple) -> str:
    """Return a readable name of a pytree path: 'a.b[0]'."""
    parts = []
    for key in path:
        name = getattr(key, "key", getattr(key, "name", None))
        parts.append(f".{name}" if name is not None else f"[{getattr(key, 'idx', key)}]")
    return "".join(parts).lstrip(".")


def check_params(params: Any) -> Any:
    """Return params with floating NumPy leaves, or raise naming the one that cannot be fitted."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise ValueError("x0 has no parameters. Pass a number, an array, or a dict of them.")
    leaves = []
    for path, leaf in paths:
        label = label_of(path) or "x0"
        array = np.asarray(leaf)
        if np.issubdtype(array.dtype, np.complexfloating):
            raise TypeError(f"parameter {label} is complex. Use two real parameters and combine them in the model.")
        if not np.issubdtype(array.dtype, np.number):
            raise TypeError(f"parameter {label} is {array.dtype}, not a number.")
        if not np.isfinite(array.astype(float)).all():
            raise ValueError(f"parameter {label} of x0 is not finite. Start from finite numbers.")
        leaves.append(array if np.issubdtype(array.dtype, np.floating) else array.astype(float))
    return jax.tree.unflatten(treedef, leaves)
