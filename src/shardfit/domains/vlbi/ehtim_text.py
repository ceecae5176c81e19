"""Observations as text in the layout of eht-imaging: comments with header and stations, a row for each visibility."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.domains.vlbi.observation import Observation, Stations, make_observation
from shardfit.domains.vlbi.stokes import from_circular

STOKES_COLUMNS, HAND_COLUMNS = ("I", "Q", "U", "V"), ("RR", "LL", "RL", "LR")
N_COLUMNS = 20  # time, tint, two stations, two opacities, u, v, four amplitudes with phases, four errors
_ENTRY = re.compile(r"^#\s*([A-Z]+):\s*(\S.*?)\s*$")
_ANGLE = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(?:h|deg)\s*(\d+(?:\.\d+)?)\s*m\s*(\d+(?:\.\d+)?)\s*s")


def read_ehtim_text(path: Any) -> Observation:
    """Read a text file that eht-imaging wrote (`obs.save_txt`), with Stokes parameters or circular correlations.

    Samples whose error is not positive are missing. Raises ValueError, naming file and line.
    """
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    about = {found[1]: found[2] for line in lines if (found := _ENTRY.match(line))}
    try:
        header = _header(about)
        stations = _stations(lines)
        rows = [_row(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
        if not rows:
            raise ValueError("no rows.")
        names = HAND_COLUMNS if any("RRamp" in line for line in lines if line.startswith("#")) else STOKES_COLUMNS
        return _observation(rows, names, stations, header)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _header(about: dict[str, str]) -> dict[str, Any]:
    missing = [name for name in ("SRC", "RA", "DEC", "MJD", "RF", "BW") if name not in about]
    if missing:
        raise ValueError(f"no comment '{missing[0]}: …'. This is no observation of eht-imaging.")
    angles = {}
    for name in ("RA", "DEC"):
        found = _ANGLE.search(about[name])
        if found is None:
            raise ValueError(f"{name}: {about[name]!r} is not hours or degrees, minutes and seconds.")
        size = abs(float(found[1])) + float(found[2]) / 60 + float(found[3]) / 3600
        angles[name] = -size if found[1].startswith("-") else size
    hz = {name: 1e9 * float(about[name].split()[0]) for name in ("RF", "BW")}
    mjd = float(about["MJD"].split()[0])
    if not math.isfinite(mjd):
        raise ValueError(f"MJD: {about['MJD']!r} is no day.")
    place = {"source": about["SRC"], "ra_hours": angles["RA"], "dec_deg": angles["DEC"]}
    return {**place, "mjd": int(mjd), "freq_hz": hz["RF"], "bandwidth_hz": hz["BW"]}


def _stations(lines: list[str]) -> Stations:
    """Return the stations of the header: comments with a name, a position and two SEFDs, and more that is not used."""
    found: dict[str, list[float]] = {}
    for i, line in enumerate(lines, start=1):
        words = line.lstrip("#").split()
        if not line.startswith("#") or len(words) < 6 or words[0].endswith(":"):
            continue
        try:
            numbers = [float(word) for word in words[1:6]]
        except ValueError:
            continue  # a line of headings
        if words[0] in found:
            raise ValueError(f"line {i}: station {words[0]!r} is listed twice.")
        found[words[0]] = numbers
    if len(found) < 2:
        raise ValueError("the header lists fewer than two stations.")
    table = np.array(list(found.values()))
    return Stations(tuple(found), table[:, :3], np.sqrt(np.abs(table[:, 3] * table[:, 4])))


def _row(number: int, line: str) -> tuple[Any, ...]:
    words = line.split()
    try:
        if len(words) != N_COLUMNS:
            raise ValueError(f"{len(words)} columns")
        return (words[2], words[3], *(float(word) for word in (*words[:2], *words[6:])))
    except ValueError as error:
        raise ValueError(f"line {number}: not a row of {N_COLUMNS} columns ({error}).") from error


def _observation(rows: list[tuple], names: tuple[str, ...], stations: Stations, header: dict[str, Any]) -> Observation:
    one, two, *numbers = zip(*rows, strict=True)
    time, tint, u, v, *values = np.array(numbers, float)
    vis, sigma = {}, {}
    for k, name in enumerate(names):
        sample, error = values[2 * k] * np.exp(1j * np.deg2rad(values[2 * k + 1])), values[8 + k]
        good = np.isfinite(sample) & np.isfinite(error) & (error > 0)
        vis[name], sigma[name] = np.where(good, sample, 0), np.where(good, error, np.inf)
    if names == HAND_COLUMNS:
        vis, sigma = from_circular(vis, sigma)
    used = np.isfinite(sigma["I"])
    ants = {"ant1": [stations.index(name) for name in one], "ant2": [stations.index(name) for name in two]}
    table = {"time": time, "tint": tint, "u": u, "v": v, **{k: np.array(a) for k, a in ants.items()}}
    return make_observation(
        **{name: column[used] for name, column in table.items()},
        vis={name: x[used] for name, x in vis.items()},
        sigma={name: x[used] for name, x in sigma.items()},
        stations=stations,
        polrep="circ" if names == HAND_COLUMNS else "stokes",
        **header,
    )
