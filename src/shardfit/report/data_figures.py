"""What a posterior says of the data: residuals of every term at some draws, and whether their size is that of noise."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.objective import Objective, normalised
from shardfit.core.problem import Problem
from shardfit.core.success import chi2_doubt
from shardfit.core.terms import ResidualTerm, RowTerm
from shardfit.report import style
from shardfit.report.chain_figures import representative
from shardfit.sampling.posterior import Posterior

DRAWS = 60
MOST_NUMBERS = 4_000_000  # residuals at all draws together
DATA_CAPTION = (
    "Residuals at draws of the posterior: median and 90 % of every datum, and all beside a unit Gaussian. Chance: that "
    "noise alone makes a larger χ²; near 0 the model misses something or errors are too small, near 1 too large."
)


def residuals_at_draws(problem: Problem, posterior: Posterior, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """Return the residuals (draws, n) of every term that is made of them, at representative draws."""
    found, objective = {}, problem.objective.take(lambda _, n: np.arange(n))  # rows as they are, on one device
    for name, term in objective.items():
        if not isinstance(term, ResidualTerm):
            continue
        with at_work(problem):
            size = jax.eval_shape(_residuals, objective.only(name), problem.x0).shape[0]
            at = representative(posterior, min(draws, MOST_NUMBERS // max(size, 1)))
            if len(at):
                points = jax.tree.map(lambda a, at=at: np.reshape(a, (-1, *a.shape[2:]))[at], posterior.draws)
                found[name] = np.asarray(_at_points(objective.only(name), points))
    return found


def data_doubts(problem: Problem, residuals: Mapping[str, np.ndarray]) -> list[str]:
    """Return a doubt if χ² of residuals (draws, n) by term, in units of known errors, is far from what noise gives."""
    terms = [term for term in problem.objective.terms if isinstance(term, RowTerm)]
    if not residuals or len(residuals) < len(terms) or not normalised(problem.objective):
        return []
    chi2 = sum(np.median(np.sum(each**2, axis=1)) for each in residuals.values())
    n = sum(each.shape[1] for each in residuals.values())  # draws scatter as the parameters that were fitted took away
    return list(filter(None, [chi2_doubt(float(chi2), n, " of the draws")]))


def _residuals(objective: Objective, params: Any) -> jax.Array:
    return objective.residuals(params)


@jax.jit
def _at_points(objective: Objective, points: Any) -> jax.Array:
    return jax.lax.map(lambda params: _residuals(objective, params), points)


def chance_of(residuals: np.ndarray) -> float:
    """Return the posterior predictive probability that noise alone makes χ² larger than that of residuals (draws, n).

    Near 0: the model misses something, or the errors are too small. Near 1: the errors are too large.
    """
    from scipy.stats import chi2

    return float(np.mean(chi2.sf(np.sum(residuals**2, axis=1), residuals.shape[1])))


def data_check(residuals: Mapping[str, np.ndarray]) -> Any:
    """Draw the median residual of every datum with 90 % of the draws, and all residuals beside a unit Gaussian."""
    figure = style.new_figure(8.6, 0.4 + 2.3 * len(residuals))
    panels = figure.subplots(len(residuals), 2, width_ratios=(2.2, 1), squeeze=False, sharey="row")
    for (left, right), (name, own) in zip(panels, residuals.items(), strict=True):
        low, middle, high = np.quantile(own, (0.05, 0.5, 0.95), axis=0)
        step = max(1, own.shape[1] // 2000)
        at = np.arange(0, own.shape[1], step)
        left.axhspan(-1, 1, color=style.SKY, alpha=0.18, linewidth=0)
        left.vlines(at, low[::step], high[::step], color=style.SKY, linewidth=1)
        left.plot(at, middle[::step], ".", color=style.BLUE, markersize=4)
        reach = max(3.5, 1.05 * np.max(np.abs(middle)))
        edges = np.linspace(-reach, reach, 41)
        shares = np.histogram(own, edges, density=True)[0]
        right.stairs(shares, edges, orientation="horizontal", fill=True, color=style.BLUE, alpha=0.35)
        line = np.linspace(-reach, reach, 201)
        right.plot(np.exp(-0.5 * line**2) / np.sqrt(2 * np.pi), line, color=style.VERMILLION, linewidth=1.4)
        left.set_ylim(-reach, reach)
        right.set_xticks([])
        size = np.mean(own**2)
        left.set_title(f"χ² per datum {size:.3g}, chance {chance_of(own):.2g}", fontsize=style.TICK, color=style.INK)
        style.finish(left, "", f"{name}: residual / σ")
        style.finish(right, "", "")
    panels[-1][0].set_xlabel("datum", fontsize=style.LABEL, color=style.INK)
    panels[-1][1].set_xlabel("share", fontsize=style.LABEL, color=style.INK)
    figure.align_ylabels()
    return figure
