"""The table of a posterior: one line per number, with what the draws say of it and how well they say it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shardfit.core.text import html_table
from shardfit.sampling.quality import diagnostics

PROBABILITIES = (0.05, 0.5, 0.95)
COLUMNS = ("mean", "sd", "5 %", "50 %", "95 %", "mcse", "ess_bulk", "ess_tail", "rhat")
MOST_LINES = 60  # of a printed table; a longer one shows the worst


@dataclass(frozen=True, eq=False)
class Summary:
    """Columns of numbers by name, each (n,). mcse: Monte Carlo error of the mean. NaN: nothing to tell, as of a number
    that is held.

    Example: `posterior.summary()["rhat"].max()`.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    columns: dict[str, np.ndarray]

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self):
        return len(self.names)

    @property
    def header(self) -> tuple[str, ...]:
        """Titles of the lines' cells."""
        unit = ("unit",) if any(self.units) else ()
        return ("parameter", *unit, *COLUMNS)

    def lines(self, most: int | None = None) -> list[tuple[str, ...]]:
        """Return the cells of every line as text; most: only so many, those of the fewest effective draws."""
        chosen = np.arange(len(self))
        if most is not None and len(self) > most:
            least = np.minimum(self["ess_bulk"], self["ess_tail"])
            chosen = np.sort(np.argsort(np.where(np.isnan(least), np.inf, least), kind="stable")[:most])
        return [self._line(int(i)) for i in chosen]

    def _line(self, i: int) -> tuple[str, ...]:
        places = [digits(self[c][i], self["sd"][i]) for c in ("mean", "sd", "5 %", "50 %", "95 %")]
        mcse = "–" if np.isnan(self["mcse"][i]) else f"{self['mcse'][i]:.2g}"
        counts = ["–" if np.isnan(self[c][i]) else f"{self[c][i]:.0f}" for c in ("ess_bulk", "ess_tail")]
        ratio = "–" if np.isnan(self["rhat"][i]) else f"{self['rhat'][i]:.3f}"
        unit = (self.units[i],) if any(self.units) else ()
        return (self.names[i], *unit, *places, mcse, *counts, ratio)

    def __str__(self):
        lines = [self.header, *self.lines(MOST_LINES)]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        texts = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
            for line in lines
        ]
        return "\n".join([*texts, *self._omission()])

    def _repr_html_(self):
        omission = "".join(f"<p>{text}</p>" for text in self._omission())
        return html_table(self.header, self.lines(MOST_LINES)) + omission

    def _omission(self) -> list[str]:
        left = len(self) - MOST_LINES
        return [f"{left} more numbers, all with more effective draws."] if left > 0 else []


def summarize(
    names: tuple[str, ...],
    units: tuple[str, ...],
    x: np.ndarray,
    weights: np.ndarray | None,
    independent: bool = False,
) -> Summary:
    """Return the summary of numbers x (chains, draws, n). weights: (chains, draws), or None where all are equal.

    independent: no chain made these draws, so that an R-hat would say nothing.
    """
    measure = _plain if weights is None else partial(_weighted, weights)
    table = diagnostics.in_blocks(measure, x)
    columns: dict[str, np.ndarray] = dict(zip(COLUMNS, table.reshape(len(COLUMNS), -1), strict=True))
    if independent:
        columns["rhat"] = np.full(len(names), np.nan)
    return Summary(names, units, columns)


def _plain(x: np.ndarray) -> np.ndarray:
    constant = np.ptp(x, axis=(0, 1)) == 0
    rows = [x.mean((0, 1)), x.std((0, 1), ddof=1), *np.quantile(x, PROBABILITIES, axis=(0, 1))]
    rows += [diagnostics.mcse_mean(x), diagnostics.ess_bulk(x), diagnostics.ess_tail(x), diagnostics.rhat(x)]
    rows[1] = np.where(constant, 0.0, rows[1])  # a mean is rounded, and the spread about it is not
    return np.stack(rows)


def _weighted(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the same of weighted draws. An effective number of draws is the variance over the squared Monte Carlo
    error; R-hat compares the chains as they ran, before weights.
    """
    w = (weights / weights.sum()).reshape(*weights.shape, 1)
    mean = (w * x).sum((0, 1))
    variance = (w * (x - mean) ** 2).sum((0, 1))
    quantiles = diagnostics.weighted_quantile(x.reshape(-1, x.shape[2]), w.ravel(), PROBABILITIES)
    error = diagnostics.mcse_weighted(x, weights)
    rows = [mean, np.sqrt(variance), *quantiles, error]
    with np.errstate(divide="ignore", invalid="ignore"):
        low, middle, high = (
            p * (1 - p) / diagnostics.mcse_weighted(x <= q, weights) ** 2
            for p, q in zip(PROBABILITIES, quantiles, strict=True)
        )
        rows += [np.minimum(variance / error**2, middle), np.minimum(low, high)]
    return np.stack([*rows, diagnostics.rhat(x)])


def digits(value: Any, sd: Any) -> str:
    """Return a number as text to two digits of its spread."""
    if not np.isfinite(value) or not np.isfinite(sd) or sd <= 0:
        return f"{float(value):.6g}"
    size = max(abs(float(value)), float(sd))
    places = 1 - int(np.floor(np.log10(sd)))
    if size >= 1e7 or size < 1e-4 or places > 12:
        return f"{float(value):.{max(1, places + int(np.floor(np.log10(size))))}e}"
    return f"{round(float(value), max(0, places)) + 0.0:.{max(0, places)}f}"  # + 0.0: no negative zero
