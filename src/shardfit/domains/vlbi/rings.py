"""Rings in images: diameter, width, asymmetry, position angle, with their spread around it, and polarisation along it.

As the papers on M87 do it: from a centre, brightness peaks are found along many directions; the centre is where their
distances agree best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from shardfit.domains.vlbi.images import Image

ANGLES = 120  # directions
STEPS = 4  # samples of a profile in a pixel
MOST_PEAKS = 0.9  # share of directions in which a peak is found, of a point inside a ring
ROUNDS = 4  # of the search for the centre, each finer


@dataclass(frozen=True)
class Ring:
    """A ring and errors from its spread around it (of several images: from image to image).

    diameter, width: rad, of the brightness peaks, and FWHM of the profiles less the level inside; asymmetry: |Σ I
    exp(iθ)| / Σ I along the ring; pa_rad: of the bright side, from north to east; x_rad, y_rad: centre; contrast: level
    inside over that of the ring; *_sd: standard deviations.
    """

    diameter: float
    width: float
    asymmetry: float
    pa_rad: float
    x_rad: float
    y_rad: float
    contrast: float
    diameter_sd: float = 0.0
    width_sd: float = 0.0
    asymmetry_sd: float = 0.0
    pa_sd: float = 0.0


def extract_ring(image: Image, *, smallest_rad: float | None = None, largest_rad: float | None = None) -> Ring:
    """Return the ring of an image; errors of diameter and width are their spread over directions.

    smallest_rad, largest_rad: of the radius; a fiftieth and two fifths of the field unless given.
    """
    field = min(image.shape) * image.pixel_rad
    low = field / 50 if smallest_rad is None else smallest_rad
    high = 0.4 * field if largest_rad is None else largest_rad
    if not 0 < low < high:
        raise ValueError(f"extract_ring: radii from {low} to {high} rad are no range.")
    radius = np.arange(low, high, image.pixel_rad / STEPS)
    theta = 2 * np.pi * np.arange(ANGLES) / ANGLES
    x, y = _centre(image, radius, theta, _moment(image), 0.15 * field)
    profile = _profiles(image, x, y, radius, theta)
    peak = _peaks(profile, radius)
    bright = profile.max(1)
    inside = float(_profiles(image, x, y, np.array([0.5 * image.pixel_rad]), theta).mean())
    width = _widths(profile - inside, radius)
    first = (bright * np.exp(1j * theta)).sum() / bright.sum()
    known = width[np.isfinite(width)]
    return Ring(
        diameter=2 * float(peak.mean()),
        width=float(known.mean()) if known.size else float("nan"),
        asymmetry=float(abs(first)),
        pa_rad=float(np.angle(first) % (2 * np.pi)),
        x_rad=x,
        y_rad=y,
        contrast=inside / float(bright.mean()),
        diameter_sd=2 * float(peak.std()),
        width_sd=float(known.std()) if known.size else float("nan"),
    )


def mean_ring(rings: list[Ring]) -> Ring:
    """Return the mean of the rings of several images, such as a Top Set or posterior samples; errors: their spread."""
    if not rings:
        raise ValueError("mean_ring: no rings were given.")
    names = [f.name for f in fields(Ring) if not f.name.endswith("_sd") and f.name != "pa_rad"]
    values = {name: np.array([getattr(one, name) for one in rings]) for name in names}
    known = {name: v[np.isfinite(v)] for name, v in values.items()}  # a ring may be too blurred to have a width
    mean = {name: float(v.mean()) if v.size else float("nan") for name, v in known.items()}
    spread = {
        f"{n}_sd": float(known[n].std()) if known[n].size else float("nan") for n in ("diameter", "width", "asymmetry")
    }
    turn = np.mean(np.exp(1j * np.array([one.pa_rad for one in rings])))
    pa_sd = float(np.sqrt(-2 * np.log(min(1.0, abs(turn)))))  # of a distribution on the circle
    return Ring(**mean, pa_rad=float(np.angle(turn) % (2 * np.pi)), **spread, pa_sd=pa_sd)


def ring_modes(
    image: Image,
    orders: Sequence[int] = (0, 1, 2),
    *,
    centre: tuple[float, float] | None = None,
    inner_rad: float = 0.0,
    outer_rad: float | None = None,
) -> dict[int, complex]:
    """Return β of each order: Σ (Q + iU) exp(-i m φ) over an annulus, divided by its flux; φ runs from north to east.

    β₂ tells how polarisation winds around a ring: phase 0 radial, ±180° along the ring, ±90° spirals.
    centre: x to the east, y to the north, rad; inner_rad, outer_rad: of the annulus. Without centre or outer_rad they
    are those of the ring of `extract_ring`, and its diameter.

    Example: `abs(ring_modes(image)[2])`.
    """
    missing = [name for name in ("Q", "U") if name not in image.values]
    if missing:
        raise ValueError(f"ring_modes: the image has no Stokes {missing[0]}. Fit polarisation: `polarimetric_image`.")
    if centre is None or outer_rad is None:
        found = extract_ring(image)
        centre = (found.x_rad, found.y_rad) if centre is None else centre
        outer_rad = found.diameter if outer_rad is None else outer_rad
    if not 0 <= inner_rad < outer_rad:
        raise ValueError(f"ring_modes: radii from {inner_rad} to {outer_rad} rad are no range.")
    east, north = np.meshgrid(image.x - centre[0], image.y - centre[1])
    radius, angle = np.hypot(east, north), np.arctan2(east, north)
    within = (radius >= inner_rad) & (radius <= outer_rad)
    flux = float(image.values["I"][within].sum())
    if not flux > 0:
        raise ValueError("ring_modes: no flux lies in the annulus. Check centre, inner_rad and outer_rad.")
    linear = (image.values["Q"] + 1j * image.values["U"])[within]
    return {int(m): complex((linear * np.exp(-1j * m * angle[within])).sum() / flux) for m in orders}


def _moment(image: Image) -> tuple[float, float]:
    values = np.maximum(image.values["I"], 0)
    return float((values.sum(0) @ image.x) / values.sum()), float((values.sum(1) @ image.y) / values.sum())


def _centre(image: Image, radius: np.ndarray, theta: np.ndarray, start: tuple[float, float], reach: float):
    """Return the point from which the peaks' distances differ least, relative to their mean."""
    best = start
    for _ in range(ROUNDS):
        offsets = reach * np.linspace(-1, 1, 7)
        tried = [(best[0] + dx, best[1] + dy) for dx in offsets for dy in offsets]
        spread = []
        for x, y in tried:
            peak = _peaks(_profiles(image, x, y, radius, theta), radius)
            # on the ring itself all profiles fall from the first radius on: no ring around this point
            within = np.mean((peak > radius[0]) & (peak < radius[-1]))
            spread.append(peak.std() / peak.mean() if within > MOST_PEAKS else np.inf)
        if not np.isfinite(min(spread)):
            raise ValueError("extract_ring: no point of the image has brightness peaks all around. Is there a ring?")
        best = tried[int(np.argmin(spread))]
        reach /= 3
    return float(best[0]), float(best[1])


def _profiles(image: Image, x: float, y: float, radius: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Brightness (directions, radii), linear between pixels; directions run from north to east."""
    east = x + np.outer(np.sin(theta), radius)
    north = y + np.outer(np.cos(theta), radius)
    column, row = (image.x[0] - east) / image.pixel_rad, (image.y[0] - north) / image.pixel_rad
    ny, nx = image.shape
    i, j = np.clip(np.floor(column).astype(int), 0, nx - 2), np.clip(np.floor(row).astype(int), 0, ny - 2)
    s, t = np.clip(column - i, 0, 1), np.clip(row - j, 0, 1)
    v = image.values["I"]
    return (v[j, i] * (1 - s) + v[j, i + 1] * s) * (1 - t) + (v[j + 1, i] * (1 - s) + v[j + 1, i + 1] * s) * t


def _peaks(profile: np.ndarray, radius: np.ndarray) -> np.ndarray:
    return radius[np.argmax(profile, axis=1)]


def _widths(profile: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """FWHM of every profile, NaN where it does not fall to half on both sides."""
    half, top = 0.5 * profile.max(1, keepdims=True), np.argmax(profile, axis=1)
    below = profile < half
    number = np.arange(len(radius))
    inner = np.max(np.where(below & (number < top[:, None]), number, -1), axis=1)
    outer = np.min(np.where(below & (number > top[:, None]), number, len(radius)), axis=1)
    found = (inner >= 0) & (outer < len(radius))
    step = radius[1] - radius[0]
    return np.where(found, (outer - inner - 1) * step, np.nan)
