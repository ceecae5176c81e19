"""Earth rotation: sidereal time, elevation, and u, v of a baseline."""

import numpy as np

from shardfit.domains.vlbi.constants import C

_WGS84 = np.array([6378137.0, 6378137.0, 6356752.3142])  # m, semi-axes of the Earth's ellipsoid


def sidereal_time(mjd: int, time_h: np.ndarray | float) -> np.ndarray:
    """Greenwich mean sidereal time, rad. mjd: day; time_h: UTC hours since its 0h (UT1 is taken to be UTC)."""
    days = (mjd - 51544.5) + np.asarray(time_h, float) / 24
    century = days / 36525
    # the whole days are split off: their product with the Earth's rotation loses digits
    turn = 0.7790572732640 + 0.00273781191135448 * days + days % 1.0
    drift = np.deg2rad((0.014506 + (4612.156534 + 1.3915817 * century) * century) / 3600)
    return (2 * np.pi * turn + drift) % (2 * np.pi)


def hour_angle(mjd: int, time_h: np.ndarray, ra_hours: float) -> np.ndarray:
    """Hour angle of a source at Greenwich, rad."""
    return sidereal_time(mjd, time_h) - ra_hours * np.pi / 12


def uv_coordinates(xyz1: np.ndarray, xyz2: np.ndarray, angle: np.ndarray, dec_deg: float, freq_hz: float):
    """Return u, v, (n,) wavelengths, of baselines r1 - r2. xyz1, xyz2: (n, 3) m; angle: (n,) rad at Greenwich.

    The source position is that of date: precession since its epoch is not applied.
    """
    x, y, z = (np.asarray(xyz1, float) - xyz2).T * (freq_hz / C)
    dec = np.deg2rad(dec_deg)
    u = np.sin(angle) * x + np.cos(angle) * y
    v = np.sin(dec) * (np.sin(angle) * y - np.cos(angle) * x) + np.cos(dec) * z
    return u, v


def parallactic_angle(xyz: np.ndarray, angle: np.ndarray, dec_deg: float) -> np.ndarray:
    """Angle of the zenith from north at the source, (n,) rad, positive in the west. xyz: (3,) m; angle: (n,) rad."""
    latitude, longitude = np.arctan2(xyz[2], np.hypot(xyz[0], xyz[1])), np.arctan2(xyz[1], xyz[0])
    hour, dec = angle + longitude, np.deg2rad(dec_deg)
    across = np.cos(latitude) * np.sin(hour)
    return np.arctan2(across, np.sin(latitude) * np.cos(dec) - np.cos(latitude) * np.sin(dec) * np.cos(hour))


def elevation(xyz: np.ndarray, angle: np.ndarray, dec_deg: float) -> np.ndarray:
    """Elevation of a source above the horizon, (n,) rad. xyz: (n, 3) m; angle: (n,) rad at Greenwich."""
    up = np.asarray(xyz, float) / _WGS84**2
    up /= np.linalg.norm(up, axis=-1, keepdims=True)
    dec = np.deg2rad(dec_deg)
    toward = np.stack(
        [np.cos(dec) * np.cos(angle), -np.cos(dec) * np.sin(angle), np.full_like(angle, np.sin(dec))], axis=-1
    )
    return np.arcsin(np.clip((up * toward).sum(-1), -1, 1))
