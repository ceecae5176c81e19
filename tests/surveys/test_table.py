"""The table of a survey: columns, ranking, pictures, files for other programs, and one writer at a time."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from shardfit.core.errors import CheckpointError
from shardfit.io.lock import only_writer
from shardfit.surveys.picture import Picture
from shardfit.surveys.reading import Survey
from tests.surveys.small import AXES, NEVER, POINTS, point, run

SICK = [*POINTS, point(**NEVER)]
PICTURE = Picture((2, 3), leaf="m", unit="Jy", extent=(1.0, -1.0, -1.0, 1.0), extent_unit="mas")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with run(tmp_path_factory.mktemp("table"), SICK, picture=PICTURE) as made:
        yield made


def test_columns_by_short_and_full_name(found):
    np.testing.assert_array_equal(found.column("noise"), found.column("axis.noise"))
    np.testing.assert_array_equal(found.column("reg.soft"), found.column("part.reg.soft"))
    assert list(found.column("prior")[:2]) == ["zero", "zero"]
    assert np.isnan(found.column("value")[-1])
    # 'data' is an axis and a part: the axis goes by the short name
    np.testing.assert_array_equal(found.column("data"), found.column("axis.data"))
    with pytest.raises(ValueError, match="no column 'axis.sotf'. Did you mean 'axis.soft'"):
        found.column("axis.sotf")


def test_value_is_the_weighted_sum_of_parts(found):
    parts = {name: found.column(f"part.{name}")[:-1] for name in found.heading.parts}
    total = parts["data"] + found.column("soft")[:-1] * parts["reg.soft"] + 0.1 * parts["reg.steep"]
    np.testing.assert_allclose(found.column("value")[:-1], total, rtol=1e-12)


def test_best(found):
    values = found.column("value")[:-1]
    assert [row["id"] for row in found.best(3, by="value")] == list(np.argsort(values)[:3])
    assert found.heading.rank == ("part.data",)  # the axes have weights, of which the value depends
    misfit = found.column("part.data")[:-1]
    assert [row["id"] for row in found.best(3)] == list(np.argsort(misfit)[:3])
    some = found.column("part.data") + found.column("reg.steep")
    assert [row["id"] for row in found.best(by=("part.data", "reg.steep"))] == list(
        np.argsort(some[:-1], kind="stable")
    )
    assert len(found.best()) == len(POINTS)


def test_pictures(found):
    np.testing.assert_array_equal(found.picture(3), found.params(3)["m"].reshape(2, 3))
    chosen = [2, 5, 7]
    pictures = np.stack([found.picture(i) for i in chosen])
    mean, sd = found.mean_and_sd(chosen)
    np.testing.assert_allclose(mean, pictures.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sd, pictures.std(axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="no points were chosen"):
        found.mean_and_sd([])
    assert found.heading.extent == PICTURE.extent


def test_drawn_pictures(tmp_path):
    with run(tmp_path, POINTS[:2], picture=Picture((1, 6), draw=lambda params: params["m"] ** 2)) as drawn:
        np.testing.assert_allclose(drawn.picture(1)[0], drawn.params(1)["m"] ** 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (Picture((2, 3)), "either leaf, the name of a parameter, or draw"),
        (Picture((2, 3), leaf="n"), "no parameter 'n'"),
        (Picture((2, 2), leaf="m"), "does not hold the 6 values"),
    ],
)
def test_pictures_that_are_none(tmp_path, picture, words):
    with pytest.raises(ValueError, match=words):
        run(tmp_path, picture=picture)


def test_summary(found):
    assert len(found) == len(SICK)
    assert found.complete
    assert sum(found.status().values()) == len(SICK)
    assert found.last_run["slots"] == 4
    assert 0.3 < found.last_run["useful"] / found.last_run["total"] <= 1


def test_csv(found, tmp_path):
    path = found.to_csv(tmp_path / "table.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows[:-1]] == list(found.column("value")[:-1])
    assert rows[-1]["value"] == ""
    assert rows[0]["axis.prior"] == "zero"
    assert len(rows) == len(SICK)


def test_parquet(found, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    back = parquet.read_table(found.to_parquet(tmp_path / "table.parquet")).to_pydict()
    assert back["value"][:-1] == list(found.column("value")[:-1])
    assert back["value"][-1] is None
    assert back["axis.prior"] == list(found.column("prior"))


def test_xarray(found):
    pytest.importorskip("xarray")
    data = found.to_xarray()
    assert data.sizes["point"] == len(SICK)
    np.testing.assert_array_equal(data["picture"][3], found.picture(3))
    np.testing.assert_array_equal(data["part.data"], found.column("part.data"))
    assert list(data.coords["axis.prior"].values[:2]) == ["zero", "zero"]
    assert "picture" not in found.to_xarray(pictures=False)


@pytest.mark.parametrize(("package", "method"), [("xarray", "to_xarray"), ("pyarrow", "to_parquet")])
def test_packages_that_are_not_there(found, tmp_path, monkeypatch, package, method):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{method} needs {package}: pip install 'shardfit\[survey\]'"):
        getattr(found, method)(tmp_path / "x") if method == "to_parquet" else found.to_xarray()


def test_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shardfit.io.progress.PLAIN_SECONDS", 0.0)
    run(tmp_path, POINTS, progress=True).close()
    told = capsys.readouterr().err
    assert "12/12 points" in told
    assert "lowest value" in told
    assert set(AXES) == set(Survey(tmp_path).heading.axes)


# ---- one writer ---------------------------------------------------------------------------------------------------

HOLD = """
import sys
from shardfit.io.lock import only_writer
with only_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_told(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(CheckpointError, match=rf"in use by another process \(process {other.pid}\). Wait for it"):
            run(tmp_path)
        other.communicate()
    with only_writer(tmp_path):
        pass


def test_limits(tmp_path):
    with pytest.raises(ValueError, match="must not be negative"):
        run(tmp_path, limit=-1)
    with run(tmp_path, limit=0) as found:
        assert len(found) == 0
