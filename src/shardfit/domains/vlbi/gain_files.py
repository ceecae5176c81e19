"""Station gains as the text files of eht-imaging's calibration tables: a folder with one file per station.

`SOURCE_STATION.txt` has a line for each time: MJD, then the factors of both hands, real and imaginary part each (or one
real number each). Their factors multiply data, ours divide them, so files hold 1/g.
"""

from pathlib import Path

import numpy as np

from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.selfcal import GainTable

SAME = 1e-6  # relative difference of both hands that is rounding
WIDTHS = (3, 5)  # numbers in a line


def write_gains(gains: GainTable, folder: str | Path, obs: Observation) -> list[Path]:
    """Write the gains of every station that has some; obs: the observation they were solved with, for source and day.

    Two lines per interval, at its first and last time, so that nothing is interpolated inside. Return the files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for k, name in enumerate(gains.stations):
        lines = []
        for i in np.flatnonzero(gains.solved[:, k]):
            factor = 1 / gains.gain[i, k]
            numbers = " ".join(f"{part:.15g}" for part in (factor.real, factor.imag) * 2)
            times = dict.fromkeys((gains.start[i], gains.stop[i]))
            lines += [f"{obs.mjd + time / 24:.12f} {numbers}\n" for time in times]
        if lines:
            written.append(_file(folder, obs, name))
            written[-1].write_text("".join(lines), encoding="utf-8")
    if not written:
        raise ValueError("write_gains: no station has a solution.")
    return written


def read_gains(folder: str | Path, obs: Observation) -> GainTable:
    """Read the gains of an observation's stations; use `apply_gains(obs, gains, nearest=True)` with them.

    Every line is an interval of its own. A station without a file keeps gain 1. Files whose hands differ are refused:
    gains here are one number per station and time.
    """
    found = {}
    for name in obs.stations.names:
        if (path := _file(Path(folder), obs, name)).is_file():
            found[name] = _read(path, obs.mjd)
    if not found:
        first = _file(Path(folder), obs, obs.stations.names[0])
        raise FileNotFoundError(f"{folder} has no gains of this observation, such as {first.name}.")
    times = np.unique(np.concatenate([time for time, _ in found.values()]))
    shape = len(times), len(obs.stations)
    gain, solved = np.ones(shape, complex), np.zeros(shape, bool)
    for name, (time, factor) in found.items():
        k, at = obs.stations.index(name), np.searchsorted(times, time)
        gain[at, k], solved[at, k] = 1 / factor, True
    unknown = np.full(len(times), np.nan)
    return GainTable(times, times, obs.stations.names, gain, solved, unknown, unknown, np.ones(len(times), bool))


def _file(folder: Path, obs: Observation, station: str) -> Path:
    return folder / f"{obs.source}_{station}.txt"


def _read(path: Path, mjd: int) -> tuple[np.ndarray, np.ndarray]:
    """Return times (h of the day) and factors of one station's file."""
    rows = []
    for i, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) not in WIDTHS or not np.isfinite(numbers).all():
            raise ValueError(f"{path}, line {i}: not an MJD and the factors of both hands (three or five numbers).")
        right, left = numbers[1:] if len(numbers) == 3 else (complex(*numbers[1:3]), complex(*numbers[3:]))
        if not abs(right) > 0 or abs(right - left) > SAME * abs(right):
            raise ValueError(f"{path}, line {i}: both hands must have the same factor, which is not zero.")
        rows.append((24 * (numbers[0] - mjd), right))
    if not rows:
        raise ValueError(f"{path}: the file holds no gains.")
    time, factor = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], complex)
    order = np.argsort(time, kind="stable")
    if (np.diff(time[order]) <= 0).any():
        raise ValueError(f"{path}: a time appears twice.")
    return time[order], factor[order]
