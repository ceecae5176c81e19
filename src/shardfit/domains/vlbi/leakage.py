"""Polarisation leakage: each hand of a receiver sees some of the other. Solved for with an image, and taken out.

A receiver gives (1, d_R; d_L, 1) times (R, L). In data whose feed rotation is corrected the terms turn by twice the
parallactic angle φ: d_R e^{2iφ}, d_L e^{-2iφ}. To first order

    RL  = c RL₀ + d_R1 e^{2iφ1} LL + d_L2* e^{2iφ2} RR
    LR* = c LR₀* + d_L1* e^{2iφ1} RR* + d_R2 e^{2iφ2} LL*

is linear in d_R, d_L* and the offset c between the hands, so all rows together give them by least squares.
"""

from dataclasses import dataclass

import numpy as np

from shardfit.domains.vlbi.geometry import hour_angle, parallactic_angle
from shardfit.domains.vlbi.images import Image, check_frequency, visibilities
from shardfit.domains.vlbi.observation import Observation


@dataclass(frozen=True, eq=False)
class Leakage:
    """Leakage terms.

    right, left: (k,) d_R and d_L of the stations, NaN without data; error: (k,) standard deviation of the real and
    of the imaginary part of the worse one; offset: c, 1 if it was not solved for.
    """

    stations: tuple[str, ...]
    right: np.ndarray
    left: np.ndarray
    error: np.ndarray
    offset: complex = 1.0


def solve_leakage(obs: Observation, image: Image, *, offset: bool = False) -> Leakage:
    """Return the leakage of all stations with azimuth mounts, given an image with Q and U.

    obs: gains and feed rotation calibrated, all four Stokes parameters. offset: also solve for phase and ratio of the
    hands. Terms that a wrong polarised image explains as well are wrong: long tracks and a known calibrator help.

    Example: `apply_leakage(obs, solve_leakage(obs, polarised.image))`.
    """
    _require(obs, image)
    check_frequency(image, obs)
    model = visibilities(image, obs.u, obs.v)
    zero = np.zeros(len(obs))
    i, q, u, v = (model.get(name, zero) for name in "IQUV")
    turn, k, rows = _turns(obs), len(obs.stations), np.arange(len(obs))
    good = np.isfinite(obs.sigma["Q"]) & np.isfinite(obs.sigma["U"])
    weight = np.where(good, 1 / np.hypot(obs.sigma["Q"], obs.sigma["U"]), 0.0)
    seen = {"RL": obs.vis["Q"] + 1j * obs.vis["U"], "LR": obs.vis["Q"] - 1j * obs.vis["U"]}
    blocks = []
    for first, second, parallel in ((0, k, (i - v, i + v)), (k, 0, ((i + v).conj(), (i - v).conj()))):
        block = np.zeros((len(obs), 2 * k + 1), complex)
        block[rows, first + obs.ant1] += turn[rows, obs.ant1] * parallel[0]
        block[rows, second + obs.ant2] += turn[rows, obs.ant2] * parallel[1]
        blocks.append(block)
    true = q + 1j * u, (q - 1j * u).conj()
    for block, cross in zip(blocks, true, strict=True):
        block[:, -1] = cross
    design = np.concatenate(blocks) * np.tile(weight, 2)[:, None]
    data = np.concatenate([seen["RL"], seen["LR"].conj()]) * np.tile(weight, 2)
    used = np.flatnonzero(np.abs(design).sum(0) > 0)
    if not offset:
        data = data - design[:, -1]
        used = used[used < 2 * k]
    found, spread = np.full(2 * k + 1, np.nan, complex), np.full(2 * k + 1, np.nan)
    found[used], _, rank, _ = np.linalg.lstsq(design[:, used], data, rcond=1e-10)
    if rank < len(used):
        raise ValueError("solve_leakage: some terms cannot be told apart. Use a longer track, or more stations.")
    spread[used] = np.sqrt(np.diag(np.linalg.inv(design[:, used].conj().T @ design[:, used])).real)
    error = np.maximum(spread[:k], spread[k : 2 * k])
    return Leakage(obs.stations.names, found[:k], found[k : 2 * k].conj(), error, complex(found[-1]) if offset else 1.0)


def apply_leakage(obs: Observation, leakage: Leakage) -> Observation:
    """Return the observation with leakage and offset taken out, exactly; errors are left as they are."""
    missing = [name for name in obs.stations.names if name not in leakage.stations]
    if missing:
        raise ValueError(f"apply_leakage: no terms of {', '.join(missing)}.")
    place = [leakage.stations.index(name) for name in obs.stations.names]
    right, left = np.nan_to_num(leakage.right[place]), np.nan_to_num(leakage.left[place])
    turn = _turns(obs)
    zero = np.zeros(len(obs), complex)
    i, q, u, v = (obs.vis.get(name, zero) for name in "IQUV")
    seen = np.stack([np.stack([i + v, q + 1j * u], -1), np.stack([q - 1j * u, i - v], -1)], -2)
    one, two = (
        _inverse(right[a] * turn[np.arange(len(obs)), a], left[a] * turn[np.arange(len(obs)), a].conj())
        for a in (obs.ant1, obs.ant2)
    )
    true = one @ seen @ np.conj(np.swapaxes(two, -1, -2))
    rl, lr = true[:, 0, 1] / leakage.offset, true[:, 1, 0] / np.conj(leakage.offset)
    changed = {
        "I": (true[:, 0, 0] + true[:, 1, 1]) / 2,
        "Q": (rl + lr) / 2,
        "U": 1j * (lr - rl) / 2,
        "V": (true[:, 0, 0] - true[:, 1, 1]) / 2,
    }
    known = {name: np.where(np.isfinite(obs.sigma[name]), changed[name], 0) for name in obs.vis}
    return obs.replace(vis=known)


def _require(obs: Observation, image: Image) -> None:
    for name, there in (("data", obs.vis), ("image", image.values)):
        if not {"Q", "U"} <= set(there):
            raise ValueError(f"solve_leakage: the {name} have {', '.join(there)}; Q and U are needed.")
    if not np.isfinite(obs.stations.xyz).all():
        raise ValueError("solve_leakage: the stations' positions are needed, for the parallactic angle.")


def _turns(obs: Observation) -> np.ndarray:
    """e^{2iφ} of every row and station, (n, k)."""
    angle = hour_angle(obs.mjd, obs.time, obs.ra_hours)
    return np.exp(2j * np.stack([parallactic_angle(xyz, angle, obs.dec_deg) for xyz in obs.stations.xyz], 1))


def _inverse(right: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Inverse of (1, right; left, 1), (n, 2, 2)."""
    one = np.ones_like(right)
    matrix = np.stack([np.stack([one, -right], -1), np.stack([-left, one], -1)], -2)
    return matrix / (1 - right * left)[:, None, None]
