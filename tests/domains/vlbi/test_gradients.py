"""Every term and regulariser under every mode, transform and spectrum: autodiff against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.vlbi import penalties, penalties_pol, penalties_spectral
from shardfit.domains.vlbi.problem import imaging_problem
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES
from tests.domains.vlbi.golden import fast_compile_jit
from tests.domains.vlbi.small import GRID, small_data, small_maps

STOKES_I = ("vis", "amp", "logamp", "calvis", *CLOSURES)
LINEAR, CIRCULAR = ("pvis", "m"), ("vvis", "v")
DATA = {"I": STOKES_I, "P": LINEAR, "IP": (*STOKES_I, *LINEAR), "V": CIRCULAR, "IV": (*STOKES_I, *CIRCULAR)}
DATA["IPV"] = (*ALIGNED, *CLOSURES)
POLARISED = {"P": ("msimple", "hw", "ptv"), "V": ("vflux", "l1v", "l2v", "vtv", "vtv2")}
SPECTRA = {"I": ("alpha", "beta"), "P": ("alphap", "betap", "rm")}
# mode, transform, law of the fraction, whether pixels are masked
CASES = {
    "log": ("I", "log", "odds", False),
    "power": ("I", "power", "odds", True),
    "identity": ("I", "identity", "odds", True),
    "IPV": ("IPV", "ball", "odds", True),
    "IPV-polcv": ("IPV", "polcv", "odds", True),
    "P": ("P", "ball", "reference", False),
    "V-ball": ("V", "ball", "odds", True),
    "P-reference": ("P", "mcv", "reference", False),
    "IP": ("IP", "mcv", "odds", False),
    "V": ("V", "vcv", "odds", False),
    "IV": ("IV", "vcv", "reference", True),
}
QUICK = ("power", "identity", "IPV", "P-reference")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def problem(mode, transform, fraction, masked):
    rng = np.random.default_rng(7)
    spectral = [name for key, names in SPECTRA.items() if key in mode for name in names]
    maps = {**small_maps(), **{name: 0.3 * rng.normal(size=GRID.n_pixels) for name in spectral}}
    regs = [*penalties.PENALTIES, "flux_mf"] if "I" in mode else []
    regs = [name for name in regs if transform != "power" or name not in penalties.OF_LOG]
    regs += [name for key, names in POLARISED.items() if key in mode for name in names]
    regs += [name for name in penalties_spectral.NAMES if name.partition("_")[2] in spectral]
    return imaging_problem(
        [small_data(2, 0, -0.1), small_data(3, 1, 0.2)],
        GRID,
        {**maps, "I": np.where(np.arange(24) % 5 == 3, 1e-9, maps["I"])} if masked else maps,
        data_weights=dict.fromkeys(DATA[mode], 1.0),
        reg_weights=dict.fromkeys(regs, 1.0),
        flux=4.0,
        beam=2.0,
        norm_init=False,
        clipfloor=1e-6 if masked else 0.0,
        mode=mode,
        transform=transform,
        spectral=spectral,
        fraction=fraction,
        mf_flux=(3.9, 4.2),
        epsilon_tv=1e-6,
        operator="separable",
        blocks=1,
    )


@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CASES])
def test_every_part_against_finite_differences(case):
    found = problem(*CASES[case])
    direction, offset = jnp.asarray(np.random.default_rng(8).normal(size=(2, found.space.size)))
    z = found.z0() + 0.02 * offset  # away from the prior, where some slopes are zero

    @fast_compile_jit
    def along(step, objective):
        def parts(step):
            return objective.parts(found.space.unpack(z + step * direction))

        return jax.jvp(parts, (step,), (jnp.ones(()),))

    @fast_compile_jit
    def gradient(z, objective):
        return jax.grad(lambda z: objective.value(found.space.unpack(z)))(z)

    h = 1e-5
    (above, _), (_, slopes), (below, _) = (along(jnp.asarray(s), found.objective) for s in (h, 0.0, -h))
    total = 0.0
    for name, slope in slopes.items():
        difference = (above[name] - below[name]) / (2 * h)
        np.testing.assert_allclose(slope, difference, rtol=2e-5, atol=1e-9 * (1 + abs(above[name])), err_msg=name)
        assert name.startswith("offset") or abs(slope) > 0, name
        total += float(slope)
    # all weights are one, so the reverse-mode gradient is the sum of the parts
    np.testing.assert_allclose(gradient(z, found.objective) @ direction, total, rtol=1e-9)


def test_a_dark_pixel_has_a_gradient():
    """At x = 0, which a fit may step on, every part is finite and its slope is zero, as for x -> 0 from either side."""
    found = problem(*CASES["power"])
    z = np.array(found.z0())
    dark = np.flatnonzero(np.asarray(found.space.spread_out(np.arange(z.size))["I"]) >= 0)[:2]
    parts = {}
    for size in (0.0, 1e-9, -1e-9):
        z[dark] = size

        @fast_compile_jit
        def slopes(z, objective):
            return jax.jacrev(lambda z: objective.parts(found.space.unpack(z)))(z)

        for name, slope in slopes(jnp.asarray(z), found.objective).items():
            assert np.isfinite(slope).all(), (name, size)
            assert size or not np.any(np.asarray(slope)[dark]), name
            parts.setdefault(name, []).append(np.asarray(slope))
    for name, (at_zero, *near) in parts.items():
        for slope in near:
            # |x|^0.5 ln|x|, of the entropy, is the slowest to vanish
            np.testing.assert_allclose(slope, at_zero, rtol=1e-3, atol=1e-2 * (1 + np.abs(at_zero).max()), err_msg=name)


def test_every_regulariser_and_product_is_in_a_case():
    data = {name for mode, *_ in CASES.values() for name in DATA[mode]}
    assert data == {*ALIGNED, *CLOSURES}
    assert {name for names in POLARISED.values() for name in names} == set(penalties_pol.PENALTIES)
    solved = {name for names in SPECTRA.values() for name in names}
    assert {n.partition("_")[2] for n in penalties_spectral.NAMES} - solved == {"cm"}  # has no effect on the sky


def test_gradient_where_everything_is_flat():
    """Flat maps, a source at the centre of symmetry and equal channels leave no part without a gradient."""
    flat = {"I": np.full(24, 0.2), "m": np.full(24, 0.3), "phi": np.zeros(24), "v": np.full(24, 0.1)}
    regs = [*penalties.PENALTIES, *penalties_pol.PENALTIES, *penalties_spectral.NAMES]
    found = imaging_problem(
        [small_data(2, 0, 0.0)] * 2,
        GRID,
        flat,
        data_weights=dict.fromkeys((*ALIGNED, *CLOSURES), 1.0),
        reg_weights=dict.fromkeys(regs, 1.0),
        flux=4.8,
        beam=2.0,
        mode="IPV",
        spectral=("alpha", "beta", "alphap", "betap", "rm"),
        operator="separable",
        blocks=1,
    )
    value, gradient = fast_compile_jit(sf.Objective.value_and_grad)(found.objective, found.x0)
    assert np.isfinite(value)
    for name, slope in gradient.items():
        assert np.isfinite(slope).all(), name
