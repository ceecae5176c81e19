"""Whose rules hold: a caller may have set JAX to refuse promotions and transfers, in code that was written for it.

Ours moves vectors between host and devices at every step, and adds numbers of several types and ranks: while we work,
JAX's usual rules hold. A caller's own function is called by the rules that the caller has set.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

# name of a setting: what sets it for a while, and its usual value
SETTINGS: dict[str, tuple[Callable, str]] = {
    "jax_numpy_dtype_promotion": (jax.numpy_dtype_promotion, "standard"),
    "jax_numpy_rank_promotion": (jax.numpy_rank_promotion, "allow"),
    "jax_transfer_guard_host_to_device": (jax.transfer_guard_host_to_device, "allow"),
    "jax_transfer_guard_device_to_device": (jax.transfer_guard_device_to_device, "allow"),
    "jax_transfer_guard_device_to_host": (jax.transfer_guard_device_to_host, "allow"),
}
NO_RULE = (None, "log", "log_explicit")  # nothing is refused


class _Callers(threading.local):
    """What this thread's caller has set other than usual, while we work; None while we do not."""

    rules: dict[str, str] | None = None


_callers = _Callers()


@contextmanager
def our_rules() -> Iterator[None]:
    """Compute by JAX's usual rules while this lasts."""
    if _callers.rules is not None:
        yield
        return
    values = {name: getattr(jax.config, name) for name in SETTINGS}
    found = {name: each for name, each in values.items() if each not in NO_RULE and each != SETTINGS[name][1]}
    with _set({name: SETTINGS[name][1] for name in found}):
        _callers.rules = found
        try:
            yield
        finally:
            _callers.rules = None


@contextmanager
def callers_rules() -> Iterator[None]:
    """Compute by the rules of whoever called us while this lasts. Also a decorator."""
    rules = _callers.rules
    if not rules:
        yield
        return
    with _set(rules):
        _callers.rules = None
        try:
            yield
        finally:
            _callers.rules = rules


def called(fn: Callable, *args: Any) -> Any:
    """Call a caller's function by the caller's rules; one of this package by ours."""
    if str(getattr(fn, "__module__", "")).startswith("shardfit."):
        return fn(*args)
    with callers_rules():
        return fn(*args)


def promotions() -> tuple[str, ...]:
    """Return the caller's rules that decide whether a function can be traced, where they are not the usual ones."""
    return tuple(f"{name}={rule}" for name, rule in (_callers.rules or {}).items() if "promotion" in name)


def _set(rules: dict[str, str]) -> ExitStack:
    stack = ExitStack()
    for name, rule in rules.items():
        stack.enter_context(SETTINGS[name][0](rule))
    return stack
