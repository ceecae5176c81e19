"""A problem of one's own from a configuration: init, plan, fit; the record of a run, and running it again."""

import json
import re

import pytest

from shardfit.cli import main, record
from shardfit.cli.options import without_option
from shardfit.cli.problems.config import METHODS, read_config
from shardfit.io.results import load_result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as `shardfit init fit` leaves it, and one fit made in it."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["init", "fit"]) == 0
        (folder / "model.py").rename(folder / "own_model.py")  # a module of this name is made by other tests too
        text = (folder / "fit.toml").read_text().replace('"model:', '"own_model:').replace("rows = 2000", "rows = 300")
        (folder / "fit.toml").write_text(text)
        assert main(["fit", "fit.toml", "--quiet"]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_the_answer_has_error_bars_and_a_report(folder):
    found = load_result("runs/fit")
    assert found.success and abs(found.params["lifetime"] - 1.5) < 4 * found.stderr["lifetime"]
    assert (folder / "runs/fit/report.html").stat().st_size > 10_000


def test_quiet_means_quiet(folder, capsys):
    assert main(["--quiet", "fit", "fit.toml", "--out", "quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_json_is_all_that_stdout_gets(capsys):
    assert main(["fit", "fit.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["exit"] == 0 and told["out"] == "runs/fit" and told["result"]["success"] is True
    assert (
        told["result"]["parameters"].keys() == {"amplitude", "lifetime"} and told["result"]["units"]["lifetime"] == "s"
    )
    assert "converged" in err
    assert main(["show", "runs/fit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told["result"]


def test_a_plan(capsys):
    assert main(["plan", "fit.toml"]) == 0
    assert "fits" in capsys.readouterr().out
    assert main(["plan", "fit.toml", "--memory", "1k", "--devices", "4,64", "--cluster", "speed=2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["available"] == 1000 and told["shards"] == 4 and told["fits"] is False
    assert [each["devices"] for each in told["scaling"]] == [4, 64] and told["cluster"]["speed"] == 2
    assert main(["plan", "fit.toml", "--devices", "0"]) == main(["plan", "fit.toml", "--cluster", "infinband"]) == 2
    assert "at least 1" in (told := capsys.readouterr().err) and "Did you mean 'infiniband'" in told
    assert main(["plan", "fit.toml", "--memory", "lots"]) == 2
    assert "16G" in capsys.readouterr().err


def test_another_solver_leaves_the_options_of_the_first(capsys):
    assert main(["fit", "fit.toml", "--solver", "lbfgs", "--maxiter", "1", "--out", "short"]) == 1  # one step
    assert "step limit" in capsys.readouterr().out


def test_the_record(folder):
    told = record.read("runs/fit")
    assert told["command"][:2] == ["fit", "fit.toml"] and told["exit"] == 0 and told["seconds"] > 0
    assert told["config"]["settings"] == {"rows": 300} and told["seed"] == 0
    assert told["files"] == {name: record.digest(folder / name) for name in ("fit.toml", "own_model.py")}
    report = (folder / "runs" / "fit" / "report.html").read_text()
    assert "How it was made" in report and told["files"]["own_model.py"] in report
    assert "shardfit fit fit.toml" in re.sub(r"</?span>", "", report)  # words that a line may break between
    assert told["environment"]["packages"]["jax"]


def test_run_again(folder, capsys):
    assert main(["rerun", "runs/fit"]) == 0
    out = capsys.readouterr().out
    assert "equal to the bit" in out and "--out" in out
    assert main(["rerun", "runs/fit"]) == 2  # its folder is there now
    assert "exists" in capsys.readouterr().err


def test_run_again_on_changed_files(folder, capsys):
    before = (folder / "fit.toml").read_text()
    (folder / "fit.toml").write_text(before.replace("rows = 300", "rows = 301"))
    try:
        assert main(["rerun", "runs/fit", "--out", "changed"]) == 2
        assert "fit.toml has changed since the run" in capsys.readouterr().err
        assert not (folder / "changed").exists()
        assert main(["rerun", "runs/fit", "--out", "changed", "--changed"]) == 1
        out = capsys.readouterr().out
        assert "lifetime" in out and "differ by more than 1e-06" in out
        assert main(["rerun", "runs/fit", "--out", "changed2", "--changed", "--rtol", "1"]) == 0
    finally:
        (folder / "fit.toml").write_text(before)


def test_nothing_to_run_again(tmp_path, capsys):
    assert main(["rerun", str(tmp_path)]) == 2
    assert "command.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seed = 0", "sede = 0", "Did you mean 'seed'"),
        ("seed = 0", 'seed = "a"', "must be a whole number"),
        ("[settings]", "settings = 5\n[fit.more]", "must be a section"),
        ("rows = 300", "row = 300", "row"),
        ("own_model:make_problem", "own_model:make_probelm", "cannot be loaded"),
        ('"own_model:make_problem"', '"own_model:decay"', "decay"),
        ("# devices = 4", "device = 4", "Did you mean 'devices'"),
        ('solver = "lbfgsb"', 'sovler = "lbfgsb"', "Did you mean 'solver'"),
        ("maxiter = 100", 'maxiter = "many"', "wrong.toml: [fit] maxiter = 'many' must be a whole number"),
        ("rows = 300", "rwos = 300", "has an unknown entry 'rwos'. Did you mean 'rows'"),
        ("own_model:make_problem", "own_model:make_probelm", "Did you mean 'make_problem'"),
        ('out = "runs/fit-posterior"', "out = 3", "[sample] out = 3 must be a text"),
    ],
)
def test_wrong_configurations(folder, capsys, old, new, expected):
    (folder / "wrong.toml").write_text((folder / "fit.toml").read_text().replace(old, new))
    assert main(["fit", "wrong.toml", "--out", "wrong"]) == 2
    assert expected in capsys.readouterr().err
    assert not (folder / "wrong" / "result.json").exists()


def test_init_replaces_nothing(folder, capsys):
    assert main(["init", "fit", "fit.toml"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["init", "fti"]) == 2
    assert "Did you mean 'fit'" in capsys.readouterr().err


def test_options_taken_out_of_a_command_line():
    words = ["fit", "a.toml", "--out", "x", "--seed", "3"]
    assert without_option(words, "--out") == ["fit", "a.toml", "--seed", "3"]
    assert without_option(["fit", "--out=x"], "--out") == ["fit"]


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes(folder, capfd):
    assert main(["fit", "fit.toml", "--processes", "2", "--out", "two"]) == 0
    assert abs(load_result("two").params["lifetime"] - load_result("runs/fit").params["lifetime"]) < 1e-6


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "how", [("fit", "--processes", "2"), ("launch", "-n", "2", "--restarts", "2", "--", "shardfit", "fit")]
)
def test_what_has_not_converged_is_no_failure_of_a_process(folder, capfd, how):
    (folder / "short.toml").write_text((folder / "fit.toml").read_text().replace("maxiter = 100", "maxiter = 2"))
    assert main([*how, "short.toml", "--out", f"short-{how[0]}"]) == 1
    out, err = capfd.readouterr()
    assert "report: " in out and load_result(f"short-{how[0]}").status.name == "MAX_STEPS"
    assert "failed" not in err and "starting again" not in err
    assert json.loads((folder / f"short-{how[0]}" / "command.json").read_text())["exit"] == 1


@pytest.mark.slow
def test_the_same_model_is_sampled_and_calibrated(folder, capsys):
    assert main(["sample", "fit.toml", "--out", "sampled", "--draws", "500"]) == 0
    assert main(["rerun", "sampled"]) == 0
    assert "equal to the bit" in capsys.readouterr().out


def test_each_method_has_a_folder_of_its_own(folder, capsys):
    """`init fit` names five commands for one file: none may find the folder of another."""
    config = read_config("fit.toml")
    folders = {name: str(config.folder(name, None)) for name in METHODS}
    assert folders["fit"] == "runs/fit" and len(set(folders.values())) == len(METHODS)
    assert all("out" not in config.section(name) for name in METHODS)
    assert str(config.folder("sample", "elsewhere")) == "elsewhere"


def test_a_run_that_has_ended_is_not_repeated(folder, capsys):
    assert main(["fit", "fit.toml"]) == 0
    assert "holds an answer already" in capsys.readouterr().out
    assert main(["fit", "fit.toml", "--solver", "lbfgs", "--out", "runs/fit"]) == 2
    told = capsys.readouterr().err
    assert "--resume never" in told and "solver's" not in told  # options of another solver say nothing


def test_run_again_says_what_it_does_in_its_own_voice(folder, capsys):
    assert main(["fit", "fit.toml", "--out", "voiced", "--json", "--resume", "auto"]) == 0
    assert json.loads(capsys.readouterr().out)["exit"] == 0
    assert main(["rerun", "voiced"]) == 0
    out = capsys.readouterr().out
    assert "--json" not in out and "{" not in out and "equal to the bit" in out


def test_a_file_in_place_of_the_folder(folder, capsys):
    assert main(["fit", "fit.toml", "--out", "fit.toml"]) == 2
    assert "--out fit.toml: a file of this name exists" in capsys.readouterr().err


@pytest.mark.parametrize("science", ["seismic", "population", "xpcs"])
def test_init_of_a_science(folder, capsys, science, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", science]) == 0 and f"shardfit {science}" in capsys.readouterr().out
    assert main(["init", science]) == 2 and "--force" in capsys.readouterr().err
    assert main(["init", science, "--force"]) == 0
