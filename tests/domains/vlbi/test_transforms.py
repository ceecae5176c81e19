"""Maps from what a solver moves to the sky, and back; other frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.vlbi import transforms as tr
from tests.domains.vlbi.golden import arrays, relative


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def maps_of(phys):
    intensity, rho, phi, psi = phys
    return {"I": intensity, "m": rho * np.cos(psi), "phi": phi, "v": rho * np.sin(psi)}


# stored solver rows hold what is not solved in the slots of rho (vcv: m) and psi (mcv: v)
SLOTS = {"IP": {"I": 0, "m_share": 1, "phi": 2}, "IV": {"I": 0, "v_share": 3}}
SLOTS["IPV"] = {"I": 0, "rho": 1, "phi": 2, "psi": 3}


@pytest.mark.parametrize(("mode", "name"), [("IP", "mcv"), ("IV", "vcv"), ("IPV", "polcv")])
def test_golden_solver_rows(mode, name):
    z = arrays("sim")
    maps = maps_of(z["phys"])
    solved, kept = tr.start_of(mode, name, maps)
    chosen = tr.transforms_of(solved, "log", scale=1.0)
    stored = z[f"solver_{name}"]
    for key, slot in SLOTS[mode].items():
        expected = np.exp(stored[slot]) if key == "I" and (stored[0] < 0).any() else stored[slot]
        found = solved["I"] if key == "I" else chosen[key].inverse(solved[key])
        assert relative(found, expected) < 1e-10
        assert relative(chosen[key].forward(chosen[key].inverse(solved[key])), solved[key]) < 1e-13
    back = tr.physical(solved, kept)
    for key in maps:
        assert relative(back[key], maps[key]) < 1e-13


@pytest.mark.parametrize("mode", list(tr.POLARISED))
def test_ball_gives_the_maps_back_and_stays_physical(mode):
    maps = maps_of(arrays("sim")["phys"])
    solved, kept = tr.start_of(mode, "ball", maps)
    assert set(solved) == set(tr.solved_maps(mode, "ball"))
    assert tr.mode_of(solved) == (mode, "ball")
    back = tr.physical(solved, kept)
    for name in ("I", "Q", "U", "V"):
        assert relative(tr.stokes(back, (name,))[0], tr.stokes(maps, (name,))[0]) < 1e-13
    far = tr.physical({k: v if k == "I" else 1e3 * v for k, v in solved.items()}, kept)
    q, u, v = tr.stokes({**far, "I": jnp.ones_like(maps["I"])}, tuple("QUV"))
    assert (q**2 + u**2 + v**2 <= 1 + 1e-12).all()


def test_ball_without_polarisation_has_a_slope():
    n = 3
    params, kept = tr.start_of("IPV", "ball", {"I": np.ones(n)})
    assert not kept
    slopes = jax.grad(lambda p: jnp.sum(tr.stokes(tr.physical(p, kept), ("Q", "U", "V"))))(params)
    for name in ("zq", "zu", "zv"):
        np.testing.assert_allclose(slopes[name], 1.0)
    whole = {"I": np.ones(n), "m": np.full(n, 1.0)}
    assert np.isfinite(tr.start_of("P", "ball", whole)[0]["zq"]).all()


def test_ball_at_another_frequency():
    rng = np.random.default_rng(0)
    maps = {"I": rng.uniform(1, 2, 4), "m": rng.uniform(0, 0.5, 4), "phi": rng.normal(size=4), "v": np.full(4, 0.1)}
    maps |= {name: rng.normal(size=4) for name in ("alpha", "alphap", "rm")}
    params, kept = tr.start_of("IPV", "ball", maps)
    spectral = {name: maps[name] for name in ("alpha", "alphap", "rm")}
    one, two = (tr.at_frequency(m, 0.3) for m in (maps, {**tr.physical(params, kept), **spectral}))
    for name in "IQUV":
        np.testing.assert_allclose(tr.stokes(two, (name,)), tr.stokes(one, (name,)), rtol=1e-12)


@pytest.mark.parametrize("transform", [tr.UnitFraction(), tr.SignedFraction(), tr.Angle()])
def test_transforms_invert(transform):
    z = jnp.linspace(-3, 3, 13)
    np.testing.assert_allclose(transform.inverse(transform.forward(z)), z, atol=1e-12)


def test_power_inverts_and_has_a_slope_at_zero():
    power = tr.Power(2.0)
    x = jnp.array([0.0, 1e-12, 0.5, 1.0, 30.0])
    np.testing.assert_allclose(power.inverse(power.forward(x)), x, rtol=1e-14)
    np.testing.assert_allclose(power.forward(-x), power.forward(x))
    assert np.isnan(power.inverse(jnp.array(-1.0)))
    h = 1e-6
    for at in (0.0, -0.7, 0.3, 4.0):
        slope, difference = jax.grad(power.forward)(at), (power.forward(at + h) - power.forward(at - h)) / (2 * h)
        np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-12)


def test_power_stretches_volume_as_it_says():
    """The law of x that follows from a flat one of the brightness brings the brightness back when added up."""
    power = tr.Power(0.5)
    x = jnp.linspace(0, 2, 20001)[1:]
    np.testing.assert_allclose(jnp.exp(power.log_det(x)), jax.vmap(jax.grad(power.forward))(x), rtol=1e-12)
    np.testing.assert_allclose(power.log_det(-x), power.log_det(x))
    np.testing.assert_allclose(jnp.sum(jnp.exp(power.log_det(x))) * 1e-4, power.forward(2.0), rtol=1e-3)


@pytest.mark.parametrize(("mode", "name"), [("I", "mcv"), ("IP", "log"), ("V", "mcv"), ("IQUV", "vcv")])
def test_wrong_transform_is_refused(mode, name):
    with pytest.raises(ValueError, match="needs transform"):
        tr.check_mode(mode, name)


def test_modes():
    assert tr.check_mode("IQUV", "polcv") == "IPV"
    assert tr.check_mode("I", "identity") == "I"
    with pytest.raises(ValueError, match="Did you mean 'IQUV'"):
        tr.check_mode("IQUVX", "polcv")


def test_unpolarised_pixels_have_a_gradient():
    """A fraction of zero, and nothing but circular polarisation."""
    n = 4
    maps = {"I": np.ones(n), "m": np.zeros(n), "phi": np.zeros(n), "v": np.array([0, 0.5, -0.5, 0.0])}
    spectral = {"alphap": np.ones(n), "betap": np.ones(n)}

    def value(m, kept):
        moved = tr.at_frequency({**maps, **kept, "m": m}, 0.1)
        return jnp.sum(tr.stokes(moved, ("Q", "V")))

    assert np.isfinite(jax.grad(value)(maps["m"], spectral)).all()


def test_fraction_at_the_reference_frequency():
    maps = {"I": jnp.ones(2), "m": jnp.array([0.3, 0.6]), "phi": jnp.zeros(2), "v": jnp.array([0.1, 0.2])}
    maps |= {"alphap": jnp.array([0.4, -0.4]), "rm": jnp.ones(2), "alpha": jnp.ones(2), "beta": jnp.ones(2)}
    here = tr.at_frequency(maps, 0.0)
    for key in ("I", "m", "v", "phi"):
        np.testing.assert_allclose(here[key], maps[key], rtol=1e-14, atol=1e-15)
    rho = jnp.hypot(maps["m"], maps["v"])
    reference = tr.at_frequency(maps, 0.0, "reference")
    np.testing.assert_allclose(jnp.hypot(reference["m"], reference["v"]), rho / (1 + rho), rtol=1e-14)
    far = tr.at_frequency(maps, 5.0)
    assert (jnp.hypot(far["m"], far["v"]) < 1).all()
    np.testing.assert_allclose(tr.at_frequency(maps, 0.2)["I"], np.exp(0.2 + 0.04))
    with pytest.raises(ValueError, match="Did you mean 'odds'"):
        tr.at_frequency(maps, 0.0, "odd")
