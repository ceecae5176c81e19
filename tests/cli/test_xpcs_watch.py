"""`shardfit xpcs watch` and batches: files as they come, bad ones named, nothing fitted twice."""

import csv
import json

import pytest

from shardfit.cli import main
from shardfit.cli.xpcs import watch
from shardfit.cli.xpcs.batch import write_summary
from shardfit.report.blocks import Link

QUICK = ["--hold", "D_offset=800", "--start", "D0=12000", "--start", "alpha=-0.2", "--no-arrays"]


def simulated(path, seed):
    assert main(["xpcs", "simulate", str(path), "--frames", "1:16", "--seed", str(seed)]) == 0


def rows(path):
    with path.open(newline="") as file:
        return {row["file"].rpartition("/")[2]: row for row in csv.DictReader(file)}


def watched(*options):
    return main(
        ["xpcs", "watch", "in", "--out", "out", "--settle", "0", "--every", "0.01", "--idle", "0", *QUICK, *options]
    )


def test_a_watch_takes_what_comes_and_goes_on_later(tmp_path, monkeypatch, capsys):
    fitted = []

    def quick_fit(file, out, config, split, resume):
        data = config.load(file)
        fitted.append(file.name)
        return {"file": str(file), "status": "converged_value", "reduced_chi2": "1", "D0": f"{data.c2.mean()}"}

    monkeypatch.setattr(watch, "fit_file", quick_fit)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    simulated("in/a.npz", 1)
    (tmp_path / "in/broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n and no more")
    (tmp_path / "in/notes.txt").write_text("not data")
    assert watched() == 1  # one could not be fitted
    found = rows(tmp_path / "out/summary.csv")
    assert found["a.npz"]["status"].startswith("converged") and "cannot be read" in found["broken.h5"]["status"]
    assert "broken.h5" in (tmp_path / "out/summary.html").read_text()

    simulated("in/b.npz", 2)
    capsys.readouterr()
    assert watched() == 1
    said = capsys.readouterr().out
    assert "2 files are done" in said and "broken" not in said and fitted == ["a.npz", "b.npz"]
    assert list(rows(tmp_path / "out/summary.csv")) == ["a.npz", "broken.h5", "b.npz"]

    (tmp_path / "in/b.npz").rename(tmp_path / "in/broken.h5")  # the file was written again, and is whole now
    assert watched() == 0 and fitted == ["a.npz", "b.npz", "broken.h5"]
    assert watched("--mode", "laminar_flow", "--gap", "2e6") == 0 and fitted[3:] == ["a.npz", "broken.h5"]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "fit_file", interrupted)
    simulated("in/c.npz", 3)
    assert watched("--mode", "laminar_flow", "--gap", "2e6") == 130
    assert "c.npz" not in rows(tmp_path / "out/summary.csv")


@pytest.mark.slow
def test_a_watch_leaves_answers_and_links_to_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    simulated("in/a.npz", 1)
    assert watched() == 0
    assert json.loads((tmp_path / "out/a_npz/nlsq/parameters.json").read_text())["convergence_status"]
    found = rows(tmp_path / "out/summary.csv")["a.npz"]
    assert abs(float(found["D0"]) - 15000) < 5 * float(found["D0_error"])
    assert 'href="a_npz/report.html"' in (tmp_path / "out/summary.html").read_text()


def test_files_are_taken_when_they_have_stopped_growing(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch.time, "time", lambda: (tmp_path / "a.h5").stat().st_mtime)
    arrivals, file = watch.Arrivals(settle=5.0), tmp_path / "a.h5"
    file.write_bytes(b"")
    for size, time, taken in ((0, 100, 0), (0, 120, 0), (10, 121, 0), (20, 125, 0), (20, 129, 0), (20, 130, 1)):
        now[0] = time
        if file.stat().st_size != size:
            file.write_bytes(bytes(size))
        assert len(arrivals.complete([file])) == taken
        assert arrivals.waiting == (not taken and time != 120)
    monkeypatch.setattr(watch.time, "time", lambda: file.stat().st_mtime + 60)
    assert len(watch.Arrivals(settle=5.0).complete([file])) == 1  # it was there long before
    file.unlink()
    assert not arrivals.complete([file])


def test_a_changed_configuration_is_fitted_again(tmp_path):
    ledger = watch.Ledger(tmp_path, watch.Config())
    ledger.add(tmp_path / "a.h5", (3, 7), {"file": "a.h5", "status": "failed: x"})
    assert watch.Ledger(tmp_path, watch.Config()).knows(tmp_path / "a.h5", (3, 7))
    assert not ledger.knows(tmp_path / "a.h5", (4, 7))
    assert not watch.Ledger(tmp_path, watch.Config(mode="laminar_flow")).knows(tmp_path / "a.h5", (3, 7))


def test_one_watch_per_folder_and_a_folder_there_must_be(tmp_path, capsys):
    from shardfit.io.lock import only_writer

    with only_writer(tmp_path / "out", "watch.lock"):
        assert main(["xpcs", "watch", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "in use" in capsys.readouterr().err
    assert main(["xpcs", "watch", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_summary_holds_names_from_strangers(tmp_path):
    bad = {"file": "<script>.h5", "status": "failed: <b>"}
    good = {"file": "a b.h5", "status": "converged_value", "reduced_chi2": "1", "D0": "3", "D0_error": "nan"}
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/report.html").write_text("")
    page = write_summary(tmp_path, [bad, good, good], [tmp_path / "x", tmp_path / "a b", tmp_path / "a b"]).read_text()
    assert "<script>" not in page and 'href="a%20b/report.html"' in page and "data:image/png" in page
    with pytest.raises(ValueError, match="relative"):
        Link("x", "javascript:alert(1)")
