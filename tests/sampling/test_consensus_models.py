"""consensus where shards are no Gaussians: logistic regression against one NUTS, coefficients integrated out."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.consensus import compare, moments
from benchmarks.problems.shards import logistic
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.priors import Normal
from shardfit.core.problem import Problem
from shardfit.sampling.density import values_on_z
from shardfit.sampling.shards.importance import ACCURACY
from shardfit.sampling.shards.shard_consensus import consensus
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.stats.linear import linear_term


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shards"), [("logistic", 4), ("logistic", 16), ("correlations on a ridge", 16)])
def test_default_answer_is_that_of_one_run_over_all_rows(name, shards, tmp_path):
    """20,000 data: as many points as the moments need, without being told; the rules alone are worse."""
    found = compare(name, shards, tmp_path)
    assert found["mean"] < 0.2
    assert 0.9 < found["least"] <= found["most"] < 1.1
    assert found["correlation"] < 0.05
    assert found["pareto_k"] < 0.7
    assert found["error"] <= ACCURACY
    assert found["plain"]["mean"] > found["mean"]
    assert found["single"]["correlation"] > 0.2  # all correlations are lost


@pytest.mark.slow
def test_gradients_are_useful():
    found = consensus(logistic(1500, 4), 4, control=ShardControl(progress=False))
    assert found.layout["useful_gradients"] > 0.9
    assert found.verdict()


GROUPS, ROWS = 3, 240


def decaying(p, rows):
    return jnp.stack([jnp.exp(-p["k"] * rows["t"]), jnp.ones_like(rows["t"])], -1)


def decays():
    """Return decays with an amplitude and an offset for each of some groups, which are integrated out."""
    rng = np.random.default_rng(4)
    group, t = np.arange(ROWS) % GROUPS, rng.uniform(0, 3, ROWS)
    y = np.array([2.0, 1.0, 3.0])[group] * np.exp(-1.3 * t) + np.array([0.1, 0.5, -0.2])[group]
    rows = {"t": t, "y": y + 0.3 * rng.normal(size=ROWS), "sigma": np.full(ROWS, 0.3), "group": group}
    term = linear_term(decaying, rows, groups="group", marginal=True)
    return Problem(Objective({"decays": term}), {"k": 1.0}, priors={"k": Normal(1.0, 1.0)}, name="decays")


@pytest.mark.slow
def test_coefficients_that_are_integrated_out():
    """Marginals of shards do not multiply to the marginal; values of the whole put that right."""
    problem = decays()
    k = np.linspace(0.5, 2.5, 4001)
    with arithmetic("float64"):
        value = np.asarray(values_on_z(problem.objective.place(None), problem.space, k[:, None]))
    density = np.exp(value.min() - value)
    mean = (density @ k) / density.sum()
    sd = np.sqrt(density @ (k - mean) ** 2 / density.sum())
    found = consensus(problem, 4, correct=4000, control=ShardControl(progress=False), chains=2, warmup=150, draws=400)
    (at,), ((variance,),) = moments(found.z, found.weights)
    assert at == pytest.approx(mean, abs=0.1 * sd)
    assert np.sqrt(variance) == pytest.approx(sd, rel=0.07)
    assert "Every shard integrates out parameters of decays" in found.note


def test_groups_of_linear_terms_are_strata():
    for part in decays().objective.split(5):
        assert np.bincount(part.terms[0].rows["group"][: part.n_rows["decays"]]).min() == ROWS // GROUPS // 5
    with pytest.raises(ValueError, match="80 rows labelled 0 for 81 shards"):
        decays().objective.split(81)
