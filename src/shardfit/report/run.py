"""The report of a run directory: figures/*.png and report.html, made from what the directory holds and nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.core.result import Result
from shardfit.io.files import read_json
from shardfit.io.results import load_result
from shardfit.report import figures
from shardfit.report.blocks import Block, Section, Text
from shardfit.report.html import Badge, write_report
from shardfit.report.provenance import made, read_command
from shardfit.report.sections import PARAMETERS, badge_of, report_of
from shardfit.report.study import Study, save_figure
from shardfit.sciences import get_science


def report_run(run_dir: str | Path, study: Study | None = None) -> Path:
    """Write figures and report.html of a finished run directory; return the path of the report.

    study: what to show and keep besides the result; None: what was kept.
    """
    folder = Path(run_dir)
    result, study = load_result(folder), with_study(folder, study)
    if any(section.title == PARAMETERS for section in study.sections):  # its own table says what its errors mean
        result = replace(result, stderr=None, note="")
    sections = (*_science_section(study, folder, result), *study.sections)
    own = [
        save_figure(figure, folder, name, caption)
        for name, (caption, figure) in standard_figures(result).items()
        if not study.shows(name)
    ]
    page = report_of(result, own, sections, read_environment(folder))
    return write_page(folder, study, result.problem, page, badge_of(result))


def with_study(folder: Path, study: Study | None) -> Study:
    """Keep what a study shows in a folder, or return what was kept there."""
    if study is None:
        return Study.read(folder)
    study.save(folder)
    return study


def read_environment(folder: Path) -> dict[str, Any]:
    """Return versions, devices and seed of a run directory, empty if it has none."""
    return read_json(folder / "env.json") if (folder / "env.json").is_file() else {}


def write_page(folder: Path, study: Study, name: str, page: list[Section], badge: Badge) -> Path:
    """Write report.html of a run directory. name: its title, unless the study has one."""
    how = made(read_command(folder), folder, environment=not (folder / "env.json").is_file())
    page = [*page, *([how] if how.blocks else [])]
    footer = "Made by shardfit. It needs no other file and no network."
    about = {"badge": badge, "subtitle": study.subtitle, "footer": footer}
    return write_report(folder / "report.html", study.title or name, page, **about)


def _science_section(study: Study, folder: Path, result: Result) -> list[Section]:
    """Return the figures that the science of a run draws of it; a science that is not here leaves a line that says so.

    A run directory names its science, never code: only what is installed is imported.
    """
    if study.science is None:
        return []
    try:
        science = get_science(study.science, "report")
    except (ValueError, ImportError) as error:
        return [Section("Figures of the science", [Text(f"They are not drawn: {error}")])]
    drawn = science.module("report").figures(folder, result, dict(study.settings))
    blocks: list[Block] = [save_figure(f, folder, name, caption) for name, (caption, f) in drawn.items()]
    return [Section("Figures of the answer", blocks)]


def standard_figures(result: Result) -> dict[str, tuple[str, Any]]:
    """Return name → (caption, Figure) of what any result can show."""
    drawn = {}
    if len(result.history.get("value", ())) > 1:
        figure = figures.convergence(result)
        slopes = ", and the largest entry of the gradient" if len(figure.axes) > 1 else ""
        drawn["convergence"] = (f"Convergence: the value above its lowest{slopes}.", figure)
    if result.stderr is not None:
        try:
            figure = figures.parameters(result)
        except ValueError:  # error bars of long arrays only: nothing to draw one by one
            return drawn
        drawn["parameters"] = ("Relative 1σ error of every parameter.", figure)
    return drawn
