"""The public surface is a list: a change of it is a visible change of this file."""

import shardfit as sf

PUBLIC = {
    "Above",
    "Axis",
    "BacktrackingLBFGS",
    "Below",
    "Certificate",
    "CheckpointError",
    "Custom",
    "Gram",
    "Halving",
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
    "Picture",
    "Plan",
    "Problem",
    "Result",
    "RunDir",
    "Simplex",
    "Snapshot",
    "Softplus",
    "Span",
    "Status",
    "Survey",
    "Swarm",
    "TanInterval",
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
    "seed_axis",
    "start_axis",
    "statistic_term",
    "survey",
    "total",
    "weight_axis",
    "within",
}


def test_names():
    assert set(sf.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(sf, name).__doc__, f"{name} has no docstring"
