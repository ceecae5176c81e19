"""The ledger alone: every point once and whole, whatever happens to the process, the file or the disk."""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reliability.mutation import mutated
from shardfit.core.errors import CheckpointError
from shardfit.io.files import from_json, to_json
from shardfit.surveys import database
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import LEDGER, PARTS, Ledger, gather_parts
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.reading import Survey

ODD = 'a "quoted"; DROP TABLE points -- τ\'s'
HEADING = Heading("test", 100, {"tv": "Jy", ODD: ""}, ("data", "µ"), {"m": (3,)}, asked={"seed": 0})


def record(number, attempt=1, value=None, **more):
    value = float(number) if value is None else value
    status = "CONVERGED_VALUE" if np.isfinite(value) else "NONFINITE"
    params = np.full(3, number, float).tobytes()
    axes, parts = {"tv": 0.1 * number, ODD: "naïve 'text'"}, {"data": value, "µ": 2.0}
    return SurveyPoint(number, axes, status, value, parts, 5, 6, 0.1, attempt=attempt, params=params, **more)


FAILED = {"value": float("nan"), "reason": "non-finite"}


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path, HEADING) as made:
        yield made


def test_what_is_written_is_read(ledger, tmp_path):
    ledger.write([record(3), record(1, picture=None), record(2, **FAILED)])
    assert ledger.ids() == [1, 2, 3]
    assert ledger.ids(failed=True) == [2]
    back = {r.id: r for r in ledger.records()}
    assert back[3].axes == record(3).axes
    assert back[3].parts == record(3).parts
    assert np.isnan(back[2].value)
    assert back[2].failed
    np.testing.assert_array_equal(ledger.params(3)["m"], [3, 3, 3])
    with pytest.raises(KeyError, match="point 7 is not finished"):
        ledger.params(7)
    with pytest.raises(ValueError, match="keeps no pictures"):
        ledger.picture(1)
    with Ledger.open(tmp_path, read_only=True) as again:
        assert again.heading == HEADING
        assert again.rows("ORDER BY id")[0][f"axis.{ODD}"] == "naïve 'text'"


ASKING = """
import sys, threading, time
from shardfit.surveys.ledger import Ledger

LONG = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT sum(i) FROM n"
with Ledger.open(sys.argv[1], read_only=True) as ledger:
    asks = lambda: [ledger.select(LONG) for _ in range(30)]
    threads = [threading.Thread(target=asks, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        worked = time.process_time()
        for thread in threads:
            thread.join(5)
        # a busy machine makes them slow; only threads that wait for each other do no work at all
        if all(thread.is_alive() for thread in threads) and time.process_time() - worked < 1e-3:
            sys.exit("the threads stand still")
"""


def test_threads_may_ask_at_once(ledger, tmp_path):
    """A server's threads share a connection. They once stood still for ever, each with the lock the other wanted."""
    ledger.write([record(1)])
    done = subprocess.run([sys.executable, "-c", ASKING, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_point_is_written_once_and_a_refused_write_leaves_nothing(ledger):
    ledger.write([record(1)])
    with pytest.raises(CheckpointError, match="a point was finished twice"):
        ledger.write([record(2), record(1)])
    assert ledger.ids() == [1]


def test_only_a_later_attempt_takes_the_place_of_a_failed_one(ledger):
    ledger.write([record(1, **FAILED)])
    with pytest.raises(CheckpointError, match="finished twice"):
        ledger.write([record(1)])
    ledger.write([record(1, attempt=2)])
    with pytest.raises(CheckpointError, match="finished twice"):
        ledger.write([record(1, attempt=3)])
    assert ledger.ids(failed=False) == [1]


def test_columns_that_sql_cannot_tell_apart():
    with pytest.raises(ValueError, match="'axis.TV' and 'axis.tv' differ in case only"):
        Heading("test", 1, {"TV": "", "tv": ""}, (), {"m": (1,)})


@pytest.mark.parametrize("change", [{"total": 99}, {"asked": {"seed": 1}}, {"params": {"m": (4,)}}, {"shape": (1, 3)}])
def test_another_survey_is_refused(ledger, tmp_path, change):
    other = Heading(**{**HEADING.__dict__, **change})
    with pytest.raises(CheckpointError, match="belongs to another survey: (seed|total|params|shape) differ"):
        Ledger.create(tmp_path, other)


def test_a_maker_killed_before_its_first_write(tmp_path):
    database.connect(tmp_path / LEDGER).close()
    assert (tmp_path / LEDGER).stat().st_size
    with Ledger.create(tmp_path, HEADING) as made:
        made.write([record(1)])


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no survey: ledger.sqlite is missing"):
        Survey(tmp_path)


def fill(folder, n=40):
    with Ledger.create(folder, HEADING) as made:
        for i in range(n):
            made.write([record(i)])
    return folder / LEDGER


def test_garbage(tmp_path):
    path = fill(tmp_path)
    path.write_bytes(b"garbage" * 2000)
    for use in (lambda: Ledger.create(tmp_path, HEADING), lambda: Survey(tmp_path)):
        with pytest.raises(CheckpointError, match="is damaged .* or move it away"):
            use()


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_damaged_pages_are_noticed_before_anything_is_added(tmp_path, how):
    path = fill(tmp_path)
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[:4096] + b"\xff" * 8192 + content[4096 + 8192 :])
    with pytest.raises(CheckpointError, match="is damaged"):
        Ledger.create(tmp_path, HEADING)


def test_damage_found_while_reading(tmp_path):
    path = fill(tmp_path)
    with Survey(tmp_path) as found:
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        with pytest.raises(CheckpointError, match="is damaged"):
            found.best(3)


def test_a_ledger_without_a_heading(tmp_path):
    fill(tmp_path)
    with sqlite3.connect(tmp_path / LEDGER) as connection:
        connection.execute("UPDATE about SET value = '{' WHERE key = 'heading'")
    connection.close()
    with pytest.raises(CheckpointError, match="its heading cannot be read"):
        Survey(tmp_path)


def test_a_ledger_of_another_format(tmp_path):
    fill(tmp_path)
    with sqlite3.connect(tmp_path / LEDGER) as connection:
        (text,) = connection.execute("SELECT value FROM about WHERE key = 'heading'").fetchone()
        other = to_json({**from_json(text, "it"), "format": 99})
        connection.execute("UPDATE about SET value = ? WHERE key = 'heading'", (other,))
    connection.close()
    with pytest.raises(CheckpointError, match="another format than 3"):
        Survey(tmp_path)


def forged(folder, *statements):
    """Fill a ledger, then change it as a stranger could."""
    path = fill(folder, 5)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.close()


ENDLESS = (
    "CREATE VIEW points AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n",
    "CREATE VIEW about AS SELECT 'heading' AS key, zeroblob(900000000) AS value",
    "CREATE TRIGGER t AFTER INSERT ON points BEGIN DELETE FROM points; END",
    "CREATE TABLE more (x)",
    "ALTER TABLE points ADD COLUMN z GENERATED ALWAYS AS (zeroblob(900000000))",
)


@pytest.mark.parametrize("statement", ENDLESS)
def test_only_the_tables_of_a_ledger_are_read(tmp_path, statement):
    made = statement.split()[2]
    first = [f"DROP TABLE {made}"] if made in ("points", "about") and "ALTER" not in statement else []
    forged(tmp_path, *first, statement)
    for use in (lambda: Survey(tmp_path), lambda: Ledger.create(tmp_path, HEADING)):
        with pytest.raises(CheckpointError, match="is damaged .it (is not the ledger|holds other tables)"):
            use()


CHANGED = {
    "parameters": ("UPDATE found SET params = zeroblob(24) WHERE id = 3", lambda s: s.params(3), "what point 3 found"),
    "length": ("UPDATE found SET params = x'00' WHERE id = 3", lambda s: s.params(3), "what point 3 found"),
    "value": ("UPDATE points SET value = -1 WHERE id = 3", lambda s: s.best(1), "point 3"),
    "column": ("UPDATE points SET value = -1 WHERE id = 3", lambda s: s.column("value"), "point 3"),
    "swapped": ("UPDATE points SET id = 3 - id WHERE id IN (0, 3)", lambda s: s.best(1), "point [03]"),
    "torn off": ("DELETE FROM found WHERE id = 3", lambda s: s.best(5), "point 3"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_point_is_noticed(tmp_path, change):
    statement, use, what = CHANGED[change]
    if change == "swapped":
        forged(tmp_path, "UPDATE points SET id = 9 WHERE id = 3", "UPDATE points SET id = 3 WHERE id = 0")
    else:
        forged(tmp_path, statement)
    with Survey(tmp_path) as survey, pytest.raises(CheckpointError, match=f"{what} does not match its checksum"):
        use(survey)
    if change not in ("parameters", "length"):
        with pytest.raises(CheckpointError, match="does not match its checksum"):
            Ledger.create(tmp_path, HEADING)


HEADINGS = ("[]", "{", "[" * 100_000, '{"format": 2}', '{"name": 3}')
FIELDS = {
    "axes": 3,
    "params": {"m": [-1]},
    "parts": None,
    "dtype": "object",
    "picture": "none",
    "total": "many",
    "shape": 7,
}


@pytest.mark.parametrize("text", [*HEADINGS, *FIELDS])
def test_a_malformed_heading_is_one_clear_error(tmp_path, text):
    if text in FIELDS:
        content = {**from_json(HEADING.to_json(), "it"), text: FIELDS[text]}
        text = to_json(content)
    forged(tmp_path, ("UPDATE about SET value = ? WHERE key = 'heading'", (text,)))
    with pytest.raises(CheckpointError, match="its heading cannot be read"):
        Survey(tmp_path)


def test_links_are_not_followed(tmp_path):
    path = fill(tmp_path / "own")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / LEDGER).symlink_to(path)
    with pytest.raises(CheckpointError, match="ledger.sqlite is a link"):
        Survey(tmp_path / "other")
    (tmp_path / "own" / PARTS).mkdir()
    (tmp_path / "own" / PARTS / "a.sqlite").symlink_to(path)
    with pytest.raises(CheckpointError, match="a.sqlite is a link"):
        gather_parts(tmp_path / "own")


def test_what_cannot_be_identified_is_not_resumed(tmp_path):
    heading = Heading(**{**HEADING.__dict__, "unidentified": ("the picture uses a thing",)})
    with Ledger.create(tmp_path, heading) as made:
        made.write([record(1)])
    with pytest.raises(CheckpointError, match="cannot be resumed: the picture uses a thing. Use another run directory"):
        Ledger.create(tmp_path, heading)


def use_all(folder):
    """Return all that a survey tells."""
    with Survey(folder) as survey:
        told = [survey.best(), survey.status(), survey.column("value").tolist(), len(survey)]
        return repr((told, [survey.params(row["id"]) for row in survey.best()]))


@pytest.mark.parametrize("first, count", [(0, 100), pytest.param(100, 900, marks=pytest.mark.slow)])
def test_random_damage_to_a_ledger_is_noticed_or_harmless(tmp_path, first, count):
    path = fill(tmp_path / "whole", 12)
    whole, expected = path.read_bytes(), use_all(tmp_path / "whole")
    outcomes = []
    for number in range(first, first + count):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / LEDGER).write_bytes(mutated(whole, random.Random(number)))
        try:
            assert use_all(folder) == expected, number
            outcomes.append("same")
        except (CheckpointError, FileNotFoundError):
            outcomes.append("refused")
    assert outcomes.count("refused") > count / 4 and "same" in outcomes
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})


def test_locked_by_another_program(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.05)
    fill(tmp_path)
    other = sqlite3.connect(tmp_path / LEDGER, isolation_level=None)
    with Ledger.open(tmp_path) as ledger:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CheckpointError, match="locked. Another program writes to it"):
            ledger.write([record(70)])
        assert len(ledger.ids()) == 40  # reading goes on
        other.execute("ROLLBACK")
        ledger.write([record(70)])
    other.close()


def test_disk_full(ledger):
    ledger.write([record(1)])
    pages = ledger.connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.connection.execute(f"PRAGMA max_page_count = {pages}")
    large = np.zeros((200, 200))
    with pytest.raises(CheckpointError, match="full. Free some space and resume: all points written before are safe"):
        ledger.write([record(2), record(3, picture=large)])
    assert ledger.ids() == [1]
    ledger.connection.execute("PRAGMA max_page_count = 100000")
    ledger.write([record(2), record(3, picture=large)])
    assert ledger.ids() == [1, 2, 3]


def test_files_may_grow_no_further(ledger):
    ledger.write([record(1)])
    limits, action = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="(full|I/O).* safe"):
            ledger.write([record(2, picture=np.zeros((300, 300)))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, action)
    ledger.write([record(2, picture=np.zeros((300, 300)))])
    assert ledger.ids() == [1, 2]


def test_a_folder_that_cannot_be_written_to():
    user = os.geteuid() or 65534  # for root nothing is read-only
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    fill(folder)
    folder.chmod(0o555)
    root = os.geteuid()
    os.seteuid(user)
    try:
        with Survey(folder) as found:
            assert len(found) == 40
        with pytest.raises((CheckpointError, PermissionError)):
            Ledger.create(folder / "new", HEADING)
    finally:
        os.seteuid(root)
        folder.chmod(0o755)
        shutil.rmtree(folder)


# ---- parts --------------------------------------------------------------------------------------------------------


def part(folder, name, records):
    with Ledger.create(folder / PARTS, HEADING, f"{name}.sqlite", shared=True) as made:
        made.write(records)


def test_parts_are_gathered_once(ledger, tmp_path):
    ledger.write([record(1)])
    part(tmp_path, "a", [record(2), record(3, **FAILED)])
    part(tmp_path, "b", [record(1), record(2), record(4)])
    database.connect(tmp_path / PARTS / "c.sqlite", shared=True).close()  # a worker that has only just begun
    with Survey(tmp_path) as found:  # looking writes nothing
        assert found.ledger.ids() == [1]
    with Survey(tmp_path, gather=True) as found:
        assert found.ledger.ids() == [1, 2, 3, 4]
    assert ledger.gather() == 0
    part(tmp_path, "d", [record(3, attempt=2), record(4, attempt=2)])
    assert ledger.gather() == 1  # a failed point is replaced, a good one is not
    assert ledger.ids(failed=True) == []
    np.testing.assert_array_equal(ledger.params(4)["m"], [4, 4, 4])
    ledger.drop_parts()
    assert not list((tmp_path / PARTS).iterdir())


def test_a_worker_of_an_earlier_run_cannot_write_any_more(ledger, tmp_path):
    with Ledger.create(tmp_path / PARTS, HEADING, "a.sqlite", shared=True) as late:
        late.write([record(1)])
        ledger.gather()
        ledger.drop_parts()
        with pytest.raises(CheckpointError, match="a.sqlite: "):
            late.write([record(2)])
    assert ledger.gather() == 0
    assert ledger.ids() == [1]


def test_a_part_of_another_survey(ledger, tmp_path):
    other = Heading(**{**HEADING.__dict__, "asked": {"seed": 1}})
    Ledger.create(tmp_path / PARTS, other, "a.sqlite", shared=True).close()
    with pytest.raises(CheckpointError, match="a.sqlite belongs to another survey"):
        ledger.gather()


def test_a_damaged_part_is_named(ledger, tmp_path):
    part(tmp_path, "a", [record(2)])
    (tmp_path / PARTS / "a.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(CheckpointError, match="a.sqlite is damaged"):
        gather_parts(tmp_path)


# ---- kill -9 ------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from tests.surveys.test_ledger import HEADING, Ledger, record
shared = sys.argv[3] == "shared"
with Ledger.create(sys.argv[1], HEADING, sys.argv[2], shared=shared) as ledger:
    print(flush=True)
    i = len(ledger.ids())
    while True:
        ledger.write([record(i), record(i + 1), record(i + 2)])
        print(flush=True)
        i += 3
"""


@pytest.mark.parametrize("shared", ["own", "shared"])
def test_killed_in_the_middle_of_writes(tmp_path, shared):
    draw = np.random.default_rng(5)
    folder, name = (tmp_path / PARTS, "a.sqlite") if shared == "shared" else (tmp_path, LEDGER)
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(folder), name, shared]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=os.getcwd()) as writer:
            assert writer.stdout is not None
            for _ in range(1 + draw.integers(1, 20)):  # the ledger was made, and so many writes are done
                writer.stdout.readline()
            writer.kill()  # somewhere in the next ones
        with Ledger.create(tmp_path, HEADING) as ledger:
            ledger.gather()
            ids = ledger.ids()
            assert ids == list(range(len(ids)))
            assert len(ids) % 3 == 0
            assert all(ledger.params(i)["m"][0] == i for i in ids)
    assert ids
