"""Many files: one row for each in summary.csv and summary.html; a bad file is named and does not end the others."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BAD = (ValueError, TypeError, OSError, RuntimeError, ArithmeticError)  # what a file, or its fit, may be refused with
ERROR = "_error"  # ending of a column with standard errors
PER_ROW = 3  # panels beside each other


def fit_or_report(file: Path, fit: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a file's fit, or one that says why there is none."""
    try:
        return fit()
    except BAD as error:
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"{file}: {text}", flush=True)
        return {"file": str(file), "status": f"failed: {text}"}


def converged(row: dict[str, Any]) -> bool:
    """Whether the answer of a row may be trusted: its status is the badge of its report."""
    return row["status"].startswith(("converged", "completed"))


def write_summary(out: Path, rows: Sequence[dict[str, Any]], folders: Sequence[Path]) -> Path:
    """Write both tables of rows into a folder; folders: of every row's run. Return the path of the page."""
    from shardfit.io.files import write_atomic

    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "summary.csv", lambda file: file.write(text.getvalue().encode()))
    return _write_page(out, rows, folders)


def _write_page(out: Path, rows: Sequence[dict[str, Any]], folders: Sequence[Path]) -> Path:
    from shardfit.report.blocks import Block, Cards, Link, PngBlock, Section, Table
    from shardfit.report.html import Badge, write_report
    from shardfit.report.style import png_bytes

    fitted = [(row, folder) for row, folder in zip(rows, folders, strict=True) if "reduced_chi2" in row]
    failed = [row for row in rows if "reduced_chi2" not in row]
    good = sum(map(converged, rows))
    names = list(dict.fromkeys(key for row, _ in fitted for key in row if f"{key}{ERROR}" in row))
    header = ["file", "status", "reduced χ²", *names]
    table = [
        [_link(Link, row, folder, out), _words(row["status"]), row["reduced_chi2"], *(_value(row, n) for n in names)]
        for row, folder in fitted
    ]
    blocks: list[Block] = [Cards([("files", str(len(rows)), ""), ("converged", str(good), ""), _bad_card(failed)])]
    sections = [Section("", blocks)]
    if fitted:
        sections.append(Section("Answers", [Table(header, table, "Value ± standard error.")]))
    free = [name for name in names if any(float(row.get(f"{name}{ERROR}", 0)) != 0 for row, _ in fitted)]
    if len(fitted) > 1 and free:
        picture = png_bytes(_trends([row for row, _ in fitted], free))
        sections.append(Section("From file to file", [PngBlock(picture, "Parameters in the order of the files.")]))
    if failed:
        lines = [[Path(row["file"]).name, row["status"].removeprefix("failed: ")] for row in failed]
        sections.append(Section("Not fitted", [Table(["file", "why"], lines)]))
    tone = Badge("all converged", "good") if good == len(rows) else Badge(f"{len(rows) - good} to look at", "warn")
    return write_report(
        out / "summary.html",
        "Two-time correlations: summary",
        sections,
        badge=tone,
        footer="The same rows are in summary.csv.",
    )


def _bad_card(failed: list) -> tuple[str, str, str]:
    return ("not fitted", str(len(failed)), "see below" if failed else "")


def _link(link: Any, row: dict[str, Any], folder: Path, out: Path) -> Any:
    name = Path(row["file"]).name
    page = folder / "report.html"
    return link(name, page.relative_to(out).as_posix()) if page.is_file() and page.is_relative_to(out) else name


def _words(status: str) -> str:
    return status.replace("_", " ")


def _value(row: dict[str, Any], name: str) -> str:
    from shardfit.report.values import number, pair

    if name not in row:
        return "–"
    value, error = float(row[name]), float(row[f"{name}{ERROR}"])
    return f"{number(value, 6)} held" if error == 0 else " ± ".join(pair(value, error))


def _trends(rows: list[dict[str, Any]], names: list[str]) -> Any:
    """Draw every parameter with its error over the number of the file."""
    import numpy as np

    from shardfit.report import style

    across, down = min(PER_ROW, len(names)), -(-len(names) // PER_ROW)
    figure = style.new_figure(4.0 * across, 2.5 * down)
    panels = np.ravel(figure.subplots(down, across, squeeze=False))
    for axes, name in zip(panels, names, strict=False):
        number = [i for i, row in enumerate(rows, 1) if name in row]
        value, error = (np.array([float(rows[i - 1][f"{name}{end}"]) for i in number]) for end in ("", ERROR))
        bar = np.where(np.isfinite(error), error, 0.0)
        axes.errorbar(number, value, bar, fmt="o", markersize=4, color=style.BLUE, ecolor=style.SKY, capsize=2)
        axes.xaxis.get_major_locator().set_params(integer=True)
        style.finish(axes, "file", name)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    return figure
