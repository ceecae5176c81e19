import pytest

from shardfit import RunDir, RunOptions


@pytest.mark.parametrize(("change", "message"), [({"resume": "maybe"}, "auto, must"), ({"seed": -1}, "seed = -1 must")])
def test_mistakes(change, message):
    with pytest.raises(ValueError, match=message):
        RunOptions(**change)


def test_parts_of_a_run_have_folders_in_its_own(tmp_path):
    assert RunOptions().part("fits/01") is None
    assert RunOptions(run_dir=str(tmp_path)).part("fits/01") == tmp_path / "fits/01"
    often = RunOptions(run_dir=RunDir(tmp_path, seconds=0.5)).part("band-01")
    assert often.path == tmp_path / "band-01"
    assert often.seconds == 0.5


def test_must_insists_on_what_begins_first():
    assert [RunOptions(resume=how).later.resume for how in ("auto", "must", "never")] == ["auto", "auto", "never"]
