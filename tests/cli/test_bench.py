"""shardfit bench: rates of every part, on one device and on several."""

import json

import pytest

from shardfit.cli import bench, main


def test_rates(capsys, monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    assert main(["bench", "--only", "core", "--devices", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rates"]
    assert [rate["devices"] for rate in found] == [1, 2, 1, 2]
    assert all(rate["per_second"] > 1e4 and rate["unit"] == "rows" for rate in found)
    assert main(["bench", "--only", "croe"]) == 2
    assert "Did you mean 'core'" in capsys.readouterr().err


@pytest.mark.slow
def test_every_science_has_rates(capsys, monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    assert main(["bench"]) == 0
    out = capsys.readouterr().out
    assert all(unit in out for unit in ("rows/s", "halos/s", "cells/s", "images/s", "points/s"))
