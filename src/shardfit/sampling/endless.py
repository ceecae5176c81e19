"""Densities without an integral, as far as a fit tells: by curvature at its answer, and by points far from it."""

import numpy as np

from shardfit.sampling.landscape import Bowl, Landscape
from shardfit.sampling.proper import FAR, LEAST_FALL, improper

RAY = (1e4, 1e6)  # distances, in units of a way, between which a density must fall faster than one over the distance
LEAST_EXPONENT = 1.02
BESIDE = 3  # rays beside one another


def require_end(landscape: Landscape, here: Bowl) -> None:
    """Raise if the density does not fall along a direction without curvature: it has no integral then."""
    sides = [side * FAR * direction / np.max(np.abs(direction)) for direction in here.flat for side in (1, -1)]
    if not sides:
        return
    values = landscape.values(here.z + np.array(sides)) - landscape.values(here.z[None])
    for direction, rise in zip(np.repeat(here.flat, 2, axis=0), values, strict=True):
        if np.isfinite(rise) and rise < LEAST_FALL:
            raise improper(_named(landscape, direction))


def require_fall(landscape: Landscape, here: Bowl) -> None:
    """Raise if the density falls too slowly, along the way that a fit has gone or where it is widest, for an integral.

    Beside the ray, too: towards the corner of a hierarchy a density may grow, and be the narrower for it.
    """
    gone = here.z - landscape.problem.z0()
    gone = gone / np.clip(here.distance(landscape.problem.z0()), 1e-300, 1.0)  # a start beside the mode is no unit
    widest = here.root @ np.linalg.svd(here.root)[2][0]
    ways = np.array([way for way in (gone, widest, -widest) if np.max(np.abs(way)) > 0])
    noise = np.random.default_rng(0).standard_normal((BESIDE, here.z.size)) @ here.root.T
    points = here.z + noise[:, None, None] + np.array(RAY)[:, None, None] * ways
    near, far = landscape.values(points.transpose(1, 0, 2, 3).reshape(-1, here.z.size)).reshape(2, BESIDE, len(ways))
    least = LEAST_EXPONENT * np.log(RAY[1] / RAY[0])
    endless = np.all(np.isfinite(near) & np.isfinite(far) & (far < near + least), axis=0)
    if endless.any():
        named = _named(landscape, ways[int(np.argmax(endless))])
        raise ValueError(
            f"the posterior is improper: far along {', '.join(named[:6])} its density does not fall, or too slowly to "
            "have an integral (two classes that a line separates do this, under flat priors). Give priors, or bounds."
        )


def _named(landscape: Landscape, direction: np.ndarray) -> list[str]:
    share = np.abs(direction) / np.max(np.abs(direction))
    return np.array(landscape.space.coordinate_labels())[share > 0.1].tolist()
