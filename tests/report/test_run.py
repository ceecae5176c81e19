import json
import sys
from dataclasses import replace

import pytest

from shardfit.core.result import certified_by
from shardfit.io.files import write_json
from shardfit.io.results import save_result
from shardfit.report.run import report_run, save_extra, save_figure

pytest.importorskip("matplotlib")


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


def test_extra_sections_are_kept(run_dir, result):
    from shardfit.report.figures import parameters

    save_figure(parameters(result), run_dir, "mine")
    blocks = [{"text": "words & more"}, {"header": ["h"], "rows": [["cell"]]}, {"picture": "mine", "caption": "seen"}]
    save_extra(run_dir, "A study", "under", [{"title": "Part", "blocks": blocks}])
    text = report_run(run_dir).read_text()
    for expected in ("<h1>A study</h1>", "under", "<h2>Part</h2>", "words &amp; more", "<td>cell</td>", "seen"):
        assert expected in text
    assert text.count("<img") == 3


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".hidden", "a/b"])
def test_pictures_stay_inside_the_run_directory(name, run_dir):
    save_extra(run_dir, "t", "", [{"title": "", "blocks": [{"picture": name}]}])
    with pytest.raises(ValueError, match="not a plain name"):
        report_run(run_dir)


@pytest.mark.parametrize(
    ("content", "match"),
    [("{", "not valid JSON"), ("[]", "no JSON object"), ('{"sections": [{"blocks": [{"odd": 1}]}]}', "none of 'text'")],
)
def test_damaged_extra_is_explained(content, match, run_dir):
    (run_dir / "report.json").write_text(content)
    with pytest.raises(ValueError, match=match):
        report_run(run_dir)


def test_missing_picture_is_explained(run_dir):
    save_extra(run_dir, "t", "", [{"title": "", "blocks": [{"picture": "gone"}]}])
    with pytest.raises(FileNotFoundError, match="gone.png, which is missing"):
        report_run(run_dir)


def test_figures_of_a_science_that_is_not_installed_are_named(run_dir):
    save_extra(run_dir, "t", "", [], "absent", {"a": 1})
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
    save_extra(run_dir, "t", "", [], "toy", {"colour": "blue"})
    assert "drawn with blue" in report_run(run_dir).read_text()
    assert (run_dir / "figures" / "own.png").is_file()
