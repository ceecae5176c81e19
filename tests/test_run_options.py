import pytest

from shardfit import CheckpointError, RunDir, RunOptions


@pytest.mark.parametrize(("change", "message"), [({"resume": "maybe"}, "auto, must"), ({"seed": -1}, "seed = -1 must")])
def test_mistakes(change, message):
    with pytest.raises(ValueError, match=message):
        RunOptions(**change)


def test_every_fit_of_a_series_has_a_folder(tmp_path):
    keywords = RunOptions(seed=3, run_dir=tmp_path, progress=False).series("fits/")
    assert keywords(2) == {
        "mesh": None,
        "seed": 3,
        "resume": "auto",
        "progress": False,
        "run_dir": tmp_path / "fits/02",
    }
    assert RunOptions().series("fits/")(1)["run_dir"] is None
    often = RunOptions(run_dir=RunDir(tmp_path, seconds=0.5)).series("band-")(1)["run_dir"]
    assert often.path == tmp_path / "band-01" and often.seconds == 0.5


def test_must_insists_on_the_first_fit_only(tmp_path):
    for missing in (RunOptions(resume="must"), RunOptions(run_dir=tmp_path, resume="must")):
        with pytest.raises(CheckpointError, match="no run to resume"):
            missing.series("band-")
    (tmp_path / "band-01").mkdir()
    (tmp_path / "band-01" / "config.json").write_text("{}")
    keywords = RunOptions(run_dir=tmp_path, resume="must").series("band-")
    assert keywords(2)["resume"] == "auto"  # it has not begun yet
