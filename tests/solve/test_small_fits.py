"""What a fit of few points costs beside its arithmetic: transfers, traces and looks at what is known already."""

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

T = np.linspace(0.0, 4.0, 50)


def decay(p, rows):
    return (p["a"] * jnp.exp(-rows["t"] / p["tau"]) + p["c"] - rows["y"]) / rows["sigma"]


def fitted(seed):
    y = 3.0 * np.exp(-T / 1.5) + 0.5 + 0.05 * np.random.default_rng(seed).standard_normal(T.size)
    rows = {"t": T, "y": y, "sigma": np.full(T.size, 0.05)}
    problem = sf.Problem(sf.Objective({"data": sf.residual_term(decay, rows)}), {"a": 1.0, "tau": 1.0, "c": 0.0})
    return sf.fit(problem, "lm")


def test_new_data_are_transferred_once_and_nothing_is_sent_that_is_there(monkeypatch):
    fitted(0)
    sent = []

    def counted(tree, *where, put=jax.device_put):
        sent.append([isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)])
        return put(tree, *where)

    monkeypatch.setattr(jax, "device_put", counted)
    result = fitted(1)
    assert result.success and result.certificate is not None
    assert not any(map(any, sent))  # nothing that was on the device already
    assert sum(map(len, sent)) <= 8 and len(sent) <= 3  # rows and weights of the term; the run's few numbers
