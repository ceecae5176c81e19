"""Processes that are about to fit different things say so, all of them, before any work."""

import pytest

pytestmark = pytest.mark.processes

EXPECTED = {
    "seed": "fit: rank 1 differs from rank 0 in seed.",
    "start": "fit: rank 1 differs from rank 0 in start.",
    "rows": "fit: rank 1 differs from rank 0 in rows.",
    "number of rows": "fit: rank 1 differs from rank 0 in number of rows, model of term 'mean', rows.",
    "no mesh": "2 processes run this fit, but it has no mesh",
    "idle": "would leave rank 1 without work",
    "moved": "spread over several processes",
    "not finite": "term 'mean' is nan at x0",
}


@pytest.mark.slow
def test_disagreements(launch, tmp_path):
    done = launch(2, "disagreeing.py", tmp_path)
    assert done.returncode == 0, done.stderr
    told = [
        dict(line.split(": ", 1) for line in (tmp_path / f"{rank}.txt").read_text().splitlines() if ": " in line)
        for rank in (0, 1)
    ]
    for name, words in EXPECTED.items():
        for rank in (0, 1):
            assert words in told[rank][name], (name, rank)
    assert "division by zero" in told[0]["solver fails"]
    assert "the solver failed in rank 0" in told[1]["solver fails"]
    assert [told[rank]["alone"] for rank in (0, 1)] == ["1.000000", "2.000000"]
    # ½Σ(y-1)² over 0..2 and 0..4
    assert told[0]["ragged"] == told[1]["ragged"] == "8.5 8"
