"""Functions that a model calls on the host run in the model's precision, in whatever thread XLA calls them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import residual_term
from shardfit.fitting import fit

X = np.linspace(0.0, 2.0, 40)
Y = np.sin(0.7 * X)
seen = []


def host_sine(x):
    seen.append(x.dtype)
    return np.sin(x)


def sine_on_host(x):
    return jax.pure_callback(host_sine, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


forward = jax.custom_jvp(sine_on_host)
forward.defjvp(lambda primals, tangents: (sine_on_host(*primals), jnp.cos(primals[0]) * tangents[0]))
backward = jax.custom_vjp(sine_on_host)
backward.defvjp(lambda x: (sine_on_host(x), x), lambda x, cotangent: (cotangent * jnp.cos(x),))


def seen_by_debugging(x):
    jax.debug.callback(lambda x: seen.append(x.dtype), x)
    return jnp.sin(x)


SINES = {"custom_jvp": forward, "custom_vjp": backward, "debug": seen_by_debugging}


def problem(sine, precision="float64"):
    rows = {"x": X, "y": Y}
    term = residual_term(lambda p, rows: sine(p["a"] * rows["x"]) - rows["y"], rows)
    return Problem(Objective({"sine": term}), {"a": 0.5}, bounds={"a": (0.0, 2.0)}, precision=precision)


@pytest.fixture(autouse=True)
def nothing_seen_yet():
    seen.clear()
    yield
    jax.effects_barrier()


@pytest.mark.parametrize(
    ("sine", "solver", "devices"),
    [("custom_jvp", "lm", 1), ("custom_jvp", "lbfgsb", 2), ("custom_vjp", "lm", 2), ("debug", "lm", 1)],
)
def test_a_model_that_calls_the_host_is_fitted_in_float64(sine, solver, devices):
    layout = mesh(rows=devices) if devices > 1 else None
    result = fit(problem(SINES[sine]), solver, mesh=layout)
    jax.effects_barrier()
    assert result.success and result.params["a"] == pytest.approx(0.7, abs=1e-7)
    assert set(seen) == {np.dtype(np.float64)}
    assert not jax.config.jax_enable_x64


def test_in_float32_the_host_is_given_float32():
    result = fit(problem(forward, "float32"), "lm", certify=False)
    assert result.params["a"] == pytest.approx(0.7, abs=1e-4)
    assert set(seen) == {np.dtype(np.float32)}


def test_a_program_of_the_callers_own_gets_what_it_was_compiled_for():
    """Also where it first runs while another precision holds."""
    twice = jax.jit(sine_on_host)
    twice.lower(jnp.ones(3)).compile()
    with arithmetic("float64"):
        assert twice(jnp.ones(3, jnp.float32)).dtype == np.float32
        assert twice(jnp.ones(3)).dtype == np.float64
    assert twice(jnp.ones(3)).dtype == np.float32
    assert [dtype.name for dtype in seen] == ["float32", "float64", "float32"]


def test_the_error_of_a_callback_without_derivatives_says_what_to_do():
    def model(x):
        io_callback(lambda x: None, None, x)
        return jnp.sin(x)

    with pytest.raises(ValueError, match="do not support JVP") as caught:
        fit(problem(model), "lm")
    note = caught.value.__notes__[0]
    assert "'sine'" in note and "stop_gradient" in note and "custom_jvp" in note

    def told(x):
        io_callback(lambda x: seen.append(x.dtype), None, jax.lax.stop_gradient(x))
        return jnp.sin(x)

    assert fit(problem(told), "lm").success
    jax.effects_barrier()
    assert set(seen) == {np.dtype(np.float64)}
