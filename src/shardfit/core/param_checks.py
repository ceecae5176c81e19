"""What may be fitted: floating numbers. Anything else among the parameters is refused by its name, with the remedy.

An integer in a dict, list or tuple is a number that was written without its point. In a field of a class it is one only
where the field is declared to hold numbers: `order: int` of a module says how the model is built.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.params import label_of

NUMBERS = re.compile("float|Float|Array|array|Scalar|Real|Number|Inexact", re.ASCII)  # in a field's declaration
APART = (
    "Keep what is not fitted out of x0: make it a static field, or with equinox: params, rest = eqx.partition(model, "
    "eqx.is_inexact_array), fit params, and let the model call eqx.combine(params, rest)."
)


def check_params(params: Any) -> Any:
    """Return params with floating NumPy leaves, or raise naming the one that cannot be fitted."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise ValueError("x0 has no parameters. Pass a number, an array, or a dict of them.")
    leaves = []
    for path, leaf in paths:
        label = label_of(path) or "x0"
        array = _numbers(label, leaf)
        if jnp.issubdtype(array.dtype, np.integer):
            _require_meant(label, params, path, leaf)
            array = array.astype(float)
        leaves.append(array)
    return jax.tree.unflatten(treedef, leaves)


def _numbers(label: str, leaf: Any) -> np.ndarray:
    """Return a leaf as an array of real, finite numbers."""
    if callable(leaf):
        raise TypeError(f"parameter {label} of x0 is a function, not a number. {APART}")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"parameter {label} of x0 is a random key, not a number. {APART}")
    if isinstance(leaf, np.ma.MaskedArray):
        if np.ma.is_masked(leaf):
            raise TypeError(f"parameter {label} of x0 has masked numbers. Hold numbers by fixed, or leave them out.")
        leaf = leaf.data
    array = np.asarray(leaf)
    if np.issubdtype(array.dtype, np.complexfloating):
        raise TypeError(
            f"parameter {label} is complex. Fit two real parameters and combine them in the model: "
            "x0={'re': z.real, 'im': z.imag}, and there z = params['re'] + 1j * params['im']."
        )
    # jnp's question, not NumPy's: bfloat16 and the like are floating to it
    if not jnp.issubdtype(array.dtype, np.number):
        raise TypeError(f"parameter {label} is {array.dtype}, not a number. {APART}")
    if not np.isfinite(array.astype(float)).all():
        raise ValueError(f"parameter {label} of x0 is not finite. Start from finite numbers.")
    return array


def _require_meant(label: str, params: Any, path: tuple, leaf: Any) -> None:
    """Raise for an integer in a field of a class that is not declared to hold floating numbers."""
    owner, declared, found = None, None, params
    for key in path:
        name = getattr(key, "name", None)
        if name is not None:
            owner, declared = type(found), _declared(type(found), name)
        found = _child(found, key)
    single = np.ndim(leaf) == 0 and not isinstance(leaf, jax.Array)
    plain = single and (declared is None or NUMBERS.search(declared) is not None)
    if owner is None or plain:
        return
    told = f"{owner.__name__} declares it {declared}" if declared else f"it is in a field of {owner.__name__}"
    raise TypeError(
        f"parameter {label} of x0 is an integer ({leaf}), and {told}: it would be fitted as a floating number. {APART} "
        "If it is to be fitted, write it as a float."
    )


def _child(parent: Any, key: Any) -> Any:
    """Return what a pytree has at a key; None where only its own rules know."""
    if hasattr(key, "name"):
        return getattr(parent, key.name, None)
    try:
        return parent[getattr(key, "key", getattr(key, "idx", None))]
    except (TypeError, LookupError):
        return None


def _declared(kind: type, name: str) -> str | None:
    """Return what a class declares a field to be, as text; None where it does not say."""
    for each in kind.__mro__:
        if name in (found := vars(each).get("__annotations__", {})):
            return found[name].__name__ if type(found[name]) is type else str(found[name])
    return None
