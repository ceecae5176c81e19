"""Ledgers let go of their files, also where nobody closes them; Python 3.13 warns of a database that stays open."""

import gc
import sqlite3

import pytest

import shardfit as sf
from shardfit.core.errors import CheckpointError
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import LEDGER, Ledger

HEADING = Heading("test", 100, {"tv": "Jy"}, ("data",), {"m": (3,)}, asked={"seed": 0})


@pytest.fixture
def opened(monkeypatch):
    """Every connection that is opened; at the end all must be closed."""
    found, connect = [], sqlite3.connect

    def remembered(*args, **options):
        found.append(connect(*args, **options))
        return found[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    yield found
    for connection in found:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_survey_that_is_dropped(tmp_path, opened):
    Ledger.create(tmp_path, HEADING)
    assert len(sf.Survey(tmp_path)) == 0
    gc.collect()
    assert len(opened) == 2


@pytest.mark.parametrize("content", [b"garbage" * 2000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_cannot_be_read(tmp_path, opened, content):
    (tmp_path / LEDGER).write_bytes(content)
    for use in (lambda: Ledger.create(tmp_path, HEADING), lambda: sf.Survey(tmp_path)):
        with pytest.raises(CheckpointError, match="is damaged"):
            use()
    assert len(opened) >= 2
