"""Figures of self-calibration and of a series of fits."""

import numpy as np
import pytest

from shardfit.domains.vlbi.closures import triangles
from shardfit.domains.vlbi.selfcal import GainTable
from tests.domains.vlbi.arrays import observed

plots = pytest.importorskip("shardfit.domains.vlbi.plots")
pytest.importorskip("matplotlib")


def table(solved):
    rng = np.random.default_rng(0)
    gain = np.where(solved, np.exp(0.1 * rng.normal(size=(5, 3)) + 1j * rng.uniform(-3, 3, (5, 3))), 1.0)
    time, cost = np.arange(5.0), np.ones(5)
    return GainTable(time, time, ("AA", "LM", "PV"), gain, solved, cost, cost, cost > 0)


def test_gains_of_solved_stations():
    solved = np.array([[True, True, False]] * 4 + [[True, False, False]])
    top, low = plots.gains(table(solved)).axes
    lines = [line for line in top.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["AA", "LM"]
    assert [len(line.get_xdata()) for line in lines] == [5, 4]
    assert np.abs(low.lines[0].get_ydata()).max() <= 180
    with pytest.raises(ValueError, match="no station"):
        plots.gains(table(np.zeros((5, 3), bool)))


def test_convergence_of_fits_with_different_weights():
    figure = plots.convergence({"first": [5.0, 3.0, 2.0], "second": [90.0, np.nan, 50.0, 40.0]})
    first, second = figure.axes[0].lines
    assert first.get_ydata().tolist() == [3.0, 1.0]
    assert second.get_ydata().tolist() == [50.0, 10.0]
    assert second.get_xdata().tolist() == [4, 6]
    with pytest.raises(ValueError, match="finite"):
        plots.convergence({"none": [np.nan]})


def test_residuals_that_are_drawn_are_those_of_chi2():
    """Closure amplitudes and amplitudes: the mean of the squares of the lower panel is χ² per measurement."""
    from shardfit.domains.vlbi.recipes.measure import chi2
    from shardfit.domains.vlbi.recipes.simulated import known_image, observe

    obs = observe(known_image("ring", 16), stop_h=3.0, cadence_s=1800.0)
    image = known_image("crescent", 16)
    wanted = chi2(obs, image, ("amp", "logcamp"))
    for name, draw in (("amp", plots.amplitudes), ("logcamp", plots.closure_amplitudes)):
        top, low = draw(obs, image).axes
        residuals = low.lines[-1].get_ydata()
        assert np.mean(residuals**2) == pytest.approx(wanted[name], rel=1e-6)
        assert len(draw(obs).axes) == 1
    with pytest.raises(ValueError, match="no four stations"):
        plots.closure_amplitudes(obs.select(obs.ant1 == 0))


def test_all_triangles_of_another_array_are_drawn():
    seen, _ = observed("vlba15")
    (axes,) = plots.closure_phases(seen).axes
    assert len(axes.lines[0].get_xdata()) == len(triangles(seen))
