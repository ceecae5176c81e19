"""One small problem for all tests of surveys, with one set of axes, so that little is compiled."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit import Objective, Problem, fit, penalty, residual_term
from shardfit.surveys.axes import Axis, Start, apply, seed_axis, start_axis, weight_axis
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import table
from shardfit.surveys.run import survey

N, P = 37, 6  # an odd number of rows: splitting them over devices needs padding
DRAW = np.random.default_rng(1)
A = DRAW.normal(size=(N, P))
Y = A @ np.linspace(-1, 1, P) + 0.1 * DRAW.normal(size=N)
PRIORS = {"zero": np.zeros(P), "one": np.ones(P)}
SLOTS, MAXITER = 4, 200


def residual(x, rows, offset):
    return (rows["A"] @ x["m"] - rows["y"] + offset) / rows["sigma"]


def rough(x, prior, power, edge):
    """Two named losses; a power below zero, and a last parameter beyond the edge, make NaN."""
    away = x["m"] - prior
    safe = 0 * jnp.log(edge - x["m"][-1])
    return {"soft": jnp.sum(jnp.sqrt(0.01 + away**2)), "steep": jnp.sqrt(power) * jnp.sum(away**4) + safe}


def problem(precision="float64"):
    terms = {
        "data": residual_term(residual, {"A": A, "y": Y, "sigma": np.ones(N)}, 0.0),
        "reg": penalty(rough, PRIORS["zero"], 1.0, 1e3, weight={"soft": 1.0, "steep": 0.1}),
    }
    return Problem(Objective(terms), {"m": np.zeros(P)}, precision=precision, name="small")


def with_arg(place, new):
    """Return a change of one argument of the penalty."""

    def change(start: Start, value) -> Start:
        args = list(start.objective.terms[1].args)
        args[place] = new(value)
        return start._replace(objective=start.objective.with_args(reg=tuple(args)))

    return change


def with_rows(start: Start, **new) -> Start:
    data: Any = start.objective.terms[0]
    return start._replace(objective=start.objective.with_rows(data=data.rows | new))


AXES = {
    "data": weight_axis("data", (1.0, 2.0)),
    "soft": weight_axis("reg.soft", (0.3, 1, 3)),
    "prior": Axis(("zero", "one"), with_arg(0, PRIORS.get)),
    "power": Axis((1.0, 4.0, -1.0), with_arg(1, float)),
    "edge": Axis((1e3, 0.05), with_arg(2, float)),
    "offset": Axis((0.0, 0.5), lambda s, v: s._replace(objective=s.objective.with_args(data=(v,)))),
    "noise": Axis((1.0, 0.5), lambda s, v: with_rows(s, sigma=np.full(N, v))),
    "boot": seed_axis(range(8), lambda s, g: with_rows(s, y=Y + 0.1 * g.normal(size=N) if g.random() else Y)),
    "start": start_axis([{"m": np.zeros(P)}, {"m": np.full(P, 0.5)}]),
}
USUAL = {name: next(iter(axis.values)) for name, axis in AXES.items()}
NEVER, LATER = {"power": -1.0}, {"edge": 0.05}  # not finite at the start; beyond an edge on the way


def point(**values):
    """Return a point that differs from the usual one in these values."""
    return USUAL | values


POINTS = [point(soft=s, prior=p, boot=b) for s in (0.3, 1, 3) for p in PRIORS for b in (0, 1)]


def run(run_dir, points=POINTS, slots=SLOTS, the_problem=None, **options):
    """Return the survey of the small problem at these points."""
    the_problem = problem() if the_problem is None else the_problem
    names = ("limit", "retry", "more", "progress", "on_points")
    control = SurveyControl(slots, **{name: options.pop(name) for name in names if name in options})
    chosen: dict[str, Any] = {"maxiter": MAXITER, "design": table(AXES, points)} | options
    return survey(the_problem, AXES, run_dir=run_dir, control=control, **chosen)


def alone(the_problem, values, solver="lbfgs", **options):
    """Return the same point fitted by itself."""
    start = apply(Start(the_problem.objective, the_problem.x0), AXES, values)
    changed = the_problem.replace(objective=start.objective, x0=start.params)
    asked: dict[str, Any] = {"maxiter": MAXITER} | options
    return fit(changed, solver, certify=False, progress=False, **asked)


TIMES = ("seconds", "finished")


def cells(found, without=TIMES):
    """Return all that must be equal in two runs, by the values of the axes: columns but times, bytes of parameters."""
    result = {}
    for row in found.ledger.rows():
        key = tuple(row[f"axis.{name}"] for name in found.heading.axes)
        kept = {name: value for name, value in row.items() if name not in without}
        result[key] = (kept, found.ledger._found(row["id"])[0])
    return result


def found_at(found, number):
    """Return value, parameters and steps of a point of a survey."""
    (row,) = found.ledger.rows("WHERE id = ?", (number,))
    return row["value"], found.params(number)["m"], row["steps"]
