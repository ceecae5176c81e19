"""Statistics that sum their own blocks: the same numbers on every layout as plain jnp code over all rows."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.objective import Objective
from shardfit.core.term_makers import residual_term, statistic_term
from shardfit.sampling.quality.pointwise import row_terms

RNG = np.random.default_rng(3)
N = 17  # 8 devices: two or three rows each, one without any
ROWS = {"x": RNG.normal(size=N), "bin": RNG.integers(0, 5, N), "m": RNG.uniform(0.5, 1.5, N)}
PARAMS = {"a": np.float64(0.7), "b": np.float64(-0.3)}
TANGENT = {"a": np.float64(0.4), "b": np.float64(1.1)}
EDGES = np.linspace(-1, 1, 4)
KEY = jax.random.key(7)
LAYOUTS = [(1, None), (1, 5), (3, 4), (8, None)]


def share(p, r):
    return r["m"] * jnp.exp(p["a"] * r["x"] + p["b"])


def into_bins(p, r, w):
    return jnp.zeros(5).at[r["bin"]].add(w * share(p, r))


def segments(p, r):  # complex, integers, and no weights
    phase = jnp.exp(1j * p["a"] * r["x"])
    return {"f": jax.ops.segment_sum(phase, r["bin"], 5), "n": jnp.bincount(r["bin"], length=5)}


def by_a_scan(p, r, w, edges):
    def step(above, edge):
        more = jnp.sum(w * jax.nn.sigmoid((r["x"] - edge) / jnp.abs(p["b"])))
        return above + more, more

    return jax.lax.scan(step, jnp.zeros(()), edges)


def with_places(p, r, w, places):
    return into_bins(p, r, w)[places.astype(int)], 2.0 * places


def drawn(p, r, w, key, keys):
    return jnp.sum(w * p["a"] * r["x"] * jax.vmap(jax.random.uniform)(keys))


LOSSES = {
    "bins": lambda t: jnp.sum(jnp.log(t + 1) ** 2),
    "segments": lambda t: jnp.sum(jnp.abs(t["f"]) ** 2 / (1 + t["n"])),
    "scan": lambda t, edges: {"last": t[0] ** 2, "all": jnp.sum(t[1] ** 3)},
    "aux": lambda t, aux, places: jnp.sum((t - aux) ** 2),
    "drawn": lambda t, key: t**2,
}


def objective(chunk):
    return Objective(
        {
            "bins": statistic_term(sf.block_statistic(into_bins), ROWS, loss=LOSSES["bins"], chunk=chunk, weight=0.3),
            "segments": statistic_term(
                sf.block_statistic(segments, weighted=False), ROWS, loss=LOSSES["segments"], chunk=chunk
            ),
            "scan": statistic_term(sf.block_statistic(by_a_scan), ROWS, EDGES, loss=LOSSES["scan"], chunk=chunk),
            "aux": statistic_term(
                sf.block_statistic(with_places, has_aux=True),
                ROWS,
                np.array([0.0, 2.0, 4.0]),
                loss=LOSSES["aux"],
                chunk=chunk,
            ),
            "drawn": statistic_term(
                sf.block_statistic(drawn), ROWS, loss=LOSSES["drawn"], chunk=chunk, stochastic="rows"
            ),
        }
    )


def hand_totals(p):
    one, places = jnp.ones(N), jnp.array([0.0, 2.0, 4.0])
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.fold_in(KEY, 4), i))(jnp.arange(N))
    return {
        "bins": into_bins(p, ROWS, one),
        "segments": jax.tree.map(lambda s: s * 1.0, segments(p, ROWS)),
        "scan": by_a_scan(p, ROWS, one, EDGES),
        "aux": with_places(p, ROWS, one, places),
        "drawn": jnp.sum(p["a"] * ROWS["x"] * jax.vmap(jax.random.uniform)(keys)),
    }


def hand_value(p):
    t = hand_totals(p)
    scan = LOSSES["scan"](t["scan"], EDGES)
    value = 0.3 * LOSSES["bins"](t["bins"]) + LOSSES["segments"](t["segments"]) + scan["last"] + scan["all"]
    return value + LOSSES["aux"](*t["aux"], None) + LOSSES["drawn"](t["drawn"], None)


@pytest.fixture(scope="module")
def by_hand():
    with jax.enable_x64(True):
        gradient = jax.grad(hand_value)
        run = jax.jit(lambda p, t: (hand_value(p), *jax.jvp(gradient, (p,), (t,)), hand_totals(p)))
        return jax.device_get(run(PARAMS, TANGENT))


@jax.jit
def by_shardfit(objective, p, t):
    run = partial(objective.value_and_grad, key=KEY)
    (value, gradient), (_, hvp) = jax.jvp(run, (p,), (t,))
    return value, gradient, hvp, objective.totals(p, KEY)


@pytest.mark.parametrize("devices, chunk", LAYOUTS)
def test_values_and_derivatives_are_those_of_all_rows_together(by_hand, devices, chunk):
    with jax.enable_x64(True):
        found = jax.device_get(by_shardfit(objective(chunk).place(sf.mesh(devices)), PARAMS, TANGENT))
    assert jax.tree.structure(found) == jax.tree.structure(by_hand)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_mini_batch_stands_for_all_rows():
    term = statistic_term(sf.block_statistic(into_bins), ROWS, loss=jnp.sum)
    half = Objective({"t": term}).take(lambda _, n: np.arange(0, n, 2))
    assert float(half.terms[0].scale) == 17 / 9
    expected = into_bins(PARAMS, {k: v[::2] for k, v in ROWS.items()}, 1.0)
    np.testing.assert_allclose(half.value(PARAMS), 17 / 9 * expected.sum())


def test_mistakes_are_named():
    def checked(fn, loss=jnp.sum, **how):
        term = statistic_term(sf.block_statistic(fn, **how), ROWS, loss=loss)
        return sf.Problem(Objective({"t": term}), PARAMS)

    with pytest.raises(ValueError, match="returned shape .17,. for 17 rows and .16,.*goes to statistic_term as it is"):
        checked(lambda p, r, w: w * share(p, r))
    with pytest.raises(ValueError, match="takes 17 rows, but not 16.*Blocks are of any length"):
        checked(lambda p, r, w: (w * share(p, r)).reshape(N).sum(0) + jnp.zeros(N)[: len(w)].reshape(17).sum())
    with pytest.raises(ValueError, match=r"fn returned 5 values for 17 rows.*statistic_term\(block_statistic\(fn\)"):
        sf.Problem(Objective({"t": statistic_term(lambda p, r: into_bins(p, r, 1.0), ROWS, loss=jnp.sum)}), PARAMS)
    with pytest.raises(ValueError, match="has_aux=True, returned ArrayImpl|returned ShapeDtypeStruct.*a pair"):
        checked(into_bins, lambda t, aux: jnp.sum(t), has_aux=True)
    with pytest.raises(TypeError, match="aux of type int64.*Make it floating"):
        checked(lambda p, r, w: (into_bins(p, r, w), jnp.arange(3)), lambda t, aux: jnp.sum(t), has_aux=True)
    with pytest.raises(ValueError, match="has_aux=True is for a loss"):
        statistic_term(sf.block_statistic(into_bins, has_aux=True), ROWS)
    with pytest.raises(TypeError, match="residual_term: fn is a block_statistic.*Pass it to statistic_term"):
        residual_term(sf.block_statistic(into_bins), ROWS)
    with pytest.raises(TypeError, match="fn is int, not a function"):
        sf.block_statistic(3)


def test_reduce_sum_adds_processes_and_is_refused_where_the_library_adds():
    assert sf.reduce_sum(3) == 3 and isinstance(sf.reduce_sum(3), int)
    np.testing.assert_array_equal(sf.reduce_sum(np.arange(4.0)), np.arange(4.0))
    term = statistic_term(sf.block_statistic(lambda p, r, w: sf.reduce_sum(into_bins(p, r, w))), ROWS, loss=jnp.sum)
    with pytest.raises(TypeError, match="summed over all rows, devices and processes without it"):
        sf.Problem(Objective({"t": term}), PARAMS)


def test_a_fit_ends_where_one_hot_rows_end():
    """The same bins with one row of statistics per row: solver, certificate, error bars and mini-batches agree."""
    n, truth = 400, np.array([0.5, -0.2])
    x = np.linspace(-1, 1, n)
    rows = {"x": x, "bin": np.minimum((2.5 * (x + 1)).astype(int), 4)}

    def one_hot(p, r, *_):
        return jnp.exp(p[0] * r["x"] + p[1])[:, None] * jax.nn.one_hot(r["bin"], 5)

    def scattered(p, r, w, *_):
        return jnp.zeros(5).at[r["bin"]].add(w * jnp.exp(p[0] * r["x"] + p[1]))

    def problem(fn):
        counts = np.asarray(one_hot(truth, rows).sum(0)) * np.array([1.02, 0.97, 1.0, 1.03, 0.99])
        term = statistic_term(fn, rows, counts, loss=lambda t, *c: 0.5 * jnp.sum((t - c[0]) ** 2 / c[0]))
        return sf.Problem(Objective({"bins": term}), np.zeros(2))

    ours, theirs = (problem(fn) for fn in (sf.block_statistic(scattered), one_hot))
    found, expected = (sf.fit(each, "lbfgs", mesh=sf.mesh(3), progress=False) for each in (ours, theirs))
    assert found.success
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-8)
    np.testing.assert_allclose(sf.error_bars(ours, found).stderr, sf.error_bars(theirs, expected).stderr, rtol=1e-6)
    with_counts = sf.block_statistic(lambda p, r, w, c: (scattered(p, r, w), c), has_aux=True)
    batches = [
        sf.fit(each, "adam", batch=60, maxiter=5, progress=False) for each in (ours, theirs, problem(with_counts))
    ]
    for batch in batches[1:]:
        np.testing.assert_allclose(batch.params, batches[0].params, rtol=1e-9)
        np.testing.assert_allclose(batch.value, batches[0].value, rtol=1e-9)


def test_rows_of_sums_have_no_likelihoods_of_their_own():
    term = statistic_term(sf.block_statistic(lambda p, r, w: jnp.sum(w * share(p, r))), ROWS)
    with pytest.raises(TypeError, match="loo: term 't' sums its blocks, so its rows have no likelihoods"):
        row_terms(sf.Problem(Objective({"t": term}), PARAMS), None, "loo")


@pytest.mark.slow
def test_surveys_swarms_chains_and_plans_take_block_sums_as_they_take_rows(tmp_path):
    rows = {"x": np.linspace(-1, 1, 600), "bin": np.arange(600) % 3}

    def scattered(p, r, w, counts):
        return jnp.zeros(3).at[r["bin"]].add(w * jnp.exp(p["a"] * r["x"] ** 2 + p["b"] * r["bin"]))

    def one_hot(p, r, counts):
        return jnp.exp(p["a"] * r["x"] ** 2 + p["b"] * r["bin"])[:, None] * jax.nn.one_hot(r["bin"], 3)

    def problem(fn):
        counts = np.array([230.0, 245.0, 270.0])
        term = statistic_term(fn, rows, counts, loss=lambda t, c: 0.5 * jnp.sum((t - c) ** 2 / c), chunk=250)
        prior = sf.prior(lambda p: -0.5 * (p["a"] ** 2 + p["b"] ** 2))
        start, box = {"a": 0.1, "b": 0.1}, {"a": (-2.0, 2.0), "b": (-2.0, 2.0)}
        return sf.Problem(Objective({"bins": term, "prior": prior}), start, bounds=box)

    both = [problem(sf.block_statistic(scattered)), problem(one_hot)]
    values = [
        sf.survey(p, {"w": sf.weight_axis("bins", (0.5, 1.0, 2.0))}, run_dir=tmp_path / name).column("value")
        for p, name in zip(both, "ab", strict=True)
    ]
    np.testing.assert_allclose(*values, rtol=1e-7)
    swarms = [sf.fit(p, "swarm", particles=12, maxiter=6, progress=False).value for p in both]
    np.testing.assert_allclose(*swarms, rtol=1e-9)
    draws = [sf.sample(p, chains=2, draws=30, warmup=30, seed=1, progress=False).draws["a"] for p in both]
    np.testing.assert_allclose(*draws, rtol=1e-5)
    assert sf.plan(both[0], "lbfgs").fits
