"""Whether the errors of data are right: closure phases scatter from sample to sample as much as their errors say."""

from dataclasses import dataclass

import numpy as np

from shardfit.domains.vlbi.closures import Triangles, triangles
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import scan_table

FEWEST = 20  # samples between two others
SNR = 5.0  # of a bispectrum: below, the errors of phases are not Gaussian
LONGEST_S = 60.0  # from one sample to the next: later, the source has turned


@dataclass(frozen=True)
class NoiseScale:
    """factor: by which errors are too small (above 1) or too large; sd: its standard error; samples: compared."""

    factor: float
    sd: float
    samples: int


def noise_scale(obs: Observation, *, longest_s: float = LONGEST_S, snr: float = SNR) -> NoiseScale:
    """Compare closure phases with the straight line between those before and after; use it before averaging.

    Gains of stations do not change closure phases, and as the Earth turns they change steadily, so what is off the line
    is noise. longest_s: seconds between two samples of a scan that count as successive; snr: least of a bispectrum. The
    standard error is from leaving out one scan after another (with a single scan, from its samples).
    Errors are put right by `obs.replace(sigma={k: factor * s for k, s in obs.sigma.items()})`.
    """
    table = triangles(obs, snrcut=snr)
    before, at, after = _successive(obs, table, longest_s)
    if len(at) < FEWEST:
        raise ValueError(
            f"noise_scale: {len(at)} closure phases have one before and one after, at least {FEWEST} are needed. Use "
            "data that are not averaged, or a larger longest_s."
        )
    share = (table.time[at] - table.time[before]) / (table.time[after] - table.time[before])
    rise, whole = _turned(table, before, at), _turned(table, before, at) + _turned(table, at, after)
    variance = table.sigma[at] ** 2 + ((1 - share) * table.sigma[before]) ** 2 + (share * table.sigma[after]) ** 2
    squares = (rise - share * whole) ** 2 / variance
    factor = float(np.sqrt(squares.mean()))
    _, scan = np.unique(_scans(obs, table.time[at]), return_inverse=True)
    sums, counts = np.bincount(scan, squares), np.bincount(scan)
    if len(sums) > 1:
        without = np.sqrt((sums.sum() - sums) / (counts.sum() - counts))
        sd = float(np.sqrt((len(sums) - 1) * np.mean((without - without.mean()) ** 2)))
    else:
        sd = factor / float(np.sqrt(2 * len(squares)))
    return NoiseScale(factor, sd, len(squares))


def _successive(obs: Observation, table: Triangles, longest_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices of three samples one after another: the same triangle, frequency and scan."""
    scan = _scans(obs, table.time)
    hz = obs.hz[table.row[:, 0]]
    order = np.lexsort((table.time, hz, *table.stations.T))
    a, b = order[:-1], order[1:]
    follows = (table.stations[a] == table.stations[b]).all(1) & (scan[a] == scan[b]) & (hz[a] == hz[b])
    follows &= 3600 * (table.time[b] - table.time[a]) <= longest_s
    middle = 1 + np.flatnonzero(follows[:-1] & follows[1:])
    return order[middle - 1], order[middle], order[middle + 1]


def _turned(table: Triangles, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return by how much closure phases have changed, degrees, the short way round."""
    return (table.value[second] - table.value[first] + 180) % 360 - 180


def _scans(obs: Observation, time: np.ndarray) -> np.ndarray:
    return np.searchsorted(scan_table(obs)[:, 0], time, side="left")
