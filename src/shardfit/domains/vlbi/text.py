"""Text tables of the EHT data releases: comma- or blank-separated, Stokes I as amplitude, phase and error."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.domains.vlbi.observation import Observation, Stations, make_observation

_COLUMNS = ("time(UTC)", "T1", "T2", "U(lambda)", "V(lambda)", "Iamp(Jy)", "Iphase(d)", "Isigma(Jy)")
_ABOUT = re.compile(r"SRC:(?P<source>[^,\s]*)[,\s]+DATE\(MJD\):(?P<mjd>\d{1,6})[,\s]+FREQ:(?P<ghz>[\d.]+)GHz")


def read_text(
    path: Any,
    *,
    stations: Stations | None = None,
    ra_hours: float = 0.0,
    dec_deg: float = 0.0,
    tint_s: float = 10.0,
    bandwidth_hz: float = 1.856e9,
) -> Observation:
    """Read a .csv or .txt table of an EHT release; what the table lacks is taken from the arguments.

    The first comment gives source, MJD and frequency, the second the columns. stations: order and positions; None
    takes the names in alphabetical order, without positions. Raises ValueError, naming the file and line.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    comments = [line.lstrip("# ").strip() for line in lines if line.startswith("#")]
    about = next((found for line in comments if (found := _ABOUT.search(line))), None)
    if about is None:
        raise ValueError(f"{path}: no comment of the form SRC:M87,DATE(MJD):57854,FREQ:227.0707GHz. Add it.")
    if not any(_split(line) == list(_COLUMNS) for line in comments):
        raise ValueError(f"{path}: no comment with the columns {', '.join(_COLUMNS)}. Other tables are not supported.")
    rows = []
    for i, line in enumerate(lines, start=1):
        if line.startswith("#") or not line.strip():
            continue
        try:
            time, one, two, *numbers = _split(line)
            rows.append((one, two, float(time), *(float(x) for x in numbers)))
            if len(numbers) != 5 or not np.isfinite(rows[-1][2:]).all() or numbers[4].startswith("-"):
                raise ValueError(f"{len(numbers)} numbers after the stations")
        except ValueError as error:
            raise ValueError(f"{path}, line {i}: not time, two stations and five finite numbers ({error}).") from error
    if not rows:
        raise ValueError(f"{path}: no rows.")
    one, two, *numbers = zip(*rows, strict=True)
    time, u, v, amplitude, phase, sigma = np.array(numbers)
    if stations is None:
        names = tuple(sorted({*one, *two}))
        stations = Stations(names, np.full((len(names), 3), np.nan), np.zeros(len(names)))
    try:
        return make_observation(
            time=time,
            tint=np.full(len(time), tint_s),
            ant1=[stations.index(name) for name in one],
            ant2=[stations.index(name) for name in two],
            u=u,
            v=v,
            vis={"I": amplitude * np.exp(1j * np.deg2rad(phase))},
            sigma={"I": sigma},
            stations=stations,
            freq_hz=float(about["ghz"]) * 1e9,
            bandwidth_hz=bandwidth_hz,
            mjd=int(about["mjd"]),
            source=about["source"],
            ra_hours=ra_hours,
            dec_deg=dec_deg,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_text(obs: Observation, path: Any) -> None:
    """Write Stokes I as a .csv table of the EHT releases: 4 decimals of a degree, 8 of a Jy and of an hour."""
    obs.require_one_frequency("write_text")
    lines = [
        f"#SRC:{obs.source or 'unknown'},DATE(MJD):{obs.mjd},FREQ:{obs.freq_hz / 1e9:.4f}GHz",
        "#" + ",".join(_COLUMNS),
    ]
    amplitude, phase = np.abs(obs.vis["I"]), np.rad2deg(np.angle(obs.vis["I"]))
    names = obs.stations.names
    for i in range(len(obs)):
        lines.append(
            f"{obs.time[i]:011.8f},{names[obs.ant1[i]]},{names[obs.ant2[i]]},{obs.u[i]:.4f},{obs.v[i]:.4f},"
            f"{amplitude[i]:.8f},{phase[i]:.4f},{obs.sigma['I'][i]:.8f}"
        )
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _split(line: str) -> list[str]:
    return [part for part in re.split(r"[,\s]+", line.strip()) if part]
