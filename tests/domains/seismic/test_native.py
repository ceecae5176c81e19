"""The compiled engine: what must not matter (threads, segments, batching) and what it must leave alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Native, propagate, select
from tests.domains.seismic.cases import fast_compile_jit, needs_compiler, relative, small

pytestmark = needs_compiler


def value_and_gradient(case, settings, dtype=np.float32):
    sim, velocity, wavelet, shots = case

    def energy(v):
        return jnp.sum(propagate(sim, v, wavelet, shots, engine=settings) ** 2)

    return fast_compile_jit(jax.value_and_grad(energy))(velocity.astype(dtype))


def test_threads_do_not_change_a_bit():
    case = small()
    one, two = (value_and_gradient(case, Native(threads=n)) for n in (1, 2))
    assert float(one[0]) == float(two[0])
    assert np.array_equal(one[1], two[1])


@pytest.mark.parametrize("segments", [1, 13, 90])
def test_segments_do_not_change_a_bit(segments):
    """A segment begins with exactly the state that was there."""
    case = small(free_surface=True)
    assert np.array_equal(
        value_and_gradient(case, Native(segments=segments))[1], value_and_gradient(case, Native(segments=4))[1]
    )


def test_vmap_over_shots_and_velocities_is_a_loop():
    sim, velocity, wavelet, shots = small()
    models = jnp.stack([velocity, 0.95 * velocity])

    def traces(v, w, s):
        return propagate(sim, v, w, s, engine="native")

    both = fast_compile_jit(jax.vmap(traces, (0, None, None)))(models, wavelet, shots)
    each = fast_compile_jit(jax.vmap(traces, (None, 0, 0)))(
        velocity, wavelet[:, None], jax.tree.map(lambda x: x[:, None], shots)
    )
    for i in range(2):
        assert relative(both[i], np.asarray(traces(models[i], wavelet, shots))) == 0
        alone = traces(velocity, wavelet[i : i + 1], select(shots, slice(i, i + 1)))
        assert relative(each[i], np.asarray(alone)) == 0


def test_denormals_are_flushed_inside_only():
    """The caller's arithmetic keeps its denormals, while waves too faint to be normal are zero."""
    sim, velocity, wavelet, shots = small()
    faint = fast_compile_jit(lambda w: propagate(sim, velocity.astype(np.float32), w, shots, engine="native"))(
        wavelet.astype(np.float32) * np.float32(1e-37)
    )
    tiny = np.finfo(np.float32).tiny
    found = np.abs(np.asarray(faint))
    assert found.max() > tiny
    assert not ((found > 0) & (found < tiny)).any()
    assert np.float32(tiny) / np.float32(2) > 0


@pytest.mark.parametrize("scaling", ["physical", "raw"])
def test_forward_mode_is_that_of_jax(scaling):
    """Change of the traces with velocity and wavelet, Born modelling, against the JAX engine."""
    sim, velocity, wavelet, shots = small(free_surface=scaling == "raw", scaling=scaling, nt=60)
    rng = np.random.default_rng(0)
    change = jnp.asarray(rng.normal(size=sim.shape)), jnp.asarray(rng.normal(size=wavelet.shape))

    def run(engine):
        traces = lambda v, w: propagate(sim, v, w, shots, engine=engine)  # noqa: E731
        return fast_compile_jit(lambda v, w: jax.jvp(traces, (v, w), change))(velocity, wavelet)

    (found, found_dot), (expected, expected_dot) = run("native"), run("jax")
    assert relative(found, np.asarray(expected)) < 1e-12
    assert relative(found_dot, np.asarray(expected_dot)) < 1e-12


def test_forward_and_reverse_are_transposes_also_when_mapped():
    sim, velocity, wavelet, shots = small(nt=60)
    rng = np.random.default_rng(1)
    changes, bars = jnp.asarray(rng.normal(size=(2, *sim.shape))), jnp.asarray(rng.normal(size=(2, 2, 3, 60)))

    def traces(v):
        return propagate(sim, v, wavelet, shots, engine=Native(threads=2))

    pushed = fast_compile_jit(jax.vmap(lambda c: jax.jvp(traces, (velocity,), (c,))[1]))(changes)
    pulled = fast_compile_jit(jax.vmap(lambda b: jax.vjp(traces, velocity)[1](b)[0]))(bars)
    for i in range(2):
        for j in range(2):
            forward, back = jnp.vdot(pushed[i], bars[j]), jnp.vdot(changes[i], pulled[j])
            assert float(forward) == pytest.approx(float(back), rel=1e-11)


def test_second_derivatives_say_which_engine_has_them():
    sim, velocity, wavelet, shots = small(nt=60)

    def energy(v):
        return jnp.sum(propagate(sim, v, wavelet, shots, engine="native") ** 2)

    with pytest.raises(NotImplementedError, match="first derivatives only.*engine='jax'"):
        jax.grad(lambda v: jnp.sum(jax.grad(energy)(v) ** 2))(velocity)


@pytest.mark.parametrize(
    ("order", "scaling", "free_surface"), [(4, "raw", True), (4, "physical", False), (8, "physical", True)]
)
def test_a_shot_is_shared_by_threads_without_changing_a_bit(order, scaling, free_surface):
    """One thread takes several steps in a walk over the rows, three take one; points between cells span eight rows."""
    sim, velocity, wavelet, shots = small(order, free_surface, scaling, nt=91)
    one = sim, velocity, wavelet[1:], select(shots, slice(1, 2))
    alone, shared = (value_and_gradient(one, Native(threads=n, segments=4)) for n in (1, 3))
    assert float(alone[0]) == float(shared[0])
    assert np.array_equal(alone[1], shared[1])
