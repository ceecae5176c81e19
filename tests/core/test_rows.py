"""Row sets: checks, padding with real rows, walking in blocks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core import rows as module
from shardfit.core.mesh import mesh
from shardfit.core.precision import arithmetic
from shardfit.core.rows import check_rows, compact, masked, place_rows, shapes_of_rows, sum_blocks, take

X = np.arange(4.0)


class Pair(NamedTuple):
    x: object
    sigma: object


def test_good_rows_pass_unchanged():
    rows = {"x": X, "nested": [np.ones((4, 2), np.complex64), np.arange(4)], "flag": np.ones(4, bool)}
    found = check_rows("term", rows)
    assert jax.tree.structure(found) == jax.tree.structure(rows)
    assert all(a is b for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(rows), strict=True))


@pytest.mark.parametrize(
    "rows, error, words",
    [
        ({}, ValueError, "rows has no arrays.*dict of arrays"),
        ({"x": X, "y": np.array([1, None, 2, 3], object)}, TypeError, r"rows\['y'\] is not numeric.*NumPy or JAX"),
        ({"x": np.array(["a", "b"])}, TypeError, r"rows\['x'\] is not numeric"),
        ({"t": np.array(["2020-01-01"], "datetime64[s]")}, TypeError, r"rows\['t'\] is not numeric"),
        ({"x": X, "freq": 2.0}, ValueError, r"rows\['freq'\] is a scalar.*args"),
        ({"x": [1.0, 2.0]}, ValueError, r"rows\['x'\]\[0\] is a scalar.*np.array"),
        (
            {"x": X, "y": X[:3]},
            ValueError,
            r"leading axes differ \(rows\['x'\] has 4, rows\['y'\] has 3\).*one entry per row",
        ),
        ({"x": X[:0]}, ValueError, "zero rows.*selection"),
        ({"a": {"x": np.array([0, 1, np.nan, 3])}}, ValueError, r"rows\['a'\]\['x'\] holds NaN.*row 2.*Remove"),
        ({"x": X, "v": np.array([1j, np.inf, 0, 0])}, ValueError, r"rows\['v'\] holds NaN or infinity, first in row 1"),
        ({"x": X, "sigma": np.array([1, 2, 0, 1.0])}, ValueError, r"rows\['sigma'\] must be positive, but row 2 is 0"),
        ({"x": X, "sigma": -np.ones(4)}, ValueError, r"rows\['sigma'\] must be positive, but row 0 is -1.*noise"),
        ({"x": X, "sigma": np.array([1, 2, 3, 0])}, ValueError, r"rows\['sigma'\] must be positive, but row 3"),
        (Pair(X, np.array([1.0, 0, 1, 1])), ValueError, r"rows.sigma must be positive, but row 1"),
    ],
)
def test_bad_rows_name_the_leaf_and_the_remedy(rows, error, words):
    with pytest.raises(error, match=f"(?s)my term: .*{words}"):
        check_rows("my term", rows)


def test_values_are_checked_block_by_block(monkeypatch):
    monkeypatch.setattr(module, "CHECK_BLOCK", 6)
    bad = np.ones((10, 3))
    bad[7, 1] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        check_rows("term", {"x": bad})


@pytest.mark.parametrize("n, shards, counts", [(5, 2, [3, 2]), (3, 8, [1, 1, 1, 0, 0, 0, 0, 0]), (9, 4, [3, 3, 3, 0])])
def test_padding_repeats_a_real_row_and_is_counted_out(n, shards, counts):
    rows = {"x": np.arange(1.0, n + 1, dtype=np.float32), "m": np.arange(2 * n, dtype=np.int32).reshape(n, 2)}
    placed, found = place_rows(rows, np.array([n]), mesh(shards))
    np.testing.assert_array_equal(found, counts)
    assert placed["x"].shape[0] % shards == 0
    np.testing.assert_array_equal(np.asarray(placed["x"])[n:], n)
    back = compact(placed, found)
    for name in rows:
        np.testing.assert_array_equal(back[name], rows[name])
    again, found = place_rows(placed, found, mesh(2))
    np.testing.assert_array_equal(compact(again, found)["m"], rows["m"])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, "f4,f4"), "is a structured array"),
        (np.zeros(4, "V8"), "is a structured array"),
        (np.zeros(4, np.longdouble), "which JAX does not have"),
    ],
)
def test_arrays_that_jax_does_not_have_are_named(array, message):
    with pytest.raises(TypeError, match=rf"rows\['x'\] {message}|float128, {message}"):
        check_rows("residual_term", {"x": array})
    with pytest.raises(TypeError, match=message):
        sf.penalty(jnp.sum, array)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">c8"])
def test_the_byte_order_of_files_does_not_matter(dtype, tmp_path):
    """FITS and SEG-Y have the other one. A memory map is not read whole unasked."""
    term = sf.residual_term(lambda p, r, a: (r["x"] - p * a).real, {"x": X.astype(dtype)}, np.ones((), dtype))
    assert float(sf.Objective({"x": term}).value(1.0)) == pytest.approx(0.5 * np.sum((X - 1) ** 2))
    table = np.memmap(tmp_path / "rows.bin", dtype, "w+", shape=4)
    with pytest.raises(TypeError, match=r"memory map in another byte order.*newbyteorder"):
        check_rows("residual_term", {"x": table})


def test_text_is_no_argument():
    with pytest.raises(TypeError, match=r"residual_term: args\[0\] is 'fast', and args are numbers.*partial"):
        sf.residual_term(lambda p, r, mode: p * r["x"], {"x": X}, "fast")


def test_take_reads_only_what_is_chosen(tmp_path):
    table = np.memmap(tmp_path / "rows.bin", np.float64, "w+", shape=(100, 3))
    table[:] = np.arange(300).reshape(100, 3)
    found = take({"x": table}, np.array([3, 97]))["x"]
    assert not isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, table[[3, 97]])


@pytest.mark.parametrize("n, chunk", [(7, 3), (8, 4), (5, 1), (6, 5), (4, 9)])
def test_blocks_cover_every_counted_row_once(n, chunk):
    def covered(counts):
        def add(rows, mask):
            return jnp.zeros(n, int).at[rows["i"]].add(1 if mask is None else mask)

        return sum_blocks(add, {"i": jnp.arange(n)}, counts, chunk)

    found = jax.jit(jax.vmap(covered))(jnp.arange(n + 1)[:, None])
    np.testing.assert_array_equal(found, np.arange(n) < np.arange(n + 1)[:, None])
    np.testing.assert_array_equal(covered(None), np.ones(n))


def test_masked_stops_nan():
    found = masked(jnp.array([True, False]), jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf]]))
    np.testing.assert_array_equal(found, [[1, 2], [0, 0]])


@pytest.mark.parametrize(("precision", "expected"), [("float32", np.int32), ("float64", np.int64)])
def test_shapes_have_types_of_the_present_precision(precision, expected):
    """JAX 0.12 warns of a wider type where it traces with it."""
    with arithmetic(precision):
        shape = shapes_of_rows({"i": np.arange(5), "key": jax.random.split(jax.random.key(0), 5)}, 2)
        assert shape["i"].dtype == expected and shape["i"].shape == (2,)
        assert jnp.issubdtype(shape["key"].dtype, jax.dtypes.prng_key)


def same(found, wanted):
    assert sorted(found) == sorted(wanted) and all(type(each) is np.ndarray for each in found.values())
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_columns_of_tables_are_rows():
    pandas, table = pytest.importorskip("pandas"), pytest.importorskip("astropy.table")
    columns = {"x": np.array([1.0, 2.0]), "n": np.array([3, 4])}
    frame = pandas.DataFrame(columns, index=["first", "second"])
    same(check_rows("residual_term", frame), columns)
    same(check_rows("residual_term", frame[["n"]]), {"n": columns["n"]})
    same(check_rows("residual_term", table.Table(columns)), columns)
    assert check_rows("residual_term", {"x": frame["x"]})["x"].shape == (2,)
    with pytest.raises(TypeError, match="column 'name' of rows is object, not numbers. Leave it out"):
        check_rows("residual_term", frame.assign(name=["a", None]))
    with pytest.raises(TypeError, match="a column is named 0, which is no text"):
        check_rows("residual_term", pandas.DataFrame(np.ones((2, 2))))
    with pytest.raises(TypeError, match="is a table. Pass its columns"):
        check_rows("residual_term", {"both": frame})
    with pytest.raises(TypeError, match="two columns of one name"):
        check_rows("residual_term", pandas.concat([frame, frame], axis=1))
    with pytest.raises(ValueError, match="NaN or infinity, first in row 1"):
        check_rows("residual_term", pandas.DataFrame({"x": [1.0, np.nan]}))


def test_variables_of_datasets_are_rows():
    xarray = pytest.importorskip("xarray")
    found = {"g2": (("tau", "q"), np.ones((3, 2))), "sigma": ("tau", np.ones(3))}
    at = {"tau": np.arange(3.0), "q": np.array([0.1, 0.2]), "name": ("tau", ["a", "b", "c"])}
    data = xarray.Dataset(found, coords=at)
    same(check_rows("residual_term", data), {"g2": np.ones((3, 2)), "sigma": np.ones(3), "tau": np.arange(3.0)})
    with pytest.raises(TypeError, match=r"variable 'sigma' of rows has dimensions \('tau',\), but rows lie along 'q'"):
        check_rows("residual_term", data.transpose("q", "tau"))
    with pytest.raises(TypeError, match="without variables that have rows"):
        check_rows("residual_term", xarray.Dataset({"a": 1.0}))


def test_masked_arrays_are_refused_unless_nothing_is_masked():
    same(check_rows("residual_term", {"x": np.ma.array([1.0, 2.0])}), {"x": np.array([1.0, 2.0])})
    with pytest.raises(TypeError, match="masked array with 1 masked numbers.*a weight that is 0 there"):
        check_rows("residual_term", {"x": np.ma.array([1.0, 2.0], mask=[False, True])})
