"""Groups of processes fit different data at the same time, as each would alone; a failure names rank and group."""

import io
import json

import pytest

import shardfit as sf
from shardfit.distributed.groups import ranks_of
from shardfit.io.progress import Progress
from tests.processes import grouped

pytestmark = pytest.mark.processes


def answers(folder, first, n):
    return [json.loads((folder / f"{first}-{rank}.json").read_text()) for rank in range(n)]


def test_groups_of_one_process():
    number, mesh = sf.my_group(1)
    assert number == 0 and mesh == sf.mesh()
    with pytest.raises(ValueError, match=r"my_group\(2\): 1 process can form 1 to 1 groups"):
        sf.my_group(2)


@pytest.mark.parametrize(
    ("groups", "size", "ranks"),
    [
        (2, 5, [[0, 1, 2], [3, 4]]),
        (4, 9, [[0, 1, 2], [3, 4], [5, 6], [7, 8]]),
        ([1, 3], 4, [[0], [1, 2, 3]]),
        ((2,), 2, [[0, 1]]),
        ("hosts", 5, [[0, 1, 4], [2, 3]]),
    ],
)
def test_ranks_of_groups(groups, size, ranks):
    assert ranks_of(groups, size, ["a", "a", "b", "b", "a"]) == ranks


@pytest.mark.parametrize("sizes", [[1, 2], [4, 0], [], [2.0, 2.0], [5, -1]])
def test_sizes_that_do_not_add_up(sizes):
    with pytest.raises(ValueError, match="at least 1, that add up to all processes, and there are 4 processes"):
        ranks_of(sizes, 4)


def test_one_group_for_every_machine():
    number, mesh = sf.my_group("hosts")
    assert number == 0 and mesh == sf.mesh()
    with pytest.raises(ValueError, match="my_group\\('host'\\): give how many groups"):
        sf.my_group("host")


def test_groups_leave_the_terminal_line_to_nobody():
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})()
    assert Progress("fit", 10, terminal, alone=False).line.live is False
    assert terminal.getvalue() == ""


@pytest.mark.slow
def test_two_groups_at_once_equal_each_alone_to_the_bit(launch, tmp_path):
    together = launch(4, "grouped.py", tmp_path, "2,2", 0)
    assert together.returncode == 0, together.stderr
    found = answers(tmp_path, 0, 4)
    assert [one["group"] for one in found] == [0, 0, 1, 1]
    assert all(one["everyone"] == [0, 0, 1, 1] for one in found)
    for group, (_, n) in enumerate(grouped.CURVES):
        own, folder = found[2 * group], tmp_path / f"run-{group}"
        assert own == found[2 * group + 1]
        assert (own["processes"], own["n_rows"], own["certified"]) == (2, n, True)
        assert json.loads((folder / "result.json").read_text())["layout"]["processes"] == 2
        events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
        assert (events[0], events[-1], events.count("started")) == ("started", "finished", 1)
        (tmp_path / f"alone-{group}").mkdir()
        alone = launch(2, "grouped.py", tmp_path / f"alone-{group}", 1, group)
        assert alone.returncode == 0, alone.stderr
        expected = answers(tmp_path / f"alone-{group}", group, 2)[0]
        for name in ("params", "values", "status"):
            assert own[name] == expected[name], name
    assert found[0]["params"] != found[2]["params"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "rank", "named"),
    [
        ("raise", 2, "rank 2 (group 1) failed (ArithmeticError: the model broke)"),
        ("kill", 2, "rank 2 was ended by SIGKILL"),
        ("hang", 2, "rank 2 (group 1) hangs or is slow"),
    ],
)
def test_a_failure_in_one_group_is_named_and_ends_all(launch, tmp_path, how, rank, named):
    done = launch(4, "grouped.py", tmp_path, 2, 0, how, rank, options=("--timeout", 8))
    assert done.returncode != 0
    assert named in done.stderr
    assert f"shardfit launch: rank {rank} " in done.stderr
    assert not any(f"launch: rank {other} " in done.stderr for other in range(4) if other != rank)
