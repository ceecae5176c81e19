"""Meshes: axes, sizes, and a clear word when there are too few devices."""

import jax
import numpy as np
import pytest

from shardfit.core.mesh import layout, mesh, n_shards
from shardfit.core.objective import Objective
from shardfit.core.term_makers import residual_term


def test_all_devices_share_the_rows_by_default():
    assert dict(mesh().shape) == {"rows": len(jax.devices()), "runs": 1}
    assert dict(mesh(runs=2).shape) == {"rows": len(jax.devices()) // 2, "runs": 2}


@pytest.mark.parametrize("rows, runs, shards", [(1, 1, 1), (3, 1, 3), (2, 4, 2)])
def test_layout_describes_the_mesh(rows, runs, shards):
    made = mesh(rows, runs)
    assert n_shards(made) == shards
    assert layout(made) | {"rows": rows, "runs": runs, "processes": 1, "platform": "cpu"} == layout(made)


def test_no_mesh_is_one_shard():
    assert n_shards(None) == 1
    assert layout(None)["rows"] == layout(None)["runs"] == 1


def test_too_few_devices_says_how_many_and_how_to_get_more():
    n = len(jax.devices()) + 1
    with pytest.raises(
        ValueError, match=rf"mesh\(rows={n}, runs=1\) needs {n} devices.*device_count={n} before Python"
    ):
        mesh(n)


@pytest.mark.parametrize("sizes", [(0, 1), (2, 0), (-1, 1)])
def test_sizes_below_one_are_refused(sizes):
    with pytest.raises(ValueError, match="both numbers must be at least 1"):
        mesh(*sizes)


def line():
    return Objective({"line": residual_term(lambda p, r: r["y"] - p * r["x"], {"x": np.arange(5.0), "y": np.ones(5)})})


def test_a_mesh_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"axes \('data',\), but no axis 'rows'.*shardfit.mesh"):
        line().place(jax.make_mesh((2,), ("data",)))


def test_a_users_own_mesh_serves():
    value = line().place(jax.make_mesh((2,), ("rows",))).value(np.float64(0.5))
    assert float(value) == pytest.approx(0.5 * np.sum((1 - 0.5 * np.arange(5.0)) ** 2), rel=1e-14)
