"""The page docs/measured.md, made from the results files and from the texts in `pages/`, which hold no figure.

A page takes figures as `{case[key]:unit}`: ms, s, MB, GB, % or any format of Python; none has more than three digits.
The same figures elsewhere in the documentation carry a mark, `<!-- measured: suite case[key]:unit -->`, behind them.
"""

import json
import re
from pathlib import Path

from benchmarks.peers import ROOT

HERE = Path(__file__).parent
RESULTS, PAGES, TARGET = HERE / "results", HERE / "pages", ROOT / "docs" / "measured.md"
ORDER = (
    "nist",
    "mgh",
    "core",
    "vlbi",
    "population",
    "population_forms",
    "seismic",
    "seismic_3d",
    "seismic_solvers",
    "xpcs",
    "survey",
    "converge",
    "m87_grid",
    "m87_days",
    "m87_dense",
    "top_set",
    "gallery",
    "coverage",
    "polarisation",
    "spectra",
    "weights",
    "schedule",
    "sample",
    "linear",
    "consensus",
    "swarm_quality",
    "global_search",
    "memory",
    "processes",
    "marmousi",
    "cold",
    "certificate",
)
FIRST = ("ours", "peer", "ratio", "cpu_ours", "cpu_peer", "cpu_ratio", "quality_ours", "quality_peer")
UNITS = {"ms": 1e3, "s": 1.0, "MB": 1e-6, "GB": 1e-9, "%": 100.0}


class Figure:
    """A number that knows how to be shown."""

    def __init__(self, value):
        self.value = value

    def __format__(self, unit: str) -> str:
        if self.value is None:
            return "–"
        if isinstance(self.value, str) or (unit and unit not in UNITS):
            return format(self.value, unit)
        scaled = self.value * UNITS.get(unit, 1)
        shown = f"{scaled:,}" if isinstance(scaled, int) else _significant(scaled)
        return f"{shown} {unit}".rstrip()


class _Case(dict):
    """Figures of one case under their names; inner dictionaries are reached the same way."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return _Case(value) if isinstance(value, dict) else Figure(value)


def kept(name: str) -> dict:
    """Return what the last whole run of a suite wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def keep(name: str, measured: dict) -> None:
    """Write a suite's figures; what is not a number is refused."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(measured, allow_nan=False) + "\n")


def write() -> None:
    """Write docs/measured.md."""
    TARGET.write_text(page())


def page() -> str:
    """Return the text of docs/measured.md; suites without results are not in it."""
    parts = [(PAGES / "head.md").read_text()]
    names = sorted(path.stem for path in RESULTS.glob("*.json"))
    for name in sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        measured = kept(name)
        title, _, rest = _text(name, measured["cases"]).partition("\n\n")
        parts.append(f"{title}\n\n{provenance(measured['record'])}\n\n{rest}")
    return "\n".join(parts)


def _text(name: str, cases: dict[str, dict]) -> str:
    """Return a suite's text with its figures; without one in `pages/`, all columns that its cases share."""
    path = PAGES / f"{name}.md"
    return fill(path.read_text(), cases) if path.exists() else f"## {name}\n\n{table(cases)}\n"


def fill(text: str, cases: dict[str, dict]) -> str:
    """Return a text with its figures put in."""
    return text.format_map({name: _Case(case) for name, case in cases.items()})


def provenance(record: dict) -> str:
    """Return one line that says what the figures of a suite come from."""
    peers = {name: version for versions in record["peers"].values() for name, version in versions.items()}
    versions = ", ".join(f"{name} {version}" for name, version in {**record["packages"], **peers}.items())
    settings = "; ".join(f"{name}: {value}" for name, value in record["settings"].items())
    return (
        f"*{record['date']}, commit {record['commit']}, {record['cores']} cores of {record['cpu']}, load "
        f"{record['load']} at the start and {record['load_after']} at the end of {record['seconds']} s. {versions}. "
        f"{settings}.*"
    )


def wrong_marks(text: str) -> list[str]:
    """Return the marks of a text that do not stand behind the figure they name."""
    wrong = []
    for mark in re.finditer(r"<!-- measured: (\S+) (.+?) -->", text):
        shown = fill("{" + mark[2] + "}", kept(mark[1])["cases"])
        if not text[: mark.start()].endswith(shown):
            wrong.append(f"{mark[0]} stands for {shown!r}")
    return wrong


def table(figures: dict[str, dict]) -> str:
    """Return an aligned Markdown table of the numbers all cases share."""
    shared = [
        key
        for key, value in next(iter(figures.values())).items()
        if not isinstance(value, dict) and all(key in case for case in figures.values())
    ]
    columns = [key for key in FIRST if key in shared] + [key for key in shared if key not in FIRST]
    rows = [["case", *columns], *([name, *(_short(case[key]) for key in columns)] for name, case in figures.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _significant(value: float) -> str:
    """Return three digits, without an exponent where that is short."""
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.0e}"
    return f"{float(f'{value:.3g}'):,.6f}".rstrip("0").rstrip(".")


def _short(value) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
