"""Posterior: moments, quantiles, predictions, summary and verdict, with and without weights; to disk and back."""

import random
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.reliability.mutation import mutated
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.store import DRAWS, POSTERIOR, load_posterior, save_posterior


def make(chains=4, draws=500, weights=None, **changes):
    z = np.random.default_rng(0).normal(size=(chains, draws, 3))
    params = {"tau": np.exp(z[..., 0]), "w": z[..., 1:] * [1.0, 10.0] + [0.0, 5.0]}
    energy = np.random.default_rng(1).normal(size=z.shape[:2])
    stats = {"value": 0.5 * (z**2).sum(-1), "energy": energy, "diverging": np.zeros(z.shape[:2], bool)}
    fields = {"problem": "decay", "labels": ("tau", "w[0]", "w[1]"), "units": {"tau": "s"}, "evaluations": 12345}
    return Posterior(params, z, stats, weights, "nuts", **{**fields, **changes})


def test_moments_and_quantiles_are_those_of_the_draws():
    p = make()
    assert p.names == ("tau", "w[0]", "w[1]") and p.size == 2000
    numbers = p.numbers().reshape(-1, 3)
    np.testing.assert_allclose(p.mean()["w"], numbers[:, 1:].mean(0))
    np.testing.assert_allclose(p.sd()["tau"], numbers[:, 0].std(ddof=1))
    np.testing.assert_allclose(p.covariance(), np.cov(numbers.T))
    np.testing.assert_allclose(p.quantile([0.1, 0.9])["w"], np.quantile(numbers[:, 1:], [0.1, 0.9], axis=0))
    np.testing.assert_array_equal(p.flat("w")[:, 1], p.flat("w[1]"))
    with pytest.raises(ValueError, match="Did you mean 'tau'"):
        p.flat("tua")


def test_weights_turn_draws_of_one_density_into_another():
    plain = make(draws=5000)
    shift = np.exp(plain.z[..., 1] - 0.5)  # N(0, 1) becomes N(1, 1)
    p = replace(plain, weights=shift / shift.sum())
    assert p.mean()["w"][0] == pytest.approx(1.0, abs=0.05)
    assert p.sd()["w"][0] == pytest.approx(1.0, abs=0.05)
    assert p.quantile(0.5)["w"][0] == pytest.approx(1.0, abs=0.06)
    assert p.covariance()[1, 1] == pytest.approx(p.sd()["w"][0] ** 2)
    summary = p.summary()
    assert summary["mean"][1] == pytest.approx(p.mean()["w"][0])
    assert 1000 < summary["ess_bulk"][1] < 10000 < plain.summary()["ess_bulk"][1]


def test_predictions_follow_the_draws():
    p = make(draws=50)
    found = p.predict(lambda params: {"double": 2 * params["w"], "sum": params["tau"] + params["w"].sum()})
    np.testing.assert_allclose(found["double"], 2 * p.draws["w"])
    assert found["sum"].shape == (4, 50)
    few = p.predict(lambda params: jnp.exp(params["tau"]), draws=3)
    np.testing.assert_allclose(few, np.exp(p.draws["tau"][:, [0, 24, 49]]), rtol=1e-14)


def test_the_summary_is_a_table_with_held_numbers_left_blank():
    p = make()
    p = replace(p, draws={**p.draws, "held": np.full((4, 500), 3.0)})
    header, *lines = p.table()
    assert header == ("parameter", "unit", "mean", "sd", "5 %", "50 %", "95 %", "mcse", "ess_bulk", "ess_tail", "rhat")
    assert [line[0] for line in lines] == ["held", "tau", "w[0]", "w[1]"]
    assert lines[0][2:4] == ("3", "0") and lines[0][-4:] == ("–",) * 4
    assert "converged." in str(p) and "12345 gradients" in str(p) and "<table>" in p._repr_html_()


def test_a_long_table_shows_the_worst():
    p = make(draws=50)
    many = replace(p, draws=np.random.default_rng(2).normal(size=(4, 50, 100)).cumsum(1) * (np.arange(100) == 70) + 1)
    text = str(many.summary())
    assert "x[70]" in text and "40 more numbers" in text


@pytest.mark.parametrize(
    ("change", "status", "reason", "remedy"),
    [
        ({}, "converged", "", ""),
        ({"apart": True}, "not_converged", "R-hat", "warm up longer"),
        ({"draws": 50}, "not_converged", "effective draws", "Draw more"),
        ({"stuck": True}, "not_converged", "of w[1]", "Draw more"),
        ({"diverging": True}, "divergences", "1 of 2000 transitions diverged (0.05 %)", "target_accept"),
        ({"pareto_k": 0.8}, "not_converged", "Pareto k 0.80", "fewer shards"),
        ({"saturated": True}, "converged", "", "max_depth"),
        ({"slow": True}, "converged", "", "energies slowly"),
    ],
)
def test_verdicts(change, status, reason, remedy):
    p = make(draws=change.get("draws", 500))
    z, stats = p.z.copy(), dict(p.stats)
    z[0, :, 0] += 2.0 * ("apart" in change)
    z[..., 2] *= "stuck" not in change
    if "diverging" in change:
        stats["diverging"] = np.arange(2000).reshape(4, 500) == 7
    if "slow" in change:
        stats["energy"] = np.cumsum(stats["energy"], axis=1)
    stats["depth"] = np.full(z.shape[:2], 10 if "saturated" in change else 3)
    verdict = replace(p, z=z, stats=stats, extra={"max_depth": 10, "pareto_k": change.get("pareto_k")}).verdict()
    assert verdict.status == status and bool(verdict) == (status == "converged")
    assert reason in "; ".join(verdict.reasons) and remedy in str(verdict)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"weights has shape \(500,\)"):
        make(weights=np.ones(500))
    with pytest.raises(ValueError, match="1 labels for 3"):
        make(labels=("a",))


class Pair(NamedTuple):
    a: object
    b: object


def test_it_comes_back_from_disk_as_it_was(tmp_path):
    p = make(weights=np.full((4, 500), 1 / 2000), extra={"pareto_k": -np.inf, "table": {"rhat": np.ones(3)}}, seed=3)
    save_posterior(p, tmp_path)
    back = load_posterior(tmp_path)
    np.testing.assert_array_equal(back.z, p.z)
    np.testing.assert_array_equal(back.draws["w"], p.draws["w"])
    np.testing.assert_array_equal(back.weights, p.weights)
    assert back.extra["pareto_k"] == -np.inf and back.labels == p.labels and back.seed == 3
    assert str(back) == str(p)


def test_other_containers_come_back_with_like(tmp_path):
    p = make()
    p = replace(p, draws=Pair(p.draws["tau"], p.draws["w"]))
    save_posterior(p, tmp_path)
    assert "were a Pair" in load_posterior(tmp_path).note
    back = load_posterior(tmp_path, like=Pair(np.zeros(()), np.zeros(2)))
    assert isinstance(back.draws, Pair)
    np.testing.assert_array_equal(back.draws.b, p.draws.b)
    with pytest.raises(ValueError, match="no parameter"):
        load_posterior(tmp_path, like=Pair(np.zeros(()), np.zeros(3)))


@pytest.mark.parametrize("name", [POSTERIOR, DRAWS])
def test_damage_is_refused(tmp_path, name):
    save_posterior(make(draws=20), tmp_path)
    path, rng = tmp_path / name, random.Random(5)
    content = path.read_bytes()
    for _ in range(25):
        damaged = mutated(content, rng)
        path.write_bytes(damaged)
        if damaged != content:
            with pytest.raises(ValueError, match="cannot be read"):
                load_posterior(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="holds no posterior"):
        load_posterior(tmp_path)


@pytest.mark.parametrize("version", ["0.23.4", "1.0.0"])
def test_arviz_gets_draws_and_statistics_by_its_own_names(monkeypatch, version):
    def from_dict(groups=None, **named):
        assert (groups is None) == version.startswith("0.")
        return groups or named

    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(__version__=version, from_dict=from_dict))
    p = make(weights=np.full((4, 500), 1 / 2000))
    groups = p.to_arviz()
    np.testing.assert_array_equal(groups["posterior"]["w"], p.draws["w"])
    np.testing.assert_array_equal(groups["sample_stats"]["lp"], -p.stats["value"])
    assert set(groups["sample_stats"]) == {"lp", "energy", "diverging", "weight"}


def test_arviz_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"shardfit\[arviz\]"):
        make().to_arviz()
