"""What an array makes of a point source: dirty beam and dirty image, and the ellipse that stands for the beam."""

from dataclasses import dataclass

import numpy as np

from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.observation import Observation

WEIGHTINGS = ("natural", "uniform")
LOBE = 0.5  # of the peak: what is above belongs to the main lobe, and is fitted
ACROSS = 33  # pixels over the main lobe


@dataclass(frozen=True)
class Beam:
    """An elliptical Gaussian. major, minor: FWHM, rad; pa_rad: of the major axis, from north to east, 0 to π."""

    major: float
    minor: float
    pa_rad: float


def visibility_weights(obs: Observation, weighting: str = "natural") -> np.ndarray:
    """Return a weight for each row, (n,), of sum 1: by 1/σ² ('natural') or all alike ('uniform')."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"unknown weighting {weighting!r}. Use one of {', '.join(WEIGHTINGS)}.")
    weight = 1 / obs.sigma["I"] ** 2 if weighting == "natural" else np.ones(len(obs))
    return weight / weight.sum()


def dirty_beam(obs: Observation, grid: Image, weighting: str = "natural") -> Image:
    """Return the response to a point source of 1 Jy, peak 1, on the pixels of `grid`."""
    return _summed(obs, grid, np.ones(len(obs)), visibility_weights(obs, weighting))


def dirty_image(obs: Observation, grid: Image, weighting: str = "natural") -> Image:
    """Return the sky convolved with the dirty beam, Jy per beam, on the pixels of `grid`; phases must be calibrated."""
    return _summed(obs, grid, obs.vis["I"], visibility_weights(obs, weighting))


def _summed(obs: Observation, grid: Image, vis: np.ndarray, weight: np.ndarray) -> Image:
    # the model is V = Σ I exp(+2πi (ux + vy)): the sum back has the other sign, and both orientations of a baseline
    along_x, along_y = (np.exp(-2j * np.pi * np.outer(q, a)) for q, a in ((obs.u, grid.x), (obs.v, grid.y)))
    return grid.replace(values={"I": np.real(along_y.T @ ((weight * vis)[:, None] * along_x))})


def fit_beam(obs: Observation, weighting: str = "natural") -> Beam:
    """Return the ellipse of the dirty beam's main lobe.

    -2 ln B is a quadratic form of the position for a Gaussian; it is fitted by least squares to the lobe above half the
    peak, with weights B². Natural weights follow the errors of the observation as it is: a fraction of |V| that
    `prepare` adds to them takes weight from baselines of high signal-to-noise ratio, so that the beam of prepared data
    is another; averages alone do not change it. 'uniform' does not look at errors.
    """
    weight = visibility_weights(obs, weighting)
    moments = 4 * np.pi**2 * np.array([weight @ (a * b) for a, b in ((obs.u, obs.u), (obs.u, obs.v), (obs.v, obs.v))])
    # the curvature at the peak tells how far the lobe reaches: B = 1 - ½ rᵀ M r + …
    reach = 1.5 / np.sqrt(np.linalg.eigvalsh([[moments[0], moments[1]], [moments[1], moments[2]]]).clip(1e-300))
    side = np.linspace(-1, 1, ACROSS) * min(reach.max(), 10 * reach.min())
    x, y = (a.ravel() for a in np.meshgrid(side, side))
    beam = np.cos(2 * np.pi * (np.outer(x, obs.u) + np.outer(y, obs.v))) @ weight
    inside = (beam > LOBE) & (0.5 * (moments[0] * x**2 + 2 * moments[1] * x * y + moments[2] * y**2) < 1.5)
    x, y, beam = x[inside], y[inside], beam[inside]
    scale = side.max()
    design = np.stack([x**2, 2 * x * y, y**2], 1) / scale**2
    a, b, c = np.linalg.lstsq(design * beam[:, None], -2 * np.log(beam) * beam, rcond=None)[0] / scale**2
    values, axes = np.linalg.eigh([[a, b], [b, c]])
    if not values.min() > 0:
        raise ValueError("fit_beam: the main lobe is no ellipse; the array has too few baselines. Use a circle.")
    minor, major = np.sort(1 / np.sqrt(values)) / FWHM_TO_SIGMA
    east, north = axes[:, np.argmin(values)]
    return Beam(float(major), float(minor), float(np.arctan2(east, north) % np.pi))
