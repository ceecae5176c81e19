"""The report of a fit: what was asked, the answer, scales and χ² of the angles; figures come from the domain."""

from pathlib import Path
from typing import Any

from shardfit.cli.xpcs.config import Config
from shardfit.core.text import pair
from shardfit.options.writing import setting_rows
from shardfit.report.blocks import Section, Table, Text
from shardfit.report.run import report_run
from shardfit.report.study import Study


def write_report(out: Path, fit: Any, config: Config) -> Path:
    """Write report.html of a run directory and return its path."""
    sections = [
        Section("Parameters", [_parameters(fit), *map(Text, fit.warnings)]),
        *([Section("Laws", [_laws(fit.laws)])] if fit.laws else []),
        Section("Angles", [_angles(fit)]),
        Section("Settings", [Table(["setting", "value"], setting_rows(config))]),
    ]
    data = fit.setup.data
    noise = "σ assumed: not calibrated" if fit.quality == "uncalibrated" else f"fit quality: {fit.quality}"
    subtitle = f"{config.mode}, {len(data.phi)} angles × {data.n_frames} frames, {fit.setup.n_points:,} points, "
    subtitle += f"reduced χ² {fit.reduced_chi2:.4g} ({noise})"
    title = f"Two-time correlations: {data.source}"
    return report_run(out, Study(title, subtitle, sections, "xpcs", {"mode": config.mode}))


def _parameters(fit: Any) -> Table:
    caption = "Standard errors are scaled by the reduced χ²; they take points as independent of each other."
    if fit.noise is not None:
        caption = f"Standard errors are {fit.meaning}, given how speckle, pixels and counts scatter."
    elif fit.pieces is not None:
        caption = f"Standard errors are from the scatter of frames, about {fit.pieces:.0f} independent samples."
    return Table(["parameter", "value", "1σ", "unit"], fit.table(), caption)


def _laws(laws: Any) -> Table:
    rows = [[law["law"], str(law["parameters"]), f"{law['chi2']:.6g}", f"{law['bic']:.1f}"] for law in laws.table()]
    caption = "The law with the lowest BIC is the answer; differences below 2 say nothing, beyond 10 they decide."
    return Table(["law", "parameters", "χ²", "ΔBIC"], rows, caption)


def _angles(fit: Any) -> Table:
    scales = (fit.contrast, fit.contrast_stderr, fit.offset, fit.offset_stderr)
    columns = zip(fit.setup.data.phi, fit.setup.data.q, *scales, fit.chi2_of_angle, strict=True)
    rows = [
        [f"{phi:.6g}", f"{q:.6g}", *pair(float(c), float(dc)), *pair(float(o), float(do)), f"{chi2:.4g}"]
        for phi, q, c, dc, o, do, chi2 in columns
    ]
    return Table(["φ (°)", "q (1/Å)", "contrast", "1σ", "offset", "1σ", "χ² per point"], rows)
