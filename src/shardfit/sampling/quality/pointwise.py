"""What every row says of every draw: log likelihoods (draws, rows), a block of rows at a time.

All rows of a large problem at all draws fit in no memory, and nothing needs them at once: leaving a row out needs that
row at all draws. A block holds as many rows as a bound on memory allows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.core.robust_terms import RobustTerm
from shardfit.core.rows import shapes_of_rows, take
from shardfit.core.terms import ResidualTerm, RowTerm, half_square, weighted_sum
from shardfit.sampling.posterior import Posterior

MEMORY = 2**27  # bytes of a block of log likelihoods


class RowBlock(NamedTuple):
    """term: its name; rows: (m,) their numbers; log_likelihoods: (draws, m), chains one after the other."""

    term: str
    rows: np.ndarray
    log_likelihoods: np.ndarray


def row_terms(problem: Problem, terms: Sequence[str] | None, what: str) -> dict[str, RowTerm]:
    """Return the row terms to use, by name; raise where rows have no likelihoods of their own."""
    known = {name: term for name, term in problem.objective.items() if isinstance(term, RowTerm)}
    for name in terms or ():
        if name not in known:
            raise ValueError(f"{what}: no row term {name!r}.{suggestion(name, known)}")
    chosen = {name: term for name, term in known.items() if terms is None or name in terms}
    if not chosen:
        raise ValueError(f"{what}: this objective has no rows, so there is nothing to predict.")
    for name, term in chosen.items():
        if not term.linear or term.stochastic or term.sums_blocks:
            why = (
                "is random" if term.stochastic else "sums its blocks" if term.linear else "applies a loss to the totals"
            )
            others = [other for other in known if other != name]
            raise TypeError(
                f"{what}: term {name!r} {why}, so its rows have no likelihoods of their own. Leave it out, if the "
                f"other rows are what you want to predict: terms={others}."
            )
        if float(term.scale) != 1.0:
            raise ValueError(f"{what}: term {name!r} is a mini-batch. Use the objective of all rows.")
    return chosen


def row_blocks(
    problem: Problem,
    posterior: Posterior,
    terms: Mapping[str, RowTerm],
    log_norm: Mapping[str, Any] | None = None,
    memory: int = MEMORY,
) -> Iterator[RowBlock]:
    """Yield log likelihoods of rows at all draws: -½|r|² of residuals or minus their loss, -c of what is summed.

    log_norm: by name of a term, what to subtract from each row's, a number or (n_rows,): log(σ√2π) of a residual over
    σ. Without it log likelihoods lack a constant, which cancels between models of equal errors.
    """
    params = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *np.shape(leaf)[2:]), posterior.draws)
    for name, term in terms.items():
        norm = np.broadcast_to(np.asarray((log_norm or {}).get(name, 0.0), float), term.n_rows)
        size = max(1, min(term.n_rows, memory // (8 * posterior.size), term.chunk or term.n_rows))
        model = replace(term, rows=None, counts=None)
        for start in range(0, term.n_rows, size):
            index = np.arange(start, start + size)
            real = index < term.n_rows
            # repeat a real row: all blocks have one shape and share a program
            rows = take(term.rows, np.minimum(index, term.n_rows - 1), term.counts)
            with at_work(problem):
                found = np.asarray(_log_likelihoods(model, rows, params), float)
            yield RowBlock(name, index[real], found[:, real] - norm[index[real]])


@jax.jit
def _log_likelihoods(term: RowTerm, rows: Any, draws: Any) -> jax.Array:
    def at(params):
        contributions = term.contributions(params, rows, None)
        if isinstance(term, ResidualTerm | RobustTerm):
            contributions = jax.vmap(half_square if isinstance(term, ResidualTerm) else term.cost)(contributions)
        return -weighted_sum(term.weight, contributions)

    return jax.lax.map(at, draws)


def n_numbers(term: RowTerm, params: Any) -> int:
    """Return how many real numbers the data of a term are: residuals, complex ones twice, or rows."""
    if not isinstance(term, ResidualTerm | RobustTerm):
        return term.n_rows
    shapes = jax.eval_shape(lambda p, r: term.contributions(p, r, None), params, shapes_of_rows(term.rows, 1))
    sizes = [
        leaf.size * (2 if np.issubdtype(leaf.dtype, np.complexfloating) else 1) for leaf in jax.tree.leaves(shapes)
    ]
    return term.n_rows * sum(sizes)
