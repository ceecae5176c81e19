"""Shapes of what a term's functions return, asked of objectives that belong to no problem as of those that do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term, statistic_term

N = 40
ROWS = {"x": np.linspace(-1.0, 1.0, N)}
P0 = {"a": 0.3}


def summed(p, rows, bins):
    """Return a histogram of all rows of a block: what a user has who does not know that rows are added up."""
    edges = jnp.linspace(-2.0, 2.0, bins + 1)
    return jnp.diff(jnp.sum(jax.nn.sigmoid((edges - p["a"] - rows["x"][:, None]) * 5), 0))


def by_row(p, rows, bins):
    edges = jnp.linspace(-2.0, 2.0, bins + 1)
    return jnp.diff(jax.nn.sigmoid((edges - p["a"] - rows["x"][:, None]) * 5), axis=1)


def square(totals):
    return jnp.sum(totals**2)


def objective(fn, bins, **options):
    return Objective({"counts": statistic_term(lambda p, r: fn(p, r, bins), ROWS, loss=square, **options)})


WAYS = {
    "value": lambda o: o.value(P0),
    "value_and_grad": lambda o: o.value_and_grad(P0),
    "parts": lambda o: o.parts(P0),
    "totals": lambda o: o.totals(P0),
    "hvp": lambda o: o.hvp(P0, P0),
    "jit": lambda o: jax.jit(lambda o, p: o.value(p))(o, P0),
    "grad": lambda o: jax.grad(o.value)(P0),
    "vmap": lambda o: jax.vmap(lambda a: o.value({"a": a}))(jnp.zeros(3)),
    "mesh": lambda o: o.place(mesh(rows=4)).value_and_grad(P0),
    "inside shard_map": lambda o: _in_shard_map(o),
    "problem": lambda o: Problem(o, P0),
}


def _in_shard_map(objective):
    """Evaluate the objective of each shard's rows within a program of the caller's own."""

    def local(x):
        return objective.with_rows(counts={"x": x}).value(P0)[None]

    run = jax.shard_map(local, mesh=mesh(rows=1), in_specs=P("rows"), out_specs=P("rows"), check_vma=False)
    return run(jnp.asarray(ROWS["x"]))


@pytest.mark.parametrize("bins", [5, N, N - 1, 10])
@pytest.mark.parametrize("way", WAYS)
def test_a_sum_over_rows_is_refused(way, bins):
    """Also where a block has as many rows as there are bins, whole (40) or with chunk=10."""
    found = objective(summed, bins, chunk=10 if bins == 10 else "auto")
    with jax.enable_x64(True), pytest.raises(ValueError, match=f"term 'counts': fn returned {bins} values for .* rows"):
        WAYS[way](found)


@pytest.mark.parametrize("bins", [5, N])
@pytest.mark.parametrize("way", WAYS)
def test_contributions_of_rows_are_taken(way, bins):
    with jax.enable_x64(True):
        WAYS[way](objective(by_row, bins))


def test_the_sum_of_rows_is_that_of_the_function():
    expected = summed(P0, ROWS, 5)
    np.testing.assert_allclose(objective(by_row, 5).totals(P0)["counts"], expected, rtol=1e-6)


RAW = {
    "a vector of sums": (lambda: statistic_term(lambda p, r: by_row(p, r, 5), ROWS), "the summed statistic has shape"),
    "a vector loss": (
        lambda: statistic_term(lambda p, r: r["x"], ROWS, loss=lambda t: t * jnp.ones(2)),
        "the loss has",
    ),
    "a vector penalty": (lambda: penalty(lambda p: p["a"] * jnp.ones(3)), "the loss has shape"),
    "a matrix of rows": (
        lambda: residual_term(lambda p, r: jnp.outer(r["x"], r["x"]) * p["a"], ROWS),
        "look at the oth",
    ),
    "a mean": (lambda: residual_term(lambda p, r: jnp.mean(r["x"] * p["a"]), ROWS), "fn returned a single number"),
    "one in a dict": (
        lambda: residual_term(lambda p, r: {"good": r["x"] * p["a"], "bad": p["a"] * jnp.ones(3)}, ROWS),
        "fn returned 3 values for 40 rows",
    ),
    "a weight of several": (lambda: residual_term(lambda p, r: r["x"] * p["a"], ROWS, weight=np.ones(2)), "weight has"),
}


@pytest.mark.parametrize("case", RAW)
@pytest.mark.parametrize("way", ["value", "value_and_grad", "grad"])
def test_what_does_not_fit_is_refused_without_a_problem(case, way):
    make, words = RAW[case]
    with jax.enable_x64(True), pytest.raises(ValueError, match=f"term 'counts': .*{words}"):
        WAYS[way](Objective({"counts": make()}))


def test_totals_and_residuals_look_at_rows_only():
    """What a loss would make of the totals is nobody's matter there."""
    raw = Objective({"counts": statistic_term(lambda p, r: by_row(p, r, 5), ROWS)})
    assert raw.totals(P0)["counts"].shape == (5,)
    wrong = Objective({"counts": residual_term(lambda p, r: jnp.cumsum(r["x"])[:7] * p["a"], ROWS)})
    with pytest.raises(ValueError, match="fn returned 7 values for 40 rows"):
        wrong.residuals(P0)
    with pytest.raises(ValueError, match="fn returned 7 values for 40 rows"):
        wrong.gram(P0)


MISTAKES = {
    "swapped": (lambda rows, p: rows["x"] * p["a"], P0, r"takes \(rows, params\).*Exchange"),
    "swapped, a vector": (lambda rows, p: rows["x"] * p[0], np.ones(2), r"takes \(rows, params\).*Exchange"),
    "missing entry": (lambda p, r: r["xx"] * p["a"], P0, "asks for 'xx', which neither.*params has a; rows has x"),
    "missing parameter": (lambda p, r: r["x"] * p["b"], P0, "asks for 'b', which neither.*params has a; rows has x"),
    "in the other": (lambda p, r: r["a"] * p["a"], P0, "asks rows for 'a', which params has"),
    "in the other, too": (lambda p, r: p["x"] * p["a"], P0, "asks params for 'x', which rows has"),
}


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.parametrize("raw", [True, False])
def test_mistaken_arguments_are_named(case, raw):
    fn, params, words = MISTAKES[case]
    with pytest.raises(ValueError, match=f"term 'line': its function {words}"):
        found = Objective({"line": residual_term(fn, ROWS)})
        found.value(params) if raw else Problem(found, params)


def test_a_penalty_that_asks_for_what_there_is_not():
    with pytest.raises(ValueError, match="term 'far': its function asks params for 'b'.*params has a"):
        Problem(Objective({"far": penalty(lambda p: p["b"])}), P0)


def test_an_error_of_another_kind_stays_what_it_is():
    table = {"known": 1.0}
    with pytest.raises(ZeroDivisionError) as caught:
        Objective({"line": residual_term(lambda p, r: r["x"] * (1 // (len(table) - 1)), ROWS)}).value(P0)
    assert "raised while checking term 'line'" in " ".join(caught.value.__notes__)
