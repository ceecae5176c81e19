"""Predictions for many devices: what travels is what the program sends, and the model is a machine we can simulate."""

import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Cluster
from shardfit.core.mesh import mesh as make_mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term, statistic_term
from shardfit.planning import plan
from shardfit.planning.exchange import Exchange, exchanged
from shardfit.planning.peak import Layout
from shardfit.planning.scaling import CLUSTERS, as_cluster, expected_largest, scaled
from shardfit.planning.timing import Curve
from shardfit.solve.base import evaluate

START = {"a": 1.0, "tau": 1.3}
CURVE = Curve((1.0, 100.0), (1e-3 + 1e-4, 1e-3 + 1e-2))  # a call of 1 ms, 0.1 ms a row
SENT = Exchange(2, 120_000)


def line(p, rows):
    return rows["y"] - p["a"] * rows["x"] - p["tau"]


def bins(p, rows, edges):
    return jax.nn.sigmoid((edges - rows["x"][:, None] * p["a"]) / p["tau"])


def misfit(counts, edges):
    return jnp.mean(jnp.log(counts + 1.0) ** 2)


def problem(kind, n=1000, precision="float64"):
    x = np.linspace(1.0, 2.0, n)
    data = residual_term(line, {"x": x, "y": 2 * x})
    counts = statistic_term(bins, {"x": x}, np.linspace(0, 1, 9), loss=misfit)
    image = residual_term(lambda p, rows: rows["x"] * jnp.sum(p["z"]) - 1, {"x": x})
    terms = {
        "residual": {"data": data, "ridge": penalty(lambda p: p["a"] ** 2)},
        "statistic": {"counts": counts, "data": data},
        "image": {"image": image},
    }[kind]
    start = {"z": np.zeros(20_000)} if kind == "image" else START
    return Problem(Objective(terms), start, precision=precision)


def sent(given, needs, shards=2):
    with arithmetic(given.precision):
        return exchanged(Layout(given.objective, given.space, given.precision, None, needs), shards)


# bytes by hand: the loss of every residual term, 9 counts, and the gradient, or the normal equations of 2 parameters
CASES = [
    ("residual", "value", Exchange(1, 8)),
    ("residual", "value_and_grad", Exchange(2, 8 + 16)),
    ("residual", "gram", Exchange(1, 8 * (1 + 2 + 4))),
    ("statistic", "value_and_grad", Exchange(2, 8 * (9 + 1) + 16)),
    ("image", "value_and_grad", Exchange(2, 8 + 8 * 20_000)),
]


@pytest.mark.parametrize(("kind", "needs", "expected"), CASES)
def test_what_travels_is_counted_by_hand(kind, needs, expected):
    assert sent(problem(kind), needs) == expected


@pytest.mark.parametrize(("kind", "needs", "_"), CASES)
def test_the_compiled_program_sends_what_was_counted(kind, needs, _):
    given = problem(kind)
    with arithmetic(given.precision):
        placed = given.objective.place(make_mesh(4))
        program = evaluate.lower(needs, given.space, placed, given.z0(), None).compile().as_text()
    shapes = [found[1] for found in re.finditer(r"= (.*?) all-reduce(?:-start)?\(", program)]
    arrays = [array for shape in shapes for array in re.findall(r"f64\[([\d,]*)\]", shape)]
    sizes = [math.prod(int(n) for n in array.split(",") if n) for array in arrays]
    assert Exchange(len(sizes), 8 * sum(sizes)) == sent(given, needs)


def test_what_travels_depends_on_neither_rows_nor_devices():
    few = sent(problem("statistic", n=10), "value_and_grad")
    assert few == sent(problem("statistic", n=100_003), "value_and_grad", shards=4096)
    assert sent(problem("statistic"), "value_and_grad", shards=1) == Exchange(0, 0)
    assert sent(problem("statistic", precision="float32"), "value_and_grad") == replace(few, bytes=few.bytes // 2)


def simulated(devices, rows, cluster, exchange, spread=0.0):
    """Return the seconds of an evaluation of a machine: clocks of all devices, which exchange by recursive doubling."""
    own = [rows // devices + (i < rows % devices) for i in range(devices)]
    clocks = np.array([1e-3 + 1e-4 * n for n in own]) / cluster.speed
    clocks = clocks + spread * clocks.max()
    for _ in range(exchange.messages):
        for distance in 2 ** np.arange(round(math.log2(devices))):
            partner = np.arange(devices) ^ distance
            each = exchange.bytes / exchange.messages
            clocks = np.maximum(clocks, clocks[partner]) + cluster.latency + each / cluster.bandwidth
    return clocks.max()


@pytest.mark.parametrize("devices", [1, 2, 8, 256, 4096])
@pytest.mark.parametrize("cluster", [*CLUSTERS.values(), Cluster(latency=1e-3, bandwidth=1e6, speed=3.0)], ids=str)
def test_a_machine_without_jitter_is_predicted_exactly(devices, cluster):
    cluster = replace(cluster, jitter=0.0)
    found = scaled(CURVE, 5000, SENT, cluster, devices)
    assert found.seconds == pytest.approx(simulated(devices, 5000, cluster, SENT), rel=1e-12)
    assert found.waiting == 0


@pytest.mark.parametrize("devices", [2, 16, 256])
def test_jitter_of_a_simulated_machine(devices):
    cluster, rng = Cluster(jitter=0.1), np.random.default_rng(0)
    rows = 100 * devices  # all have the same work
    spreads = cluster.jitter * rng.standard_normal((4000, devices))
    runs = [simulated(devices, rows, cluster, SENT, spread) for spread in spreads]
    assert scaled(CURVE, rows, SENT, cluster, devices).seconds == pytest.approx(np.mean(runs), rel=5e-3)


def test_expected_largest():
    assert expected_largest(1) == 0
    assert expected_largest(2) == pytest.approx(1 / math.sqrt(math.pi), rel=0.05)  # exact values of the integral
    assert expected_largest(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=0.05)
    assert expected_largest(1000) == pytest.approx(3.2414, rel=0.01)


def test_more_devices_never_compute_longer_nor_exchange_less():
    found = [scaled(CURVE, 5000, SENT, Cluster(), n) for n in (1, 2, 3, 64, 5000, 100_000)]
    assert all(b.computing <= a.computing and b.exchange > a.exchange for a, b in zip(found, found[1:], strict=False))
    assert found[0].speedup == found[0].efficiency == 1
    assert found[-1].rows == found[-2].rows == 1 and found[-1].speedup < found[-2].speedup  # more than there are rows
    times = [scaled(CURVE, 5000, SENT, c, 64).seconds for c in (Cluster(), CLUSTERS["ethernet"], Cluster(jitter=0.5))]
    assert times == sorted(times)
    noisy = Curve((1.0, 10.0, 100.0), (2e-3, 1e-3, 3e-3))
    assert noisy.at(10) == noisy.at(1) == 2e-3


def test_a_plan_for_more_devices():
    told = plan(problem("statistic"), devices=[64, 4, 64], cluster="ethernet")
    assert [each.devices for each in told.scaling] == [4, 64]
    assert told.exchange == sent(problem("statistic"), "value_and_grad")
    assert told.to_dict()["scaling"][1]["rows"] == 16 and told.cluster == CLUSTERS["ethernet"]
    assert "efficiency" in str(told) and "50 µs" in str(told)
    elsewhere = plan(problem("statistic"), mesh=64, cluster=Cluster(latency=1.0))
    assert elsewhere.seconds > 6 * 2  # six rounds of two messages, a second each
    assert not elsewhere.scaling and "efficiency" not in str(elsewhere)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"devices": [0]}, ValueError, "at least 1"),
        ({"devices": 64}, ValueError, r"such as \[64, 1024\]"),
        ({"devices": ["many"]}, ValueError, "whole numbers"),
        ({"cluster": "infinband"}, ValueError, "Did you mean 'infiniband'"),
        ({"cluster": "latncy=1"}, ValueError, "Did you mean 'latency'"),
        ({"cluster": "latency=soon"}, ValueError, "not a number"),
        ({"cluster": 5}, TypeError, "must be a Cluster"),
    ],
)
def test_errors(options, error, words):
    with pytest.raises(error, match=words):
        plan(problem("residual", n=10), **options)


@pytest.mark.parametrize("wrong", [{"latency": -1.0}, {"bandwidth": 0}, {"speed": math.inf}, {"jitter": "2 %"}])
def test_wrong_clusters(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Cluster(**wrong)
    assert as_cluster("latency=1e-6, speed=40") == Cluster(latency=1e-6, speed=40.0)
