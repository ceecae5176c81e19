"""The Top Set of a survey of images: choices that bring known images back, and what they make of real data.

As in the 2019 papers on M87: an imager's choices are not ranked by the fit to the data alone. Choices are kept whose
images of synthetic data agree with every known image at least as well as that image, blurred to the nominal resolution,
does; and of these, on real data, the ones that fit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shardfit.domains.vlbi.aligning import align, shift
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.recipes.measure import cross_correlation
from shardfit.domains.vlbi.rings import Ring, extract_ring, mean_ring
from shardfit.surveys.ranking import Combination, below, matches, points_at
from shardfit.surveys.reading import Survey

DATA = "data"  # axis that names the known image
FILLED = 0.5  # level inside over that of the ring, above which there is no hole to speak of
UNEVEN = 0.2  # spread of the peaks' distances over their mean, above which it is no circle; an ellipse of 2:1 has 0.22


@dataclass(frozen=True, eq=False)
class Training:
    """How well choices bring known images back.

    least: the match with each truth that counts as brought back; matches: those of every combination of choices.
    """

    least: Mapping[str, float]
    matches: Mapping[Combination, Mapping[str, float]]

    @cached_property
    def whole(self) -> dict[Combination, Mapping[str, float]]:
        """Combinations whose images of all truths are there."""
        return {one: found for one, found in self.matches.items() if set(found) >= set(self.least)}

    def passed(self, truths: Iterable[str] | None = None) -> set[Combination]:
        """Return the combinations that bring these truths back, all of them unless given."""
        wanted = list(self.least if truths is None else truths)
        return {one for one, found in self.whole.items() if all(found[name] >= self.least[name] for name in wanted)}


def least_matches(truths: Mapping[str, Image], resolution: float) -> dict[str, float]:
    """Return the correlation of every truth with itself blurred to a resolution, rad: what a beam would show."""
    return {name: cross_correlation(truth, truth.blur(resolution)) for name, truth in truths.items()}


def judge(survey: Survey, match: Callable[[str, np.ndarray], float], least: Mapping[str, float]) -> Training:
    """Return how well the choices of a training survey, one with an axis 'data', bring its truths back.

    match, least: see `survey_config.truths`.
    """
    return Training(dict(least), matches(survey, DATA, match, least))


def top_set(
    training: Survey, real: Survey, made: Any, truths: Mapping[str, Image], limits: Mapping[str, float]
) -> list[int]:
    """Return the points of a survey of real data whose choices bring known images back and that fit the data.

    training: a survey over the same axes and 'data', the name of the truth; made: the ImagingSurvey; truths: the known
    images; limits: largest χ² by product, such as {"data.cphase": 2.0}. A truth counts as brought back if the picture
    correlates with it at least as well as the truth blurred to the nominal resolution does: better than the array's
    beam could.
    """
    known = judge(
        training,
        lambda name, picture: cross_correlation(made.image(picture), truths[name]),
        least_matches(truths, made.resolution),
    )
    return fitting(real, known.passed(), limits)


def fitting(real: Survey, combinations: Iterable[Combination], limits: Mapping[str, float]) -> list[int]:
    """Return the points with one of these combinations of choices that fit, those that fit best first."""
    good = set(points_at(real, combinations, leaving_out=(DATA,)))
    return [point for point in below(real, limits) if point in good]


def kind_of(ring: Ring | None) -> str:
    """Return 'none', 'uneven', 'filled' or 'ring': whether there is one, it is round, and it has a hole."""
    if ring is None:
        return "none"
    if ring.diameter_sd > UNEVEN * ring.diameter:
        return "uneven"
    return "filled" if ring.contrast > FILLED else "ring"


@dataclass(frozen=True, eq=False)
class Images:
    """What the images of some choices have in common.

    points: their numbers; mean, spread: of the images shifted onto each other, standard deviation; found: the ring of
    every image as it is, None where there is none.
    """

    points: Sequence[int]
    mean: Image
    spread: Image
    found: Sequence[Ring | None]

    @cached_property
    def rings(self) -> list[Ring]:
        """Those that are round and have a hole; see `kind_of`."""
        return [ring for ring in self.found if ring is not None and kind_of(ring) == "ring"]

    @property
    def kinds(self) -> dict[str, int]:
        """How many images are of each kind."""
        kinds = [kind_of(ring) for ring in self.found]
        return {kind: kinds.count(kind) for kind in ("ring", "filled", "uneven", "none")}

    @property
    def ring(self) -> Ring | None:
        """The mean of the rings, with their spread; None where there are none."""
        return mean_ring(self.rings) if self.rings else None


def summarise(
    images: Callable[[int], Image],
    points: Sequence[int],
    to: Image | None = None,
    on_image: Callable[[int], Any] | None = None,
) -> Images:
    """Return mean, spread and rings of some images, read one at a time; on_image(n) is called after each.

    images(point) returns one. Closures leave positions open: all are shifted, to a fraction of a pixel, to where they
    correlate best with `to`. Without it that is the first of them, and the mean is then put with its ring, or else its
    centre of light, in the middle.
    """
    if not points:
        raise ValueError("summarise: no points were chosen. Loosen the limits.")
    total, square, found = 0.0, 0.0, []
    reference = to
    for n, point in enumerate(points, start=1):
        image = images(point)
        found.append(ring_or_none(image))
        reference = image if reference is None else reference
        values = align([image], to=reference)[0].values["I"]
        step = values - total
        total = total + step / n
        square = square + step * (values - total)
        if on_image is not None:
            on_image(n)
    assert reference is not None
    sd = np.sqrt(square / max(1, len(points) - 1))
    mean, spread = (reference.replace(values={"I": np.asarray(one)}) for one in (total, sd))
    if to is None:
        away = _middle(mean)
        mean, spread = shift(mean, *away), shift(spread, *away)
    return Images(tuple(points), mean, spread, tuple(found))


def ring_or_none(image: Image) -> Ring | None:
    """Return the ring of an image, None where no point has brightness peaks all around."""
    try:
        return extract_ring(image)
    except ValueError:
        return None


def thin_diameter(ring: Ring) -> float:
    """Return the diameter, rad, of a thin ring that, blurred to this one's width, has its peaks where this one has.

    To first order d + w² / (4 ln 2 d), w the FWHM: the inner side of a blurred ring is the shorter one. Good to 2 % for
    widths up to a third of the diameter.
    """
    return ring.diameter + ring.width**2 / (4 * np.log(2) * ring.diameter)


def _middle(image: Image) -> tuple[float, float]:
    """Return how far an image is to be moved to the east and north, rad, to have its ring or light in the middle."""
    ring = ring_or_none(image)
    if ring is not None and kind_of(ring) != "uneven":
        return -ring.x_rad, -ring.y_rad
    values = np.maximum(image.values["I"], 0)
    return -float(values.sum(0) @ image.x / values.sum()), -float(values.sum(1) @ image.y / values.sum())
