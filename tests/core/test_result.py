"""Result and Status: what they say."""

import numpy as np
import pytest

from shardfit.core.result import Result
from shardfit.core.status import Status


def make(**more):
    values = {
        "params": {"a": np.float64(1.25), "image": np.arange(9.0), "w": np.array([1.0, 2.0])},
        "value": 3.5,
        "parts": {"data<1>": 3.0},
        "status": Status.CONVERGED_VALUE,
        "solver": "lbfgsb",
        "steps": 7,
        "evaluations": 9,
        "history": {"value": np.array([4.0, 3.5])},
        "timings": {"total": 0.5},
        "layout": {"rows": 4},
    }
    return Result(**values | more)


@pytest.mark.parametrize("status", Status)
def test_success_follows_the_status(status):
    result = make(status=status)
    assert result.success == (status.name.startswith("CONVERGED") or status is Status.COMPLETED)
    assert status.message in result.message
    assert status.remedy in result.message
    assert Status.of(status.code) is status
    if status in (Status.STALLED, Status.NONFINITE, Status.MAX_STEPS, Status.INTERRUPTED, Status.FAILED):
        assert status.remedy, "what failed says what to do"


def test_codes_are_distinct():
    assert len({s.code for s in Status}) == len(Status)


def test_text_and_table_show_parameters_errors_and_units():
    stderr = {"a": np.float64(0.1), "image": np.zeros(9), "w": np.array([0.3, 0.4])}
    result = make(stderr=stderr, units={"a": "Jy"}, note="as asked")
    assert result.table()[0] == ("a", "1.25", "0.10", "Jy")
    text = str(result)
    assert "a = 1.25 ± 0.10 Jy" in text
    assert "array (9,), 0 … 8" in text
    assert "value 3.5 after 7 steps, 9 evaluations, 0.50 s (lbfgsb)" in text
    assert "as asked" in text
    assert make(params=np.float64(2.0)).table() == [("x", "2", "", "")]


def test_html_is_escaped():
    found = make(problem="<script>", units={"a": "<b>"})._repr_html_()
    assert "<script>" not in found
    assert "data&lt;1&gt; 3" in found
    assert "<td>&lt;b&gt;</td>" in found
