"""One entrance for every format: what is saved is loaded, and what does not fit is named with bytes and shapes."""

import errno
import io
import os
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from shardfit.domains.seismic.files import load_gathers, load_model, save_gathers, save_model
from shardfit.domains.seismic.gathers import Gathers

TRACES = np.random.default_rng(0).normal(size=(2, 3, 40)).astype(np.float32)
GATHERS = Gathers(TRACES, 0.002, np.array([[10.0, 0], [10, 50]]), np.random.default_rng(1).integers(0, 99, (2, 3, 2)))
MODEL = np.random.default_rng(2).uniform(1500, 4000, (12, 15)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".npz", ".sgy", ".segy"])
def test_gathers_with_positions(tmp_path, suffix):
    if suffix != ".npz":
        pytest.importorskip("segyio")
    file = save_gathers(tmp_path / f"line{suffix}", GATHERS)
    found = load_gathers(file)
    assert np.array_equal(found.traces, TRACES) and found.dt == 0.002
    assert np.array_equal(found.sources, GATHERS.sources)
    assert np.array_equal(found.receivers, GATHERS.receivers)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("suffix", [".npz", ".sgy"])
def test_dead_traces_stay_dead(tmp_path, suffix):
    if suffix == ".sgy":
        pytest.importorskip("segyio")
    live = np.array([[True, False, True], [True, True, True]])
    found = load_gathers(save_gathers(tmp_path / f"line{suffix}", replace(GATHERS, live=live)))
    assert np.array_equal(found.live, live)
    assert found.weights.tolist() == live.astype(float).tolist()
    assert np.array_equal(found.traces[live], TRACES[live])
    assert GATHERS.weights is None


@pytest.mark.parametrize("suffix", [".npz", ".sgy", ".npy"])
def test_a_full_disk_is_named(tmp_path, suffix, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("segy.write_gathers", "np.savez", "np.save"):
        monkeypatch.setattr(f"shardfit.domains.seismic.files.{name}", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/line{suffix}'"):
        save_gathers(tmp_path / f"line{suffix}", GATHERS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("suffix", "options"), [(".npy", {}), (".bin", {"shape": (2, 3, 40)})])
def test_plain_arrays_are_mapped(tmp_path, suffix, options):
    file = save_gathers(tmp_path / f"line{suffix}", GATHERS)
    found = load_gathers(file, dt=0.002, **options)
    assert isinstance(found.traces, np.memmap)
    assert np.array_equal(found.traces, TRACES)
    with pytest.raises(ValueError, match="have no positions"):
        found.cells(10.0)


@pytest.mark.parametrize(
    ("suffix", "options"), [(".npz", {}), (".sgy", {}), (".npy", {}), (".raw", {"shape": (12, 15)})]
)
def test_models(tmp_path, suffix, options):
    if suffix == ".sgy":
        pytest.importorskip("segyio")
    found = load_model(save_model(tmp_path / f"vp{suffix}", MODEL, (5.0, 10.0)), **options)
    assert np.array_equal(found.velocity, MODEL)
    assert found.dh == ((5.0, 10.0) if suffix in (".npz", ".sgy") else None)


def test_big_endian_raw(tmp_path):
    (tmp_path / "vp.bin").write_bytes(MODEL.astype(">f8").tobytes())
    assert np.array_equal(load_model(tmp_path / "vp.bin", shape=(12, 15), dtype=">f8").velocity, MODEL)


def test_cells_follow_origin_and_spacing():
    sources, receivers = GATHERS.cells((5.0, 10.0), origin=(5.0, -20.0))
    assert sources.tolist() == [[1, 2], [1, 7]]
    assert receivers.shape == (2, 3, 2)
    near = Gathers(TRACES, 0.002, np.array([[10.0001, 0.004], [10, 47]]), GATHERS.receivers)
    assert near.cells(10.0)[0].tolist() == [[1, 0], [1, 4.7]]


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("a.txt", {}, "unknown kind of file '.txt'"),
        ("missing.npz", {}, "no such file"),
        ("line.npy", {}, "does not contain its time step"),
        ("line.npz", {"dt": 0.004}, "has dt=0.002 s, but 0.004 s was given"),
        ("line.bin", {"dt": 0.002}, "does not contain its shape"),
        ("line.bin", {"dt": 0.002, "shape": (2, 3, 41)}, "has 960 bytes, but shape .* takes 984"),
        ("line.bin", {"dt": 0.002, "shape": (6, 40)}, "must be .shots, receivers, nt"),
        ("torn.npz", {}, "is damaged, or not an NPZ file"),
        ("torn.npy", {}, "torn.npy"),
        ("other.npz", {}, "no array 'traces' but vp"),
    ],
)
def test_complaints_about_gathers(tmp_path, name, options, complaint):
    for suffix in (".npz", ".npy", ".bin"):
        save_gathers(tmp_path / f"line{suffix}", GATHERS)
    for suffix in (".npz", ".npy"):
        (tmp_path / f"torn{suffix}").write_bytes((tmp_path / f"line{suffix}").read_bytes()[:90])
    np.savez(tmp_path / "other.npz", vp=MODEL)
    with pytest.raises((ValueError, FileNotFoundError), match=complaint) as caught:
        load_gathers(tmp_path / name, **options)
    assert name in str(caught.value) or "(shots" in str(caught.value)


@pytest.mark.parametrize(
    ("velocity", "complaint"),
    [
        (np.where(MODEL[3, 4] == MODEL, np.nan, MODEL), r"not finite at cell \(3, 4\)"),
        (np.where(MODEL[3, 4] == MODEL, 0, MODEL), r"not positive at cell \(3, 4\)"),
        (MODEL / 1000, "km/s times 1000"),
        (MODEL[None, None], r"a model is \(nz, nx\)"),
        (MODEL[:0], "has no cells"),
        (MODEL.astype("S4"), "cannot be read as a model"),
    ],
)
def test_complaints_about_models(tmp_path, velocity, complaint):
    np.save(tmp_path / "vp.npy", velocity)
    with pytest.raises(ValueError, match=complaint):
        load_model(tmp_path / "vp.npy")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    pytest.importorskip("segyio")
    file = save_gathers(tmp_path / "line.sgy", GATHERS)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="needs positions"):
        save_gathers(file, Gathers(TRACES, 0.002))
    assert file.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f4', 'shape': (2, 3", b"{'descr': '<f4', 'fortran_order': False, 'shape': "]
)
def test_a_torn_header_is_named(tmp_path, header):
    """NumPy's parser of headers raises errors of Python's own tokens."""
    text = header.ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(96))
    with pytest.raises(ValueError, match="a.npy") as caught:
        load_gathers(tmp_path / "a.npy", dt=0.002)
    assert type(caught.value) is ValueError


def test_memory_is_not_taken_for_what_a_header_only_claims(tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array(content, np.zeros((2, 3, 4), np.float32))
    header, _, _ = content.getvalue().partition(b"\n")
    claimed = header.replace(b"(2, 3, 4), ", b"(9999999999, 4), ")[: len(header)] + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("traces.npy", claimed)
    with pytest.raises(ValueError, match="a.npz"):
        load_gathers(tmp_path / "a.npz", dt=0.002)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"dt": np.float64(-1)}, "must be positive"),
        ({"sources": np.full((2, 2), np.nan)}, "sources are not finite"),
        ({"sources": np.zeros((1, 2))}, "sources have shape"),
        ({"live": np.array(["a"])}, "a.npz"),
    ],
)
def test_complaints_about_gathers_name_the_file(tmp_path, wrong, complaint):
    arrays = {"traces": np.zeros((2, 3, 40), np.float32), "dt": np.float64(0.002)} | wrong
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=complaint) as caught:
        load_gathers(tmp_path / "a.npz")
    assert "a.npz" in str(caught.value)


def test_spacing_of_a_model_is_checked(tmp_path):
    np.savez(tmp_path / "a.npz", vp=MODEL, dh=np.array([np.nan, 10.0]))
    with pytest.raises(ValueError, match="a.npz: dh = .* is no spacing"):
        load_model(tmp_path / "a.npz")


def test_spacings_by_axis_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", vp=np.full((4, 6), 2000.0), dx=12.5, dz=10.0)
    assert load_model(tmp_path / "a.npz").dh == (10.0, 12.5)
