"""What a program depends on besides numbers: the structure and the types of its arguments.

Both are hashable, so that what follows from them (how much work a program is, what it reads) is found once for all
arguments that share them.
"""

from typing import Any

import jax


def types_of(*arguments: Any) -> tuple[Any, tuple]:
    """Return the structure of arguments, and the types of their leaves."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple(jax.typeof(leaf) for leaf in leaves)


def shape_struct(leaf: Any, shape: tuple | None = None, weak: bool = False) -> jax.ShapeDtypeStruct:
    """Return an array's shape, or another, and its type in the present precision: JAX warns where it has to cut one."""
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(leaf.shape if shape is None else shape, dtype, weak_type=weak)


def shape_structs(structure: Any, types: tuple) -> Any:
    """Return arguments to trace with: shapes in place of arrays."""
    return structure.unflatten([jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types])
