"""Names of a package that are imported when they are first used, so that importing the package costs nothing (PEP 562).

A package lists its names three times: in `__all__`, in imports under TYPE_CHECKING (what type checkers and editors
read) and by module for `lazy_names`. `tests/test_import.py` holds the three together.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lent(address: str) -> Any:
    """Return what 'module:name' names. For a comfort that lies in a layer above and is found only when it is asked for.

    Example: `lent("shardfit.report.plotting:plot_result")`.
    """
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package. homes: module below the package → names in it, blanks between.

    Example: `__getattr__, __dir__ = lazy_names(__name__, {"core.mesh": "mesh", "fitting": "fit least_squares"})`.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names
