"""What a release must agree on: one version everywhere, the Pythons that are promised, files that forges look for."""

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SEMANTIC = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[\w.]+)?"
PYTHONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]


def text(name: str) -> str:
    path = ROOT / name
    if not path.is_file() and name.startswith("."):
        pytest.skip("this is not a checkout")
    return path.read_text(encoding="utf-8")


def test_one_version():
    from importlib.metadata import version

    citation = yaml.safe_load(text("CITATION.cff"))
    assert re.fullmatch(SEMANTIC, PROJECT["version"])
    assert citation["version"] == PROJECT["version"] == version("shardfit")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_is_in_order():
    headings = re.findall(r"^## (.*)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(rf"\[({SEMANTIC})\] - \d{{4}}-\d{{2}}-\d{{2}}", heading) for heading in headings[1:]]
    assert all(released), headings
    numbers = [tuple(map(int, found[1].partition("-")[0].split("."))) for found in released if found]
    assert numbers == sorted(numbers, reverse=True)
    order = ["Added", "Changed", "Deprecated", "Fixed", "Removed", "Security"]
    for release in re.split(r"^## ", text("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert kinds == [kind for kind in order if kind in kinds]  # each once, none of another name


def test_the_oldest_python_is_the_same_everywhere():
    oldest = PYTHONS[0]
    project = tomllib.loads(text("pyproject.toml"))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert project["tool"]["pyright"]["pythonVersion"] == oldest
    assert f"Python >= {oldest}" in text("Makefile") and f"Python {oldest} or newer" in text("README.md")


def test_the_workflow_runs_what_a_change_must_pass():
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
    assert jobs["check"]["strategy"]["matrix"]["python"] == PYTHONS
    assert {"run": ".ci/run"} in jobs["check"]["steps"]
    assert {"run": "make wheel"} in jobs["package"]["steps"]
    versions = [
        step["with"]["python-version"] for step in jobs["package"]["steps"] if "python-version" in step.get("with", {})
    ]
    assert versions == PYTHONS[:1]  # kernels of a wheel run with the jaxlib they were compiled for, and later ones
    assert jobs["install"]["strategy"]["matrix"]["python"] == PYTHONS


@pytest.mark.parametrize("name", ["wish.yml", "wrong-answer.yml"])
def test_issue_templates(name):
    form = yaml.safe_load(text(f".github/ISSUE_TEMPLATE/{name}"))
    assert form["name"] and form["description"]
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])


def test_policies_are_there():
    assert "Report a vulnerability" in text("SECURITY.md")
    assert "DeprecationWarning" in text("SECURITY.md") and "DeprecationWarning" in text("CONTRIBUTING.md")
