"""Figures: the limits, axes and panels that their words promise."""

import numpy as np
import pytest

from shardfit.domains.seismic import Simulation, plots, ricker
from shardfit.domains.seismic.models import faulted_section, smoothed
from shardfit.domains.seismic.snapshots import wavefield
from shardfit.report.style import png_bytes

pytest.importorskip("matplotlib")

TRUE = faulted_section((30, 60), 40.0)
START = smoothed(TRUE, 200.0, 40.0)
NOISE = np.random.default_rng(0).standard_t(2, size=TRUE.shape)


def drawn(axes):
    return axes.images[0]


def test_panels_share_the_limits_of_the_true_model():
    figure = plots.panels({"true": TRUE, "inverted": 2 * START}, 40.0, NOISE)
    true, inverted, gradient = figure.axes[:3]
    assert drawn(true).get_clim() == drawn(inverted).get_clim() == (TRUE.min(), TRUE.max())
    low, high = drawn(gradient).get_clim()
    assert low == -high and high == pytest.approx(np.abs(np.percentile(NOISE, (2, 98))).max())
    assert [axes.get_title("left") for axes in (true, inverted, gradient)] == ["true", "inverted", "gradient"]
    assert gradient.get_xlabel() == "position  (m)" and true.get_ylabel() == "depth  (m)"
    assert drawn(true).get_extent() == [-20, 2380, 1180, -20]


def test_panels_without_gradient():
    figure = plots.panels({"start": START, "epoch 3": TRUE}, (40.0, 20.0))
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles[:2] == ["start", "epoch 3"] and "gradient" not in titles


def test_gather_has_metres_and_seconds():
    traces = np.random.default_rng(1).normal(size=(5, 80))
    axes = plots.gather(traces, 0.002, [400.0, 300, 200, 100, 0]).axes[0]
    assert drawn(axes).get_extent() == [0, 400, 0.16, 0]
    assert np.array_equal(drawn(axes).get_array(), traces[::-1].T)  # by position
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("receiver position  (m)", "time  (s)")
    low, high = drawn(axes).get_clim()
    assert low == -high == -np.abs(np.percentile(traces, (2, 98))).max()


def test_swing_of_silence_is_not_zero():
    assert plots.swing(np.zeros((3, 4))) == 1.0
    rare = np.zeros(1000)
    rare[0] = -3
    assert plots.swing(rare) == 3.0


def test_loss_marks_bands():
    axes = plots.loss([3.0, 2.0, 1.0, 0.5], bands=[(0, "3 Hz"), (2, "all")], error=[9.0, 8, 7, 6]).axes
    assert [text.get_text() for text in axes[0].texts] == ["3 Hz", "all"]
    assert axes[0].lines[0].get_xdata().tolist() == [0, 1, 2, 3]
    assert axes[1].get_ylabel() == "model error  (m/s)"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.wavelet(ricker(5.0, 0.002, 500), 0.002),
        lambda: plots.gather(np.zeros((1, 50)), 0.002, [0.0], title="one receiver"),
        lambda: plots.comparison(NOISE, 0.5 * NOISE, 0.002, np.arange(30)),
        lambda: plots.model(TRUE, 40.0, sources=[(1, 5), (1, 50)], receivers=[(2, x) for x in range(60)], title="vp"),
        lambda: plots.profiles({"true": TRUE, "start": START, "inverted": TRUE}, 40.0),
        lambda: plots.image(NOISE, 40.0, mute=TRUE < 1600),
        lambda: plots.snapshots(np.stack([NOISE] * 3), [0.1, 0.2, 0.3], TRUE, 40.0),
    ],
)
def test_every_figure_draws(draw):
    figure = draw()
    assert len(png_bytes(figure)) > 5000
    labels = [axes.get_xlabel() + axes.get_ylabel() for axes in figure.axes if axes.get_visible()]
    assert any("(m)" in text or "(s)" in text for text in labels)


def test_wavefield_is_what_receivers_hear(tmp_path):
    from PIL import Image

    from shardfit.domains.seismic import acquisition, propagate

    sim = Simulation(TRUE.shape, 40.0, 0.004, 150, 4600.0, 5.0)
    wavelet = ricker(5.0, sim.dt, sim.nt)
    fields, times = wavefield(sim, TRUE, wavelet, (1, 30), frames=5, engine="jax")
    assert fields.shape == (5, 30, 60) and times[-1] == pytest.approx(149 * 0.004)
    heard = propagate(sim, TRUE.astype(np.float32), wavelet, acquisition(sim, [(1, 30)], [(10, 20)]), "jax")
    assert np.allclose(fields[:, 10, 20], heard[0, 0, (times / sim.dt).round().astype(int)], atol=1e-6)
    file = plots.animate(tmp_path / "film.gif", fields, times, TRUE, 40.0)
    with Image.open(file) as film:
        assert film.n_frames == 5


def test_wavefield_of_a_large_grid_is_thinned(monkeypatch):
    from shardfit.domains.seismic import snapshots

    monkeypatch.setattr(snapshots, "MOST", TRUE.size * 20)
    sim = Simulation(TRUE.shape, 40.0, 0.004, 80, 4600.0, 5.0)
    assert wavefield(sim, TRUE, ricker(5.0, sim.dt, sim.nt), (1, 30), 3, "jax")[0].shape == (3, 15, 30)
