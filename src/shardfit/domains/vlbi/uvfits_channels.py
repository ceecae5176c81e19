"""Channels of a uvfits file: which of them are averaged, and at which frequency their baselines are measured."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.domains.vlbi.constants import HANDS
from shardfit.domains.vlbi.observation import Observation, make_observation
from shardfit.domains.vlbi.stokes import from_circular, present
from shardfit.domains.vlbi.uvfits_tables import covers

log = logging.getLogger(__name__)
REACH = 2.0  # nominal resolutions from the centre within which smearing is to stay below the noise: half a usual field
SMEARED = 0.3  # standard deviations of a row that an average over channels may cost


@dataclass(frozen=True)
class Setup:
    """Rows of one frequency setup, by name, and cube (n, channels, products, 3) of real part, imaginary part, weight.

    rows: u, v in light-seconds and what else a row has; frequencies, widths: (channels,) Hz.
    """

    cube: np.ndarray
    names: tuple[str, ...]
    rows: dict[str, np.ndarray]
    frequencies: np.ndarray
    widths: np.ndarray
    dtype: np.dtype

    def average(self, channels: Sequence[int]) -> tuple[dict, dict, dict] | None:
        """Return rows, vis and sigma of the average over some channels, None if all its samples are flagged.

        u and v are those of each row's mean frequency, which depends on the channels that are flagged; all rows
        carry the channels' own mean as their frequency.
        """
        vis, sigma, hz = self._products(channels)
        if vis.keys() & set(HANDS):
            vis, sigma = from_circular(vis, sigma)
        if "I" not in vis:
            return None
        good = np.isfinite(sigma["I"])
        rows = {name: values[good] for name, values in self.rows.items()}
        rows["u"], rows["v"] = rows["u"] * hz[good], rows["v"] * hz[good]
        rows["hz"] = np.full(good.sum(), self.frequencies[channels].mean())
        vis, sigma = ({k: x[good] for k, x in d.items()} for d in (vis, sigma))
        return rows, vis, sigma

    def _products(self, channels: Sequence[int]) -> tuple[dict, dict, np.ndarray]:
        """Average channels by inverse variance; weights that are not positive and finite mean a flagged sample."""
        weight = np.zeros((len(self.cube), len(self.names)), self.dtype)
        total = weight.astype(np.result_type(self.dtype, np.complex64))
        first = self.frequencies[channels[0]]
        offset = np.zeros(len(self.cube))
        for k in channels:
            value, w, good = self._samples(k)
            total[good] += w[good] * value[good]
            weight[good] += w[good]
            offset += (self.frequencies[k] - first) * np.where(good, w, 0).sum(1)
        vis, sigma = total / weight, 1 / np.sqrt(weight)
        products = present(*({name: x[:, i] for i, name in enumerate(self.names)} for x in (vis, sigma)))
        return *products, first + offset / np.maximum(weight.sum(1), np.finfo(self.dtype).tiny)

    def _samples(self, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values and weights of a channel, (n, products), and which are no flagged samples."""
        real, imag, w = np.moveaxis(self.cube[:, k].astype(self.dtype), -1, 0)
        return real + 1j * imag, w, np.isfinite(real) & np.isfinite(imag) & np.isfinite(w) & (w > 0)

    def groups(self) -> list[list[int]]:
        """Return the channels in groups so narrow that averages over each smear less than the noise.

        A source at θ from the centre loses (π |u| θ Δν/ν)²/6 of its visibility over a band of Δν.
        """
        order = np.argsort(self.frequencies, kind="stable")
        if len(order) == 1:
            return [[0]]
        parallel = [i for i, name in enumerate(self.names) if name in ("RR", "LL", "I")]
        squares = np.zeros(len(self.cube))
        for k in order:
            value, w, good = (x[:, parallel] for x in self._samples(k))
            squares += np.where(good, w * np.abs(value) ** 2 - 2, 0.0).sum(1)  # less what noise alone adds
        snr = np.sqrt(np.maximum(squares, 1.0))
        length = np.hypot(self.rows["u"], self.rows["v"])
        phase = 2 * np.pi * REACH / 2 * length / max(length.max(), np.finfo(float).tiny)  # at θ, for Δν/ν = 1
        widest = float(np.sqrt(6 * SMEARED / (snr * np.maximum(phase, 1e-9) ** 2)).min())
        low, high = self.frequencies.min(), self.frequencies.max()
        n = min(int(np.ceil((high - low) / (widest * low))), len(order)) or 1
        part = np.minimum(n * (self.frequencies - low) / max(high - low, 1.0), n - 1).astype(int)
        return [order[part[order] == k].tolist() for k in np.unique(part)]


def joined(setups: Sequence[Setup], groups: Sequence[Sequence[Sequence[int]]], about: dict[str, Any]) -> Observation:
    """Return the averages over groups of channels, one list of groups for each setup, as one observation."""
    used = [(one, list(group)) for one, some in zip(setups, groups, strict=True) for group in some]
    averages = [(one.average(group), one, group) for one, group in used]
    found = [(*average, one, group) for average, one, group in averages if average is not None]
    if not found:
        raise ValueError("no valid data: every visibility is flagged.")
    products = [name for name in "IQUV" if any(name in vis for _, vis, *_ in found)]
    rows = {name: np.concatenate([rows[name] for rows, *_ in found]) for name in found[0][0]}
    vis, sigma = {}, {}
    for name in products:
        vis[name] = np.concatenate([v.get(name, np.zeros(len(r["hz"]), complex)) for r, v, *_ in found])
        sigma[name] = np.concatenate([s.get(name, np.full(len(r["hz"]), np.inf)) for r, _, s, *_ in found])
    # setups may repeat a frequency: the same channel counts once
    band = {float(one.frequencies[k]): float(one.widths[k]) for one, group in used for k in group}
    obs = make_observation(
        **rows, **about, vis=vis, sigma=sigma, freq_hz=float(np.mean(list(band))), bandwidth_hz=sum(band.values())
    )
    if obs.scans is not None and not covers(obs.scans, obs.time):
        log.info("the scan table does not cover all rows; it is ignored")
        return obs.replace(scans=None)
    return obs
