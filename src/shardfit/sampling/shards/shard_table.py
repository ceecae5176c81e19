"""What the chains of every shard say about themselves and about each other.

Draws that were combined always look perfect; only the shards' own chains can tell whether to trust them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2, norm

from shardfit.sampling.quality import diagnostics
from shardfit.sampling.shards.combine import FAR, Combined

if TYPE_CHECKING:
    from shardfit.sampling.shards.shard_store import ShardRun

COLUMNS = ("rows", "gradients", "divergences", "rhat", "ess", "distance", "skewness", "kurtosis")
FORMATS = {"rows": ".0f", "gradients": ".0f", "divergences": ".2%", "rhat": ".3f", "ess": ".0f"}
LARGEST_RHAT = 1.05  # of a shard: its error is averaged over all of them
FEWEST_EFFECTIVE = 100
MOST_DIVERGENCES = 0.05  # share of a shard's draws
SKEWED = 0.5  # skewness, beyond what few draws show by chance, of a posterior that is no Gaussian
NAMES_SHOWN = 10


@dataclass(frozen=True, eq=False)
class ShardTable:
    """One line per shard; columns by name, each (shards,).

    rows; gradients; divergences: share of the draws; rhat: largest, ess: smallest of all coordinates; distance: of the
    shard's mean from the combined one, as a normal deviate, zero where it is nearer than most; skewness, kurtosis: the
    largest along the principal axes of its draws, zero for a Gaussian.

    Example: `print(ShardTable(posterior.extra["shards"]))`.
    """

    columns: Mapping[str, np.ndarray]

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self):
        return len(self.columns["rows"])

    def __str__(self):
        lines: list[tuple[str, ...]] = [("shard", *COLUMNS)]
        for k in range(len(self)):
            lines.append((str(k), *(f"{self[c][k]:{FORMATS.get(c, '.2f')}}" for c in COLUMNS)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines)

    def complaints(self) -> dict[str, str]:
        """Return what speaks against the shards' chains, or against combining them, by kind; it names the shards."""
        skewed = self["skewness"] > SKEWED + 3 * np.sqrt(6 / np.maximum(self["ess"], 1))
        found = {
            "divergences": (
                self["divergences"] > MOST_DIVERGENCES,
                f"over {MOST_DIVERGENCES:.0%} of draws diverged",
            ),
            "rhat": (~(self["rhat"] <= LARGEST_RHAT), f"R-hat above {LARGEST_RHAT}"),
            "ess": (~(self["ess"] >= FEWEST_EFFECTIVE), f"fewer than {FEWEST_EFFECTIVE} effective draws"),
            "disagreement": (
                self["distance"] > norm.isf(FAR / len(self)),
                "far from the others beyond chance",
            ),
            "skewness": (skewed, "far from Gaussian"),
        }
        return {kind: f"{text}: {_listed(np.flatnonzero(bad))}" for kind, (bad, text) in found.items() if bad.any()}


def shard_table(runs: "list[ShardRun]", rows: np.ndarray, combined: Combined) -> ShardTable:
    """Return the table of all shards' runs, in order. rows: (shards,) how many each has."""
    columns: dict[str, Any] = {name: np.zeros(len(runs)) for name in COLUMNS}
    columns["rows"] = np.asarray(rows)
    for k, run in enumerate(runs):
        z = run.arrays["z"]
        columns["gradients"][k] = run.evaluations
        columns["divergences"][k] = np.mean(run.arrays["diverging"])
        columns["rhat"][k] = np.max(diagnostics.rhat(z))
        columns["ess"][k] = min(np.min(diagnostics.ess_bulk(z)), np.min(diagnostics.ess_tail(z)))
        flat = z.reshape(-1, z.shape[2])
        columns["distance"][k] = _distance(flat, combined, len(runs))
        scores = _principal_scores(flat)
        columns["skewness"][k] = np.abs(np.mean(scores**3, axis=0)).max()
        columns["kurtosis"][k] = np.abs(np.mean(scores**4, axis=0) - 3).max()
    return ShardTable(columns)


def _distance(draws: np.ndarray, combined: Combined, shards: int) -> float:
    """Return how unlikely a shard's mean is among the others, as a normal deviate."""
    if shards == 1:
        return 0.0
    away = draws.mean(0) - combined.mean
    # the combined mean holds this shard's own: their difference varies by less than the shard's covariance
    spread = np.cov(draws.T, ddof=1).reshape(len(away), -1) * (1 - 1 / shards)
    scale = np.sqrt(np.diag(spread))
    squared = (away / scale) @ np.linalg.solve(spread / np.outer(scale, scale), away / scale)
    return float(max(0.0, norm.isf(chi2.sf(squared, len(away)))))


def _principal_scores(draws: np.ndarray) -> np.ndarray:
    """Return draws (m, n) along the principal axes of their correlations, with mean 0 and variance 1."""
    units = (draws - draws.mean(0)) / draws.std(0)
    size, axes = np.linalg.eigh(units.T @ units / len(units))
    return units @ axes / np.sqrt(np.maximum(size, np.finfo(float).eps))


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:NAMES_SHOWN]))
    more = f" and {len(numbers) - NAMES_SHOWN} more" if len(numbers) > NAMES_SHOWN else ""
    return f"shard{'s' if len(numbers) > 1 else ''} {shown}{more}"
