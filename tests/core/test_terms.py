"""Terms: what can be made, what is refused, weights of named parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.term_makers import penalty, residual_penalty, residual_term, statistic_term
from shardfit.core.terms import half_square, weighted_sum, with_weight

ROWS = {"x": np.arange(3.0)}


def fn(p, rows):
    return rows["x"] * p


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True, "all"])
@pytest.mark.parametrize("make", [residual_term, statistic_term])
def test_chunk_must_be_a_number_of_rows(make, chunk):
    with pytest.raises(
        ValueError, match=f"{make.__name__}: chunk={chunk!r} must be a whole number of rows, at least 1"
    ):
        make(fn, ROWS, chunk=chunk)


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: residual_term(ROWS, fn), "residual_term: fn is dict"),
        (lambda: statistic_term(fn, ROWS, loss=3.0), "statistic_term: loss is float"),
        (lambda: penalty(np.ones(3)), "penalty: fn is ndarray"),
        (lambda: residual_penalty(None), "residual_penalty: fn is NoneType"),
    ],
)
def test_a_function_must_be_a_function(make, name):
    with pytest.raises(TypeError, match=f"{name}, not a function. Pass the function itself"):
        make()


@pytest.mark.parametrize("weight", [np.nan, np.inf, {"a": 1.0, "b": -np.inf}])
def test_weights_are_finite(weight):
    for make in (lambda: residual_term(fn, ROWS, weight=weight), lambda: penalty(fn, weight=weight)):
        with pytest.raises(ValueError, match=r"weight .* is not finite"):
            make()


def test_terms_are_pytrees_of_data_args_and_weights():
    term = statistic_term(fn, ROWS, np.ones(2), weight={"a": 2.0}, chunk=np.int64(2))
    assert term.n_rows == 3
    assert type(term.chunk) is int
    assert len(jax.tree.leaves(term)) == 4  # x, arg, weight, scale
    assert jax.tree.structure(term) == jax.tree.structure(
        statistic_term(fn, ROWS, np.zeros(2), weight={"a": 1.0}, chunk=2)
    )


@pytest.mark.usefixtures("behind_doors")
def test_half_square_of_every_kind_of_residual():
    r, c = np.array([1.0, -2.0]), np.array([3 + 4j])
    assert float(half_square(r)) == 2.5
    assert float(half_square(c)) == 12.5
    assert float(half_square((r, [c]))) == 15.0
    assert {k: float(v) for k, v in half_square({"r": r, "c": c}).items()} == {"r": 2.5, "c": 12.5}
    assert float(half_square(np.array([1, 2]))) == 2.5


def test_weighted_sum_of_one_number_and_of_named_ones():
    losses = {"vis": jnp.float32(2.0), "cphase": jnp.float32(3.0)}
    assert float(weighted_sum(2.0, jnp.float32(4.0))) == 8.0
    assert float(weighted_sum(2.0, losses)) == 10.0
    assert float(weighted_sum({"vis": 1.0, "cphase": 10.0}, losses)) == 32.0


@pytest.mark.parametrize(
    "weight, words",
    [
        ({"vis": 1.0, "cphse": 2.0}, "t: no part 'cphse'. Did you mean 'cphase'.*Known: cphase, vis"),
        ({"vis": 1.0}, "t: no weight for part 'cphase'.*Give each a weight"),
    ],
)
def test_weights_that_name_other_parts_are_refused(weight, words):
    with pytest.raises(ValueError, match=words):
        weighted_sum(weight, {"vis": 1.0, "cphase": 2.0}, "t")


def test_a_dict_weight_needs_a_dict_loss():
    with pytest.raises(ValueError, match="t: weight is a dict, but the loss is one number. Give one number"):
        weighted_sum({"a": 1.0}, 2.0, "t")


def test_with_weight_updates_named_parts_only():
    term = residual_term(fn, ROWS, weight={"a": 1.0, "b": 2.0})
    assert with_weight(term, {"b": 5.0}).weight == {"a": 1.0, "b": 5.0}
    assert with_weight(term, 3.0).weight == 3.0
    with pytest.raises(ValueError, match="no part 'bb' in this term.*'b'"):
        with_weight(term, {"bb": 1.0})
