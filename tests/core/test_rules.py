"""Callers who have set JAX to refuse promotions or transfers: their models are fitted, by their own rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.check.certificate import certify
from shardfit.core.rules import SETTINGS, our_rules

X = np.linspace(0, 1, 40)
ROWS = {"x": X, "y": 2 * np.exp(-1.3 * X) + 0.01 * np.random.default_rng(0).standard_normal(X.size)}
BOUNDS = {"a": (0.0, 10.0), "k": (0.0, 10.0)}
RULES = {
    "dtype": lambda: jax.numpy_dtype_promotion("strict"),
    "rank": lambda: jax.numpy_rank_promotion("raise"),
    "transfer": lambda: jax.transfer_guard("disallow"),
}


def careful(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"])) * 100.0


def mixing(p, rows):
    return careful(p, rows) * jnp.ones((), jnp.int32)


def spreading(p, rows):
    return careful(p, rows)[:, None] * jnp.ones(2)


def problem(fn=careful, **fields):
    return sf.Problem(sf.Objective({"decay": sf.residual_term(fn, ROWS)}), {"a": 1.0, "k": 1.0}, **fields)


def fitted(solver, **options):
    return lambda: sf.fit(problem(bounds=BOUNDS), solver, progress=False, **options)


def many():
    return sf.fit_many(problem(), {"decay": {"y": np.stack([ROWS["y"], 0.9 * ROWS["y"]])}})


def refused(p):
    with pytest.raises(TypeError, match="inside a function"):
        problem()
    return p


def sampled():
    return sf.sample(problem(bounds=BOUNDS), draws=4, warmup=20, chains=2, progress=False)


CALLS = {
    "lm": fitted("lm"),
    "lbfgsb": fitted("lbfgsb"),
    "lbfgs": fitted("lbfgs"),
    "adam": lambda: sf.fit(problem(), "adam", maxiter=3, progress=False),
    "lm-cg": lambda: sf.fit(problem(), "lm-cg", progress=False),
    "tied": lambda: sf.fit(problem(tied={"k": lambda p: 1.3 * p["a"]}), "lm", progress=False),
    "error bars": lambda: sf.error_bars(problem(), sf.fit(problem(), progress=False)),
    "certificate": lambda: certify(problem(), gram=True),
    "many": many,
    "sample": sampled,
    "evidence": lambda: sf.evidence(problem(bounds=BOUNDS)),
    "priors": lambda: problem(priors={"a": sf.Normal(2.0, 1.0), "k": sf.HalfNormal(1.0)}),
    "some rows": lambda: problem().objective.place(sf.mesh(rows=2)).take(lambda term, n: np.arange(3)),
    "one realisation": lambda: problem().objective.freeze(0),
    "inside a trace": lambda: jax.eval_shape(refused, jax.ShapeDtypeStruct((), np.float32)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CALLS)
def test_a_careful_caller_is_served(rule, name):
    with RULES[rule]():
        CALLS[name]()


@pytest.mark.parametrize("rule", ["dtype", "rank"])
def test_derivatives_that_jax_asks_for_later(rule):
    value = jax.jit(problem(precision="float32").objective.value)
    with RULES[rule]():
        slope = jax.grad(value)({"a": np.float32(1), "k": np.float32(1)})
    assert np.isfinite(slope["a"])


@pytest.mark.parametrize(("rule", "model"), [("dtype", mixing), ("rank", spreading)])
def test_the_callers_model_is_traced_by_the_callers_rules(rule, model):
    assert sf.fit(problem(model), "lm", progress=False).params["a"] == pytest.approx(2, abs=0.1)
    with RULES[rule](), pytest.raises((TypeError, ValueError), match="promotion"):  # also where it was traced before
        sf.fit(problem(model), "lm", progress=False)


@pytest.mark.parametrize("rule", RULES)
def test_callbacks_have_the_callers_rules_and_nothing_is_left_set(rule):
    def settings():
        return {name: getattr(jax.config, name) for name in SETTINGS}

    seen = []
    with RULES[rule]():
        before = settings()
        sf.fit(problem(), "lm", progress=False, callback=lambda shot: seen.append(settings()), every=1)
        assert seen and all(each == before for each in seen)
        with pytest.raises(ZeroDivisionError), our_rules():
            assert settings() != before
            _ = 1 / 0
        assert settings() == before
