"""Synthetic observations of an image with a given array."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.domains.vlbi.geometry import elevation, hour_angle, parallactic_angle, uv_coordinates
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.movies import Movie, seen
from shardfit.domains.vlbi.observation import Observation, Stations, make_observation

QUANTIZATION = 0.88  # efficiency of two-bit sampling

# positions: antenna tables of the 2017 data release; sensitivities: medians of the 2017 campaign
_EHT2017 = {
    "AA": (2225060.8136, -5440059.59994, -2481681.15054, 74.0),
    "AP": (2225039.5297, -5441197.6292, -2479303.3597, 4700.0),
    "AZ": (-1828796.2, -5054406.8, 3427865.2, 17100.0),
    "JC": (-5464584.676, -2493001.17, 2150653.982, 10500.0),
    "LM": (-768715.632, -5988507.072, 2063354.852, 4500.0),
    "PV": (5088967.74544, -301681.18586, 3825012.20561, 1900.0),
    "SM": (-5464555.493, -2492927.989, 2150797.176, 6200.0),
    "SP": (0.01, 0.01, -6359609.7, 19300.0),
}
_table = np.array(list(_EHT2017.values()))
EHT2017 = Stations(tuple(_EHT2017), _table[:, :3], _table[:, 3])


def read_array(path: Any) -> Stations:
    """Read stations from text: name, x, y, z in m (geocentric) and SEFD in Jy on each line; # starts a comment.

    Array files of eht-imaging are read too: the SEFDs of both hands, of which the geometric mean is taken, and further
    columns, which are not used. Raises ValueError, naming file and line, for anything else.
    """
    names, numbers = [], []
    for i, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            numbers_here = [float(word) for word in words[1:]]
            x, y, z, sefd = (*numbers_here[:3], numbers_here[3] if len(numbers_here) == 4 else _mean_sefd(numbers_here))
        except ValueError:
            raise ValueError(f"{path}, line {i}: not a name and four numbers (x, y, z in m, SEFD in Jy).") from None
        if not (np.isfinite([x, y, z]).all() and 0 < sefd < np.inf):
            raise ValueError(f"{path}, line {i}: positions must be finite and the SEFD positive.")
        names.append(words[0])
        numbers.append((x, y, z, sefd))
    if len(names) < 2:
        raise ValueError(f"{path}: an array needs at least two stations, found {len(names)}.")
    table = np.array(numbers)
    try:
        return Stations(tuple(names), table[:, :3], table[:, 3])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _mean_sefd(numbers: list[float]) -> float:
    """Return the geometric mean of both hands' SEFD, of a line of an eht-imaging array file."""
    if len(numbers) not in (5, 12) or min(numbers[3:5]) < 0:
        raise ValueError("neither four numbers, nor five or twelve")
    return float(np.sqrt(numbers[3] * numbers[4]))


@dataclass(frozen=True)
class Gains:
    """Station gain errors: ln|g| has a constant part and one per time, both Gaussian; phases may be random per time."""

    offset: float = 0.0  # standard deviation of the constant part of ln|g|
    scatter: float = 0.0  # standard deviation of the part that changes from time to time
    random_phase: bool = False  # uniform phase per station and time, as the troposphere gives
    leakage: float = 0.0  # standard deviation of real and imaginary part of every station's two leakage terms


@dataclass(frozen=True)
class Night:
    """When and how an array observes.

    start_h, stop_h: UTC hours of the image's MJD, stop excluded.
    cadence_s: from one integration to the next; tint_s: length of each.
    bandwidth_hz: of the receivers.
    elevation_deg: a station sees the source between these two.
    opacity: of the air at the zenith; amplitudes are corrected for it, and noise grows with it.
    """

    start_h: float = 0.0
    stop_h: float = 12.0
    cadence_s: float = 600.0
    tint_s: float = 60.0
    bandwidth_hz: float = 2e9
    elevation_deg: tuple[float, float] = (10.0, 85.0)
    opacity: float = 0.0

    def __post_init__(self):
        positive = self.cadence_s > 0 and self.tint_s > 0 and self.bandwidth_hz > 0
        if not (np.isfinite(self.opacity) and self.opacity >= 0):
            raise ValueError(f"Night: opacity={self.opacity} must not be negative.")
        if not (self.stop_h > self.start_h and positive):
            raise ValueError(
                f"Night: start_h={self.start_h} < stop_h={self.stop_h}, and positive cadence_s={self.cadence_s}, "
                f"tint_s={self.tint_s}, bandwidth_hz={self.bandwidth_hz} are needed."
            )


def simulate(
    source: Image | Movie,
    array: Stations = EHT2017,
    night: Night | None = None,
    *,
    seed: int = 0,
    gains: Gains | None = None,
    noise: bool = True,
) -> Observation:
    """Observe an image or a movie: u, v of every baseline with both stations up, thermal noise, gain errors.

    night: when and how, `Night()` unless given. σ of a Stokes parameter is √(SEFD1 SEFD2/(2 Δν t))/(0.88 √2) Jy, of the
    real and of the imaginary part. Data are g1 g2* V + noise; with leakage all Stokes parameters of the image are mixed
    station by station, turning with the parallactic angle of an azimuth mount. seed fixes noise and gains; noise=False
    leaves the errors but adds nothing.

    Example: `simulate(ring(...), EHT2017, Night(stop_h=24, cadence_s=1800), seed=1)`.
    """
    night = night or Night()
    image = source.frames[0] if isinstance(source, Movie) else source
    if not (np.isfinite(array.xyz).all() and (array.sefd > 0).all()):
        raise ValueError("simulate: the array needs positions and positive SEFDs of all stations.")
    times = np.arange(night.start_h, night.stop_h, night.cadence_s / 3600)
    angle = hour_angle(image.mjd, times, image.ra_hours)
    t, ant1, ant2 = _baselines_up(array, angle, image.dec_deg, night.elevation_deg)
    u, v = uv_coordinates(array.xyz[ant1], array.xyz[ant2], angle[t], image.dec_deg, image.freq_hz)

    # gains before noise: data with and without noise then share their gains
    rng = np.random.default_rng(seed)
    g = draw_gains(rng, gains or Gains(), len(times), len(array))
    hand = np.sqrt(array.sefd[ant1] * array.sefd[ant2] / (2 * night.bandwidth_hz * night.tint_s)) / QUANTIZATION
    sigma = hand / np.sqrt(2) * _absorbed(array, t, ant1, ant2, angle, image.dec_deg, night.opacity)
    models = seen(source, times[t], u, v)
    if gains is not None and gains.leakage > 0:
        models = _leaked(models, array, (t, ant1, ant2), angle, image.dec_deg, gains.leakage, seed)
    vis = {}
    for name, model in models.items():
        draws = rng.normal(size=(2, t.size))
        vis[name] = g[t, ant1] * g[t, ant2].conj() * model + (sigma * (draws[0] + 1j * draws[1]) if noise else 0.0)
    return make_observation(
        time=times[t],
        tint=np.full(t.size, night.tint_s),
        ant1=ant1,
        ant2=ant2,
        u=u,
        v=v,
        vis=vis,
        sigma={name: sigma for name in vis},
        stations=array,
        freq_hz=image.freq_hz,
        bandwidth_hz=night.bandwidth_hz,
        mjd=image.mjd,
        source=image.source,
        ra_hours=image.ra_hours,
        dec_deg=image.dec_deg,
        polrep="circ",
    )


def _absorbed(array: Stations, t, ant1, ant2, angle: np.ndarray, dec_deg: float, opacity: float) -> Any:
    """Return the factor by which noise grows when amplitudes are corrected for the air's absorption, (rows,)."""
    if opacity == 0:
        return 1.0
    path = opacity / np.sin(np.stack([elevation(xyz, angle, dec_deg) for xyz in array.xyz], axis=1).clip(0.01))
    return np.exp(0.5 * (path[t, ant1] + path[t, ant2]))


def _leaked(models, array: Stations, rows, angle: np.ndarray, dec_deg: float, size: float, seed: int) -> dict:
    """Return Stokes visibilities after leakage: correlations (R, L) times (1, d_R; d_L, 1) on either side.

    The terms are those of the feeds; in data turned back by the parallactic angle φ they appear as d_R e^{2iφ} and
    d_L e^{-2iφ}.
    """
    t, ant1, ant2 = rows
    draw = np.random.default_rng([seed, 1]).normal(size=(2, 2, len(array)))  # a stream of its own: noise stays as it is
    right, left = size * (draw[0] + 1j * draw[1])
    turn = np.exp(2j * np.stack([parallactic_angle(xyz, angle, dec_deg) for xyz in array.xyz], axis=1))
    full = {name: models.get(name, np.zeros_like(models["I"])) for name in "IQUV"}
    i, q, u, v = (full[name] for name in "IQUV")
    rr, ll, rl, lr = i + v, i - v, q + 1j * u, q - 1j * u
    r1, l1 = right[ant1] * turn[t, ant1], left[ant1] * turn[t, ant1].conj()
    r2, l2 = (right[ant2] * turn[t, ant2]).conj(), (left[ant2] * turn[t, ant2].conj()).conj()
    mixed = {
        "RR": rr + r1 * lr + r2 * rl + r1 * r2 * ll,
        "LL": ll + l1 * rl + l2 * lr + l1 * l2 * rr,
        "RL": rl + r1 * ll + l2 * rr + r1 * l2 * lr,
        "LR": lr + l1 * rr + r2 * ll + l1 * r2 * rl,
    }
    return {
        "I": (mixed["RR"] + mixed["LL"]) / 2,
        "Q": (mixed["RL"] + mixed["LR"]) / 2,
        "U": 1j * (mixed["LR"] - mixed["RL"]) / 2,
        "V": (mixed["RR"] - mixed["LL"]) / 2,
    }


def _baselines_up(
    array: Stations, angle: np.ndarray, dec_deg: float, elevation_deg: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return time index and both stations of every baseline that sees the source. angle: (times,) rad, of the hour."""
    first, second = np.triu_indices(len(array), 1)
    heights = np.stack([elevation(xyz, angle, dec_deg) for xyz in array.xyz], axis=1)  # (times, stations)
    low, high = np.deg2rad(elevation_deg)
    up = (heights >= low) & (heights <= high)
    t, b = np.nonzero(up[:, first] & up[:, second])
    if t.size == 0:
        raise ValueError("simulate: no two stations see the source at these times. Change times or elevation_deg.")
    return t, first[b], second[b]


def draw_gains(rng: np.random.Generator, gains: Gains, n_times: int, n_stations: int) -> np.ndarray:
    """Return complex gains (times, stations)."""
    log_gain = gains.offset * rng.normal(size=n_stations) + gains.scatter * rng.normal(size=(n_times, n_stations))
    phase = rng.uniform(-np.pi, np.pi, (n_times, n_stations))
    return np.exp(log_gain + 1j * phase * gains.random_phase)
