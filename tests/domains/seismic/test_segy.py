"""SEG-Y: what is written is read back, headers mean what the standard says, and damaged files are named as such."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from shardfit.domains.seismic import segy
from shardfit.domains.seismic.gathers import Gathers

segyio = pytest.importorskip("segyio")


def gathers(shots=3, receivers=4, nt=50):
    rng = np.random.default_rng(0)
    sources = np.stack([np.full(shots, 7.5), 12.5 + 100.25 * np.arange(shots)], -1)
    positions = np.stack([rng.uniform(0, 20, (shots, receivers)), rng.uniform(0, 900, (shots, receivers))], -1)
    traces = rng.normal(size=(shots, receivers, nt)).astype(np.float32)
    return Gathers(traces, 0.002, sources, np.round(positions, 3))


@pytest.mark.parametrize(("number_format", "tolerance"), [("ieee", 0), ("ibm", 1e-6)])
def test_round_trip(tmp_path, number_format, tolerance):
    given, file = gathers(), tmp_path / "line.sgy"
    segy.write_gathers(file, given, number_format)
    found = segy.read_gathers(file)
    assert np.allclose(found.traces, given.traces, rtol=tolerance, atol=0)
    assert found.dt == given.dt
    assert np.allclose(found.sources, given.sources, atol=1e-9)
    assert np.allclose(found.receivers, given.receivers, atol=1e-9)


def test_a_file_made_by_hand(tmp_path):
    """Little endian, traces of two shots interleaved, every scalar its own way, a surface above the datum."""
    spec = segyio.spec()
    spec.format, spec.samples, spec.tracecount, spec.endian = 5, np.arange(3), 4, "little"
    file = tmp_path / "odd.segy"
    with segyio.create(str(file), spec) as out:
        out.bin.update(hdt=4000, hns=3)
        for k in range(4):
            shot = k % 2
            out.header[k] = {9: 7 - shot, 69: -10, 71: 10, 73: 5 + shot, 81: 20 + k, 49: 120, 45: 30, 41: -55}
            out.trace[k] = np.full(3, k, np.float32)
    found = segy.read_gathers(file)
    assert found.traces[:, :, 0].tolist() == [[1, 3], [0, 2]]  # field record 6 comes first
    assert found.dt == 0.004
    assert found.sources.tolist() == [[9.0, 60.0], [9.0, 50.0]]
    assert found.receivers[0].tolist() == [[5.5, 210.0], [5.5, 230.0]]


def test_feet_become_metres(tmp_path):
    file = tmp_path / "feet.sgy"
    segy.write_gathers(file, gathers())
    with segyio.open(str(file), "r+", ignore_geometry=True) as out:
        out.bin.update(mfeet=2)
    assert np.allclose(segy.read_gathers(file).sources, 0.3048 * gathers().sources)


def test_grouping_by_another_word(tmp_path):
    file = tmp_path / "line.sgy"
    segy.write_gathers(file, gathers())
    with segyio.open(str(file), "r+", ignore_geometry=True) as out:
        for header in out.header:
            header.update({9: 1})
    with pytest.raises(ValueError, match="source moves within gather 0"):
        segy.read_gathers(file)
    assert segy.read_gathers(file, by=17).traces.shape == (3, 4, 50)


def edited(tmp_path, change):
    file = tmp_path / "line.sgy"
    segy.write_gathers(file, gathers())
    with segyio.open(str(file), "r+", ignore_geometry=True) as out:
        change(out)
    return file


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda out: out.header[0].update({9: 2}), "source moves within gather 1"),
        (lambda out: out.header[2].update({109: 40}), "begins 40 ms after"),
        (lambda out: out.header[1].update({89: 2}), "angles"),
        (lambda out: out.header[1].update({85: 500_000}), "off a straight line .* so this is no 2-D line"),
    ],
)
def test_headers_that_cannot_be_used(tmp_path, change, complaint):
    file = edited(tmp_path, change)
    with pytest.raises(ValueError, match=complaint) as caught:
        segy.read_gathers(file)
    assert "line.sgy" in str(caught.value)


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 155.0])
def test_a_line_at_any_angle_is_projected(tmp_path, caplog, degrees):
    """With receivers up to 4 m off it; distances along it are what they were, from the first source."""
    given, aside = gathers(), np.random.default_rng(2).uniform(-4, 4, 12)
    unit = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])

    def turn(out):
        for k, header in enumerate(out.header):
            here = {73: header[73] / 1e3 * unit, 81: header[81] / 1e3 * unit + aside[k] * np.array([-unit[1], unit[0]])}
            for byte, (x, y) in here.items():
                header.update({byte: round(1e3 * (x + 600_000)), byte + 4: round(1e3 * (y + 900_000))})

    found = segy.read_gathers(edited(tmp_path, turn))
    sign = -1 if degrees > 90 else 1
    for name in ("sources", "receivers"):
        along = sign * (getattr(given, name)[..., 1] - given.sources[0, 1])
        assert np.abs(getattr(found, name)[..., 1] - found.sources[0, 1] - along).max() < 0.1
        assert np.abs(getattr(found, name)[..., 0] - getattr(given, name)[..., 0]).max() < 1e-9
    assert found.sources[0, 1] == pytest.approx(600_000 + given.sources[0, 1] * unit[0], abs=1e-3)
    assert "projected on a straight line" in caplog.text


def test_dead_auxiliary_and_missing_traces(tmp_path, caplog):
    """Of 3 shots with 4 traces each: one dead, two auxiliary, of which one is its shot's first."""

    def change(out):
        for trace, kind in ((1, 2), (4, 9), (11, 4)):
            out.header[trace].update({29: kind})

    given, found = gathers(), segy.read_gathers(edited(tmp_path, change))
    assert found.traces.shape == given.traces.shape
    assert found.live.tolist() == [[True, False, True, True], [True, True, True, False], [True, True, True, False]]
    assert np.array_equal(found.traces[0, 2:], given.traces[0, 2:])
    assert np.array_equal(found.traces[1, :3], given.traces[1, 1:])
    assert np.array_equal(found.receivers[1, :3], given.receivers[1, 1:])
    assert np.array_equal(found.receivers[1, 3], found.receivers[1, 0])
    assert not found.traces[~found.live].any()
    assert "2 auxiliary traces are left out, 1 dead traces, 2 traces fill up short shots" in caplog.text


def test_headers_of_traces_without_data_do_not_matter(tmp_path):
    """Empty positions of dead traces, another start and interval of auxiliary ones, of which one is the first."""

    def change(out):
        for trace in (1, 7):
            out.header[trace].update({29: 2, 73: 0, 81: 0, 77: 9000, 49: 0, 41: 0, 109: 8, 117: 0})
        out.header[0].update({29: 9, 109: 40, 117: 500})
        out.bin.update(hdt=0)

    given, found = gathers(), segy.read_gathers(edited(tmp_path, change))
    assert found.dt == given.dt
    assert found.live.tolist() == [[False, True, True, False], [True, True, True, False], [True] * 4]
    assert np.allclose(found.sources, given.sources)
    assert np.allclose(found.receivers[0, 1:3], given.receivers[0, 2:])
    assert np.allclose(found.receivers[1], given.receivers[1, [0, 1, 2, 0]])
    assert np.allclose(found.receivers[2], given.receivers[2])


def test_a_file_of_dead_traces(tmp_path):
    def change(out):
        for header in out.header:
            header.update({29: 2})

    with pytest.raises(ValueError, match="line.sgy: all traces are marked dead"):
        segy.read_gathers(edited(tmp_path, change))


def test_streamed_into_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(segy, "IN_MEMORY", 100)
    file = edited(tmp_path, lambda out: None)
    found = segy.read_gathers(file)
    assert isinstance(found.traces, np.memmap)
    assert np.array_equal(found.traces, gathers().traces)


def test_conflicting_headers_are_said(tmp_path, caplog):
    file = edited(tmp_path, lambda out: out.header[2].update({117: 4000}))
    assert segy.read_gathers(file).dt == 0.002
    assert "the file header has 2000 µs between samples, trace headers have 2000, 4000" in caplog.text


def test_a_byte_that_begins_no_word(tmp_path):
    with pytest.raises(ValueError, match="no word of a trace header begins at byte 10.*9 \\(field record"):
        segy.read_gathers(edited(tmp_path, lambda out: None), by=10)


def test_no_sample_interval(tmp_path):
    def change(out):
        out.bin.update(hdt=0)
        for header in out.header:
            header.update({117: 0})

    with pytest.raises(ValueError, match="no sample interval"):
        segy.read_gathers(edited(tmp_path, change))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (lambda whole: whole[:2000], "is not SEG-Y: it has 2000 bytes"),
        (lambda whole: whole[:-100], "truncated"),
        (lambda whole: whole[:3224] + struct.pack(">H", 99) + whole[3226:], "format code is 99"),
        (lambda whole: whole[:3220] + b"\0\0" + whole[3222:], "traces of 0 samples"),
    ],
)
def test_damage(tmp_path, content, complaint):
    file = tmp_path / "line.sgy"
    segy.write_gathers(file, gathers())
    file.write_bytes(content(file.read_bytes()))
    with pytest.raises(ValueError, match=complaint):
        segy.read_gathers(file)


@pytest.mark.parametrize("dh", [15.0, (7.5, 12.25), (40.0, 300.0)])
def test_model_round_trip(tmp_path, dh):
    velocity = np.random.default_rng(1).uniform(1500, 4500, (20, 31)).astype(np.float32)
    segy.write_model(tmp_path / "vp.sgy", velocity, dh)
    found, spacing = segy.read_model(tmp_path / "vp.sgy")
    assert np.array_equal(found, velocity)
    assert spacing == tuple(np.broadcast_to(dh, 2))


LONG = {"traces": np.zeros((1, 1, 70_000), np.float32), "sources": np.zeros((1, 2)), "receivers": np.zeros((1, 1, 2))}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"dt": 0.0123456}, "whole microseconds"),
        ({"dt": 0.1}, "whole microseconds"),
        ({"sources": None}, "needs positions"),
        (LONG, "at most 65535 samples"),
    ],
)
def test_what_cannot_be_written(tmp_path, change, complaint):
    with pytest.raises(ValueError, match=complaint):
        segy.write_gathers(tmp_path / "line.sgy", replace(gathers(), **change))
    assert not (tmp_path / "line.sgy").exists()
