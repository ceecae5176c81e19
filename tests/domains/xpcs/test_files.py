"""Files: every layout gives the expected arrays; damaged or hostile files give clear errors."""

import random

import numpy as np
import pytest

from benchmarks.reliability.mutation import mutated
from shardfit.domains.xpcs import Binned, from_xarray, read, write
from tests.domains.xpcs.cases import FOLDER, small

h5py = pytest.importorskip("h5py")
FIXTURES = ("fixture_aps_u", "fixture_aps_u_partial", "fixture_aps_legacy")


@pytest.mark.parametrize("name", FIXTURES)
def test_reference_files(name):
    with np.load(FOLDER / f"{name}_expected.npz") as expected:
        frames = int(expected["start_frame"]), int(expected["end_frame"])
        data = read(FOLDER / f"{name}.h5", q=float(expected["requested_q"]), dt=float(expected["dt"]), frames=frames)
        assert np.max(np.abs(data.c2 - expected["c2_exp"])) < 1e-12
        assert np.array_equal(data.phi, expected["phi_angles_list"]) and np.allclose(data.t, expected["t1"])
        assert np.array_equal(data.q, expected["wavevector_q_list"])


def test_npz_there_and_back(tmp_path):
    data = small()
    again = read(write(tmp_path / "a.npz", data), gap=2e6)
    assert np.array_equal(again.c2, data.c2) and np.array_equal(again.phi, data.phi) and again.gap == 2e6
    assert np.isclose(again.dt, data.dt) and again.sigma == data.sigma
    with pytest.raises(ValueError, match="ends in .npz"):
        write(tmp_path / "a.h5", data)


def test_npy_needs_q_and_dt(tmp_path):
    np.save(tmp_path / "a.npy", small().c2[0])
    assert read(tmp_path / "a.npy", q=0.01, dt=1.0).c2.shape == (1, 24, 24)
    with pytest.raises(ValueError, match="Say q"):
        read(tmp_path / "a.npy")


def test_frames_at_unequal_times_are_refused(tmp_path):
    data = small()
    arrays = {"c2_exp": data.c2, "t2": data.t, "phi_angles_list": data.phi, "wavevector_q_list": data.q}
    np.savez(tmp_path / "a.npz", t1=data.t**1.2, **arrays)
    with pytest.raises(ValueError, match="equal steps"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", t1=np.meshgrid(data.t, data.t, indexing="ij")[0], **arrays)
    assert np.isclose(read(tmp_path / "b.npz").dt, data.dt)


def test_what_differs_from_the_file_is_noted(tmp_path):
    path = write(tmp_path / "a.npz", small())
    stored = read(path)
    assert read(path, q=stored.q[0] * 1.01, dt=stored.dt).notes == ()
    notes = read(path, q=stored.q[0] * 1.3, dt=2 * stored.dt).notes
    assert f"the file says {stored.dt:g} s" in notes[0] and "the nearest in the file" in notes[1]
    with pytest.raises(ValueError, match="a q in 1/nm is ten times as large"):
        read(path, q=10 * stored.q[0])


@pytest.mark.parametrize("mode", ["one_array_q_first", "one_array_q_last", "data_exchange_keys"])
@pytest.mark.parametrize("half", [False, True])
def test_nexus(tmp_path, mode, half):
    data = small(phi=(0.0, 30.0))
    c2 = np.triu(data.c2) if half else data.c2
    with h5py.File(tmp_path / "a.nxs", "w") as file:
        twotime, masks = file.create_group("entry/twotime"), file.create_group("entry/instrument/masks")
        if mode == "data_exchange_keys":
            group = twotime.create_group("two_time_corr_func")
            for k, matrix in enumerate(c2):
                group[f"{k + 1:05d}"] = matrix
        else:
            stored = np.moveaxis(c2, 0, -1) if mode == "one_array_q_last" else c2
            group = twotime.create_dataset("two_time_corr_func", data=stored)
        group.attrs["storage_mode"] = mode
        masks["dynamic_q_list"] = [0.05, 0.05]
        masks["dynamic_q_list"].attrs["units"] = "1/nm"
        masks["dynamic_phi_list"] = [0.0, 30.0]
        file["entry/instrument/detector/frame_time"] = 0.1
    found = read(tmp_path / "a.nxs", diagonal="keep")
    assert np.allclose(found.c2, data.c2) and np.allclose(found.q, 0.005) and found.dt == 0.1
    assert found.phi.tolist() == [0.0, 30.0]


LEFT_OUT = [("all", 0.0), ("upper_half", 0.0), ("lower_half", np.nan)]


@pytest.mark.parametrize("mode", ["one_array_q_first", "data_exchange_keys"])
@pytest.mark.parametrize("origin", ["upper_left", "lower_left"])
@pytest.mark.parametrize(
    ("half", "empty", "said"),
    [*((*each, said) for each in LEFT_OUT for said in (True, False)), ("upper_half", 1.0, True)],
)
def test_nexus_origins_and_halves(tmp_path, mode, origin, half, empty, said):
    """Matrices as stored: rows from the origin's end, what is above or below the diagonal of frames left out."""
    data, n = small(phi=(0.0, 30.0)), 24
    stored = data.c2[:, ::-1] if origin == "lower_left" else data.c2
    row, column = np.mgrid[:n, :n]
    edge = n - 1 - row if origin == "lower_left" else row  # the column at which a row meets the diagonal
    above = (column > edge) if origin == "upper_left" else (column < edge)
    below = (column < edge) if origin == "upper_left" else (column > edge)
    left_out = {"all": np.zeros_like(above), "upper_half": below, "lower_half": above}[half]
    stored = np.where(left_out, empty, stored)
    address = "entry/twotime/two_time_corr_func"
    with h5py.File(tmp_path / "a.nxs", "w") as file:
        if mode == "data_exchange_keys":
            for k, matrix in enumerate(stored):
                file[f"{address}/{k + 1:05d}"] = matrix
        else:
            file[address] = stored
        attributes = {"storage_mode": mode} | (
            {"time_origin_location": origin, "populated_elements": half} if said else {}
        )
        file[address].attrs.update(attributes)
        file["entry/instrument/masks/dynamic_q_list"] = [0.005, 0.005]
        file["entry/instrument/detector/frame_time"] = 0.1
    assert np.allclose(read(tmp_path / "a.nxs", diagonal="keep").c2, data.c2)


def nexus(path, time_units, q_units):
    with h5py.File(path, "w") as file:
        file["entry/twotime/two_time_corr_func"] = small(phi=(0.0,)).c2
        file["entry/instrument/masks/dynamic_q_list"] = [0.005]
        file["entry/instrument/masks/dynamic_q_list"].attrs["units"] = q_units
        file["entry/instrument/detector/frame_time"] = 250.0
        file["entry/instrument/detector/frame_time"].attrs["units"] = time_units
    return path


@pytest.mark.parametrize(("units", "dt"), [("s", 250.0), ("ms", 0.25), ("us", 2.5e-4), ("\u03bcs", 2.5e-4)])
def test_units_of_the_frame_time(tmp_path, units, dt):
    assert np.isclose(read(nexus(tmp_path / "a.nxs", units, "1/angstrom")).dt, dt)


def test_unknown_units(tmp_path):
    with pytest.raises(ValueError, match="does not say the time"):
        read(nexus(tmp_path / "a.nxs", "fortnights", "Å^-1"))
    with pytest.raises(ValueError, match="'1/furlong', which is not known"):
        read(nexus(tmp_path / "b.nxs", "s", "1/furlong"))


def esrf(path, analyses=("full",), **changes):
    """A result file of ESRF ID02: ttcf (bin, age, lag), q in 1/nm; NaN fill a lag that is too long."""
    lag, age = np.array([0.0, 0.1, 0.2, 0.4, np.nan]), np.array([0.5, 1.0, 1.5])
    ttcf = 1 + 0.1 * np.exp(-np.nan_to_num(lag)) * np.ones((2, 3, 1))
    content = {"twotime/lag": lag, "twotime/age": age, "twotime/ttcf": ttcf, "parameters/q": [0.05, 0.1]} | changes
    with h5py.File(path, "w") as file:
        file.attrs["MagicString"] = "XPCSResultFile_v2.0"
        for key in analyses:
            for name, value in content.items():
                file[f"entry_0000/correlations/{key}/{name}"] = value
    return path


def test_esrf(tmp_path):
    data = read(esrf(tmp_path / "a.h5"), q=0.0101)
    assert isinstance(data, Binned) and data.c2.shape == (1, 9) and np.allclose(data.q, 0.01) and data.phi == [0.0]
    assert np.isclose(data.dt, 0.1) and np.allclose(data.lag, np.tile([0.1, 0.2, 0.4], 3))
    assert np.allclose(data.dt * 0.5 * (data.first + data.second)[:, 0], np.repeat([0.5, 1.0, 1.5], 3))
    assert np.allclose(data.c2[0], 1 + 0.1 * np.exp(-data.lag))
    two = esrf(tmp_path / "b.h5", ("early", "late"))
    assert read(two, q=0.01, analysis="late").c2.shape == (1, 9)
    with pytest.raises(ValueError, match="early, late"):
        read(two, q=0.01)
    with pytest.raises(ValueError, match="3 ages × 5 lags"):
        read(esrf(tmp_path / "c.h5", **{"twotime/ttcf": np.ones((2, 5, 3))}), q=0.01)


def test_aps_multi_tau(tmp_path):
    g2, error = 1 + 0.2 * np.random.default_rng(0).random((3, 4)), np.full((3, 4), 0.01)
    error[1, 2] = 0.0  # no estimate
    content = {
        "xpcs/multitau/delay_list": [1, 2, 8],
        "xpcs/multitau/normalized_g2": g2,
        "xpcs/multitau/normalized_g2_err": error,
        "xpcs/qmap/dynamic_v_list_dim0": [0.004, 0.008],
        "xpcs/qmap/dynamic_v_list_dim1": [0.0, 90.0],
        "entry/instrument/detector_1/frame_time": [[0.5]],
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, value in content.items():
            file[name] = value
    data = read(tmp_path / "a.h5", q=0.008)
    assert isinstance(data, Binned) and data.dt == 0.5 and data.phi.tolist() == [0.0, 90.0]
    assert np.allclose(data.lag, [0.5, 1.0, 4.0]) and np.allclose(data.c2[1], g2[:, 3]) and np.isnan(data.c2[0, 1])
    assert "length the file does not say" in data.notes[0]


CELLS = [(q, phi) for q in (0.004, 0.006, 0.008) for phi in (-90.0, -30.0, 30.0, 90.0)]


def beamstop(path, kind, seen, changes=()):
    """A file of 3 q and 4 phi as its writer makes it: bins are numbered through the cells that have pixels."""
    content = {
        "xpcs/qmap/dynamic_v_list_dim0": [0.004, 0.006, 0.008],
        "xpcs/qmap/dynamic_v_list_dim1": [-90.0, -30.0, 30.0, 90.0],
        "xpcs/qmap/dynamic_index_mapping": seen,
        "xpcs/qmap/map_names": [b"q", b"phi"],
        "entry/instrument/detector_1/frame_time": [[0.001]],
        f"xpcs/{kind}/config/stride_frame": 5,
        f"xpcs/{kind}/config/avg_frame": 2,
    }
    marks = np.array([1.2 + 0.01 * cell for cell in seen])  # which cell a correlation is of
    if kind == "twotime":
        content["xpcs/twotime/processed_bins"] = np.arange(len(seen)) + 1
        for k, mark in enumerate(marks):
            content[f"xpcs/twotime/correlation_map/c2_{k + 1:05d}"] = np.triu(np.full((6, 6), mark))
    else:
        content["xpcs/multitau/delay_list"] = [1, 2, 8]
        content["xpcs/multitau/normalized_g2"] = np.tile(marks, (3, 1))
        content["xpcs/multitau/normalized_g2_err"] = np.full((3, len(seen)), 0.01)
    with h5py.File(path, "w") as file:
        for name, value in {**content, **dict(changes)}.items():
            file[name] = value
    return path


@pytest.mark.parametrize("kind", ["twotime", "multitau"])
@pytest.mark.parametrize("hidden", [(), (0, 5), (4, 5, 6), (11,), (0, 1, 2, 3)])
def test_bins_without_pixels_have_no_number(tmp_path, kind, hidden):
    seen = [cell for cell in range(12) if cell not in hidden]
    path = beamstop(tmp_path / "a.h5", kind, seen)
    for q in {CELLS[cell][0] for cell in seen}:
        data, of_q = read(path, q=q), [cell for cell in seen if CELLS[cell][0] == q]
        assert np.allclose(data.q, q) and data.phi.tolist() == [CELLS[cell][1] for cell in of_q]
        assert np.allclose(data.c2.reshape(len(of_q), -1)[:, 1], [1.2 + 0.01 * cell for cell in of_q])
        assert np.isclose(data.dt, 0.01)  # one of five frames, after two are averaged
    assert "the file says 0.01 s" in " ".join(read(path, q=0.008, dt=0.001).notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"xpcs/qmap/dynamic_index_mapping": [0, 0, 1]}, "a cell of its own"),
        ({"xpcs/qmap/dynamic_index_mapping": [0, 1, 12]}, "from 0 to 11"),
        ({"xpcs/qmap/dynamic_index_mapping": [0, 1, 1.5]}, "from 0 to 11"),
        ({"xpcs/twotime/config/stride_frame": 0}, "not a number of frames"),
        ({"xpcs/qmap/map_names": [b"x", b"y"]}, "a map of x and y"),
    ],
)
def test_maps_and_strides_that_cannot_be(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read(beamstop(tmp_path / "a.h5", "twotime", [0, 1, 2], changes), q=0.004)


def test_xarray():
    xarray = pytest.importorskip("xarray")
    data = small(phi=(0.0, 30.0))
    array = xarray.DataArray(data.c2, dims=("bin", "t1", "t2"), coords={"t1": data.t, "phi": ("bin", data.phi)})
    found = from_xarray(array, q=0.0054, gap=2e6)
    assert np.array_equal(found.c2, data.c2) and np.isclose(found.dt, data.dt) and found.phi.tolist() == [0.0, 30.0]
    whole = xarray.Dataset({"c2": array, "sigma": 0.02}, attrs={"q": 0.004})
    assert from_xarray(whole).sigma == 0.02 and np.allclose(from_xarray(whole).q, 0.004)
    in_ms = array.assign_coords(t1=(1000 * data.t).round().astype("timedelta64[ms]"))
    assert np.isclose(from_xarray(in_ms, q=0.004).dt, data.dt)
    with pytest.raises(ValueError, match="equal steps"):
        from_xarray(array.assign_coords(t1=data.t**1.2), q=0.004)
    with pytest.raises(ValueError, match="Give q"):
        from_xarray(array)
    with pytest.raises(ValueError, match="Give dt"):
        from_xarray(array.drop_vars("t1"), q=0.004)


def aps_u(path, **changes):
    content = {
        "xpcs/qmap/dynamic_v_list_dim0": [0.005],
        "xpcs/qmap/dynamic_v_list_dim1": [0.0, 10.0],
        "xpcs/twotime/processed_bins": [1, 2],
        "xpcs/twotime/correlation_map/c2_00001": np.triu(np.ones((6, 6))),
        "xpcs/twotime/correlation_map/c2_00002": np.triu(np.ones((6, 6))),
    }
    with h5py.File(path, "w") as file:
        for name, value in {**content, **changes}.items():
            if value is not None:
                file[name] = value
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"xpcs/twotime/processed_bins": [1, 9]}, "whole numbers from 1 to 2"),
        ({"xpcs/twotime/processed_bins": [1]}, "2 matrices for 1 processed bins"),
        ({"xpcs/twotime/processed_bins": None}, "processed_bins is missing"),
        ({"xpcs/qmap/dynamic_v_list_dim0": [np.nan]}, "not positive numbers"),
        ({"xpcs/qmap/dynamic_v_list_dim0": [b"a"]}, "not real numbers"),
        ({"xpcs/twotime/correlation_map/c2_00002": np.ones((6, 5))}, "has shape"),
        ({"xpcs/twotime/correlation_map/c2_00002": np.ones(5)}, "axes are needed"),
    ],
)
def test_wrong_content_is_named(tmp_path, changes, message):
    assert read(aps_u(tmp_path / "good.h5"), dt=0.1).c2.shape == (2, 6, 6)
    with pytest.raises(ValueError, match=message):
        read(aps_u(tmp_path / "a.h5", **changes), dt=0.1)


def test_matrices_are_in_the_order_of_their_numbers(tmp_path):
    count, folder = 11, "xpcs/twotime/correlation_map"
    angles = np.arange(count) * 10.0
    changes = {f"{folder}/c2_0000{k}": None for k in (1, 2)}
    changes |= {f"{folder}/c2_{k + 1}": np.full((6, 6), 1 + angles[k]) for k in range(count)}
    changes |= {"xpcs/qmap/dynamic_v_list_dim1": angles, "xpcs/twotime/processed_bins": np.arange(count) + 1}
    data = read(aps_u(tmp_path / "a.h5", **changes), dt=0.1)
    assert np.array_equal(data.c2[:, 0, 0], 1 + data.phi) and np.array_equal(data.phi, angles)


def test_links_into_other_files_are_not_followed(tmp_path):
    aps_u(tmp_path / "other.h5")
    inside = "xpcs/twotime/correlation_map/c2_00002"
    path = aps_u(tmp_path / "a.h5", **{inside: h5py.ExternalLink("other.h5", inside)})
    with pytest.raises(ValueError, match="link into another file"):
        read(path, dt=0.1)


def test_sizes_are_looked_at_before_numbers(tmp_path):
    with h5py.File(aps_u(tmp_path / "a.h5"), "a") as file:
        del file["xpcs/twotime/correlation_map/c2_00001"]
        file.create_dataset("xpcs/twotime/correlation_map/c2_00001", (40_000, 40_000), "f8", chunks=(100, 100))
    with pytest.raises(ValueError, match="at most"):
        read(tmp_path / "a.h5", dt=0.1)


def test_unknown_files_say_what_they_hold(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["somewhere/else"] = 1.0
    with pytest.raises(ValueError, match="at its top are somewhere"):
        read(tmp_path / "a.h5")
    (tmp_path / "b.h5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read as an HDF5 file"):
        read(tmp_path / "b.h5")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "c.h5")


def sources(tmp_path):
    """One small file of every kind."""
    write(tmp_path / "good.npz", small(n_frames=8))
    np.save(tmp_path / "good.npy", small(n_frames=8).c2)
    esrf(tmp_path / "esrf.h5")
    made = [tmp_path / name for name in ("good.npz", "good.npy", "esrf.h5")]
    return [FOLDER / "fixture_aps_u_partial.h5", FOLDER / "fixture_aps_legacy.h5", *made]


def fuzz(tmp_path, count, seed):
    rng, path = random.Random(seed), tmp_path / "damaged"
    files = [file.read_bytes() for file in sources(tmp_path)]
    refused = 0
    for k in range(count):
        content = files[k % len(files)]
        for _ in range(rng.randint(1, 6)):
            # headers and addresses stand in front: there damage does most
            cut = rng.choice((len(content), 8192, 2048))
            content = mutated(content[:cut], rng) + content[cut:]
        path.write_bytes(content)
        try:
            read(path, q=0.0054, dt=0.1)
        except (ValueError, TypeError) as error:
            refused += 1
            assert len(str(error)) > 20
    assert refused > 0.1 * count


def test_damaged_files_give_clear_errors(tmp_path):
    fuzz(tmp_path, 60, seed=0)


@pytest.mark.parametrize("shape", ["(4611686018427387904, 3)", "(-1, 8)", "(1000, 8)"])
def test_shapes_that_a_file_does_not_hold_are_refused_before_anything_is_read(tmp_path, shape):
    path = tmp_path / "odd.npy"
    np.save(path, np.zeros((8, 8)))
    content, said = path.read_bytes(), b"(8, 8)"
    at = content.index(said)
    line = content.index(b"\n", at)
    head = (content[:at] + shape.encode() + content[at + len(said) : line].rstrip()).ljust(line)
    path.write_bytes(head[:line] + content[line:])
    with pytest.raises(ValueError, match=r"odd.npy: the array (has shape|needs)|odd.npy is damaged: the array says"):
        read(path, q=0.0054, dt=0.1)


# a header that Python 2 might have written is read, and NumPy says so
@pytest.mark.filterwarnings("ignore:Reading .* required additional header parsing")
@pytest.mark.slow
def test_many_damaged_files_give_clear_errors(tmp_path):
    fuzz(tmp_path, 5000, seed=1)


def test_matrices_that_are_not_square_are_named_with_the_file(tmp_path):
    np.save(tmp_path / "oblong.npy", np.ones((2, 20, 2)))
    with pytest.raises(ValueError, match=r"oblong\.npy: correlations of shape \(2, 20, 2\)"):
        read(tmp_path / "oblong.npy", q=0.0054, dt=0.1)
