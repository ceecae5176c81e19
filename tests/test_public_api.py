"""The public surface is a list: a change of it is a visible change of this file."""

import shardfit as sf

PUBLIC = {
    "BacktrackingLBFGS",
    "Certificate",
    "CheckpointError",
    "Custom",
    "Gram",
    "Identity",
    "Interval",
    "LBFGS",
    "LBFGSB",
    "LM",
    "Log",
    "NonFiniteError",
    "Objective",
    "OptaxLoop",
    "Optimistix",
    "ParityError",
    "Plan",
    "Problem",
    "Result",
    "RunDir",
    "Simplex",
    "Snapshot",
    "Softplus",
    "Status",
    "Swarm",
    "fit",
    "join",
    "least_squares",
    "load_result",
    "mesh",
    "my_rows",
    "penalty",
    "plan",
    "residual_penalty",
    "residual_term",
    "save_result",
    "statistic_term",
    "total",
}


def test_names():
    assert set(sf.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(sf, name).__doc__, f"{name} has no docstring"
