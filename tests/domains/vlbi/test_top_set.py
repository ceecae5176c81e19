"""Top Sets: which choices bring known images back, what their images have in common, what counts as a ring."""

import numpy as np
import pytest

from shardfit.domains.vlbi.aligning import shift
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import blank, ring, visibilities
from shardfit.domains.vlbi.joining import join
from shardfit.domains.vlbi.recipes.eht import EHT2017_GAINS
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.recipes.surveys import as_seen, training_data
from shardfit.domains.vlbi.recipes.top_set import (
    Training,
    kind_of,
    least_matches,
    ring_or_none,
    summarise,
    thin_diameter,
)
from shardfit.domains.vlbi.rings import extract_ring
from tests.domains.vlbi.arrays import observed


@pytest.mark.parametrize(
    ("name", "kind"), [("ring", "ring"), ("crescent", "ring"), ("disk", "none"), ("double", "none")]
)
def test_known_images_are_of_their_kind(name, kind):
    assert kind_of(ring_or_none(known_image(name, 32))) == kind


def test_a_ring_that_is_filled_or_no_circle_is_told_apart():
    round_one = known_image("ring", 32)
    x, y = np.meshgrid(round_one.x, round_one.y)
    even = ring(round_one, 1.0, 21 * UAS, 12 * UAS).values["I"]
    inside = 0.7 * even.max() * (np.hypot(x, y) < 18 * UAS)
    assert kind_of(ring_or_none(round_one.replace(values={"I": even}))) == "ring"
    assert kind_of(ring_or_none(round_one.replace(values={"I": np.maximum(even, inside)}))) == "filled"
    away = np.hypot(x / 2.2, y) / (12 * UAS)
    flat = round_one.replace(values={"I": np.exp(-0.5 * ((away - 1) / 0.25) ** 2)})
    assert kind_of(ring_or_none(flat)) == "uneven"


@pytest.mark.parametrize("width", [8.0, 14.0])
def test_a_thin_ring_is_found_behind_its_blur(width):
    """A thin ring of 42 µas, blurred: its peaks move inwards, and the formula takes them back."""
    thin = ring(blank(128, 128 * UAS), 1.0, 21 * UAS, 1.5 * UAS)
    found = extract_ring(thin.blur(width * UAS))
    assert found.diameter / UAS < 42 - 0.01 * width
    assert thin_diameter(found) / UAS == pytest.approx(42, abs=0.6)


def test_mean_and_spread_of_shifted_images():
    truth, rng = known_image("ring", 32), np.random.default_rng(0)
    moved = [shift(truth, dx * UAS, dy * UAS) for dx, dy in ((0, 0), (4, -4), (-8, 4), (4, 8))]
    lumpy = [one.replace(values={"I": one.values["I"] * (1 + 0.01 * rng.normal(size=(32, 32)))}) for one in moved]
    seen = []
    found = summarise(lambda i: lumpy[i], [0, 1, 2, 3], on_image=seen.append)
    assert seen == [1, 2, 3, 4] and found.kinds == {"ring": 4, "filled": 0, "uneven": 0, "none": 0}
    centre = extract_ring(found.mean)
    assert np.hypot(centre.x_rad, centre.y_rad) < 0.5 * truth.pixel_rad  # in the middle
    assert found.ring.diameter / UAS == pytest.approx(42, abs=1.0)
    inside = truth.values["I"] > 0.2 * truth.values["I"].max()
    assert 0.003 < np.median(found.spread.values["I"][inside] / found.mean.values["I"][inside]) < 0.03
    # onto a given image they are shifted to where it is
    again = summarise(lambda i: lumpy[i], [1, 2], to=truth)
    np.testing.assert_allclose(again.mean.values["I"], truth.values["I"], atol=0.05 * truth.values["I"].max())
    with pytest.raises(ValueError, match="no points were chosen"):
        summarise(lambda i: lumpy[i], [])


def test_choices_pass_by_truth():
    one, two, three = (frozenset({("tv", v)}) for v in (1, 2, 3))
    training = Training(
        {"ring": 0.9, "disk": 0.8},
        {one: {"ring": 0.95, "disk": 0.8}, two: {"ring": 0.95, "disk": 0.7}, three: {"ring": 0.99}},
    )
    assert set(training.whole) == {one, two}  # the disk of the third has not been run
    assert training.passed() == {one} and training.passed(["ring"]) == {one, two}


def test_what_is_asked_for_is_what_a_beam_would_show():
    least = least_matches({name: known_image(name, 32) for name in ("ring", "disk")}, 25 * UAS)
    assert 0.7 < least["ring"] < least["disk"] < 1


@pytest.fixture(scope="module")
def obs():
    return observe(known_image("ring", 32), stop_h=3.0, cadence_s=1800.0, gains=0.0, random_phase=False)


def test_what_is_seen_of_one_truth_does_not_depend_on_the_others(obs):
    small = {"npix": 16, "flux": 0.6, "fov_uas": 128.0}
    alone = training_data(obs, ["double"], **small)["double"][0]
    among = training_data(obs, ["ring", "double"], **small)["double"][0]
    np.testing.assert_array_equal(alone.vis["I"], among.vis["I"])


def test_gain_errors_are_those_of_the_stations(obs):
    truth = known_image("double", 32)
    quiet = obs.replace(sigma={"I": np.full(len(obs), 1e-9)})
    sizes = {name: 0.2 if name == "LM" else 0.0 for name in obs.stations.names}
    seen = as_seen(quiet, truth, gains=sizes)
    off = np.abs(np.log(np.abs(seen.vis["I"]) / np.abs(visibilities(truth, obs.u, obs.v)["I"])))
    lm = obs.stations.index("LM")
    of_lm = (obs.ant1 == lm) | (obs.ant2 == lm)
    assert np.median(off[of_lm]) > 0.03 and off[~of_lm].max() < 1e-5
    assert 0.04 < EHT2017_GAINS["AA"] < EHT2017_GAINS["LM"] < 0.15


def test_bands_of_a_day_share_their_gains(obs):
    both = join([obs, obs.replace(freq_hz=obs.freq_hz + 2e9)])
    quiet = both.replace(sigma={"I": np.full(len(both), 1e-9)})
    truth = known_image("double", 32)
    ratio = as_seen(quiet, truth).vis["I"] / visibilities(truth, both.u, both.v)["I"]
    order = np.lexsort((both.time, both.ant2, both.ant1, both.time.round(4)))
    np.testing.assert_allclose(ratio[order][::2], ratio[order][1::2], rtol=1e-5)


def test_truths_are_of_a_size_that_the_array_resolves():
    seen, _ = observed("vlba43")
    for name, (data, truth) in training_data(seen, ("ring", "double"), npix=48).items():
        assert truth.flux == pytest.approx(np.abs(data.vis["I"]).max(), rel=0.3)
        longest = data.uv_distance > 0.5 * data.uv_distance.max()
        assert np.median(np.abs(data.vis["I"][longest])) < 0.4 * truth.flux, name  # a point would have all of it
    ring = extract_ring(training_data(seen, ("ring",), npix=48)["ring"][1])
    assert ring.diameter / seen.nominal_resolution == pytest.approx(42 / 25, rel=0.1)
