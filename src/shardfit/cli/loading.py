"""Functions of users that a configuration names as 'module:function'."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from shardfit.core.errors import suggestion


def load_function(text: str, where: str) -> Callable:
    """Return the function that a text names; modules of the present folder are found. where: what an error names."""
    module, _, name = text.partition(":")
    if (here := os.getcwd()) not in sys.path:  # last: a file of this folder never hides an installed package
        sys.path.append(here)
    cannot = f"{where} = {text!r} cannot be loaded"
    form = "Write 'module:function', with the module on PYTHONPATH or in the present folder."
    if not module or not name:
        raise ValueError(f"{cannot}. {form}")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # what the module itself imports is missing
        raise ValueError(f"{cannot} ({error}). {form}") from None
    except Exception as error:  # whatever stands at the top of a user's module; where it does is told with it
        raise ValueError(f"{cannot}: {type(error).__name__}: {error}").with_traceback(error.__traceback__) from None
    found = getattr(loaded, name, None)
    if not callable(found):
        known = [each for each, value in vars(loaded).items() if inspect.isfunction(value) and each[0] != "_"]
        raise ValueError(f"{cannot}: {loaded.__name__} has no function {name!r}.{suggestion(name, known)}")
    return found


def call_with(function: Callable, settings: Mapping[str, Any], where: str) -> Any:
    """Return what a user's function makes of settings; raise where it does not take one. where: what an error names."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not every callable has one
        return function(**settings)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in settings:
            if name not in signature.parameters:
                raise ValueError(f"{where} has an unknown entry {name!r}.{suggestion(name, signature.parameters)}")
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise ValueError(f"{where}: {error}.") from None
    return function(**settings)
