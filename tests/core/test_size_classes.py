"""Size classes: data of about one size share their programs, and no number depends on the class."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.mesh import mesh
from shardfit.core.precision import arithmetic
from shardfit.core.size_classes import LARGE, class_of, full_class, size_class
from tests.programs import compiled


def decay(p, rows):
    return (rows["y"] - p[0] * jnp.exp(-p[1] * rows["t"])) / rows["sigma"]


def spread(p, rows):
    return jnp.log(rows["t"] + 1)[:, None] * p


def rows_of(n):
    t = np.linspace(0, 5, n)
    y = 2 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(n).normal(size=n)
    return {"t": t, "y": y, "sigma": np.full(n, 0.1)}


def objective_of(n, chunk=None):
    terms = {
        "decay": sf.residual_term(decay, rows_of(n), chunk=chunk),
        "totals": sf.statistic_term(spread, rows_of(n), loss=lambda s: jnp.sum(jnp.tanh(s / 1000)), chunk=chunk),
    }
    return sf.Objective(terms)


def test_a_class_holds_its_sizes_and_little_more():
    sizes = np.arange(1, 5000)
    classes = np.array([size_class(int(n)) for n in sizes])
    assert (classes[:32] == sizes[:32]).all()
    assert (classes >= sizes).all() and (classes <= sizes * (1 + 1 / 16)).all()
    assert (np.diff(classes) >= 0).all() and [size_class(int(c)) for c in classes] == classes.tolist()
    assert all(sum((classes > low) & (classes <= 2 * low) & (classes == sizes)) == 16 for low in (32, 64, 1024))
    full = np.array([full_class(int(n)) for n in sizes])
    assert (full <= sizes).all() and (full[classes == sizes] == sizes[classes == sizes]).all()
    assert [size_class(int(f)) for f in full] == full.tolist()


def test_what_is_large_is_not_copied():
    rows = {"x": jax.ShapeDtypeStruct((8, 4), np.float64)}
    assert class_of(rows, 1000) == 1024 and class_of(rows, LARGE // 32 + 1) is None


@pytest.mark.parametrize("n", [33, 1000])
@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("devices", [None, 1, 4])
def test_nothing_depends_on_the_class(n, chunk, devices):
    plain, p = objective_of(n, chunk), np.array([1.7, 0.6])
    placed = plain.place(devices and mesh(devices))
    assert placed.n_rows == plain.n_rows == {"decay": n, "totals": n}
    assert placed.terms[0].rows["t"].shape[0] == (devices or 1) * size_class(-(-n // (devices or 1)))
    for one, other in zip(plain.value_and_grad(p), placed.value_and_grad(p), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(plain.totals(p)["totals"], placed.totals(p)["totals"], rtol=1e-12)
    tangent = np.array([0.3, -1.0])
    np.testing.assert_allclose(plain.hvp(p, tangent), placed.hvp(p, tangent), rtol=1e-9)
    squares, at = plain.only("decay"), placed.only("decay")
    for one, other in zip(squares.gram(p), at.gram(p), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)
    again = placed.place(None)
    assert again.terms[0].rows["t"].shape[0] == size_class(n)
    np.testing.assert_array_equal(np.asarray(again.terms[0].rows["t"])[:n], rows_of(n)["t"])


def test_blocks_of_padding_are_left_out():
    """A model that may not see more blocks than there are rows for; the derivative of a derivative has them, too."""
    seen = []

    def watched(p, rows):
        jax.debug.callback(lambda x: seen.append(float(x)), rows["t"][0])
        return decay(p, rows)

    placed = sf.Objective({"d": sf.residual_term(watched, rows_of(1030), chunk=5)}).place()
    assert placed.terms[0].rows["t"].shape[0] == 1088
    placed.value(np.array([1.7, 0.6]))
    jax.effects_barrier()
    assert len(seen) == -(-1030 // 5)
    plain = sf.Objective({"d": sf.residual_term(decay, rows_of(1030), chunk=5)})
    with arithmetic("float64"):
        hessians = [jax.jit(jax.hessian(o.value))(np.array([1.7, 0.6])) for o in (plain, plain.place())]
    np.testing.assert_allclose(*hessians, rtol=1e-9)


def test_data_sets_of_other_sizes_share_their_programs():
    def fit(n):
        return sf.fit(sf.Problem(sf.Objective({"d": sf.residual_term(decay, rows_of(n))}), np.ones(2)), "lm")

    with compiled() as first:
        fit(3000)
    assert len(first) <= 6, first
    with compiled() as others:
        answers = [fit(n) for n in range(2990, 3040, 5)]
    assert len(others) == 0, others
    assert [a.dof for a in answers] == [n - 2 for n in range(2990, 3040, 5)]
    assert all(a.success and abs(a.params[0] - 2) < 5 * a.stderr[0] for a in answers)
    with compiled() as larger:
        fit(3333)
    assert 1 <= len(larger) <= 3, larger
