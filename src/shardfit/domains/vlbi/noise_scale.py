"""Whether the errors of data are right: closure phases scatter from sample to sample as much as their errors say."""

from dataclasses import dataclass

import numpy as np

from shardfit.domains.vlbi.closures import Triangles, triangles
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import scan_table

FEWEST = 20  # pairs of samples
SNR = 5.0  # of a bispectrum: below, the errors of phases are not Gaussian
LONGEST_S = 60.0  # between two samples: later, the source has turned


@dataclass(frozen=True)
class NoiseScale:
    """factor: by which errors are too small (above 1) or too large; sd: its standard error; pairs: of samples."""

    factor: float
    sd: float
    pairs: int


def noise_scale(obs: Observation, *, longest_s: float = LONGEST_S, snr: float = SNR) -> NoiseScale:
    """Compare differences of successive closure phases with their errors; use it before averaging.

    Gains of stations do not change closure phases, and the source hardly does from one sample to the next, so what is
    left is noise. longest_s: seconds between two samples of a scan that count as successive; snr: least of a
    bispectrum. The standard error is from leaving out one scan after another (with a single scan, from its pairs).
    Errors are put right by `obs.replace(sigma={k: factor * s for k, s in obs.sigma.items()})`.
    """
    table = triangles(obs, snrcut=snr)
    first, second = _successive(obs, table, longest_s)
    if len(first) < FEWEST:
        raise ValueError(
            f"noise_scale: {len(first)} pairs of successive closure phases, at least {FEWEST} are needed. Use data "
            "that are not averaged, or a larger longest_s."
        )
    step = (table.value[second] - table.value[first] + 180) % 360 - 180
    squares = step**2 / (table.sigma[first] ** 2 + table.sigma[second] ** 2)
    factor = float(np.sqrt(squares.mean()))
    _, scan = np.unique(_scans(obs, table.time[first]), return_inverse=True)
    sums, counts = np.bincount(scan, squares), np.bincount(scan)
    if len(sums) > 1:
        without = np.sqrt((sums.sum() - sums) / (counts.sum() - counts))
        sd = float(np.sqrt((len(sums) - 1) * np.mean((without - without.mean()) ** 2)))
    else:
        sd = factor / float(np.sqrt(2 * len(squares)))
    return NoiseScale(factor, sd, len(squares))


def _successive(obs: Observation, table: Triangles, longest_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return indices of pairs: the same triangle, the same scan, one sample after another."""
    scan = _scans(obs, table.time)
    order = np.lexsort((table.time, *table.stations.T))
    a, b = order[:-1], order[1:]
    same = (table.stations[a] == table.stations[b]).all(1) & (scan[a] == scan[b])
    near = 3600 * (table.time[b] - table.time[a]) <= longest_s
    return a[same & near], b[same & near]


def _scans(obs: Observation, time: np.ndarray) -> np.ndarray:
    return np.searchsorted(scan_table(obs)[:, 0], time, side="left")
