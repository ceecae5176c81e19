import numpy as np
import pytest

from shardfit.core.result import Result
from shardfit.core.status import Status


def make_result(**changes) -> Result:
    fields = {
        "params": {"a": np.array(2.0), "w": np.array([0.5, -0.25])},
        "value": 12.5,
        "parts": {"data": 12.5},
        "status": Status.CONVERGED_VALUE,
        "solver": "lm(maxiter=100)",
        "steps": 7,
        "evaluations": 9,
        "history": {
            "value": np.array([100.0, np.nan, 20.0, 12.5]),
            "gradient": np.array([50.0, np.nan, 3.0, 0.0]),
            "step": np.array([1, 1, 2, 3]),
            "seconds": np.array([0.1, 0.2, 0.3, 0.4]),
        },
        "timings": {"compile": 0.5, "solve": 0.25, "total": 1.0},
        "layout": {"platform": "cpu", "rows": 2, "runs": 1, "processes": 1},
        "problem": "line",
        "stderr": {"a": np.array(0.013), "w": np.array([0.1, 0.2])},
        "units": {"a": "Hz", "w": ""},
        "certificate": {
            "shards": 2,
            "probe_rows": {"data": 64},
            "blocks": {"data": 1e-16},
            "sharded": {"data": 2e-16},
            "finite_difference": {"data": 3e-9},
            "precision": None,
            "undecided": {"data": 3},
            "points": ["x0", "answer"],
            "summary": "64 rows of 'data' probed at x0 and answer",
        },
    }
    return Result(**(fields | changes))


@pytest.fixture
def result() -> Result:
    return make_result()
