"""Derivatives: exact transpose, second-order remainder, every memory strategy, Gauss-Newton products."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Binomial, Checkpointed, Frame, Full, Native, Stored, loops, propagate, wave
from shardfit.domains.seismic.schedule import ADVANCE, RESTORE, REVERSE, STORE, plan
from shardfit.domains.seismic.strategies import as_strategy, n_bytes
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative, small

FREE = (True, "raw")


def gradients(case, dtype, **options):
    """Derivatives with respect to velocity and wavelet of a random combination of samples."""
    sim, velocity, wavelet, shots = case
    weights = jnp.asarray(np.random.default_rng(7).normal(size=(2, 3, sim.nt)), dtype)

    def total(velocity, wavelet):
        return jnp.sum(propagate(sim, velocity, wavelet, shots, **options) * weights)

    return fast_compile_jit(jax.grad(total, (0, 1)))(velocity.astype(dtype), wavelet.astype(dtype))


@cache
def stored_in_full(order, free_surface, scaling):
    return gradients(small(order, free_surface, scaling), np.float64, engine="jax", memory="full")


@needs_compiler
@pytest.mark.parametrize(("order", "edges"), [(4, (False, "physical")), (4, FREE)])
def test_native_gradient_is_that_of_jax(order, edges):
    for settings in (Native(), Native(threads=2, segments=7), Native(segments=1)):
        found = gradients(small(order, *edges), np.float64, engine=settings)
        for a, b in zip(found, stored_in_full(order, *edges), strict=True):
            assert relative(a, b) < 1e-12


@pytest.mark.parametrize(
    ("memory", "limit"),
    [
        (Checkpointed((7,)), 1e-12),
        pytest.param(Binomial(3), 1e-12, marks=pytest.mark.slow),
        pytest.param(Frame(), 1e-9, marks=pytest.mark.slow),
        (Stored(), 5e-3),
    ],
)
def test_strategies_agree_with_full_storage(memory, limit):
    found = gradients(small(), np.float64, engine="jax", memory=memory)
    assert relative(found[0], stored_in_full(4, False, "physical")[0]) < limit
    assert relative(found[1], stored_in_full(4, False, "physical")[1]) < 1e-12  # needs no stored field


@pytest.mark.slow
@pytest.mark.parametrize("memory", [Checkpointed((3, 4)), Binomial(5), Frame(), Stored()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strategies_with_a_free_surface(memory, dtype):
    found = gradients(small(4, *FREE), dtype, engine="jax", memory=memory)
    limit = 5e-3 if memory == Stored() else 1e-3 if memory == Frame() else 1e-6 if dtype == np.float64 else 1e-5
    for a, b in zip(found, stored_in_full(4, *FREE), strict=True):
        assert relative(a, b) < limit


OTHERS = (Full(), Binomial(2), Frame(), Stored())


@pytest.mark.slow
@pytest.mark.parametrize("memory", [Checkpointed((5,)), *(pytest.param(m, marks=pytest.mark.slow) for m in OTHERS)])
def test_dot_product_and_gauss_newton(memory):
    """<J m, d> = <m, Jᵀ d>, with every strategy; J by forward mode, so Gauss-Newton products exist."""
    sim, velocity, wavelet, shots = small(nt=61)
    rng = np.random.default_rng(3)
    m, d = jnp.asarray(rng.normal(size=sim.shape)), jnp.asarray(rng.normal(size=(2, 3, sim.nt)))

    def traces(v):
        return propagate(sim, v, wavelet, shots, engine="jax", memory=memory)

    def both(v):
        pushed = jax.jvp(traces, (v,), (m,))[1]
        pull = jax.vjp(traces, v)[1]
        return pushed, pull(d)[0], pull(pushed)[0]

    pushed, pulled, product = fast_compile_jit(both)(velocity)
    assert float(jnp.vdot(pushed, d)) == pytest.approx(float(jnp.vdot(m, pulled)), rel=1e-10)
    assert float(jnp.vdot(m, product)) == pytest.approx(float(jnp.vdot(pushed, pushed)), rel=1e-10)


def test_steps_back_are_the_transpose_of_steps():
    """Written out by hand, against JAX's own transpose of the steps forward."""
    sim, velocity, wavelet, shots = small(nt=6)
    medium = wave.Medium(wave.padded_kappa(sim, velocity), *jax.tree.map(jnp.asarray, shots))
    state, inputs = wave.rest(sim, 2, float), jnp.moveaxis(wavelet, -1, 0)
    rng = np.random.default_rng(1)
    state_bar = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), state)
    halo = ((0, 0), (sim.half,) * 2, (sim.half,) * 2)  # zero, so that derivatives with respect to it have no meaning
    u, previous = (jnp.pad(wave.inside(sim, leaf), halo) for leaf in (state_bar.u, state_bar.previous))
    bars = wave.State(u, previous, state_bar.layers), jnp.asarray(rng.normal(size=(6, 2, 3)))

    def both(bars):
        expected = jax.linear_transpose(lambda *x: loops._walk(sim, medium, *x)[:2], state, inputs)(bars)
        _, *found = loops._pull(sim, medium, jnp.zeros((6, *state.u.shape)), bars)
        return [(wave.inside(sim, s.u), wave.inside(sim, s.previous), s.layers, x) for s, x in (found, expected)]

    for a, b in zip(*map(jax.tree.leaves, fast_compile_jit(both)(bars)), strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.slow
def test_steps_at_a_time_do_not_matter(monkeypatch):
    monkeypatch.setattr(loops, "TURNS", 3)
    found = gradients(small(), np.float64, engine="jax", memory=Checkpointed((4,)))
    for a, b in zip(found, stored_in_full(4, False, "physical"), strict=True):
        assert relative(a, b) < 1e-12


@needs_compiler
def test_taylor_remainder_is_of_second_order():
    sim, velocity, wavelet, shots = small()
    direction = jnp.asarray(np.random.default_rng(5).normal(size=sim.shape))
    loss = jax.jit(jax.value_and_grad(lambda v: jnp.sum(propagate(sim, v, wavelet, shots, engine="native") ** 2)))
    value, gradient = loss(velocity)
    steps = 2.0 ** -np.arange(4)
    remainders = [
        abs(float(loss(velocity + h * direction)[0] - value - h * jnp.vdot(gradient, direction))) for h in steps
    ]
    slopes = np.diff(np.log(remainders)) / np.diff(np.log(steps))
    assert np.all(np.abs(slopes - 2) < 0.1)


@pytest.mark.parametrize(("steps", "slots"), [(1, 1), (2, 1), (17, 1), (100, 3), (101, 12), (1000, 20)])
def test_binomial_plan(steps, slots):
    """Every step is reversed once, from its own state, last to first, within the slots."""
    state, kept, reversed_, advanced = 0, {-1: 0}, [], 0
    for action, value in plan(steps, slots):
        if action == ADVANCE:
            state, advanced = state + value, advanced + value
        elif action == STORE:
            assert 0 <= value < slots
            kept[value] = state
        elif action == RESTORE:
            state = kept[value]
        elif action == REVERSE:
            assert state == value
            reversed_.append(value)
    assert reversed_ == list(range(steps))[::-1]
    if slots >= 12:
        assert advanced < 3 * steps


def test_memory_is_chosen_and_said():
    sim, *_ = small(nt=5000)
    need = {m: n_bytes(as_strategy(m, sim, 8, 4)[0], sim, 8, 4) for m in ("full", "segmented", "two-level", "binomial")}
    assert list(need.values()) == sorted(need.values(), reverse=True)
    for name, bytes_ in need.items():
        chosen, why = as_strategy("auto", sim, 8, 4, budget=bytes_)
        assert chosen == as_strategy(name, sim, 8, 4)[0]
        assert name in why
        assert "MB" in why
    assert "smallest possible" in as_strategy("auto", sim, 8, 4, budget=1)[1]
    assert as_strategy("auto", small()[0], 8, 4)[0] == Full()
    with pytest.raises(ValueError, match="unknown memory strategy 'segment'.*segmented"):
        as_strategy("segment", sim, 8, 4)
