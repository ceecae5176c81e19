"""Sections that tell one Result: summary, parameters, parts, parity, timings, environment."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from shardfit.core.params import label_of
from shardfit.core.result import Result
from shardfit.report.blocks import Block, Cards, PngBlock, Section, Table, Text
from shardfit.report.html import Badge
from shardfit.report.values import number, seconds, solver_name, summaries, times

DIGITS = 6  # of quantities without an error
MOST_ENTRIES = 8  # of a derived quantity that is told whole
PARAMETERS = "Parameters"  # title of the section; a study may bring its own
COMPARISONS = {
    "blocks": "rows whole against rows in blocks",
    "sharded": "split over devices against unsplit",
    "walk": "blocks of the fit against shorter ones",
    "finite_difference": "gradient against finite differences",
    "gram": "normal equations against gradient",
    "gram_walk": "normal equations in blocks of the fit against shorter ones",
    "precision": "single against double precision",
}


def report_of(
    result: Result,
    pictures: Sequence[PngBlock] = (),
    extra: Sequence[Section] = (),
    environment: Mapping[str, Any] | None = None,
) -> list[Section]:
    """Return the sections of a result. extra: sections put first; environment: what env.json of its folder holds."""
    told = any(section.title == PARAMETERS for section in extra)
    sections = [summary(result), *extra, *([] if told else [parameters(result)]), Section("Figures", pictures)]
    sections += [parts(result), parity(result), timings(result.timings, result.solver), about(environment or {})]
    return [section for section in sections if section.blocks]


def badge_of(result: Result) -> Badge:
    """Return the verdict on a result in a word and its tone."""
    verdict = result.verdict()
    return Badge(verdict.word, verdict.tone)


def summary(result: Result) -> Section:
    """Return cards of the numbers one asks for first, and the message with its remedy."""
    layout, total = result.layout, result.timings.get("total")
    shards, runs = layout.get("rows", 1), layout.get("runs", 1)
    split = f"rows split {shards} ways" if shards > 1 else "rows on one device"
    cards = [
        ("value", number(result.value, 5), "at the answer"),
        ("steps", number(result.steps), f"solver {solver_name(result)}"),
        ("evaluations", number(result.evaluations), "of the objective"),
        ("time", "–" if total is None else seconds(total), compile_hint(result.timings)),
        ("devices", f"{shards * runs} × {layout.get('platform', '?')}", split),
        ("precision", result.precision, _count(layout.get("processes", 1), "process", "es")),
    ]
    return Section("", [Cards(cards), Text(result.message[:1].upper() + result.message[1:])])


def parameters(result: Result) -> Section:
    """Return the table of parameters with 1σ and units, and of quantities derived from them."""
    columns = zip(("parameter", "value", "1σ", "unit"), *summaries(result), strict=True)
    header, *rows = zip(*(c for c in columns if any(c[1:])), strict=True)
    caption = "1σ: from the covariance at the answer." if "1σ" in header else ""
    blocks: list[Block] = [Table(header, rows, caption)]
    if result.derived:
        blocks.append(Table(("derived quantity", "value"), _flat(result.derived)))
    return Section(PARAMETERS, blocks)


def parts(result: Result) -> Section:
    """Return the loss of every term before its weight."""
    if not result.parts:
        return Section("Parts", [])
    rows = [(name, number(value, DIGITS)) for name, value in result.parts.items()]
    return Section("Parts of the objective", [Table(("term", "loss before its weight"), rows)])


def parity(result: Result) -> Section:
    """Return the parity certificate: what was probed, and the largest relative differences by term."""
    certificate = result.certificate
    if not certificate:
        text = "The gradient of this fit was not checked: it has no parity certificate."
        return Section("Parity certificate", [Text(text)])
    kinds = [kind for kind in COMPARISONS if certificate.get(kind)]
    terms = sorted({term for kind in kinds for term in certificate[kind]})
    probe = certificate.get("probe_rows") or {}
    rows = [
        (
            term,
            number(probe[term]) if term in probe else "–",
            *(_relative(certificate[kind].get(term)) for kind in kinds),
        )
        for term in terms
    ]
    header = ("term", "rows probed", *(COMPARISONS[kind] for kind in kinds))
    points = " and at ".join(certificate.get("points") or ["x0"])
    text = f"Value and gradient of every term were compared on a sample of the rows, at {points}: largest relative "
    text += "differences. A mismatch would have stopped the run."
    if certificate.get("earlier"):
        text += " This was done in an earlier fit of this run that computed the same terms."
    undecided = sum((certificate.get("undecided") or {}).values())
    if undecided:
        text += f" The finite differences of {undecided} rows did not settle, so they were not used."
    return Section("Parity certificate", [Text(text), Table(header, rows)])


def timings(times: Mapping[str, float], solver: str) -> Section:
    """Return seconds by phase, compilation on its own line, and the solver or method they belong to."""
    if not times:
        return Section("Timings", [])
    order = sorted(times.items(), key=lambda item: (item[0] == "total", -item[1]))
    rows = [(name.replace("_", " "), seconds(value)) for name, value in order]
    return Section("Timings", [Table(("phase", "time"), rows), Text(f"Solver: {_rounded(solver)}")])


def about(environment: Mapping[str, Any]) -> Section:
    """Return where and with what the fit ran, all packages in one line."""
    packages = environment.get("packages")
    versions = packages if isinstance(packages, Mapping) else {}
    rows = _flat({name: value for name, value in environment.items() if value is not versions})
    if versions:
        rows.append(("packages", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return Section("Environment", [Table(("", ""), rows)] if rows else [])


def compile_hint(times: Mapping[str, float]) -> str:
    """Return how much of the time went into compiling, in words."""
    compiling = sum(value for name, value in times.items() if "compil" in name)
    return f"{seconds(compiling)} of it compiling" if compiling else "compilation included"


def _rounded(text: str) -> str:
    """Return text in which numbers of many digits are rounded, as options of solvers that were computed."""
    return re.sub(r"\d+\.\d{7,}(e[+-]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def _count(n, noun, plural="s"):
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{plural}"


def _relative(value):
    return "–" if value is None else f"{float(value):.1e}"


def _flat(tree):
    rows = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, list))[0]:
        array = np.asarray(leaf)
        entries = [number(v, DIGITS) for v in array.ravel()[:MOST_ENTRIES].tolist()]
        shown = ", ".join(entries) if array.size <= MOST_ENTRIES else f"{times(array.shape)} values"
        rows.append((label_of(path), shown))
    return rows
