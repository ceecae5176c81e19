"""The pages docs/measured.md and docs/reliability.md, made from the results files and from texts in `pages/`.

The texts hold no figure and take them as `{case[key]:unit}`: ms, s, MB, GB, % or any format of Python; none has more
than three digits. `{table:key unit, key, ...}` is a table of all cases with these columns.
The same figures elsewhere in the documentation carry a mark, `<!-- measured: suite case[key]:unit -->`, behind them.
"""

import json
import re
from pathlib import Path

from benchmarks.peers import ROOT

HERE = Path(__file__).parent
RESULTS, PAGES, TARGET = HERE / "results", HERE / "pages", ROOT / "docs" / "measured.md"
RELIABILITY, CAMPAIGNS = ROOT / "docs" / "reliability.md", ("faults", "fuzz", "soak")
ORDER = (
    "nist",
    "mgh",
    "lm",
    "scalings",
    "small",
    "core",
    "vlbi",
    "sharding",
    "population",
    "population_forms",
    "diffopt_examples",
    "seismic",
    "seismic_kernel",
    "seismic_elastic",
    "seismic_offgrid",
    "seismic_3d",
    "seismic_solvers",
    "xpcs",
    "xpcs_homodyne",
    "xpcs_chains",
    "survey",
    "tick",
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
    "zoo",
    "linear",
    "consensus",
    "swarm_quality",
    "global_search",
    "memory",
    "plan",
    "processes",
    "scale",
    "marmousi",
    "sweep_marmousi",
    "cold",
    "certificate",
)
FIRST = ("ours", "peer", "ratio", "cpu_ours", "cpu_peer", "cpu_ratio", "quality_ours", "quality_peer")
NOT_RUN = "not run yet"
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


class _Table:
    """All cases as a table; its format names the columns, each with its unit."""

    def __init__(self, cases: dict[str, dict]):
        self.cases = cases

    def __format__(self, columns: str) -> str:
        wanted = [tuple(column.split(" ")) for column in columns.split(", ")]
        lines = [
            "| | " + " | ".join(key.replace("_", " ") for key, *_ in wanted) + " |",
            "|---" * (len(wanted) + 1) + "|",
        ]
        for name, case in self.cases.items():
            shown = [
                format(Figure(case[key.replace("_", " ")] if key not in case else case[key]), *unit or ("",))
                for key, *unit in wanted
            ]
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
        return "\n".join(lines)


class _Case(dict):
    """Figures of one case under their names; inner dictionaries are reached the same way."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return _Case(value) if isinstance(value, dict) else Figure(value)


class _NotRun:
    """Stands for every figure of a suite without results."""

    def __getitem__(self, key):
        return self

    def __format__(self, unit: str) -> str:
        return NOT_RUN


class _AllSuites(dict):
    """Cases of all results under "suite case"."""

    def __missing__(self, name: str):
        suite, _, case = name.partition(" ")
        return _Case(kept(suite)["cases"][case]) if (RESULTS / f"{suite}.json").exists() else _NotRun()


def kept(name: str) -> dict:
    """Return what the last whole run of a suite wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def keep(name: str, measured: dict) -> None:
    """Write a suite's figures; what is not a number is refused."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(measured, allow_nan=False) + "\n")


def write() -> None:
    """Write docs/measured.md and docs/reliability.md."""
    TARGET.write_text(page())
    RELIABILITY.write_text(reliability())


def page() -> str:
    """Return the text of docs/measured.md; suites without results are not in it."""
    names = sorted(path.stem for path in RESULTS.glob("*.json") if path.stem not in CAMPAIGNS)
    sections = _page("head", sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)))
    return f"{sections}\n{published()}"


def reliability() -> str:
    """Return the text of docs/reliability.md: what campaigns have tried to break."""
    return _page("reliability", [name for name in CAMPAIGNS if (RESULTS / f"{name}.json").exists()])


def _page(head: str, names: list[str]) -> str:
    parts = [(PAGES / f"{head}.md").read_text().format_map(_AllSuites())]
    for name in names:
        measured = kept(name)
        title, _, rest = _text(name, measured["cases"]).partition("\n\n")
        parts.append(f"{title}\n\n{provenance(measured['record'])}\n\n{rest}")
    return "\n".join(parts)


def published() -> str:
    """Return the section of what other systems published, ours beside it."""
    from benchmarks.reproduce.headlines import HEADLINES

    head = (PAGES / "published.md").read_text()
    return "\n".join([head, *(headline(name) for name in HEADLINES)])


def headline(name: str) -> str:
    """Return the table of one published result; what was not run yet says so."""
    from benchmarks.reproduce.headlines import HEADLINES

    given = HEADLINES[name]
    lines = [f"### {given.title}", "", f"`python -m benchmarks.reproduce {name}`. Published: {given.source}.", ""]
    lines += [f"| | published ({given.hardware}) | here |", "|---|---|---|"]
    for row in given.rows:
        here = row.here.format_map(_AllSuites())
        lines.append(f"| {row.what} | {row.published} | {NOT_RUN if NOT_RUN in here else here} |")
    return "\n".join([*lines, "", given.note, ""])


def _text(name: str, cases: dict[str, dict]) -> str:
    """Return a suite's text with its figures; without one in `pages/`, all columns that its cases share."""
    path = PAGES / f"{name}.md"
    return fill(path.read_text(), cases) if path.exists() else f"## {name}\n\n{table(cases)}\n"


def fill(text: str, cases: dict[str, dict]) -> str:
    """Return a text with its figures put in."""
    return text.format_map({"table": _Table(cases)} | {name: _Case(case) for name, case in cases.items()})


def provenance(record: dict) -> str:
    """Return what the figures of a suite come from: one line that a reader can open."""
    peers = {name: version for versions in record["peers"].values() for name, version in versions.items()}
    versions = ", ".join(f"{name} {version}" for name, version in {**record["packages"], **peers}.items())
    settings = "; ".join(f"{name}: {value}" for name, value in record["settings"].items())
    return (
        f"<details><summary>Measured on {record['date']}, {record['cores']} cores of {record['cpu']}</summary>Commit "
        f"{record['commit']}; load {record['load']} at the start and {record['load_after']} at the end of "
        f"{record['seconds']} s. {versions}. {settings}.</details>"
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
