"""Bad input is refused by name, before anything is compiled; engines are chosen aloud."""

from dataclasses import astuple, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import (
    ElasticSimulation,
    Native,
    Simulation,
    acquisition,
    build,
    choose_engine,
    engines,
    largest_dt,
    native,
    propagate,
    ricker,
)
from shardfit.domains.seismic.engines import _check_native
from shardfit.domains.seismic.recording import unnamed_map
from tests.domains.seismic.cases import needs_compiler

SIM = Simulation((20, 30), 10.0, 1e-3, 50, 2500.0, 25.0)
SHOTS = acquisition(SIM, [(2, 3)], [(2, 10)])
WAVELET = ricker(25.0, SIM.dt, SIM.nt)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_stability_limit(order):
    sim = replace(SIM, order=order)
    expected = {2: 0.7071, 4: 0.6124, 6: 0.5752, 8: 0.5546}[order]
    assert sim.v_max * largest_dt(sim) / 10 == pytest.approx(expected, abs=2e-4)
    replace(sim, dt=0.999 * largest_dt(sim))
    with pytest.raises(ValueError, match=r"unstable at v_max=2500.*largest stable dt is 0\.00[0-9]+ s"):
        replace(sim, dt=1.001 * largest_dt(sim))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": 5}, "order=5"),
        ({"shape": (8, 30)}, "8 cells along z; order 4 needs over 8"),
        ({"dt": float("nan")}, "dt=nan"),
        ({"nt": 0}, "nt=0"),
        ({"dh": -10.0}, "must be positive"),
        ({"widths": (1, 2, 3)}, "one per edge"),
        ({"widths": (0, 5, -1, 5)}, "left edge is negative"),
        ({"free_surface": True, "widths": (5, 5, 5, 5)}, "no absorbing layer above"),
        ({"scaling": "none"}, "'physical' or 'raw'"),
        ({"shape": (20.7, 30)}, r"shape=\(20.7, 30\) must be whole numbers"),
        ({"widths": 2.5}, "widths=.* must be whole numbers"),
        ({"widths": float("nan")}, "widths=.* must be whole numbers"),
    ],
)
def test_simulation_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SIM, **change)


@pytest.mark.parametrize("name", ["shape", "dh", "dt", "nt", "v_max", "f_peak", "widths"])
@pytest.mark.parametrize("value", ["3", None, True])
def test_what_is_no_number_is_named(name, value):
    with pytest.raises(TypeError, match=f"Simulation: {name}={value!r}"):
        replace(SIM, **{name: value})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"not finite at cell \(3, 4\)"),
        (-1.0, r"not positive at cell \(3, 4\)"),
        (0.0, "not positive"),
        (2600.0, "reaches 2600 m/s, above v_max=2500"),
    ],
)
def test_velocity_is_checked(value, message):
    velocity = np.full(SIM.shape, 2000.0)
    velocity[3, 4] = value
    with pytest.raises(ValueError, match=message):
        propagate(SIM, velocity, WAVELET, SHOTS)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="velocity has shape"):
        propagate(SIM, np.full((30, 20), 2000.0), WAVELET, SHOTS)
    for wrong in (WAVELET[:-1], np.zeros((2, 50)), np.zeros((1, 3, 50))):
        with pytest.raises(ValueError, match="wavelet has shape"):
            propagate(SIM, np.full(SIM.shape, 2000.0), wrong, SHOTS)


def test_dispersion_warns():
    with pytest.warns(UserWarning, match=r"4 cells per wavelength at 25 Hz.*dh below 6\.67 m"):
        propagate(SIM, np.full(SIM.shape, 1000.0), WAVELET, SHOTS, engine="jax")


@pytest.mark.parametrize(
    ("sources", "receivers", "message"),
    [
        ([(2, 3), (2, 30)], [(1, 1)], "sources: shot 1, index 0, axis x: 30 is outside the model.*0 to 29"),
        ([(2, 3)], [(1, 1), (19.5, 2)], "receivers: shot 0, index 1, axis z: 19.5"),
        ([(2, 3)], [(float("nan"), 1)], "receivers: shot 0, index 0, axis z: nan"),
        ([(2, 3)], [[(1, 1)], [(2, 2)]], "1 shots have sources, 2 receivers"),
        ([(2, 3, 4)], [(1, 1)], r"positions are \(z, x\)"),
        ([], [(1, 1)], "sources: there are none"),
    ],
)
def test_positions_are_checked(sources, receivers, message):
    with pytest.raises(ValueError, match=message):
        acquisition(SIM, sources, receivers)


@pytest.mark.parametrize("positions", [3, None, ((1, 2) for _ in range(2)), np.zeros(2, "f4,f4"), np.ones((1, 2)) * 1j])
def test_what_are_no_positions(positions):
    with pytest.raises(TypeError, match="sources: give a list or an array of positions"):
        acquisition(SIM, positions, [(1, 1)])


@pytest.mark.parametrize("what", ["sources", "receivers"])
def test_points_on_a_free_surface_are_refused(what):
    """Pressure is zero there: silence would come out, and nothing could be fitted to it."""
    sim, other = replace(SIM, free_surface=True, widths=20), ElasticSimulation(*astuple(SIM)[:6], free_surface=True)
    points: dict[str, list] = {"sources": [(2, 3)], "receivers": [(2, 10), (3, 11)]}
    points[what][-1] = (0, 11)
    index = len(points[what]) - 1
    with pytest.raises(ValueError, match=f"{what}: shot 0, index {index} is on the free surface.*half a cell"):
        acquisition(sim, **points)
    acquisition(other, **points)  # has velocities there
    points[what][-1] = (0.5, 11)
    shots = acquisition(sim, **points)
    assert np.abs(propagate(sim, np.full(SIM.shape, 2000.0), WAVELET, shots, engine="jax")[0, -1]).max() > 0


@pytest.mark.parametrize("engine", ["jax", "native"])
def test_shots_of_a_larger_grid_are_refused(engine):
    """Their cells are not there: reading them reads other memory."""
    small = replace(SIM, shape=(12, 12), widths=2)
    with pytest.raises(ValueError, match=r"sources: a cell lies outside this simulation's grid \(16, 16\)"):
        propagate(small, np.full((12, 12), 2000.0), WAVELET, acquisition(SIM, [(0, 0)], [(19, 29)]), engine=engine)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, jnp.bfloat16, ">f4", np.longdouble, "f4,f4"])
def test_other_types_of_velocity_are_refused(dtype):
    with pytest.raises(TypeError, match="velocity is .*float32 or float64"):
        propagate(SIM, np.full(SIM.shape, 2000).astype(dtype), WAVELET, SHOTS)


def test_nan_in_a_wavelet_is_refused():
    with pytest.raises(ValueError, match="wavelet holds NaN"):
        propagate(SIM, np.full(SIM.shape, 2000.0), np.where(np.arange(SIM.nt) == 5, np.nan, WAVELET), SHOTS)


@pytest.mark.parametrize("wavelet", [WAVELET + 1j, None, np.zeros(SIM.nt, "f4,f4")])
def test_wavelets_are_real(wavelet):
    with pytest.raises(TypeError, match="wavelet is .*real numbers"):
        propagate(SIM, np.full(SIM.shape, 2000.0), wavelet, SHOTS)


def test_samples_are_whole():
    with pytest.raises(ValueError, match="nt=200.5 must be a whole number"):
        replace(SIM, nt=200.5)
    assert isinstance(replace(SIM, nt=200.0).nt, int)


@pytest.mark.parametrize("receivers", [[[(1, 2)], []], [np.zeros((0, 2)), [(1, 2)]]])
def test_shots_without_receivers_are_named(receivers):
    with pytest.raises(ValueError, match=f"receivers: shot {0 if len(receivers[0]) == 0 else 1} has none"):
        acquisition(SIM, [(1, 2), (3, 4)], receivers)


def test_no_room_names_the_folder(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="no room for .* MB in /.*TMPDIR"):
        unnamed_map((2, 3), np.float32)


def test_ricker_is_checked():
    assert len(ricker(10.0, 0.1 / 3, 3, 0.15)) == 3
    with pytest.raises(ValueError, match="cuts off"):
        ricker(10.0, 1e-3, 100, t0=0.05)
    with pytest.raises(ValueError, match="must be positive"):
        ricker(0.0, 1e-3, 100)


def test_engines_are_chosen_aloud(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing was compiled before
    assert choose_engine("jax", SIM) == ("jax", "jax: as asked")
    with pytest.raises(ValueError, match="unknown engine 'nativ'.*native"):
        choose_engine("nativ", SIM)
    with pytest.raises(ValueError, match="automatic"):
        Native(threads=-1)
    _check_native.cache_clear()
    monkeypatch.setattr(build, "compiler", lambda: None)
    monkeypatch.setattr("shardfit.domains.seismic.native.register", build.library_path)
    chosen, why = choose_engine("auto", SIM)
    assert chosen == "jax"
    assert "no C++ compiler" in why
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler"):
        choose_engine("native", SIM)


@needs_compiler
def test_native_is_preferred_and_checked_inside_a_trace(monkeypatch, tmp_path):
    _check_native.cache_clear()
    monkeypatch.setattr(engines, "_mark", lambda *_: tmp_path / "checked")
    traces = jax.jit(lambda v: propagate(SIM, v, WAVELET, SHOTS, engine="native"))(np.full(SIM.shape, 2000.0))
    assert np.isfinite(traces).all()
    chosen, why = choose_engine("auto", SIM)
    assert isinstance(chosen, Native)
    assert "checked against JAX" in why
    assert (tmp_path / "checked").exists()


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kind", ["acoustic", "elastic"])
@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_kernel_of_every_order_is_right(order, kind):
    native.register(kind, order // 2)
    with jax.enable_x64(True):
        assert engines._difference(kind, order) < 1e-11


@needs_compiler
def test_wrong_kernel_is_refused(monkeypatch, tmp_path):
    _check_native.cache_clear()
    monkeypatch.setattr(engines, "_mark", lambda *_: tmp_path / "checked")
    monkeypatch.setattr(engines, "_difference", lambda *_: 1e-3)
    with pytest.raises(build.BuildError, match="differs from JAX by 1.0e-03"):
        choose_engine("native", SIM)
    assert choose_engine("auto", SIM)[0] == "jax"
    _check_native.cache_clear()


def test_compiler_errors_are_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.BuildError, match="failed to compile"):
        build.library_path("acoustic", 2)
    assert not list(tmp_path.rglob("*.so"))
