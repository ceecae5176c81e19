"""Several q or runs in one fit."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit import RunOptions
from shardfit.domains.xpcs import FitOptions, Grouped, fit_correlation, laminar_flow, setup, static, together
from tests.domains.xpcs.cases import FLOW, STATIC, small

QUIET = RunOptions(progress=False)


def test_grouped_equations_are_those_of_the_groups():
    one, other = (
        small(laminar_flow(), n_frames=12),
        small(laminar_flow(), seed=2, n_frames=10, q=0.004, phi=(5.0, 60.0)),
    )
    data, groups = together({"a": one, "b": other})
    assert data.c2.shape == (5, 12, 12) and groups == ("a", "a", "a", "b", "b") and np.isnan(data.c2[3:, 10:]).all()
    model = Grouped(laminar_flow(), groups, own=("D0", "alpha"))
    names = ("D_offset", "gamma_dot_t0", "beta", "gamma_dot_t_offset", "phi0", "D0@a", "alpha@a", "D0@b", "alpha@b")
    assert model.names == names and setup(data, model).n_points == 3 * 66 + 2 * 45
    at = {**model.spread(FLOW), "D0@b": 5000.0}
    options = FitOptions(scaling="individual", start=at)
    whole = setup(data, model, options).problem
    parts = [
        setup(each, laminar_flow(), replace(options, start={**FLOW, "D0": d0})).problem
        for each, d0 in ((one, 8000.0), (other, 5000.0))
    ]
    joint, (first, second) = whole.objective.place().gram(whole.x0), (p.objective.place().gram(p.x0) for p in parts)
    assert np.isclose(joint.value, first.value + second.value, rtol=1e-9)
    place = {name: i for i, name in enumerate(sorted(at))}
    own = {name: i for i, name in enumerate(sorted(FLOW))}
    assert np.isclose(joint.gradient[place["D0@b"]], second.gradient[own["D0"]], rtol=1e-7)
    shared = first.matrix[own["phi0"], own["phi0"]] + second.matrix[own["phi0"], own["phi0"]]
    assert np.isclose(joint.matrix[place["phi0"], place["phi0"]], shared, rtol=1e-7)
    assert abs(float(joint.matrix[place["D0@a"], place["D0@b"]])) < 1e-12


def test_wrong_groups_are_refused():
    data = small()
    for datasets, message in (
        ({"a": data, "b": replace(data, dt=0.2)}, "dt differs"),
        ({"a@b": data}, "cannot hold"),
        ({"a": data, "b": replace(data, sigma=None)}, "needs its noise"),
        ({}, "by name"),
    ):
        with pytest.raises(ValueError, match=message):
            together(datasets)
    with pytest.raises(ValueError, match="no parameter 'D1'.*D0"):
        Grouped(static(), ("a",), ("D1",))
    with pytest.raises(ValueError, match="2 groups were named for 3 bins"):
        setup(data, Grouped(static(), ("a", "b"), ("D0",)))


@pytest.mark.slow
def test_a_fit_of_several_q_recovers_what_is_shared_and_what_is_not():
    truth = {"low": {**STATIC, "D0": 12000.0}, "high": STATIC}
    data, groups = together(
        {
            label: small(static(), truth[label], seed=i, n_frames=48, q=q, phi=(0.0, 50.0))
            for i, (label, q) in enumerate({"low": 0.004, "high": 0.006}.items())
        }
    )
    model = Grouped(static(), groups, own=("D0",))
    found = fit_correlation(data, model, FitOptions(scaling="individual", errors="frames"), QUIET)
    assert found.success and set(found.rates) == {"J@low", "J@high"}
    expected = {"alpha": -0.3, "D_offset": 800.0, "D0@low": 12000.0, "D0@high": 15000.0}
    assert all(abs(found.params[name] - value) < 4 * found.stderr[name] for name, value in expected.items())
    by_points = FitOptions(scaling="individual", law="full")
    alone = fit_correlation(data.take(np.array(groups) == "low"), static(), by_points, QUIET)
    assert found.stderr["alpha"] < alone.stderr["alpha"]
