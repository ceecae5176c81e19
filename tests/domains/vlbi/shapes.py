"""A type checker for jaxtyping: annotated arrays are looked at when a function is called and when it returns."""

import functools
import inspect
import typing
from collections.abc import Mapping
from typing import Any


def checked(function):
    """Return the function with annotated array arguments and results checked, inside the memo that jaxtyping holds."""
    if not inspect.isfunction(function):
        return function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            require(f"{function.__qualname__}: {name}", value, signature.parameters[name].annotation)
        out = function(*args, **kwargs)
        require(f"{function.__qualname__} returned", out, signature.return_annotation)
        return out

    return wrapper


def require(what: str, value: Any, kind: Any) -> None:
    """Raise TypeError if an array, or one in a mapping or tuple, is not as annotated; other types are left alone."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        for key, each in value.items():
            require(f"{what}[{key!r}]", each, inner[1])
    elif origin is tuple and isinstance(value, tuple):
        for k, each in enumerate(value):
            require(f"{what}[{k}]", each, inner[0] if inner[-1] is Ellipsis else inner[k])
    elif _is_array(kind):
        _require_any(what, value, (kind,))
    elif inner and all(map(_is_array, inner)):
        _require_any(what, value, inner)


def _is_array(kind: Any) -> bool:
    return type(kind).__module__.startswith("jaxtyping")


def _require_any(what: str, value: Any, kinds: tuple) -> None:
    if not any(isinstance(value, kind) for kind in kinds):
        raise TypeError(f"{what} is {getattr(value, 'dtype', type(value))}{getattr(value, 'shape', '')}, not {kinds}")
