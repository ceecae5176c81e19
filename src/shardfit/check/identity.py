"""What makes a run the same run: what it computes, never what things are called.

Functions are known by the programs that JAX traces from them at the problem's shapes, derivatives and constants
included, and code that JAX cannot see (a user's minimiser, host callbacks) by its instructions, see content.py. Names,
comments, files, devices and the split of rows into chunks leave no mark: the last two change rounding only. A fact is a
name and a digest, so that a refusal can say what differs.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from shardfit.core.content import Reader
from shardfit.core.current import working_on_it
from shardfit.core.digests import digest, row_digest
from shardfit.core.objective import Objective
from shardfit.core.params import Identity as Untransformed
from shardfit.core.params import make_space
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.core.recent import present
from shardfit.core.rows import take
from shardfit.core.shape_structs import shape_struct
from shardfit.core.term_makers import residual_penalty
from shardfit.core.terms import RowTerm, with_shapes

PROBE_ROWS = 64
OUTSIDE = ("maxiter", "label")  # a run may be continued to a higher limit; a label is only shown


@dataclass(frozen=True)
class Identity:
    """Facts by name, each a digest, and what could not be identified: a run with any of it cannot be resumed."""

    facts: Mapping[str, str]
    unidentified: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """One digest of all facts."""
        return hashlib.sha256(repr(sorted(self.facts.items())).encode()).hexdigest()


def identity(problem: Problem, solver: Any, seed: int) -> Identity:
    """Return what must be equal for a run to be the same run; devices and processes are not part of it."""
    about = settings(problem, solver, seed)
    rows = {
        f"data of term {name!r}": row_digest(term.rows, term.counts)
        for name, term in problem.objective.items()
        if isinstance(term, RowTerm)
    }
    return replace(about, facts={**about.facts, **rows})


@working_on_it
def settings(problem: Problem, solver: Any, seed: int) -> Identity:
    """Return all of an identity but the rows, which may be many."""
    reader, space, dtype = Reader(), problem.space, PRECISIONS[problem.precision]
    facts = {
        "terms": reader.text(list(problem.objective.names)),
        "number of rows": reader.text(dict(problem.objective.n_rows)),
        "parameters": reader.text([list(space.labels), [list(s) for s in space.shapes]]),
        "start": digest(problem.x0),
        "bounds": digest(problem.box),
        "fixed parameters": reader.text(list(space.masks)),
        "precision": reader.text(problem.precision),
        "seed": reader.text(seed),
    }
    for name, term in problem.objective.items():
        facts |= _term_facts(reader, name, term, problem.x0, problem.precision)
    for label, transform, shape in zip(space.labels, space.transforms, space.shapes, strict=True):
        if not isinstance(transform, Untransformed):
            where, outer = f"transform of {label}", jax.ShapeDtypeStruct(shape, dtype)
            inner = jax.eval_shape(transform.inverse, outer)
            facts[where] = reader.program(where, transform.forward, inner)
    for tie in space.ties:
        facts[f"tied {tie.name}"] = reader.program(f"tied {tie.name}", tie.fn, problem.x0)
    facts |= _solver_facts(reader, solver)
    if hasattr(solver, "step") and space.size:
        facts |= _known(reader, _step_facts, solver, space.size, dtype, problem.box is not None)
    return Identity(facts, tuple(dict.fromkeys(reader.unidentified)))


def of_value(name: str, value: Any) -> Identity:
    """Return the identity of one thing, functions by their code."""
    reader = Reader(f"the {name}")
    return Identity({name: reader.text(value)}, tuple(reader.unidentified))


def probe_digest(problem: Problem) -> str:
    """Return the digest of a few rows: enough to notice that two processes hold different ones."""
    rows = []
    for term in problem.objective.terms:
        if isinstance(term, RowTerm):
            index = np.unique(np.linspace(0, term.n_rows - 1, PROBE_ROWS).astype(int))
            rows.append(take(term.rows, index, term.counts))
    return digest(rows)


def _known(reader: Reader, make: Callable, *about: Any) -> dict[str, str]:
    """Return make(reader, *about), remembered: a program is traced once for equal facts, as it is compiled once.

    Host code that a program calls is read anew each time: what it refers to may have changed since.
    """
    try:
        # the text tells 0 from 0.0 and from False, which are equal but not the same program
        facts, calls_host = _remembered(repr((present.key, about)), make, *about)
    except TypeError:  # something cannot be hashed
        calls_host = True
    return make(reader, *about) if calls_host else dict(facts)


@lru_cache(maxsize=256)
def _remembered(text: str, make: Callable, *about: Any) -> tuple[dict[str, str], bool]:
    reader = Reader()
    return make(reader, *about), reader.host


def _term_facts(reader: Reader, name: str, term: Any, params: Any, precision: str) -> dict[str, str]:
    weight = term.weight, getattr(term, "scale", 1.0)
    facts = {f"weight of term {name!r}": digest(weight), f"args of term {name!r}": digest(term.args)}
    # a model whose trace depends on the machine (threads, free memory) says what it is without that
    portable = getattr(term.fn, "portable", None)
    plain = term if portable is None else replace(term, fn=portable())
    if isinstance(term, RowTerm):
        plain = with_shapes(plain, term.n_rows)
        if term.key is not None:
            facts[f"random key of term {name!r}"] = digest(term.key)
        facts |= _own_facts(reader, name, term)
    leaves, tree = jax.tree.flatten((_abstract(plain), _abstract(params)))
    return facts | _known(reader, _program_facts, name, tree, tuple(leaves), precision)


def _own_facts(reader: Reader, name: str, term: RowTerm) -> dict[str, str]:
    """Return facts of what only some kinds of row terms have: numbers of their own, their own normal equations."""
    facts, common = {}, {f.name for f in fields(RowTerm)}
    own = {f.name: getattr(term, f.name) for f in fields(term) if f.name not in common and not f.metadata.get("static")}
    if own:
        facts[f"settings of term {name!r}"] = digest(own)
    if term.equations is not None:
        reader.where = f"the normal equations of term {name!r}"
        facts[f"normal equations of term {name!r}"] = reader.text(term.equations)
    return facts


def _program_facts(reader: Reader, name: str, tree: Any, leaves: tuple, precision: str) -> dict[str, str]:
    """Return the programs of a term, given with its parameters as a pytree of shapes; precision: in which it runs."""
    term, params = jax.tree.unflatten(tree, leaves)
    model, loss = f"model of term {name!r}", f"loss of term {name!r}"
    if not isinstance(term, RowTerm):
        return {model: reader.program(model, lambda p, t: t.losses(p), params, term)}
    key = jax.eval_shape(lambda: jax.random.key(0))

    def sums(params, term, key):
        return term.statistics(params, term.rows, None, key)

    totals = jax.eval_shape(sums, params, term, key)
    return {
        model: reader.program(model, sums, params, term, key),
        loss: reader.program(loss, lambda s, t, k: t.losses(s, k), totals, replace(term, rows=None), key),
    }


def _abstract(tree: Any) -> Any:
    """Replace arrays by their shapes, so that nothing is evaluated while tracing."""

    def one(leaf):
        if not hasattr(leaf, "shape"):
            return leaf
        return shape_struct(leaf, weak=getattr(leaf, "weak_type", False))

    return jax.tree.map(one, tree)


def _solver_facts(reader: Reader, solver: Any) -> dict[str, str]:
    """Return a solver's class and options; a transformation of a step solver is in its traced step.

    An option marked as derived follows from the rest, but for rounding, and a run that goes on has it in its state.
    """
    reader.where = "the solver"
    facts = {"solver": reader.text(type(solver))}
    for option in fields(solver):
        value = getattr(solver, option.name)
        traced = hasattr(solver, "step") and hasattr(value, "init") and hasattr(value, "update")
        if option.init and option.name not in OUTSIDE and not option.metadata.get("derived") and not traced:
            facts[f"solver's {option.name}"] = reader.text(value)
    return facts


def _step_facts(reader: Reader, solver: Any, size: int, dtype: Any, bounded: bool) -> dict[str, str]:
    """Return the program of a step solver, traced on a sum of squares with as many coordinates."""
    reader.where = "the solver"
    z = jax.ShapeDtypeStruct((size,), dtype)
    space, toy = make_space(np.zeros(size, dtype)), Objective({"toy": residual_penalty(lambda x: x)})
    bounds = (z, z) if bounded else (None, None)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def step(state, key):
        return solver.step(lambda x: solver.evaluate(space, toy, x, key), state)

    state = jax.eval_shape(solver.init, z, *bounds)
    return {
        "solver's first state": reader.text(jax.make_jaxpr(solver.init)(z, *bounds)),
        "solver's step": reader.text(jax.make_jaxpr(step)(state, key)),
    }
