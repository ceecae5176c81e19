"""The report of a run directory: figures/*.png and report.html, made from what the directory holds and nothing else.

A study may leave more to show in `report.json`: a title and sections of texts, tables and pictures by file name.
Rebuilding the report reads it again. Files may come from a stranger: names are plain, pictures are PNG, texts escaped.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.core.result import Result
from shardfit.io.files import read_json, write_atomic
from shardfit.io.results import load_result
from shardfit.report import figures
from shardfit.report.blocks import Block, PngBlock, Section, Table, Text
from shardfit.report.folders import EXTRA, extra_of
from shardfit.report.html import Badge, write_report
from shardfit.report.provenance import made, read_command
from shardfit.report.sections import PARAMETERS, badge_of, report_of
from shardfit.report.style import png_bytes
from shardfit.sciences import get_science


def report_run(run_dir: str | Path) -> Path:
    """Write figures and report.html of a finished run directory; return the path of the report."""
    folder = Path(run_dir)
    result = load_result(folder)
    extra, sections = read_extra(folder)
    if any(section.title == PARAMETERS for section in sections):  # a study's own table says what its errors mean
        result = replace(result, stderr=None, note="")
    sections = [*_science_section(extra, folder, result), *sections]
    own = {
        caption: save_figure(figure, folder, name)
        for name, (caption, figure) in standard_figures(result).items()
        if not any(_shows(entry, name) for entry in extra.get("sections", []))
    }
    page = report_of(result, own, tuple(sections), read_environment(folder))
    return write_page(folder, extra, result.problem, page, badge_of(result))


def read_environment(folder: Path) -> dict[str, Any]:
    """Return versions, devices and seed of a run directory, empty if it has none."""
    return read_json(folder / "env.json") if (folder / "env.json").is_file() else {}


def write_page(folder: Path, extra: Mapping, name: str, page: list[Section], badge: Badge) -> Path:
    """Write report.html of a run directory. extra: what a study left, with a title and subtitle or without."""
    title, subtitle = str(extra.get("title") or name), str(extra.get("subtitle", ""))
    how = made(read_command(folder), folder, environment=not (folder / "env.json").is_file())
    page = [*page, *([how] if how.blocks else [])]
    footer = "Made by shardfit. It needs no other file and no network."
    return write_report(folder / "report.html", title, page, badge=badge, subtitle=subtitle, footer=footer)


def read_extra(folder: Path) -> tuple[dict, list[Section]]:
    """Return what a study left for the report of this run directory, and its sections."""
    extra = extra_of(folder)
    try:
        return extra, [_section(entry, folder) for entry in extra.get("sections", [])]
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"{folder / EXTRA}: a section is not built as expected ({error}). Delete it.") from None


def _science_section(extra: Mapping, folder: Path, result: Result) -> list[Section]:
    """Return the figures that the science of a run draws of it; a science that is not here leaves a line that says so.

    A run directory names its science, never code: only what is installed is imported.
    """
    name = extra.get("science")
    if name is None:
        return []
    try:
        science = get_science(str(name), "report")
    except (ValueError, ImportError) as error:
        return [Section("Figures of the science", [Text(f"They are not drawn: {error}")])]
    drawn = science.module("report").figures(folder, result, dict(extra.get("settings", {})))
    blocks: list[Block] = [PngBlock(save_figure(f, folder, name), caption) for name, (caption, f) in drawn.items()]
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


def save_figure(figure: Any, run_dir: str | Path, name: str) -> bytes:
    """Write figures/<name>.png into a run directory and return the PNG."""
    folder = Path(run_dir) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    png = png_bytes(figure)
    write_atomic(folder / f"{name}.png", lambda file: file.write(png))
    return png


def save_extra(
    run_dir: str | Path,
    title: str,
    subtitle: str,
    sections: Sequence[Mapping],
    science: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Keep a title and further sections for the report of this run directory.

    A section is {"title": ..., "blocks": [...]} with blocks {"text": ...}, {"header": [...], "rows": [[...]],
    "caption": ...} or {"picture": "name of figures/<name>.png", "caption": ...}; one with the title Parameters takes
    the place of the result's own. science: the installed one whose `report` module draws figures of the run; settings:
    plain values that it needs for that.
    """
    content = {"title": title, "subtitle": subtitle, "sections": list(sections)}
    if science is not None:
        content |= {"science": science, "settings": dict(settings or {})}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    write_atomic(Path(run_dir) / EXTRA, lambda file: file.write(text.encode()))


def _section(entry: Mapping, folder: Path) -> Section:
    return Section(str(entry.get("title", "")), [_block(block, folder) for block in entry.get("blocks", [])])


def _block(block: Mapping, folder: Path) -> Block:
    if "picture" in block:
        return PngBlock(_picture(folder, str(block["picture"])), str(block.get("caption", "")))
    if "rows" in block:
        rows = [[str(cell) for cell in row] for row in block["rows"]]
        return Table([str(h) for h in block["header"]], rows, str(block.get("caption", "")))
    if "text" in block:
        return Text(str(block["text"]))
    raise ValueError(
        f"{folder / EXTRA}: a block has none of 'text', 'rows', 'picture' but {sorted(block)}. Correct or delete it."
    )


def _picture(folder: Path, name: str) -> bytes:
    path = folder / "figures" / f"{name}.png"
    if Path(name).name != name or name.startswith(".") or path.is_symlink():
        raise ValueError(f"{folder / EXTRA}: picture {name!r} is not a plain name of a file in figures/.")
    if not path.is_file():
        raise FileNotFoundError(f"{folder / EXTRA} shows figures/{name}.png, which is missing. Run the study again.")
    return path.read_bytes()


def _shows(entry: Mapping, name: str) -> bool:
    return any(block.get("picture") == name for block in entry.get("blocks", []))
