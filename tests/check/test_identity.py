"""Identity: another computation is another run, and the reason is named; another name, file, line or device is not."""

import functools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardfit as sf
from shardfit.check.identity import identity
from shardfit.solve.registry import as_solver

ROWS = {"t": np.linspace(0.0, 2.0, 9), "y": np.linspace(1.0, 0.2, 9)}
X0 = {"a": 1.0, "tau": 0.7}


def model_of(source, filename="model.py", lines=0):
    """Return the function `model` of a source, as if it stood in a file of that name after so many lines."""
    scope = {"__name__": filename.removesuffix(".py"), "jnp": jnp, "jax": jax, "np": np}
    exec(compile("\n" * lines + textwrap.dedent(source), filename, "exec"), scope)
    return scope["model"]


DECAY = """
def model(p, rows):
    return rows["y"] - p["a"] * jnp.exp(-rows["t"] / p["tau"])
"""


def problem_of(model=DECAY, loss=None, **more):
    model = model_of(model) if isinstance(model, str) else model
    if loss is None:
        term = sf.residual_term(model, ROWS)
    else:
        term = sf.statistic_term(lambda p, rows: model(p, rows) ** 2, ROWS, loss=loss)
    return sf.Problem(sf.Objective({"decay": term}), X0, **more)


def facts(problem, solver="lbfgs", seed=0):
    return identity(problem, as_solver(solver), seed).facts


def differing(one, other):
    return sorted(name for name in {**one, **other} if one.get(name) != other.get(name))


def scaled(factor):
    def model(p, rows):
        return rows["y"] - factor * p["a"] * jnp.exp(-rows["t"] / p["tau"])

    return model


def shifted(shift, p, rows):
    return rows["y"] - p["a"] * jnp.exp(-rows["t"] / p["tau"]) - shift


class Callable:
    def __init__(self, power):
        self.power = power

    def __call__(self, p, rows):
        return rows["y"] - p["a"] * rows["t"] ** self.power * p["tau"]


def looped(values):
    """Constants inside a loop, a branch, a call and a gradient rule."""
    table, own = np.asarray(values), np.asarray(values) * 2

    @jax.custom_vjp
    def bent(x):
        return x * own.sum()

    bent.defvjp(lambda x: (bent(x), None), lambda _, g: (g * table[0],))

    def model(p, rows):
        def body(i, total):
            return total + jax.lax.cond(
                i > 1, lambda: jnp.asarray(table)[i], lambda: jax.jit(lambda: jnp.asarray(own)[i])()
            )

        return rows["y"] - bent(p["a"]) * jax.lax.fori_loop(0, 3, body, 0.0) - p["tau"]

    return model


EDITS = {
    "body": (DECAY, DECAY.replace("-rows", "-2 * rows")),
    "closure": (scaled(1.0), scaled(1.0000001)),
    "partial": (functools.partial(shifted, 0.0), functools.partial(shifted, 0.1)),
    "instance": (Callable(2), Callable(3)),
    "constant in a loop": (looped([1.0, 2.0, 3.0]), looped([1.0, 2.0, 3.5])),
    "constant in a gradient rule": (looped([1.0, 2.0, 3.0]), looped([1.5, 2.0, 2.5])),
}


@pytest.mark.parametrize("edit", EDITS)
def test_another_model_is_another_run(edit):
    one, other = (facts(problem_of(model)) for model in EDITS[edit])
    assert differing(one, other) == ["model of term 'decay'"]
    assert differing(one, facts(problem_of(EDITS[edit][0]))) == []


def test_loss_transform_bounds_start_seed_precision_data_and_weight_are_named():
    plain = facts(problem_of())
    assert differing(facts(problem_of(loss=lambda s: s)), facts(problem_of(loss=lambda s: jnp.log(s)))) == [
        "loss of term 'decay'"
    ]
    logged = facts(problem_of(transforms={"tau": "log"}))
    assert differing(plain, logged) == ["transform of tau"]
    assert differing(logged, facts(problem_of(transforms={"tau": "softplus"}))) == ["transform of tau"]
    bounded = facts(problem_of(bounds={"tau": (0.1, 2.0)}), "adam")
    assert differing(bounded, facts(problem_of(bounds={"tau": (0.1, 3.0)}), "adam")) == ["bounds"]
    assert differing(plain, facts(problem_of().replace(x0={"a": 1.0, "tau": 0.8}))) == ["start"]
    held = facts(problem_of(fixed="a"))
    assert differing(held, facts(problem_of(fixed="tau"))) == ["fixed parameters"]
    assert differing(held, facts(problem_of(fixed={"a": 1.5}))) == ["start"]
    assert facts(problem_of(fixed=["a", "tau"]))["fixed parameters"]
    assert differing(plain, facts(problem_of(), seed=1)) == ["seed"]
    assert "precision" in differing(plain, facts(problem_of(precision="float32")))
    objective = problem_of().objective
    heavy = facts(sf.Problem(objective.with_weights(decay=2.0), X0))
    assert differing(plain, heavy) == ["weight of term 'decay'"]
    moved = facts(sf.Problem(objective.with_rows(decay={**ROWS, "y": ROWS["y"] + 1e-9}), X0))
    assert differing(plain, moved) == ["data of term 'decay'"]


def test_names_units_chunks_and_decoding_are_not_part_of_it():
    model = model_of(DECAY)
    chunked = sf.Objective({"decay": sf.residual_term(model, ROWS, chunk=2)})
    other = sf.Problem(chunked, X0, name="other", units={"tau": "s"}, decode=lambda p: {"rate": 1 / p["tau"]})
    assert differing(facts(problem_of()), facts(other)) == []
    placed = sf.Problem(chunked.place(sf.mesh(rows=4)), X0)
    assert differing(facts(problem_of()), facts(placed)) == []


SOLVERS = {
    "optax rate": (optax.adam(1e-1), optax.adam(1e-4), ["solver's step"]),
    "optax schedule": (
        optax.sgd(optax.linear_schedule(1.0, 0.1, 10)),
        optax.sgd(optax.linear_schedule(1.0, 0.1, 20)),
        ["solver's step"],
    ),
    "optax kind": (optax.adam(1e-2), optax.sgd(1e-2), ["solver's first state", "solver's step"]),
    "option": (sf.LBFGS(memory=5), sf.LBFGS(memory=6), ["solver's first state", "solver's memory", "solver's step"]),
    "tolerance": (sf.LBFGSB(ftol=1e-9), sf.LBFGSB(ftol=1e-8), ["solver's ftol"]),
    "polish": (sf.Swarm(polish="lbfgs"), sf.Swarm(polish="lbfgsb"), ["solver's polish"]),
}


@pytest.mark.parametrize("case", SOLVERS)
def test_solvers_by_their_steps_and_options(case):
    one, other, expected = SOLVERS[case]
    problem = problem_of(bounds={"a": (0, 3), "tau": (0.1, 3)}) if case in ("tolerance", "polish") else problem_of()
    first = facts(problem, one)
    assert differing(first, facts(problem, other)) == expected
    assert differing(first, facts(problem, one)) == []


@pytest.mark.parametrize("name", ["lbfgs", "lbfgsb", "adam", "lm", "lbfgs-bt"])
def test_a_higher_limit_is_the_same_run(name):
    one, other = (identity(problem_of(), as_solver(name, maxiter=n), 0) for n in (10, 20))
    assert one == other and not one.unidentified


def descent(rate=0.1, tool=None):
    def run(value_and_grad, x0, *, maxiter, tol, callback):
        """Descend."""
        for _ in range(maxiter):
            x0 = x0 - rate * halved(value_and_grad(x0)[1])
            callback(x0)

    return run if tool is None else functools.partial(run, tool=tool)


def halved(x):
    return 0.5 * x


MINIMISER = """
import numpy as np

LIMIT = 3.0

def clipped(x):
    return np.clip(x, -LIMIT, LIMIT)

def model(value_and_grad, x0, *, maxiter, tol, callback):
    'Descend.'
    for step in range(maxiter):
        x0 = x0 - 0.1 * clipped(value_and_grad(x0)[1])
        callback(x0)
"""


def test_host_code_is_known_by_its_instructions():
    problem = problem_of()
    assert differing(facts(problem, descent(0.1)), facts(problem, descent(0.2))) == ["solver's run"]
    same = MINIMISER.replace("'Descend.'", "'Go down.'  # slowly").replace("step", "i")
    first = facts(problem, model_of(MINIMISER))
    assert differing(first, facts(problem, model_of(same, "elsewhere.py", 40))) == []
    for old, new in (("0.1", "0.2"), ("LIMIT = 3", "LIMIT = 4"), ("np.clip(", "np.add(0 * ")):
        assert differing(first, facts(problem, model_of(MINIMISER.replace(old, new)))) == ["solver's run"], old


def host_model(power):
    def model(p, rows):
        shape = jax.ShapeDtypeStruct(rows["t"].shape, rows["t"].dtype)
        return rows["y"] - p["a"] - p["tau"] * jax.pure_callback(lambda t: t**power, shape, rows["t"])

    return model


def test_host_callbacks_inside_a_model_are_known_by_their_code():
    one, other = (facts(problem_of(host_model(power))) for power in (2, 3))
    assert differing(one, other) == ["model of term 'decay'"]
    assert one == facts(problem_of(host_model(2)))


def test_what_cannot_be_identified_is_said():
    rng = np.random.default_rng(0)

    def run(value_and_grad, x0, *, maxiter, tol, callback):
        value_and_grad(x0 + rng.normal(size=x0.shape))

    (text,) = identity(problem_of(), as_solver(run), 0).unidentified
    assert text == "the solver uses rng, a numpy.random._generator.Generator, whose content cannot be read"


def test_a_model_without_derivatives_has_an_identity():
    def stepped(power, p, rows):
        return rows["y"] - jax.lax.while_loop(lambda x: x < 10, lambda x: x * power, p["a"] + p["tau"])

    one, other = (facts(problem_of(functools.partial(stepped, x))) for x in (2.0, 3.0))
    assert differing(one, other) == ["model of term 'decay'"]


SCRIPT = """
import json, sys
import numpy as np, optax
sys.path[:0] = {paths!r}
from tests.check.test_identity import MINIMISER, facts, host_model, looped, model_of, problem_of
made = [facts(problem_of(model, transforms={{"tau": "log"}}), solver)
        for model in (looped([1.0, 2.0, 3.0]), host_model(2))
        for solver in ("lbfgs", optax.adam(0.1), model_of(MINIMISER))]
print(json.dumps(made))
"""


@pytest.mark.processes
def test_equal_in_other_processes_with_other_hashes_and_devices(tmp_path):
    paths = [str(Path(sf.__file__).parents[1]), str(Path(__file__).parents[2])]
    made = []
    for devices, seed in ((1, "1"), (3, "2")):
        script = tmp_path / f"script{devices}.py"
        script.write_text("# moved\n" * devices + SCRIPT.format(paths=paths))
        env = {**os.environ, "PYTHONHASHSEED": seed}
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
        made.append(json.loads(done.stdout))
    assert made[0] == made[1]


def test_equal_problems_are_traced_once():
    """A series of fits that differ in their start, rows or args is identified from one trace."""
    traced = []

    def model(p, rows, scale):
        traced.append(1)
        return rows["y"] - scale * p["a"] * rows["x"]

    def problem(start, scale):
        rows = {"x": np.arange(4.0), "y": np.ones(4)}
        return sf.Problem(sf.Objective({"d": sf.residual_term(model, rows, np.float64(scale))}), {"a": start})

    solver = sf.LBFGS()
    first = identity(problem(1.0, 2.0), solver, 0)
    count = len(traced)
    given = problem(3.0, 2.5)
    before = len(traced)
    second = identity(given, solver, 0)
    assert len(traced) == before
    assert count > 0
    differing = {name for name in first.facts if first.facts[name] != second.facts[name]}
    assert differing == {"start", "args of term 'd'"}


POWER = [2.0]


def test_what_is_remembered_does_not_hide_a_change(monkeypatch):
    """A traced program is remembered; what host code and options refer to may change under the same object."""

    def model(p, rows):
        shape = jax.ShapeDtypeStruct(rows["t"].shape, rows["t"].dtype)
        return rows["y"] - p["a"] - p["tau"] * jax.pure_callback(lambda t: t ** POWER[0], shape, rows["t"])

    boxed = problem_of(model, bounds={"a": (0, 3), "tau": (0.1, 3)})
    first = facts(boxed)
    monkeypatch.setitem(globals(), "POWER", [3.0])
    assert differing(first, facts(boxed)) == ["model of term 'decay'"]
    one, other = (facts(boxed, sf.Swarm(constraint=lambda p, low=low: p["a"] > low)) for low in (0.1, 0.2))
    assert differing(one, other) == ["solver's constraint"]


def test_a_solver_with_a_named_tuple_as_state_is_known_by_its_content():
    """The state of `docs/extending.md`; names of attributes are not those of globals."""
    source = """
    from dataclasses import dataclass
    from typing import Any, ClassVar, NamedTuple
    import shardfit as sf

    ahead, RATE = [], 1.0

    class State(NamedTuple):
        x: Any
        value: Any
        gradient: Any
        status: Any
        steps: Any
        ahead: Any

    @dataclass(frozen=True)
    class Descent(sf.StepSolver):
        name: ClassVar[str] = "descent"

        def init(self, z0, lower, upper):
            none = jnp.zeros((), jnp.int32)
            return State(z0, jnp.full((), jnp.inf, z0.dtype), jnp.zeros_like(z0), none, none, z0)

        def ask(self, state):
            return state.ahead

        def tell(self, state, evaluation):
            x, (value, gradient) = state.ahead, evaluation
            return State(x, value, gradient, state.status, state.steps + 1, x - RATE * gradient)

    model = Descent()
    """
    problem = problem_of()
    first = identity(problem, model_of(source), 0)
    assert not first.unidentified
    assert (
        differing(first.facts, facts(problem, model_of(source.replace("ahead, RATE = []", "ahead, RATE = [1]")))) == []
    )
    changed = facts(problem, model_of(source.replace("RATE = [], 1.0", "RATE = [], 2.0")))
    assert differing(first.facts, changed) == ["solver", "solver's step"]
