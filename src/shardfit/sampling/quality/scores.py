"""Which model predicts better: leave-one-out and WAIC from posteriors, AIC and BIC from fits, and their comparison.

Scores are on the scale of log likelihoods, larger is better; information criteria are on their own, smaller is better.
Vehtari, Gelman and Gabry, Statistics and Computing 27 (2017).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.terms import RowTerm
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.diagnostics import FEWEST_DRAWS, ess_mean
from shardfit.sampling.quality.pointwise import MEMORY, n_numbers, row_blocks, row_terms
from shardfit.sampling.quality.psis import LARGEST_K, smoothed


@dataclass(frozen=True, eq=False)
class Score:
    """Expected log predictive density of new rows, its standard error, and the effective number of parameters.

    pointwise: (n_rows,) each row's share, terms one after the other as in rows (name → count). pareto_k: (n_rows,) of
    leave-one-out, None of WAIC.
    """

    method: str
    elpd: float
    se: float
    parameters: float
    pointwise: np.ndarray
    pareto_k: np.ndarray | None
    rows: dict[str, int]
    note: str = ""

    def __str__(self):
        text = f"elpd {self.elpd:.2f} ± {self.se:.2f} ({self.method}), {self.parameters:.1f} effective parameters."
        return " ".join(filter(None, (text, self.note)))


def loo(
    problem: Problem,
    posterior: Posterior,
    *,
    terms: Sequence[str] | None = None,
    log_norm: Mapping[str, Any] | None = None,
    memory: int = MEMORY,
) -> Score:
    """Return how well the model predicts each row from all others, by smoothed importance weights; no refits.

    terms: names of the terms whose rows are predicted, all by default. log_norm: see `row_blocks`; needed to compare
    models with different errors. memory: bytes that a block of rows may take. A row whose Pareto k exceeds 0.7 decides
    too much by itself: its share is not reliable, and the note counts them.

    Example: `compare({"one line": loo(first, posterior), "two": loo(second, other)})`.
    """
    efficiency = _efficiency(posterior)

    def score(log_likelihoods, log_weights):
        kept, k = smoothed(log_weights[:, None] - log_likelihoods, efficiency)
        return _log_sum(kept + log_likelihoods), k

    elpd, k, parameters, rows = _pointwise("loo", problem, posterior, terms, log_norm, memory, score)
    high = int(np.sum(k > LARGEST_K))
    note = f"{high} of {k.size} rows have Pareto k above {LARGEST_K}: refit without them to be sure." if high else ""
    return Score("loo", float(elpd.sum()), _error(elpd), parameters, elpd, k, rows, note)


def waic(
    problem: Problem,
    posterior: Posterior,
    *,
    terms: Sequence[str] | None = None,
    log_norm: Mapping[str, Any] | None = None,
    memory: int = MEMORY,
) -> Score:
    """Return the widely applicable information criterion on the scale of log densities; arguments as of `loo`.

    Rows whose log likelihood varies by more than 0.4 over the posterior make it unreliable; `loo` is then better.
    """

    def score(log_likelihoods, log_weights):
        weights = np.exp(log_weights)[:, None]
        variance = (weights * (log_likelihoods - (weights * log_likelihoods).sum(0)) ** 2).sum(0)
        return _log_sum(log_weights[:, None] + log_likelihoods) - variance, variance

    elpd, variance, parameters, rows = _pointwise("waic", problem, posterior, terms, log_norm, memory, score)
    high = int(np.sum(variance > 0.4))
    note = f"{high} of {variance.size} rows vary by more than 0.4: use loo." if high else ""
    return Score("waic", float(elpd.sum()), _error(elpd), parameters, elpd, None, rows, note)


def _pointwise(
    what: str,
    problem: Problem,
    posterior: Posterior,
    terms: Sequence[str] | None,
    log_norm: Mapping[str, Any] | None,
    memory: int,
    score: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, float, dict[str, int]]:
    """Return each row's score and diagnostic, the effective number of parameters, and rows by term."""
    chosen = row_terms(problem, terms, what)
    flat = np.full(posterior.size, 1 / posterior.size) if posterior.weights is None else posterior.weights.ravel()
    with np.errstate(divide="ignore"):  # a weight of zero
        log_weights = np.log(flat / flat.sum())
    shares, diagnostics, excess = [], [], 0.0
    for block in row_blocks(problem, posterior, chosen, log_norm, memory):
        share, diagnostic = score(block.log_likelihoods, log_weights)
        excess += float(np.sum(_log_sum(log_weights[:, None] + block.log_likelihoods) - share))
        shares.append(share)
        diagnostics.append(diagnostic)
    return np.concatenate(shares), np.concatenate(diagnostics), excess, {n: t.n_rows for n, t in chosen.items()}


class Criteria(NamedTuple):
    """Information criteria of a fit; smaller is better. n: numbers that the data are; parameters: free ones."""

    aic: float
    aicc: float
    bic: float
    log_likelihood: float
    parameters: int
    n: int


def information_criteria(problem: Problem, result: Result, log_norm: float = 0.0) -> Criteria:
    """Return AIC, its small-sample form and BIC of a fit. log_norm: sum of log(σ√2π) over all residuals.

    The likelihood is that of the row terms alone, at the fitted parameters: penalties and priors do not count, so a fit
    that they hold away from the best one is judged too hard.
    """
    terms = {name: term for name, term in problem.objective.items() if isinstance(term, RowTerm)}
    if not terms:
        raise ValueError("information_criteria: this objective has no rows, so it has no likelihood.")
    log_likelihood = -float(problem.objective.only(*terms).value(result.params)) - log_norm
    k = problem.space.size
    n = sum(n_numbers(term, problem.x0) for term in terms.values())
    aic = 2 * k - 2 * log_likelihood
    corrected = aic + 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else np.inf
    return Criteria(aic, corrected, k * np.log(n) - 2 * log_likelihood, log_likelihood, k, n)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Models in the order of their scores, best first, with differences from the best and their standard errors."""

    names: tuple[str, ...]
    scores: tuple[Score, ...]
    difference: np.ndarray
    se: np.ndarray

    def table(self) -> list[tuple[str, ...]]:
        """Return lines of text, the header first."""
        header = ("model", "elpd", "se", "difference", "se of it", "parameters", "rows with high k")
        lines: list[tuple[str, ...]] = [header]
        for i, (name, score) in enumerate(zip(self.names, self.scores, strict=True)):
            high = "–" if score.pareto_k is None else str(int(np.sum(score.pareto_k > LARGEST_K)))
            numbers = (score.elpd, score.se, self.difference[i], self.se[i], score.parameters)
            lines.append((name, *(f"{number:.2f}" for number in numbers), high))
        return lines

    def __str__(self):
        lines = self.table()
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines)


def compare(scores: Mapping[str, Score]) -> Comparison:
    """Compare models by their scores of the same rows.

    The error of a difference is that of the rows' differences, which is much smaller than the scores' own where models
    find the same rows hard. A difference within twice its error, or below 4, says nothing.
    """
    if len(scores) < 2:
        raise ValueError(f"compare: {len(scores)} scores. Give two or more, by name of the model.")
    sizes = {name: (score.method, score.rows) for name, score in scores.items()}
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise ValueError(f"compare: {name!r} scores {size}, {first!r} {sizes[first]}. Score the same rows alike.")
    order = sorted(scores, key=lambda name: -scores[name].elpd)
    best = scores[order[0]].pointwise
    differences = [scores[name].pointwise - best for name in order]
    totals = np.array([difference.sum() for difference in differences])
    errors = np.array([_error(difference) for difference in differences])
    return Comparison(tuple(order), tuple(scores[name] for name in order), totals, errors)


def _log_sum(x: np.ndarray) -> np.ndarray:
    top = x.max(0)
    return top + np.log(np.exp(x - top).sum(0))


def _error(shares: np.ndarray) -> float:
    return float(np.sqrt(shares.size * shares.var()))


def _efficiency(posterior: Posterior) -> float:
    """Return effective draws per draw, at most 1: correlated draws have longer tails to smooth."""
    effective = ess_mean(posterior.z) if posterior.z.shape[1] >= FEWEST_DRAWS else np.full(1, np.nan)
    return float(np.clip(np.nan_to_num(effective, nan=posterior.size).mean() / posterior.size, 1e-3, 1.0))
