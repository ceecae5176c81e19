"""Data as residuals of unit variance, made of the few combinations of pixels that the array can see.

An array sees far fewer combinations of pixels than there are pixels or measurements: the singular vectors of
(visibilities / σ) by pixels whose size exceeds the noise. `compress` keeps those, and `visible` is then all that any
data product depends on. Products: 'vis', complex visibilities; or 'gains', amplitudes and closure phases of data with
unknown station gains and phases. There, gains are integrated out. Half of the variance of ln|g| changes from time to
time: errors of ln|V| have the covariance diag(σ²/|V|²) + ½ g² B Bᵀ, with B the stations of each baseline. The other
half is constant, an unknown of every station. Closure phases do not depend on station phases.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.domains.vlbi.arrays import Array, Float
from shardfit.domains.vlbi.closures import closure_covariance, triangles
from shardfit.domains.vlbi.constants import DEGREE
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.products import polar
from shardfit.domains.vlbi.tables import debias_amplitude

UNSEEN = 0.03  # standard deviations: combinations that change the data by less are left out
ROUND, LEAST = 16, 1e-6  # combinations are a multiple of it; relative size of those that rounding has not spoilt
SNR_CUT = 3.0  # of amplitudes and phases whose logarithm or angle is to have a Gaussian error
POLAR = ("logamp", "cphase")


@dataclass(frozen=True, eq=False)
class Compressed:
    """visible: (m, npix), what the array sees of an image; basis: (2 n_vis, m), whose product with it is Re and Im V/σ.

    target: (m,) of the data; rest: Σ of squares that no image changes; n: real numbers measured.
    """

    visible: np.ndarray
    basis: np.ndarray
    target: np.ndarray
    rest: float
    n: int


def compress(obs: Observation, grid: Grid, flux: float) -> Compressed:
    """Return the combinations of pixels that images of this flux (Jy) show above the noise."""
    grid.check_baselines(obs.u, obs.v)
    sigma = obs.sigma["I"]
    along_x = grid.pulse_factor(obs.u)[:, None] * np.exp(2j * np.pi * np.outer(obs.u, grid.x))
    along_y = (grid.pulse_factor(obs.v) / sigma)[:, None] * np.exp(2j * np.pi * np.outer(obs.v, grid.y))
    seen = (along_y[:, :, None] * along_x[:, None, :]).reshape(len(sigma), -1)
    matrix = np.concatenate(_parts(seen))
    wide = matrix.shape[1] > matrix.shape[0]
    size, vectors = np.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    size = np.sqrt(np.maximum(size, 0.0))
    # an image of this flux on a tenth of the pixels has this norm
    seen_above = int(np.sum(size * flux / np.sqrt(max(1.0, 0.1 * grid.n_pixels)) > UNSEEN))
    if not seen_above:
        raise ValueError(
            f"none of the data would show a source of {flux:.3g} Jy above the noise. Check flux and errors."
        )
    # rounded up, so that observations that are alike share a compiled program
    kept = min(-(-seen_above // ROUND) * ROUND, int(np.sum(size > LEAST * size[-1])))
    size, vectors = size[: -kept - 1 : -1], vectors[:, : -kept - 1 : -1]
    visible = vectors.T @ matrix if wide else size[:, None] * vectors.T
    basis = vectors if wide else (matrix @ vectors) / size
    data = np.concatenate(_parts(obs.vis["I"] / sigma))
    target = basis.T @ data
    return Compressed(visible, basis, target, float(data @ data - target @ target), data.size)


def _parts(values: Any) -> tuple[np.ndarray, np.ndarray]:
    return values.real, values.imag


def visibility_residual(signal: Float[Array, " m"], arrays: dict[str, Any]) -> Float[Array, " m"]:
    """Complex visibilities: what is seen minus what was measured."""
    return signal - arrays["target"]


def polar_residual(signal: Float[Array, " m"], arrays: dict[str, Any]) -> Float[Array, " k"]:
    """Log amplitudes and closure phases, whitened by time, and the centroid.

    The signal is what is seen of pixels, then the centroid (2,) over its error, then ln|g| of stations over theirs.
    """
    n, m = len(arrays["sigma"]), arrays["basis"].shape[1]
    parts, centroid = arrays["basis"] @ signal[:m], signal[m : m + 2]
    constant = jnp.sum((arrays["offset"] * signal[m + 2 :])[arrays["stations"]], -1)
    model = polar((parts[:n] + 1j * parts[n:]) * arrays["sigma"], POLAR)
    amplitude = jnp.append(model["log"] + constant - arrays["log_amplitude"], 0.0)  # the last place stands for none
    turn = jnp.sum(arrays["sign"] * model["phase"][arrays["legs"]], -1) - arrays["closure"]
    turn = jnp.append(turn - 2 * jnp.pi * jnp.round(turn / (2 * jnp.pi)), 0.0)
    pairs = ((amplitude, arrays["gain_blocks"]), (turn, arrays["phase_blocks"]))
    white = [jnp.einsum("tij,tj->ti", b["whiten"], r[b["at"]]).ravel() for r, b in pairs]
    return jnp.concatenate([*white, centroid])


def centroid_rows(grid: Grid, flux: float, error: float) -> np.ndarray:
    """Return (2, npix): the centroid of an image of this flux (Jy) over its error (rad).

    Closure phases and amplitudes do not change when an image is moved. Moving it is a way along a curve for all pixels
    together, which steps can only follow in small pieces; a centroid in the middle of the field takes it out.
    """
    rows = np.broadcast_arrays(grid.x, grid.y[:, None])
    return np.stack([row.ravel() for row in rows]) / (flux * error)


def polar_arrays(obs: Observation, gain_error: np.ndarray) -> tuple[dict[str, Any], int]:
    """Return what `polar_residual` needs beside the basis, and the number of measurements.

    gain_error: standard deviation of ln|g|, by station.
    """
    offset = scatter = np.sqrt(0.5) * gain_error
    sigma, vis = obs.sigma["I"], obs.vis["I"]
    amplitude = debias_amplitude(np.abs(vis), sigma)
    good = np.flatnonzero(amplitude > SNR_CUT * sigma)
    table = triangles(obs, snrcut=SNR_CUT)
    if not len(table) or not len(good):
        raise ValueError(
            f"{len(good)} amplitudes and {len(table)} closure phases exceed {SNR_CUT} times their error: too few for "
            "an image. Average over time first, or use products='vis' if the phases are calibrated."
        )
    blocks = []
    for time in np.unique(obs.time[good]):
        at = good[obs.time[good] == time]
        stations = np.zeros((len(at), len(obs.stations)))
        for station in (obs.ant1[at], obs.ant2[at]):
            stations[np.arange(len(at)), station] = scatter[station]
        covariance = np.diag((sigma[at] / amplitude[at]) ** 2) + stations @ stations.T
        blocks.append((at, np.linalg.inv(np.linalg.cholesky(covariance))))
    arrays = {
        "sigma": sigma,
        "offset": offset,
        "stations": np.stack([obs.ant1, obs.ant2], -1),
        "log_amplitude": np.log(np.where(amplitude > 0, amplitude, 1.0)),
        "legs": table.row,
        "sign": np.where(table.conjugate, -1.0, 1.0),
        "closure": table.value * DEGREE,
        "gain_blocks": _padded(blocks, len(sigma)),
        "phase_blocks": _padded([(b.index, b.whitener) for b in closure_covariance(obs, table)], len(table)),
    }
    return arrays, len(good) + len(table)


def _padded(blocks: list[tuple[np.ndarray, np.ndarray]], nothing: int) -> dict[str, np.ndarray]:
    """Blocks of different sizes as arrays of one: at (t, size), `nothing` where empty; whiten (t, size, size)."""
    size = max(len(at) for at, _ in blocks)
    at, whiten = np.full((len(blocks), size), nothing), np.zeros((len(blocks), size, size))
    for i, (where, matrix) in enumerate(blocks):
        at[i, : len(where)] = where
        whiten[i, : len(where), : len(where)] = matrix
    return {"at": at, "whiten": whiten}
