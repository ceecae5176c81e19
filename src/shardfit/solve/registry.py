"""From what a user writes for `solver` to a solver object."""

from collections.abc import Callable
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.options.declared import Option, taken_by
from shardfit.solve.base import Solver, check_options
from shardfit.solve.cmaes import CMAES
from shardfit.solve.custom import Custom
from shardfit.solve.lbfgs import LBFGS, BacktrackingLBFGS
from shardfit.solve.lbfgsb import LBFGSB
from shardfit.solve.lm import LM
from shardfit.solve.lm_cg import LMCG
from shardfit.solve.optax_loop import RATES, OptaxLoop, named_transform
from shardfit.solve.optimistix_adapter import Optimistix
from shardfit.solve.swarm import Swarm

CLASSES = {
    "lbfgsb": LBFGSB,
    "lbfgs": LBFGS,
    "lbfgs-bt": BacktrackingLBFGS,
    "lm": LM,
    "lm-cg": LMCG,
    "swarm": Swarm,
    "cmaes": CMAES,
}
LOOP_OPTIONS = {"maxiter", "ftol", "gtol", "xtol", "batch", "keep"}


def as_solver(solver: Any = None, **options: Any) -> Solver:
    """Return a solver from None, a name with options, a Solver, an optax or optimistix object, or a callable."""
    if solver is None:
        solver = "lbfgsb"
    if isinstance(solver, str):
        return _named(solver, options)
    if isinstance(solver, Solver):
        if options:
            raise TypeError(
                f"options ({', '.join(options)}) go with a solver's name. Set them on the object: "
                f"{type(solver).__name__}({next(iter(options))}=...)."
            )
        return solver
    if hasattr(solver, "init") and hasattr(solver, "update"):
        return _made("optax", OptaxLoop, {"transform": solver, **options})
    if any(base.__module__.startswith("optimistix") for base in type(solver).__mro__):
        return _made("optimistix", Optimistix, {"solver": solver, **options})
    if callable(solver):
        return _made("custom", Custom, {"run": solver, **options})
    raise TypeError(
        f"solver is {type(solver).__name__}. Give a name ({', '.join([*CLASSES, *RATES])}), a Solver, an optax "
        "transformation, an optimistix solver, or a callable."
    )


def options_by_name(solver: str | None) -> dict[str, Option]:
    """Return what a solver takes that is chosen by name, from a file; `as_solver` says what it makes of the values."""
    if solver is None or solver in CLASSES:
        return taken_by(CLASSES[solver or "lbfgsb"])
    if solver not in RATES:
        raise ValueError(f"unknown solver {solver!r}.{suggestion(str(solver), [*CLASSES, *RATES])}")
    loop = {name: each for name, each in taken_by(OptaxLoop).items() if name in LOOP_OPTIONS}
    return {**loop, **taken_by(_transformed)}


def _transformed(
    learning_rate: float,
    b1: float,
    b2: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    decay: float,
    nesterov: bool,
    centered: bool,
) -> None:
    """Stand for the options of optax's transformations, with their types."""


TRANSFORM_OPTIONS = set(taken_by(_transformed))


def names_where(condition: Callable[[type[Solver]], bool]) -> str:
    """Return the names of the solvers whose class satisfies a condition, as text."""
    names = [name for name, kind in CLASSES.items() if condition(kind)] + ["adam"] * condition(OptaxLoop)
    return ", ".join(map(repr, names))


def _made(name: str, factory: Any, options: dict) -> Solver:
    check_options(name, factory, options)
    return factory(**options)


def _named(name: str, options: dict) -> Solver:
    if name in CLASSES:
        return _made(name, CLASSES[name], options)
    if name not in RATES:
        raise ValueError(f"unknown solver {name!r}.{suggestion(name, [*CLASSES, *RATES])}")
    own = {k: v for k, v in options.items() if k in TRANSFORM_OPTIONS}
    rate = own.pop("learning_rate", RATES[name])
    rest = {k: v for k, v in options.items() if k not in TRANSFORM_OPTIONS}
    for option in rest:
        if option not in LOOP_OPTIONS:
            known = LOOP_OPTIONS | TRANSFORM_OPTIONS
            raise TypeError(f"solver {name!r} has no option {option!r}.{suggestion(option, known)}")
    try:
        transform = named_transform(name, rate, own)
    except TypeError as error:
        raise TypeError(f"solver {name!r}: {error}.") from None
    label = ", ".join([f"learning_rate={rate}", *(f"{k}={v}" for k, v in sorted(own.items()))])
    return OptaxLoop(transform=transform, label=f"{name}({label})", scaled=True, **rest)
