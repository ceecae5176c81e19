"""Closure tables and their covariance; golden values come from eht-imaging 1.4.0 or from the formula (cov)."""

import json

import numpy as np
import pytest

from shardfit.domains.vlbi.closures import closure_covariance, quadrangles, triangles
from shardfit.domains.vlbi.constants import DEGREE
from shardfit.domains.vlbi.observation import Stations, make_observation
from tests.reference import REFERENCE

TRIANGLES = {
    "cp_min": {},
    "cp_min_cut": {"uv_min": 0.1e9},
    "cp_max": {"count": "max"},
    "cp_max_cut": {"count": "max", "uv_min": 0.1e9},
}
QUADRANGLES = {
    "lca_min": {},
    "lca_min_deb": {"debias": True},
    "ca_min": {"log": False},
    "ca_min_deb": {"log": False, "debias": True},
    "lca_max": {"count": "max"},
}
SIZES = {"cp_min": 134, "cp_min_cut": 70, "cp_max": 257, "cp_max_cut": 171, "lca_min": 113, "lca_max": 564}


@pytest.fixture(scope="module")
def golden():
    with np.load(REFERENCE / "vlbi" / "real_101_lo.npz") as z:
        wanted = ("prep", "cp", "bs", "lca", "ca", "cpdiag", "lcadiag", "cov", "model")
        return {name: z[name] for name in z.files if name.partition("_")[0] in wanted}


@pytest.fixture(scope="module")
def about():
    return json.loads((REFERENCE / "vlbi" / "real_101_lo.json").read_text())


@pytest.fixture(scope="module")
def prep(golden):
    names = tuple(golden["prep_site"])
    rows = {to: golden[f"prep_{name}"] for to, name in (("ant1", "i1"), ("ant2", "i2"))}
    rows |= {name: golden[f"prep_{name}"] for name in ("time", "tint", "u", "v")}
    return make_observation(
        **rows,
        vis={"I": golden["prep_vis"]},
        sigma={"I": golden["prep_sigma"]},
        stations=Stations(names, np.zeros((len(names), 3)), np.zeros(len(names))),
        freq_hz=227e9,
        bandwidth_hz=2e9,
        mjd=57854,
    )


def check(table, golden, name, obs, value=None, sigma=None):
    order, other = (
        np.lexsort((*stations.T[::-1], time))
        for stations, time in ((table.stations, table.time), (golden[f"{name}_ant"], golden[f"{name}_time"]))
    )
    if "min" in name:
        np.testing.assert_array_equal(table.stations, golden[f"{name}_ant"])
    for found, expected, rtol in (
        (table.time, "time", 0),
        (table.stations, "ant", 0),
        (table.uv, "uv", 0),
        (table.value if value is None else value, "val", 1e-12),
        (table.sigma if sigma is None else sigma, "sig", 1e-12),
    ):
        expected = golden[f"{name}_{expected}"][other]
        np.testing.assert_allclose(found[order], expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    turned = np.where(table.conjugate, -1, 1)
    np.testing.assert_array_equal(table.uv[..., 0], turned * obs.u[table.row])


@pytest.mark.parametrize("name", TRIANGLES)
def test_golden_triangles(golden, prep, name):
    table = triangles(prep, **TRIANGLES[name])
    assert len(table) == SIZES[name]
    check(table, golden, name, prep)
    if name == "cp_min":
        check(table, golden, "bs_min", prep, table.bispectrum, table.bispectrum_sigma)


@pytest.mark.parametrize("name", QUADRANGLES)
def test_golden_quadrangles(golden, prep, name):
    table = quadrangles(prep, **QUADRANGLES[name])
    assert len(table) == SIZES.get(name, 113)
    check(table, golden, name, prep)


def test_snr_cut(prep, about):
    found = {
        "cphase": len(triangles(prep, snrcut=5)),
        "logcamp": len(quadrangles(prep, snrcut=5)),
        "camp": len(quadrangles(prep, snrcut=5, log=False)),
    }
    assert found == {name: about["chi2"][f"{name}/snrcut"]["n"] for name in found}


def design(table, directed=False):
    """Signed design matrix of one table on its rows, or unsigned on directed baselines."""
    keys = table.row * 2 + table.conjugate if directed else table.row
    columns, place = np.unique(keys, return_inverse=True)
    signs = np.where(table.conjugate & (not directed), -1, 1) if keys.shape[1] == 3 else np.array([[1, 1, -1, -1]])
    matrix = np.zeros((len(keys), len(columns)))
    np.add.at(matrix, (np.arange(len(keys))[:, None], place.reshape(keys.shape)), np.broadcast_to(signs, keys.shape))
    return matrix, columns // 2 if directed else columns


def test_completed_minimal_set_spans_all_triangles(prep):
    """What the cut costs is restored: same rank as all triangles without short baselines, wherever they span more."""
    cut, full, everything = (
        np.linalg.matrix_rank(design(triangles(prep, count=count, uv_min=0.1e9))[0])
        for count in ("min", "min-cut0bl", "max")
    )
    assert cut < full <= everything
    table = triangles(prep, count="min-cut0bl", uv_min=0.1e9)
    assert full == len(table)  # independent
    assert prep.uv_distance[table.row].min() >= 0.1e9
    assert closure_covariance(prep, table)
    # at a time when every station sees every other, nothing is lost
    times, counts = np.unique(prep.time, return_counts=True)
    best = prep.select(prep.time == times[counts.argmax()])
    assert len(triangles(best, count="min-cut0bl", uv_min=0.1e9)) == np.linalg.matrix_rank(
        design(triangles(best, count="max", uv_min=0.1e9))[0]
    )


@pytest.mark.parametrize("term", ["cphase", "logcamp"])
def test_golden_covariance(golden, about, prep, term):
    table = triangles(prep) if term == "cphase" else quadrangles(prep)
    model = golden["model_vis_prep"][table.row]
    model = np.where(table.conjugate, model.conj(), model)
    if term == "cphase":
        residual = np.angle(np.exp(1j * table.value * DEGREE) / model.prod(1))
    else:
        residual = table.value - np.log(np.abs(model)) @ [1, 1, -1, -1]
    blocks = closure_covariance(prep, table)
    chi2 = sum(np.sum((block.whitener @ residual[block.index]) ** 2) for block in blocks) / len(table)
    assert chi2 == pytest.approx(about["cov"][term]["chi2"], rel=1e-10)
    variances = np.concatenate([np.linalg.eigvalsh(block.covariance) for block in blocks])
    np.testing.assert_allclose(variances, golden[f"cov_{term}_eigvar"], rtol=1e-10)
    assert sorted(i for block in blocks for i in block.index) == list(range(len(table)))
    unit = np.degrees(1) if term == "cphase" else 1
    np.testing.assert_allclose(
        np.concatenate([np.sqrt(np.diag(b.covariance)) for b in blocks]),
        table.sigma[np.concatenate([b.index for b in blocks])] / unit,
        rtol=1e-10,
    )


@pytest.mark.parametrize("term", ["cpdiag", "lcadiag"])
def test_golden_eigen_sigmas_of_directed_baselines(golden, prep, term):
    """The reference treats a baseline run in two directions as two; the tables reproduce that as well."""
    table = triangles(prep) if term == "cpdiag" else quadrangles(prep)
    matrix, rows = design(table, directed=True)
    covariance = (matrix / prep.snr[rows] ** 2) @ matrix.T
    found = [
        np.sqrt(np.linalg.eigvalsh(covariance[np.ix_(at, at)]))
        for at in (np.flatnonzero(table.time == time) for time in np.unique(table.time))
    ]
    unit = DEGREE if term == "cpdiag" else 1
    np.testing.assert_allclose(np.concatenate(found) / unit, golden[f"{term}_sig"], rtol=1e-10)


def test_covariance_of_plain_amplitudes_and_redundant_sets(prep):
    log, plain = (closure_covariance(prep, quadrangles(prep, log=flag))[0] for flag in (True, False))
    value = quadrangles(prep, log=False).value[plain.index]
    np.testing.assert_allclose(plain.covariance, log.covariance * np.outer(value, value))
    with pytest.raises(ValueError, match='Use a table made with count="min"'):
        closure_covariance(prep, triangles(prep, count="max"))


def test_closures_do_not_see_gains(prep):
    rng = np.random.default_rng(0)
    gains = np.exp(rng.normal(size=7) + 1j * rng.uniform(-3, 3, 7))
    factor = gains[prep.ant1] * gains[prep.ant2].conj()
    changed = prep.replace(vis={"I": prep.vis["I"] * factor}, sigma={"I": prep.sigma["I"] * np.abs(factor)})
    turn = np.exp(1j * DEGREE * (triangles(changed, count="max").value - triangles(prep, count="max").value))
    np.testing.assert_allclose(turn, 1, atol=1e-9)
    np.testing.assert_allclose(quadrangles(changed).value, quadrangles(prep).value, atol=1e-9)


def test_few_stations_and_zero_visibilities(prep):
    pair = prep.select((prep.ant1 == 0) & (prep.ant2 == 1))
    assert len(triangles(pair)) == len(quadrangles(pair)) == len(triangles(pair, count="max")) == 0
    assert triangles(pair).uv.shape == (0, 3, 2)
    assert closure_covariance(pair, triangles(pair)) == []
    zero = prep.replace(vis={"I": np.where(np.arange(len(prep)) % 5 == 0, 0, prep.vis["I"])})
    for table in (triangles(zero), quadrangles(zero), quadrangles(zero, log=False)):
        assert np.isfinite(table.value).all()
        assert np.isfinite(table.sigma).all()
        assert (np.abs(zero.vis["I"][table.row]) > 0).all()
    with pytest.raises(ValueError, match="unknown count 'all'"):
        triangles(prep, count="all")
