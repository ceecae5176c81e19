"""Sciences plug in: a stranger's package is found as the built-in ones are, and a broken one harms nobody else."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shardfit import Survey, load_result
from shardfit.sciences import GROUP, Science, get_science, installed
from tests.command_line import run

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "tiny_science"


def register(folder: Path, package: str, name: str, value: str, source: str = "") -> None:
    """Lay out what an installer leaves: a module and the metadata that names its entry point."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
    (folder / f"{package}.py").write_text(source)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that this process sees."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_built_in_sciences_are_registered():
    own = {each.name: each for each in installed() if each.package == "shardfit"}
    assert set(own) == {"population", "seismic", "vlbi", "xpcs"}, "`pip install -e .` writes the entry points"
    for each in own.values():
        assert each.science is not None, each.problem
        for kind in ("commands", "survey", "report"):
            if getattr(each.science, kind) is not None:
                each.science.module(kind)


BROKEN = {
    "raises": ("import numpie", "ModuleNotFoundError: No module named 'numpie'"),
    "leaves": ("raise SystemExit('bye')", "SystemExit: bye"),
    "lacks": ("", "AttributeError"),
    "is_another": ("SCIENCE = 3", "is of type int, not a Science"),
    "misnames": ("from shardfit import Science\nSCIENCE = Science('other', 'x')", "names itself 'other'"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_science_is_one_line_and_harms_nobody(kind, site, capsys):
    source, reason = BROKEN[kind]
    register(site, f"{kind}_pkg", "broken", f"{kind}_pkg:SCIENCE", source)
    code, out, _ = run(capsys, "--help")
    assert code == 0 and "vlbi" in out and "cannot be used" in out
    code, _, err = run(capsys, "broken", "fit")
    assert code == 2 and reason in err and "Traceback" not in err
    code, out, _ = run(capsys, "sciences")
    assert code == 1 and reason in out and "radio interferometry" in out
    with pytest.raises(ImportError, match="'broken' cannot be used"):
        get_science("broken")


def test_nobody_takes_the_name_of_another(site):
    source = "from shardfit import Science\nSCIENCE = Science('vlbi', 'not the real one')"
    register(site, "aaa_pirate", "vlbi", "aaa_pirate:SCIENCE", source)
    assert "radio" in get_science("vlbi").help
    (pirate,) = (each for each in installed() if each.package == "aaa-pirate" or each.package == "aaa_pirate")
    assert pirate.science is None and "shardfit has registered this name" in pirate.problem


def test_a_science_without_surveys_says_so(capsys, tmp_path):
    with pytest.raises(ValueError, match="'seismic' has no survey module.*vlbi"):
        get_science("seismic", "survey")
    with pytest.raises(ValueError, match="Did you mean 'seismic'"):
        get_science("sesmic")
    file = tmp_path / "s.toml"
    file.write_text('science = "seismic"\nout = "x"\n[axes]\na = [1]\n')
    code, _, err = run(capsys, "survey", "run", file)
    assert code == 2 and "no survey module" in err


@pytest.mark.parametrize(("name", "text"), [("Two words", "x"), ("UPPER", "x"), ("fine", " ")])
def test_a_description_is_checked(name, text):
    with pytest.raises(ValueError, match="Science"):
        Science(name, text)


def test_a_percent_sign_in_help(site, capsys):
    source = "from shardfit import Science\nSCIENCE = Science('odd', '100 % of it', commands='odd_pkg')"
    register(site, "odd_pkg", "odd", "odd_pkg:SCIENCE", source + "\nadd_arguments = run = lambda *_: 0")
    assert "100 % of it" in run(capsys, "--help")[1]
    assert run(capsys, "odd")[0] == 0


@pytest.fixture(scope="module")
def decay_site(tmp_path_factory):
    """The example science, installed by pip into a folder of its own."""
    pytest.importorskip("hatchling", reason="pip builds the example with it")
    folder = tmp_path_factory.mktemp("decay")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, *install, "--no-index", "--target", folder, EXAMPLE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def decay(decay_site, monkeypatch, tmp_path):
    """The example science in this process, and an empty working folder."""
    monkeypatch.syspath_prepend(str(decay_site))
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "decay"]:
        del sys.modules[name]


@pytest.mark.slow
def test_the_example_science_fits_and_reports(decay, capsys):
    pytest.importorskip("matplotlib")
    assert "half-lives from counts" in run(capsys, "--help")[1]
    assert "decay.counts" not in sys.modules, "the description of a science imports nothing of it"

    from decay.counts import TRUTH, simulate

    rows = simulate(60)
    np.savetxt("counts.csv", np.stack([rows["time"], rows["counts"]], 1), delimiter=",", header="time,counts")
    code, _, err = run(capsys, "decay", "counts.csv", "--out", "run")
    assert code == 0, err
    assert abs(load_result("run").params["half_life"] - TRUTH["half_life"]) < 15
    assert "the fitted curve" in Path("run/report.html").read_text()
    Path("run/figures/decay.png").unlink()
    assert run(capsys, "report", "run")[0] == 0 and Path("run/figures/decay.png").is_file()  # drawn anew


@pytest.mark.slow
def test_the_example_science_runs_surveys(decay, capsys):
    assert run(capsys, "init", "survey", "s.toml", "--science", "decay")[0] == 0
    text = Path("s.toml").read_text().replace('kind = "latin"', 'kind = "grid"')
    Path("s.toml").write_text(text)
    code, out, err = run(capsys, "survey", "run", "s.toml")
    assert code == 0 and "12 of 12 points" in out, err
    with Survey("runs/s") as survey:
        assert np.unique(survey.column("data")).size == 12  # every axis changes the answer


@pytest.mark.slow
def test_the_tests_of_the_example_science_pass(decay_site, tmp_path):
    paths = os.pathsep.join(map(str, (decay_site, ROOT / "src")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths})
    assert "3 passed" in done.stdout, done.stdout[-2000:]
