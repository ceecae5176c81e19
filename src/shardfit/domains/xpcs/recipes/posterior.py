"""Posteriors of the rates' parameters: NUTS on the likelihood with all scales integrated out, whole or by shards."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.terms import RowTerm
from shardfit.domains.xpcs.layout import with_points
from shardfit.domains.xpcs.options import HELD
from shardfit.domains.xpcs.problem import TERM
from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.recipes.priors import POWER_LAWS, chosen_priors, power_law_prior
from shardfit.domains.xpcs.scaling import coefficients_of
from shardfit.domains.xpcs.speckle.terms import whitened_sampling_term
from shardfit.domains.xpcs.terms import SCALES, joint_term, marginal_term
from shardfit.run_options import RunOptions
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.run import sample
from shardfit.sampling.shards.shard_consensus import consensus


def posterior_problem(fit: CorrelationFit, priors: str | Mapping[str, Any] | None = None) -> Problem:
    """Return the problem that is sampled, with noise as the fit measured it, beginning at the fit's answer.

    By the likelihood of speckle the whitened residuals count as often as the scatter of the maps allows: 1/`scatter`
    times. Its weights stay those of the answer.

    priors: None, flat within the parameters' bounds; 'reference', 'weak', or by name, as `chosen_priors` says. Contrast
    and offset are integrated out under flat priors. With a prior of their own, for which there is no such formula, they
    are sampled; where the fit held them, they stay held. σ² is multiplied with the reduced χ², so that the width does
    not depend on a guessed noise.
    """
    ready, options = fit.setup, fit.setup.options
    if options.loss != "linear":
        raise ValueError(
            f"a posterior needs Gaussian noise, not the loss {options.loss!r}. Mark outliers as missing "
            "(without_outliers) and fit again with loss 'linear'."
        )
    known = chosen_priors(priors, fit)
    term = ready.problem.objective.terms[0]
    assert isinstance(term, RowTerm)
    counted = fit.variance * (1.0 if ready.maps is None else fit.scatter)
    design = replace(ready.design, precision=np.asarray(ready.design.precision) * term.weight / counted)
    sampled = options.scaling in HELD or any(name in SCALES for name in known)
    if ready.maps is None:
        args = (with_points(term.rows), ready.model, ready.geometry, design)
        made = joint_term(*args) if sampled else marginal_term(*args)
    else:
        args = (term.rows, ready.model, ready.geometry, design, ready.maps.pairs)
        made = whitened_sampling_term(*args, joint=sampled)
    terms: dict[str, Any] = {TERM: made}
    if law := power_law_prior(ready.model, known):
        terms[POWER_LAWS] = law
    x0, bounds, fixed = dict(fit.params), dict(ready.problem.bounds or {}), dict(options.fixed)
    if sampled:
        columns = dict(zip(SCALES, (design.basis, design.offsets), strict=True))
        scales = {name: coefficients_of(basis, getattr(fit, name)) for name, basis in columns.items()}
        x0 |= scales
        fixed |= scales if options.scaling in HELD else {}
    own = {name: entry for name, entry in known.items() if name in x0 and name not in fixed}
    bounds = {name: pair for name, pair in bounds.items() if name in x0 and name not in own}
    return ready.problem.replace(
        objective=Objective(terms), x0=x0, bounds=bounds, fixed=fixed or None, priors=own or None, decode=None
    )


def sample_correlation(
    fit: CorrelationFit,
    draws: int = 1000,
    priors: str | Mapping[str, Any] | None = None,
    run: RunOptions | None = None,
    shards: int = 1,
    **options: Any,
) -> Posterior:
    """Draw from the posterior of a fitted model's parameters; fit it as `curved(model, data)` to avoid the ridge.

    priors: see `posterior_problem`. shards: sample this many parts of the frames separately and combine them, weighted
    by the density of all points (`shardfit.consensus`).
    options: of `shardfit.sample`, such as chains, warmup, target_accept.

    Example: `print(sample_correlation(fit_correlation(data, curved(static(), data)), 1000).summary())`.
    """
    run, problem = run or RunOptions(), posterior_problem(fit, priors)
    settings = {"mesh": run.mesh, "seed": run.seed, "run_dir": run.run_dir, "resume": run.resume}
    n_rows = problem.objective.n_rows[TERM]
    if not 1 <= shards <= n_rows:
        raise ValueError(f"shards={shards}: these data have {n_rows} groups of frames. Use 1 to {n_rows} shards.")
    if shards == 1:
        return sample(problem, draws=draws, progress=run.progress, **settings, **options)
    return consensus(problem, shards, draws=draws, **settings, **options)
