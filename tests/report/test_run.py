import json
import sys
from dataclasses import replace

import pytest

from shardfit.core.result import certified_by
from shardfit.io.files import write_json
from shardfit.io.results import save_result
from shardfit.report.blocks import Cards, PngBlock, Section, Table, Text
from shardfit.report.run import report_run
from shardfit.report.study import Study, kept_picture, save_figure

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture
def run_dir(result, tmp_path):
    return save_result(result, tmp_path / "run")


def test_report_of_a_run_directory(run_dir):
    write_json(run_dir / "env.json", {"python": "3.11.9", "packages": {"jax": "0.10.2"}})
    path = report_run(run_dir)
    assert path == run_dir / "report.html"
    assert "0.10.2" in path.read_text()
    assert sorted(p.name for p in (run_dir / "figures").iterdir()) == ["convergence.png", "parameters.png"]
    first = path.read_bytes()
    assert report_run(run_dir).read_bytes() == first


def test_a_result_without_history_or_errors_has_a_report(result, tmp_path):
    bare = type(result)(**{**vars(result), "stderr": None, "history": {}, "certificate": None})
    text = report_run(save_result(bare, tmp_path)).read_text()
    assert "not checked" in text
    assert "<img" not in text


def test_a_certificate_of_an_earlier_fit_is_named(result, tmp_path):
    bare = replace(result, certificate=None)
    assert certified_by(result, {"summary": "another"}) is result and certified_by(bare, None) is bare
    later = certified_by(bare, result.certificate)
    again = certified_by(bare, later.certificate)
    assert later.certificate["earlier"] and again.certificate == later.certificate
    assert str(later).endswith("(in an earlier fit of this run, of the same terms)")
    text = report_run(save_result(later, tmp_path)).read_text()
    assert "an earlier fit of this run" in text and "not checked" not in text


def test_what_a_study_shows_is_kept(run_dir, result):
    from shardfit.report.figures import parameters

    mine = save_figure(parameters(result), run_dir, "mine", "seen")
    study = Study("A study", "under", [Section("Part", [Text("words & more"), Table(["h"], [["cell"]]), mine])])
    text = report_run(run_dir, study).read_text()
    assert report_run(run_dir).read_text() == text
    for expected in ("<h1>A study</h1>", "under", "<h2>Part</h2>", "words &amp; more", "<td>cell</td>", "seen"):
        assert expected in text
    assert text.count("<img") == 3


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".hidden", "a/b"])
def test_pictures_stay_inside_the_run_directory(name, run_dir):
    Study(sections=[Section("", [PngBlock(PNG, name=name)])]).save(run_dir)
    with pytest.raises(ValueError, match="not a plain name"):
        report_run(run_dir)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "not valid JSON"),
        ("[]", "not built as expected"),
        ('{"sections": [{"blocks": [{"odd": 1}]}]}', "none of 'text'"),
    ],
)
def test_damaged_extra_is_explained(content, match, run_dir):
    (run_dir / "report.json").write_text(content)
    with pytest.raises(ValueError, match=match):
        report_run(run_dir)


def test_missing_picture_is_explained(run_dir):
    Study(sections=[Section("", [PngBlock(PNG, name="gone")])]).save(run_dir)
    with pytest.raises(FileNotFoundError, match="gone.png, which is missing"):
        report_run(run_dir)


def test_a_picture_beside_the_other_files_is_found(run_dir):
    (run_dir / "map.png").write_bytes(PNG)
    block = kept_picture(run_dir, "map", "seen")
    assert block == PngBlock(PNG, "seen", "map")
    Study("t", sections=[Section("", [block])]).save(run_dir)
    assert "seen" in report_run(run_dir).read_text()
    assert not (run_dir / "figures" / "map.png").exists()


@pytest.mark.parametrize("block", [PngBlock(PNG, "no name"), Cards([])])
def test_a_study_keeps_what_can_be_kept(block, run_dir):
    with pytest.raises(TypeError, match="keeps texts, tables and pictures"):
        report_run(run_dir, Study(sections=[Section("", [block])]))


def test_figures_of_a_science_that_is_not_installed_are_named(run_dir):
    Study("t", science="absent", settings={"a": 1}).save(run_dir)
    assert "unknown science &#x27;absent&#x27;" in report_run(run_dir).read_text()


def test_the_science_of_a_run_draws_its_figures(run_dir, result, monkeypatch):
    from shardfit.report.figures import parameters
    from shardfit.sciences import Science

    def figures(folder, got, settings):
        assert folder == run_dir and got.value == result.value
        return {"own": (f"drawn with {settings['colour']}", parameters(got))}

    module = type(json)("drawing")
    module.figures = figures
    monkeypatch.setitem(sys.modules, "drawing", module)
    monkeypatch.setattr("shardfit.report.run.get_science", lambda name, kind: Science(name, "x", report="drawing"))
    study = Study("t", science="toy", settings={"colour": "blue"})
    assert "drawn with blue" in report_run(run_dir, study).read_text()
    assert (run_dir / "figures" / "own.png").is_file()
