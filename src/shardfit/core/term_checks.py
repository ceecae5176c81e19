"""Do a term's functions fit its rows: asked of shapes, when a problem is made and when an objective is first traced."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.block_statistics import check_sums
from shardfit.core.current import as_they_are
from shardfit.core.functions import shared_objective
from shardfit.core.precision import require_precision
from shardfit.core.recent import Recent, structure
from shardfit.core.rows import Numbered, leading
from shardfit.core.rules import called
from shardfit.core.terms import Penalty, RowTerm, weighted_sum, with_shapes

_fitting = Recent()  # structures of terms and parameters that were found to fit, in a precision
READING = (KeyError, AttributeError, IndexError, TypeError)  # what asking an object for what it does not have raises


def check_terms(objective: Any, params: Any, precision: str | None = None) -> None:
    """Trace every term without running it, and raise if what it returns does not fit the rows.

    precision: that of the problem, None where an objective is traced, whose numbers are not known. What is traced are
    functions of this module with the term as argument: rows in a closure would be worked on for real. A problem whose
    terms have the structure and the functions of an earlier one's is not traced again.
    """
    objective = objective if precision is None else shared_objective(objective)
    with as_they_are(objective, jax.tree.structure(params)):
        _check_each(objective, params, precision)


def _check_each(objective: Any, params: Any, precision: str | None) -> None:
    for name, term in objective.items():
        kind = None if precision is None else (name, precision, structure(term, params))
        if kind is not None and _fitting.get(kind):
            continue
        with _naming(name, term, params):
            if isinstance(term, Penalty):
                losses = jax.eval_shape(_penalty_losses, params, term)
            else:
                block, out = _contributions_of_block(name, term, params)
                if precision is not None:
                    block.check_shapes(name, out)
                    require_precision(f"what fn of term {name!r} returns", out, precision)
                if term.linear and hasattr(term, "loss"):
                    of_row = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), out)
                    sums = out if term.sums_blocks else of_row
                    _check_scalars(name, sums, "the summed statistic", "pass a loss that returns one number")
                losses = jax.eval_shape(_row_losses, params, block, _any_key())
        _check_scalars(name, losses, "the loss", "return one number, or a dict of named numbers")
        if precision is not None:
            require_precision(f"the loss of term {name!r}", losses, precision)
        value = jax.eval_shape(lambda x, t, where=f"term {name!r}": weighted_sum(t.weight, x, where), losses, term)
        if value.shape:
            raise ValueError(f"term {name!r}: weight has shape {value.shape}. Give one number, or a dict of them.")
        if kind is not None:
            _fitting.put(kind, True)


def check_contributions(objective: Any, params: Any) -> None:
    """Raise where the function of a row term does not return one contribution per row; losses are not looked at."""
    for name, term in objective.items():
        if isinstance(term, RowTerm):
            with _naming(name, term, params):
                _contributions_of_block(name, term, params)


def _contributions_of_block(name: str, term: RowTerm, params: Any) -> tuple[RowTerm, Any]:
    """Return the term with the shapes of one block as rows, and the shapes of what its rows contribute."""
    n = leading(term.rows) if term.chunk is None else min(term.chunk, leading(term.rows))
    block = with_shapes(term, n)  # shapes of all rows may be more than there is memory for
    out = jax.eval_shape(_contributions, params, block, _any_key())
    if term.sums_blocks:
        check_sums(name, out, n, lambda m: jax.eval_shape(_contributions, params, with_shapes(block, m), _any_key()))
        return block, out
    _check_leading_axis(name, out, n)
    if n > 1:  # a function for one row at a time need not take two
        _check_other_length(name, out, n, block, params)
    return block, out


def _any_key() -> Any:
    return jax.eval_shape(jax.random.key, 0)


def _contributions(params, term, key):
    return term.contributions(params, term.rows, key)


def _row_losses(params, term, key):
    mask = np.ones(leading(term.rows), bool)
    return term.losses(term.statistics(params, term.rows, mask, key), key)


def _penalty_losses(params, term):
    return term.losses(params)


def _check_leading_axis(name, out, n):
    leaves = jax.tree.leaves(out)
    if not leaves:
        raise ValueError(f"term {name!r}: fn returned nothing. Return one contribution per row.")
    for leaf in leaves:
        if leaf.ndim == 0 or leaf.shape[0] != n:
            got = "a single number" if leaf.ndim == 0 else f"{leaf.shape[0]} values"
            raise ValueError(
                f"term {name!r}: fn returned {got} for {n} rows. Return one per row, which the library adds up; "
                "statistic_term(block_statistic(fn), ...) takes sums over a block of rows; penalty() has no rows."
            )


def _check_other_length(name, out, n, block, params):
    """Raise where a row's contribution, or how many there are, does not follow the number of rows."""
    try:
        fewer = jax.eval_shape(_contributions, params, with_shapes(block, n - 1), _any_key())
    except Exception:  # a function that takes no other number of rows: the certificate's matter
        return
    for whole, part in zip(jax.tree.leaves(out), jax.tree.leaves(fewer), strict=True):
        if part.ndim == 0 or part.shape[0] != n - 1:
            got = "a single number" if part.ndim == 0 else f"{part.shape[0]} values"
            raise ValueError(
                f"term {name!r}: fn returned {n} values for {n} rows, but {got} for {n - 1} rows, so these are not one "
                "per row. Return the contribution of every row, which the library adds up."
            )
        if whole.shape[1:] != part.shape[1:]:
            raise ValueError(
                f"term {name!r}: the contribution of a row has shape {whole.shape[1:]} among {n} rows and "
                f"{part.shape[1:]} among {n - 1}, so rows look at the others of their block. The function sees some "
                "of the rows at a time: pairs of rows cannot be formed in it. Pass what all rows need in args."
            )


def _check_scalars(name, losses, what, remedy):
    named = isinstance(losses, dict)
    numbers = list(losses.values()) if named else [losses]
    if not numbers or not jax.tree_util.all_leaves(numbers):
        kind = type(losses).__name__ if not named else "a nested dict" if numbers else "an empty dict"
        raise ValueError(f"term {name!r}: {what} is {kind}; {remedy}.")
    for leaf in numbers:
        if leaf.shape != () or not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(f"term {name!r}: {what} has shape {leaf.shape} and type {leaf.dtype}; {remedy}.")


@contextmanager
def _naming(name: str, term: Any, params: Any) -> Iterator[None]:
    """Let errors of a term's functions say which term it is, how they are called, and what looks mistaken."""
    try:
        yield
    except jax.errors.JAXTypeError as error:
        raise TypeError(f"term {name!r} {_concrete_use(error)}") from error
    except Exception as error:
        mistake = _swapped(term, params) or _missing(error, term, params)
        if mistake:
            raise ValueError(f"term {name!r}: {mistake}") from error
        error.add_note(f"raised while checking term {name!r}, before any data were used{_calls(term)}")
        raise


def _calls(term: Any) -> str:
    """Return how the functions of a term are called."""
    args = "".join(f", {jnp.shape(arg)}" if isinstance(arg, jax.Array | np.ndarray) else ", …" for arg in term.args)
    if not isinstance(term, RowTerm):
        return f"; it is called as fn(params{args})"
    aux = ", aux" if getattr(term, "has_aux", False) else ""
    loss = f" and loss(totals{aux}{args})" if hasattr(term, "loss") else ""
    weights = ", weights" if getattr(term, "weighted", False) else ""
    return (
        f"; its functions are called as fn(params, rows{weights}{args}){loss}"
        f"{', with a key' if term.stochastic else ''}"
    )


def _concrete_use(error: Exception) -> str:
    """Return what a function does that needs the value of a number that JAX is tracing, and what to do instead."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return "decides by the value of a parameter or row (if, while, and, or): use jnp.where or jax.lax.cond."
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            "uses NumPy functions on parameters or rows, which have no derivatives: use jax.numpy (import jax.numpy as "
            "jnp, jnp.exp for np.exp)."
        )
    return (
        "needs the value of a parameter or row as a Python number (float, int, range, an index): use jax.numpy and "
        "jax.lax, which work without it."
    )


def _swapped(term: Any, params: Any) -> str:
    """Return what to say where a function takes (rows, params), else ''."""
    if not isinstance(term, RowTerm) or term.stochastic:
        return ""
    n = min(8, leading(term.rows))
    rows = with_shapes(term, n).rows
    try:
        out = jax.eval_shape(lambda rows, params, args: called(term.fn, rows, params, *args), rows, params, term.args)
    except Exception:  # nor so: this is not what is wrong
        return ""
    if not jax.tree.leaves(out) or any(leaf.shape[:1] != (n,) for leaf in jax.tree.leaves(out)):
        return ""
    return (
        "its function takes (rows, params), and is called as fn(params, rows, *args). Exchange its first two arguments."
    )


def _missing(error: Exception, term: Any, params: Any) -> str:
    """Return what to say where a function asks params or rows for an entry that they do not have, else ''."""
    if isinstance(error, KeyError) and error.args:
        key = error.args[0]
    elif isinstance(error, AttributeError) and error.name is not None:
        key = error.name
    else:
        return ""
    known = {"params": _names(params)}
    if isinstance(term, RowTerm):
        known["rows"] = _names(term.rows.rows if isinstance(term.rows, Numbered) else term.rows)
    holders = [what for what, names in known.items() if key in names]
    if isinstance(error, AttributeError) and not holders:
        return ""  # of an object that is neither
    there = "; ".join(f"{what} has {', '.join(map(str, names)) or 'no names'}" for what, names in known.items())
    if len(holders) == 1 and len(known) > 1:
        other = next(what for what in known if what not in holders)
        asked = f"its function asks {other} for {key!r}, which {holders[0]} has"
    elif holders:
        return ""
    elif len(known) > 1:
        asked = f"its function asks for {key!r}, which neither params nor rows has"
    else:
        asked = f"its function asks params for {key!r}, which it does not have"
    return f"{asked}: {there}. The function is called as fn(params{', rows' if len(known) > 1 else ''}, *args)."


def _names(tree: Any) -> list[Any]:
    """Return the names that a tree's own entries have: keys of a dict, fields of an object."""
    if isinstance(tree, dict):
        return list(tree)
    paths = [path for path in jax.tree_util.tree_flatten_with_path(tree)[0] if path[0]]
    return list(dict.fromkeys(name for path, _ in paths if isinstance(name := _first_name(path), str)))


def _first_name(path: tuple) -> Any:
    return getattr(path[0], "name", getattr(path[0], "key", None))
