"""Makers of terms, as users call them: they check what is given before anything is computed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from shardfit.core.block_statistics import BlockStatistic, BlockStatisticTerm
from shardfit.core.equations import Equations, NormalEquations
from shardfit.core.losses import loss_named
from shardfit.core.robust_terms import RobustTerm
from shardfit.core.rows import check_rows, native_order, numbered
from shardfit.core.rules import called
from shardfit.core.terms import Penalty, ResidualPenalty, ResidualTerm, StatisticTerm, total


def residual_term(
    fn: Callable,
    rows: Any,
    *args: Any,
    weight: Any = 1.0,
    chunk: int | str | None = "auto",
    gram: NormalEquations | None = None,
    loss: str = "linear",
    f_scale: float = 1.0,
) -> ResidualTerm | RobustTerm:
    """Make a data term from residuals; its value is ½Σ|r|².

    fn(params, rows, *args) takes a block of rows and returns residuals with the rows' leading axis (an array, a pytree,
    or a dict of named data products). rows: pytree of arrays with one common leading axis; an entry named `sigma` must
    be positive. chunk: most rows evaluated at once; memory of an evaluation is bounded by it. "auto" chooses as many as
    a core's cache holds results of, None takes all. gram: normal equations of your own, where they can be had faster
    than from the derivatives of residuals. loss: 'soft_l1', 'huber', 'cauchy' or 'arctan' let outliers count less, as
    in scipy.optimize.least_squares: the value is ½C²Σρ(|r|²/C²); f_scale is C, beyond which residuals count as large.

    Example: `residual_term(lambda p, r: (r["y"] - p["a"] * r["x"]) / r["sigma"], {"x": x, "y": y, "sigma": s})`.
    """
    fields = row_fields("residual_term", fn, rows, args, weight, chunk)
    fields["equations"] = check_equations("residual_term", gram, weight)
    return ResidualTerm(**fields) if loss == "linear" else _robust(fields, loss, f_scale)


def _robust(fields: dict[str, Any], loss: str, f_scale: Any) -> RobustTerm:
    """Return the term of residuals with these fields and a robust loss."""
    loss_named(loss, "residual_term")
    if not (np.ndim(f_scale) == 0 and np.isfinite(f_scale) and f_scale > 0):
        raise ValueError(f"residual_term: f_scale={f_scale!r} must be a positive number.")
    if fields["equations"] is not None:
        raise ValueError("residual_term: gram= is of squared residuals, so loss= cannot be another. Leave one out.")
    if isinstance(fields["weight"], dict):
        raise ValueError("residual_term: a term with loss= has one weight, not a dict. Make one term for each weight.")
    return RobustTerm(**fields, f_scale=f_scale, robust=loss)


def statistic_term(
    fn: Callable,
    rows: Any,
    *args: Any,
    loss: Callable = total,
    weight: Any = 1.0,
    chunk: int | str | None = "auto",
    stochastic: bool | str = False,
    checked: bool = False,
    gram: NormalEquations | None = None,
    slopes: Callable | None = None,
) -> StatisticTerm:
    """Make a data term from summed statistics and a loss of their totals.

    fn(params, rows, *args) returns per-row statistics (real or complex, any pytree, leading axis = rows); as a
    `block_statistic` it returns sums over its block. loss(totals, *args) returns one number, or a dict of named
    numbers. stochastic: True gives both one more argument,
    a random key that is the same for all rows; "rows" gives fn, after that, an array (n,) of keys, one for each row,
    which follow a row wherever it goes: draws from them do not depend on chunk, devices or processes. checked:
    whoever read the rows found their numbers finite, so they are not read again. gram: normal equations, which make
    least squares possible where the loss is half a sum of squares. slopes(params, rows, real, *args): the sums of a
    block, in which a row counts real (n,) times, and their derivatives as `jax.jacfwd` gives them, all real, where both
    together take less than the two walks over chunks of rows that a gradient is made of otherwise.

    Example: `statistic_term(lambda p, rows, key, keys: p * jax.vmap(jax.random.normal)(keys), r, stochastic="rows")`.
    """
    _check_callable("statistic_term", "loss", loss)
    if slopes is not None:
        _check_callable("statistic_term", "slopes", slopes)
    if stochastic not in (False, True, "rows"):
        raise ValueError(
            f"statistic_term: stochastic={stochastic!r} must be False, True or 'rows' (a key for each row)."
        )
    fields = row_fields("statistic_term", fn, rows, args, weight, chunk, checked)
    fields |= {"stochastic": bool(stochastic), "equations": check_equations("statistic_term", gram, weight)}
    if stochastic == "rows":
        fields |= {"per_row_keys": True, "rows": numbered(fields["rows"])}
    if not isinstance(fn, BlockStatistic):
        return StatisticTerm(**fields, loss=loss, slopes=slopes)
    if fn.has_aux and loss is total:
        raise ValueError("statistic_term: has_aux=True is for a loss of totals and auxiliary outputs. Pass loss=.")
    fields |= {"fn": fn.fn, "weighted": fn.weighted, "has_aux": fn.has_aux}
    return BlockStatisticTerm(**fields, loss=loss, slopes=slopes)


def penalty(fn: Callable, *args: Any, weight: Any = 1.0) -> Penalty:
    """Make a term without rows: fn(params, *args) returns one number (a regulariser, a negative log prior)."""
    _check_callable("penalty", "fn", fn)
    return Penalty(_check_args("penalty", args), _check_weight("penalty", weight), fn)


def residual_penalty(fn: Callable, *args: Any, weight: Any = 1.0) -> ResidualPenalty:
    """Make a penalty from residuals, value ½Σ|r|² (a Gaussian prior), which least squares can use."""
    _check_callable("residual_penalty", "fn", fn)
    return ResidualPenalty(_check_args("residual_penalty", args), _check_weight("residual_penalty", weight), fn)


def prior(fn: Callable, *args: Any) -> Penalty:
    """Make a prior on several parameters together: fn(params, *args) returns the logarithm of its density.

    A prior on one parameter is simpler said to the problem: `Problem(..., priors={"tau": HalfCauchy(5.0)})`.

    Example: `Objective({"data": ..., "order": prior(lambda p: -((p["a"] - p["b"]) ** 2))})`.
    """
    _check_callable("prior", "fn", fn)
    return Penalty(_check_args("prior", args), 1.0, _Negative(fn), prior=True)


@dataclass(frozen=True)
class _Negative:
    fn: Callable

    def __call__(self, params: Any, *args: Any) -> Any:
        return -called(self.fn, params, *args)


def row_fields(
    where: str, fn: Callable, rows: Any, args: tuple, weight: Any, chunk: int | str | None, checked: bool = False
) -> dict[str, Any]:
    """Return the fields of a row term, checked; where: which function makes it, for messages."""
    _check_callable(where, "fn", fn)
    if isinstance(fn, BlockStatistic) and where != "statistic_term":
        raise TypeError(f"{where}: fn is a block_statistic, which returns sums. Pass it to statistic_term.")
    auto = isinstance(chunk, str) and chunk == "auto"
    limit = None if auto else chunk
    if limit is not None and (not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 1):
        raise ValueError(
            f"{where}: chunk={chunk!r} must be a whole number of rows, at least 1, 'auto', or None for all at once."
        )
    rows = check_rows(where, rows, checked)
    return {
        "rows": rows,
        "counts": None,
        "args": _check_args(where, args),
        "weight": _check_weight(where, weight),
        "scale": 1.0,
        "key": None,
        "fn": fn,
        "chunk": None if limit is None else int(limit),
        "auto": auto,
        "stochastic": False,
        "per_row_keys": False,
        "equations": None,
    }


def check_equations(where: str, equations: Any, weight: Any) -> Equations | None:
    """Return a term's own normal equations, or raise where they cannot be used."""
    if equations is not None and not isinstance(equations, Equations):
        raise TypeError(f"{where}: gram is {type(equations).__name__}. Pass gram=NormalEquations(block_sums, solve).")
    if equations is not None and isinstance(weight, dict):
        raise ValueError(f"{where}: a term with gram= has one weight, not a dict. Make one term for each weight.")
    return equations


def _check_callable(where: str, name: str, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{where}: {name} is {type(fn).__name__}, not a function. Pass the function itself first.")


def _check_args(where: str, args: tuple) -> tuple:
    """Return args with arrays as JAX takes them; raise for text, which it does not take."""
    paths, tree = jax.tree_util.tree_flatten_with_path(args)
    for path, leaf in paths:
        if isinstance(leaf, str | bytes):
            raise TypeError(
                f"{where}: args{jax.tree_util.keystr(path)} is {leaf!r}, and args are numbers. Bind what is no number "
                "to the function: functools.partial(fn, mode=...)."
            )
    leaves = [native_order(f"{where}: args{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]
    return args if all(a is b for a, (_, b) in zip(leaves, paths, strict=True)) else tree.unflatten(leaves)


def _check_weight(where: str, weight: Any) -> Any:
    for leaf in jax.tree.leaves(weight):
        if not isinstance(leaf, Tracer) and not np.all(np.isfinite(np.asarray(leaf))):
            raise ValueError(f"{where}: weight {leaf} is not finite.")
    return weight
