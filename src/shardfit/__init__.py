"""Fit differentiable models to more data than one device holds.

One objective runs unchanged on one CPU core, on N devices and on N processes; every solver works on it.

Names are imported when they are first used: `import shardfit` alone does not load JAX.
"""

from typing import TYPE_CHECKING

from shardfit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardfit.check.certificate import Certificate
    from shardfit.core.block_statistics import block_statistic
    from shardfit.core.equations import Gram, NormalEquations
    from shardfit.core.errors import CheckpointError, NonFiniteError, ParityError
    from shardfit.core.mesh import mesh, reduce_sum
    from shardfit.core.objective import Objective
    from shardfit.core.priors import (
        Beta,
        Exponential,
        Flat,
        Gamma,
        HalfCauchy,
        HalfNormal,
        LogNormal,
        Normal,
        TruncatedNormal,
        Uniform,
    )
    from shardfit.core.problem import Problem
    from shardfit.core.result import Result
    from shardfit.core.rows import my_rows
    from shardfit.core.status import Status
    from shardfit.core.term_makers import penalty, prior, residual_penalty, residual_term, statistic_term
    from shardfit.core.terms import total
    from shardfit.core.transforms import Above, Below, Identity, Interval, Log, Simplex, Softplus, TanInterval, within
    from shardfit.curvature import error_bars
    from shardfit.curves import CurveFit, curve_fit
    from shardfit.distributed.executors import run_tasks
    from shardfit.distributed.groups import my_group
    from shardfit.distributed.processes import join
    from shardfit.fitting import fit, least_squares
    from shardfit.implicit import solution
    from shardfit.intervals import Profile, profile
    from shardfit.io.results import load_result, save_result
    from shardfit.io.run_dir import RunDir
    from shardfit.planning import Cluster, Plan, plan
    from shardfit.robust import robust_fit
    from shardfit.run_options import RunOptions
    from shardfit.sampling.chains.workers import sample_parts
    from shardfit.sampling.numpyro_models import from_numpyro
    from shardfit.sampling.posterior import Posterior
    from shardfit.sampling.quality.calibration import Calibration
    from shardfit.sampling.quality.scores import compare, information_criteria, loo, waic
    from shardfit.sampling.quality.simulated import calibrate
    from shardfit.sampling.refits.evidence import Evidence, evidence
    from shardfit.sampling.run import sample
    from shardfit.sampling.shards.shard_consensus import consensus
    from shardfit.sampling.shards.shard_control import ShardControl
    from shardfit.sampling.shards.shard_table import ShardTable
    from shardfit.sampling.store import load_posterior, save_posterior
    from shardfit.sciences import Science
    from shardfit.series import FitSeries
    from shardfit.solve.base import Finish, Solver, Task, ValueAndGrad
    from shardfit.solve.cmaes import CMAES
    from shardfit.solve.custom import Custom
    from shardfit.solve.host import HostSolver
    from shardfit.solve.lbfgs import LBFGS, BacktrackingLBFGS
    from shardfit.solve.lbfgsb import LBFGSB
    from shardfit.solve.lm import LM
    from shardfit.solve.lm_cg import LMCG
    from shardfit.solve.monitor import Snapshot
    from shardfit.solve.optax_loop import OptaxLoop
    from shardfit.solve.optimistix_adapter import Optimistix
    from shardfit.solve.step import StepSolver
    from shardfit.solve.swarm import Swarm
    from shardfit.stats.eliminated import Coefficients, coefficients, marginalised, recover
    from shardfit.stats.linear import linear_term
    from shardfit.surveys import (
        Axis,
        Fits,
        Halving,
        Picture,
        Span,
        Survey,
        SurveyControl,
        below,
        fit_many,
        grid,
        latin,
        marginals,
        pareto,
        seed_axis,
        sobol,
        solver_axis,
        start_axis,
        survey,
        survey_parts,
        weight_axis,
    )
    from shardfit.version import __version__

__all__ = [
    "__version__",
    "Above",
    "Axis",
    "BacktrackingLBFGS",
    "Below",
    "Beta",
    "CMAES",
    "Calibration",
    "Certificate",
    "CheckpointError",
    "Cluster",
    "Coefficients",
    "CurveFit",
    "Custom",
    "Evidence",
    "Exponential",
    "Finish",
    "FitSeries",
    "Fits",
    "Flat",
    "Gamma",
    "Gram",
    "HalfCauchy",
    "HalfNormal",
    "Halving",
    "HostSolver",
    "Identity",
    "Interval",
    "LBFGS",
    "LBFGSB",
    "LM",
    "LMCG",
    "Log",
    "LogNormal",
    "NonFiniteError",
    "Normal",
    "NormalEquations",
    "Objective",
    "OptaxLoop",
    "Optimistix",
    "ParityError",
    "Picture",
    "Plan",
    "Posterior",
    "Problem",
    "Profile",
    "Result",
    "RunDir",
    "RunOptions",
    "Science",
    "ShardControl",
    "ShardTable",
    "Simplex",
    "Snapshot",
    "Softplus",
    "Solver",
    "Span",
    "Status",
    "StepSolver",
    "Survey",
    "SurveyControl",
    "Swarm",
    "TanInterval",
    "Task",
    "TruncatedNormal",
    "Uniform",
    "ValueAndGrad",
    "below",
    "block_statistic",
    "calibrate",
    "coefficients",
    "compare",
    "consensus",
    "curve_fit",
    "error_bars",
    "evidence",
    "fit",
    "fit_many",
    "from_numpyro",
    "grid",
    "information_criteria",
    "join",
    "latin",
    "least_squares",
    "linear_term",
    "load_posterior",
    "load_result",
    "loo",
    "marginalised",
    "marginals",
    "mesh",
    "my_group",
    "my_rows",
    "pareto",
    "penalty",
    "plan",
    "prior",
    "profile",
    "recover",
    "reduce_sum",
    "residual_penalty",
    "residual_term",
    "robust_fit",
    "run_tasks",
    "sample",
    "sample_parts",
    "save_posterior",
    "save_result",
    "seed_axis",
    "solver_axis",
    "sobol",
    "solution",
    "start_axis",
    "statistic_term",
    "survey",
    "survey_parts",
    "total",
    "waic",
    "weight_axis",
    "within",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "check.certificate": "Certificate",
        "core.equations": "Gram NormalEquations",
        "core.errors": "CheckpointError NonFiniteError ParityError",
        "core.block_statistics": "block_statistic",
        "core.mesh": "mesh reduce_sum",
        "core.objective": "Objective",
        "core.priors": "Beta Exponential Flat Gamma HalfCauchy HalfNormal LogNormal Normal TruncatedNormal Uniform",
        "core.problem": "Problem",
        "core.result": "Result",
        "core.rows": "my_rows",
        "core.status": "Status",
        "core.term_makers": "penalty prior residual_penalty residual_term statistic_term",
        "core.terms": "total",
        "core.transforms": "Above Below Identity Interval Log Simplex Softplus TanInterval within",
        "distributed.executors": "run_tasks",
        "distributed.groups": "my_group",
        "distributed.processes": "join",
        "fitting": "fit least_squares",
        "implicit": "solution",
        "intervals": "Profile profile",
        "io.results": "load_result save_result",
        "io.run_dir": "RunDir",
        "planning": "Cluster Plan plan",
        "robust": "robust_fit",
        "run_options": "RunOptions",
        "sampling.quality.calibration": "Calibration",
        "sampling.refits.evidence": "Evidence evidence",
        "sampling.numpyro_models": "from_numpyro",
        "sampling.posterior": "Posterior",
        "sampling.run": "sample",
        "sampling.quality.scores": "compare information_criteria loo waic",
        "sampling.shards.shard_consensus": "consensus",
        "sampling.shards.shard_control": "ShardControl",
        "sampling.shards.shard_table": "ShardTable",
        "sampling.quality.simulated": "calibrate",
        "sampling.store": "load_posterior save_posterior",
        "sampling.chains.workers": "sample_parts",
        "sciences": "Science",
        "series": "FitSeries",
        "solve.base": "Finish Solver Task ValueAndGrad",
        "curvature": "error_bars",
        "curves": "CurveFit curve_fit",
        "solve.custom": "Custom",
        "solve.host": "HostSolver",
        "solve.lbfgs": "LBFGS BacktrackingLBFGS",
        "solve.lbfgsb": "LBFGSB",
        "solve.lm": "LM",
        "solve.lm_cg": "LMCG",
        "solve.monitor": "Snapshot",
        "solve.optax_loop": "OptaxLoop",
        "solve.optimistix_adapter": "Optimistix",
        "solve.step": "StepSolver",
        "solve.cmaes": "CMAES",
        "solve.swarm": "Swarm",
        "version": "__version__",
        "stats.eliminated": "Coefficients coefficients marginalised recover",
        "stats.linear": "linear_term",
        "surveys": "Axis Fits Halving Picture Span Survey SurveyControl below fit_many grid latin marginals pareto "
        "seed_axis sobol solver_axis start_axis survey survey_parts weight_axis",
    },
)
