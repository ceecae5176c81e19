"""Nothing stale: a program that was traced from functions is used again while all that they reach is what it was.

JAX keeps programs by the functions they were traced from. A number in a notebook, a helper, an attribute, an array may
have changed since, and JAX would run the old program without a word: its caches cannot know, neither those of `jit` nor
those of the bodies of `scan`, `while_loop` and `cond`. So where work begins, what functions reach is read
(`content.py`), and its digest becomes part of the key of every program that JAX keeps while the work lasts.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from inspect import signature
from typing import Any

import jax

from shardfit.core.content import PLAIN, Reader
from shardfit.core.lookup import package_of
from shardfit.core.precision import arithmetic, type_constants_anew
from shardfit.core.recent import present
from shardfit.core.rules import our_rules, promotions

content = jax.make_user_context(None)
_anew = itertools.count()


class _Work(threading.local):
    """What this thread has read for the work that it is at."""

    roots: tuple = ()
    known: frozenset[int] = frozenset()


_work = _Work()


@contextmanager
def as_they_are(*owners: Any) -> Iterator[tuple[str, ...]]:
    """Work on problems or parts of them, or solvers, with their functions as they are now; yields what cannot be read.

    Where something cannot be read, programs are traced anew each time. Within such work, parts of the same owners are
    not read again.
    """
    roots = tuple(root for owner in owners for root in roots_of(owner))
    if _work.known.issuperset(map(id, roots)):
        yield ()
        return
    with our_rules():
        key, unread = _read(roots)
        key = (*key, *promotions())
    type_constants_anew()
    with _working(roots, key):
        yield unread


@contextmanager
def _working(roots: tuple, key: tuple) -> Iterator[None]:
    before = _work.roots, _work.known, present.key
    _work.roots, _work.known, present.key = roots, frozenset(map(id, roots)), key
    try:
        with our_rules(), content(key or None):
            yield
    finally:
        _work.roots, _work.known, present.key = before


@contextmanager
def at_work(owner: Any, *others: Any) -> Iterator[tuple[str, ...]]:
    """Work on a problem or objective in its precision and with its functions, and those of others, as they are now."""
    with arithmetic(getattr(owner, "precision", None)), as_they_are(owner, *others) as unread:
        yield unread


def working_on_it(fn: Callable) -> Callable:
    """Decorate a function, or a method, so that it is `at_work` on its first argument, such as a Problem."""
    first = next(iter(signature(fn).parameters))

    @wraps(fn)
    def run(*args, **options):
        with at_work(args[0] if args else options.get(first)):
            return fn(*args, **options)

    return run


def outside(fn: Callable) -> Callable:
    """Return a caller's function such that what it calls of this package begins work of its own."""

    @wraps(fn)
    def run(*args, **options):
        with _working((), ()):
            return fn(*args, **options)

    return run


def _read(roots: tuple) -> tuple[tuple, tuple[str, ...]]:
    """Return the digests of roots that may change, and what of them could not be read."""
    reader, digests = Reader("the model", live=True), set()
    for root in roots:
        reader.volatile = False
        digest = reader.read(root)
        if reader.volatile:
            digests.add(digest)
    unread = tuple(dict.fromkeys(reader.unidentified))
    return (*sorted(digests), *((next(_anew),) if unread else ())), unread


def roots_of(owner: Any) -> Iterator[Any]:
    """Yield what of a problem, its parts or a solver can change what is traced: functions, objects, classes."""
    if hasattr(owner, "objective"):
        yield from roots_of(owner.objective)
        yield from roots_of(owner.space)
        yield from _classes(jax.tree.structure(owner.x0))
    elif hasattr(owner, "ties"):
        yield from (one for one in owner.transforms if package_of(type(one).__module__) is None)
        yield from (tie.fn for tie in owner.ties)
    elif hasattr(owner, "terms"):
        for term in owner.terms:
            yield from _static(term)
            yield from _classes(jax.tree.structure(term))
    elif isinstance(owner, jax.tree_util.PyTreeDef):
        yield from _classes(owner)
    elif is_dataclass(owner) and package_of(type(owner).__module__) is not None:
        # our own class with numbers of a user's choice: limits and rates are told apart where they matter
        values = (getattr(owner, each.name) for each in fields(owner))
        yield from (value for value in values if type(value) not in PLAIN)
    elif owner is not None:
        yield owner


def _static(term: Any) -> Iterator[Any]:
    for each in fields(term):
        value = getattr(term, each.name) if each.metadata.get("static") else None
        if type(value) not in PLAIN:
            yield value


@lru_cache(maxsize=1024)
def _classes(structure: Any) -> tuple[Any, ...]:
    """Return the classes of a tree that are the user's own, with what tells the program apart."""
    data = structure.node_data()
    if data is None:
        return ()
    inner = tuple(one for child in structure.children() for one in _classes(child))
    own = package_of(data[0].__module__) is None
    return (*((data[0], data[1]) if own else ()), *inner)
