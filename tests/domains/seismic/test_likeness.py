"""Data that cannot be what is modelled are refused before the first step, with the remedy."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit.domains.seismic import Recording, propagate
from shardfit.domains.seismic.likeness import LEAST_CORRELATION, likeness
from shardfit.domains.seismic.medium import as_medium
from shardfit.domains.seismic.recipes import InversionOptions, invert
from shardfit.domains.seismic.recipes.band import Band
from tests.domains.seismic.lens import survey

NT = 240
QUICK = InversionOptions(epochs=1, batchsize=None, certify=False, engine="jax")


@pytest.fixture(scope="module")
def line():
    sim, start, truth, wavelet, shots, _ = survey(4, NT)
    return sim, start, Recording(shots, wavelet, np.asarray(propagate(sim, truth, wavelet, shots)))


def changed(recording, how):
    data, late = recording.observed, int(round(0.04 / 1e-3))
    late = min(late, data.shape[-1] // 6)
    data = {
        "thousand": 1e3 * data,
        "thousandth": 1e-3 * data,
        "reversed": -data,
        "late": np.concatenate([np.zeros_like(data[..., :late]), data[..., :-late]], -1),
        "noise": np.std(data) * np.random.default_rng(0).standard_normal(data.shape).astype(data.dtype),
    }[how]
    return replace(recording, observed=data)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("thousand", "times the modelled ones.*estimate_source = 'scalar'"),
        ("thousandth", "1/.* of the modelled"),
        ("reversed", "of reversed polarity.*reverse the sign"),
        ("late", r"delayed by \+.*shift the traces"),
        ("noise", "No shift and no change of sign helps"),
    ],
)
def test_data_unlike_the_modelled_are_refused(line, how, words):
    sim, start, recording = line
    with pytest.raises(ValueError, match=f"(?s){words}.*compare=False"):
        invert(sim, start, changed(recording, how), QUICK)


def test_the_rest_goes_on(line):
    sim, start, recording = line
    found = likeness(sim, start, recording)
    assert 0.5 < found.scale < 2 and found.correlation > 2 * LEAST_CORRELATION and found.remedy == ""
    invert(sim, start, changed(recording, "thousand"), replace(QUICK, compare=False))

    def compare(how, **more):
        Band(sim, as_medium(sim, start), changed(recording, how), replace(QUICK, **more)).compare()

    for more in ({"match": "scalar"}, {"loss": "correlation"}, {"loss": "envelope"}):
        compare("thousand", **more)
    compare("reversed", match="scalar")
    with pytest.raises(ValueError, match="of reversed polarity"):
        compare("reversed", loss="correlation", bands=(20.0,))


def test_what_has_no_weight_is_not_compared(line):
    sim, start, recording = line
    data, weights = np.array(recording.observed), np.ones(recording.observed.shape[:2])
    data[:, ::3], weights[:, ::3] = 1e6, 0.0
    plain, weighted = (
        likeness(sim, start, recording),
        likeness(sim, start, Recording(recording.shots, recording.wavelet, data, weights)),
    )
    assert weighted.correlation == pytest.approx(plain.correlation, abs=0.1)
    assert weighted.scale == pytest.approx(plain.scale, rel=0.2)
