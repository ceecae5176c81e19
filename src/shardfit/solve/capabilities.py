"""What a solver must be able to do for a problem: asked once, by fits, surveys and plans alike, before any work."""

from collections.abc import Callable

from shardfit.core.problem import Problem, require_untraced
from shardfit.solve.base import Solver
from shardfit.solve.step import StepSolver


def require(
    problem: Problem, solver: Solver, use: str = "fit", *, callback: bool = False, run_dir: bool = False
) -> None:
    """Raise for what cannot be combined, saying what to change. use: 'fit', 'survey' or 'plan', for the message."""
    if not isinstance(problem, Problem):
        raise TypeError(f"{use} needs a Problem, not {type(problem).__name__}: Problem(objective, x0).")
    require_untraced(f"{use} is called", problem.objective)
    if use == "survey" and (not solver.slots or solver.batch):
        raise ValueError(
            f"survey: solver {solver.name!r} does not take one evaluation of all rows per step, so it cannot share a "
            f"batch. Use {_others(lambda kind: kind.slots)} or another optax solver."
        )
    if use == "survey" and isinstance(solver, StepSolver):
        solver.check_slots()
    if problem.box is not None and not solver.bounded:
        fitting = _others(lambda kind: kind.bounded and (kind.slots or use != "survey"))
        raise ValueError(
            f"{use}: solver {solver.name!r} does not support bounds. Use {fitting}, or give the parameters a transform "
            "instead: transforms={'name': shardfit.Interval(lower, upper)}."
        )
    if (callback or run_dir) and not solver.resumable:
        raise ValueError(f"{use}: solver {solver.name!r} runs as one compiled call: it has no callback and no run_dir.")
    require_objective(problem, solver, use)
    solver.check(problem)


def require_objective(problem: Problem, solver: Solver, use: str = "fit") -> None:
    """Raise where the solver cannot follow the objective's terms."""
    objective = problem.objective
    if objective.stochastic and not solver.stochastic:
        names = ", ".join(map(repr, objective.stochastic))
        raise ValueError(
            f"{use}: {names} draws new random numbers at every step, which solver {solver.name!r} cannot follow. Use "
            "'adam' or another optax solver, or objective.freeze(key) for one fixed realisation."
        )
    if solver.needs == "gram":
        objective.require_least_squares(f"solver {solver.name!r}")
    if solver.needs == "residuals":
        objective.require_residuals(f"solver {solver.name!r}")
    for name, n in objective.n_rows.items():
        if solver.batch is not None and not 1 <= solver.batch <= n:
            raise ValueError(f"batch={solver.batch} must be between 1 and the {n} rows of term {name!r}.")


def _others(condition: Callable[[type[Solver]], bool]) -> str:
    from shardfit.solve.registry import names_where  # the registry knows all solvers, and some of them ask here

    return names_where(condition)
