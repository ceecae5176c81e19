"""Posteriors of the rates' parameters: NUTS on the likelihood with all scales integrated out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.terms import RowTerm
from shardfit.domains.xpcs.problem import TERM
from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.scaling import HELD
from shardfit.domains.xpcs.terms import marginal_term
from shardfit.run_options import RunOptions
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.run import sample


def posterior_problem(fit: CorrelationFit, priors: Mapping[str, Any] | None = None) -> Any:
    """Return the problem that is sampled: scales integrated out under flat priors, noise as the fit measured it.

    The start is the fit's answer. priors: of the model's parameters by name; without any they are flat within their
    bounds. σ² is multiplied with the reduced χ², so that the width does not depend on a guessed noise.
    """
    ready, options = fit.setup, fit.setup.options
    if options.scaling in HELD or options.loss != "linear":
        raise ValueError(
            f"a posterior needs scales that are free and Gaussian noise, not scaling {options.scaling!r} with loss "
            f"{options.loss!r}. Fit again with scaling 'auto' or 'individual' and loss 'linear'."
        )
    term = ready.problem.objective.terms[0]
    assert isinstance(term, RowTerm)
    design = replace(ready.design, precision=np.asarray(ready.design.precision) * term.weight / fit.variance)
    objective = Objective({TERM: marginal_term(term.rows, ready.model, ready.geometry, design)})
    return ready.problem.replace(objective=objective, x0=dict(fit.params), priors=priors)


def sample_correlation(
    fit: CorrelationFit,
    draws: int = 1000,
    priors: Mapping[str, Any] | None = None,
    run: RunOptions | None = None,
    **options: Any,
) -> Posterior:
    """Draw from the posterior of a fitted model's parameters; fit it as `curved(model, data)` to avoid the ridge.

    options: of `shardfit.sample`, such as chains, warmup, target_accept.

    Example: `print(sample_correlation(fit_correlation(data, curved(static(), data)), 1000).summary())`.
    """
    run = run or RunOptions()
    settings = {
        "mesh": run.mesh,
        "seed": run.seed,
        "run_dir": run.run_dir,
        "resume": run.resume,
        "progress": run.progress,
    }
    return sample(posterior_problem(fit, priors), draws=draws, **settings, **options)
