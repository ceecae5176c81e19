"""Functions of users that a configuration names as 'module:function'."""

import os
import sys
from collections.abc import Callable
from importlib import import_module


def load_function(text: str, where: str) -> Callable:
    """Return the function that a text names; modules of the present folder are found. where: what an error names."""
    module, _, name = text.partition(":")
    if (here := os.getcwd()) not in sys.path:  # last: a file of this folder never hides an installed package
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{where} = {text!r} cannot be loaded ({error}). Write 'module:function', with the module on PYTHONPATH or "
            "in the present folder."
        ) from None
