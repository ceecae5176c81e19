"""Rows of a block, where chunk is left open: from what the function computes, never changing the value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.blocks import FEW_ROWS, LEAST_ROWS, with_resolved_chunk
from shardfit.core.precision import arithmetic

N = 100_000
ROWS = {"x": np.linspace(-2.0, 2.0, N)}
EDGES = np.linspace(-1.0, 1.0, 12)
P0 = np.array([0.1, 0.7])


def soft(p, r):
    return jax.nn.sigmoid((r["x"][:, None] - EDGES - p[0]) / p[1])


def chosen(fn, rows=ROWS, **options):
    with arithmetic("float64"):
        return with_resolved_chunk(sf.statistic_term(fn, rows, loss=jnp.sum, **options), P0, None).chunk


@pytest.mark.usefixtures("behind_doors")
def test_a_block_fits_a_cache():
    wide = chosen(soft)
    assert wide > LEAST_ROWS and wide * 12 * 8 <= 1 << 18
    assert chosen(lambda p, r: jnp.tile(soft(p, r), (1, 20))) == LEAST_ROWS
    assert chosen(lambda p, r: jnp.exp(soft(p, r)), {"x": ROWS["x"].astype(np.float32)}) >= wide


@pytest.mark.usefixtures("behind_doors")
def test_a_stack_has_the_blocks_of_its_pieces():
    """Each is summed as it is computed, so that short blocks would only cost their beginnings."""
    pieces = lambda p, r: [jax.nn.sigmoid((r["x"] - edge - p[0]) / p[1]) for edge in EDGES]  # noqa: E731
    many = {"x": np.tile(ROWS["x"], 10)}
    listed = chosen(pieces, many)
    assert listed > 4 * chosen(soft, many)
    assert chosen(lambda p, r: jnp.stack(pieces(p, r), axis=1), many) == listed
    assert chosen(lambda p, r: jnp.concatenate([x[:, None] for x in pieces(p, r)], axis=1), many) == listed


def test_what_needs_no_blocks_has_none():
    assert chosen(lambda p, r: p[0] * r["x"]) is None  # few results
    assert chosen(soft, {"x": ROWS["x"][:FEW_ROWS]}) is None
    assert chosen(soft, chunk=None) is None and chosen(soft, chunk=10) == 10


def test_work_that_every_block_would_repeat_makes_blocks_longer():
    def heavy(p, r):
        field = jnp.sin(p[0] * jnp.arange(300_000.0))
        return soft(p, r) + field.sum()

    assert chosen(heavy) is None or chosen(heavy) >= 8 * chosen(soft)


def test_operations_of_unknown_cost_and_functions_of_all_rows_stay_whole():
    assert chosen(lambda p, r: soft(p, r) + jnp.fft.fft(p * jnp.ones(8)).real.sum()) is None
    assert chosen(lambda p, r: soft(p, r) + p[0] * ROWS["x"][:, None]) is None


def test_auto_is_the_default_and_keeps_value_and_gradient():
    def loss(t):
        return jnp.sum((jnp.log(t) - 9.0) ** 2)

    make = lambda **o: sf.Objective({"s": sf.statistic_term(soft, ROWS, loss=loss, **o)})  # noqa: E731
    assert make().terms[0].auto and sf.residual_term(soft, ROWS).auto
    for found, whole in zip(make().value_and_grad(P0), make(chunk=None).value_and_grad(P0), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-11)
    split = make().place(sf.mesh(rows=3)).value_and_grad(P0)
    np.testing.assert_allclose(split[1], make(chunk=None).value_and_grad(P0)[1], rtol=1e-10)
    with pytest.raises(ValueError, match="chunk='all' must be .*'auto'"):
        make(chunk="all")


def test_short_totals_of_many_blocks_keep_their_digits():
    x = np.random.default_rng(0).uniform(0.5, 1.5, 1_000_000).astype(np.float32)

    def fn(p, r):
        return {"a": r["x"], "wide": r["x"][:, None] * jnp.array([0.1, 1.0], jnp.float32)}

    loss = lambda t: t["a"]  # noqa: E731
    totals = sf.Objective({"s": sf.statistic_term(fn, {"x": x}, loss=loss, chunk=64)}).totals(np.float32(1.0))["s"]
    assert totals["a"].dtype == np.float32
    np.testing.assert_allclose(totals["a"], x.sum(dtype=np.float64), rtol=1.5e-7)
    np.testing.assert_allclose(totals["wide"][1], x.sum(dtype=np.float64), rtol=1.5e-7)
