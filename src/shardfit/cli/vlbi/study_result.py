"""What the surveys of a study say together: which choices are kept, and what they make of known images and of data."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardfit.cli.vlbi.study_parts import Part
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.recipes import survey_config
from shardfit.domains.vlbi.recipes.top_set import DATA, Images, Training, fitting, judge, summarise
from shardfit.domains.vlbi.rings import Ring, extract_ring
from shardfit.io.progress import Line, duration
from shardfit.surveys.marks import marks, tag
from shardfit.surveys.ranking import below, points_at
from shardfit.surveys.reading import Survey

TAG = "top set"  # of its points, in the ledgers
KNOWN = "ring"  # known image whose diameter tells how choices change one


@dataclass(frozen=True, eq=False)
class Taught:
    """A training: its judgement, the truths, and what the choices that were kept make of each, None if there are none.

    resolution: nominal, rad.
    """

    training: Training
    truths: Mapping[str, Image]
    resolution: float
    images: Mapping[str, Images | None]


@dataclass(frozen=True, eq=False)
class Seen:
    """The data of a day: its Top Set, None if it is empty; fit: points within the limits, whatever their choices."""

    images: Images | None
    fit: int
    resolution: float
    chi2: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Found:
    """What a study found: trainings and days by name; parts, told: its surveys; limits: largest χ²."""

    parts: Sequence[Part]
    told: Mapping[str, Mapping[str, Any]]
    limits: Mapping[str, float]
    trainings: dict[str, Taught] = field(default_factory=dict)
    days: dict[str, Seen] = field(default_factory=dict)

    def training_of(self, day: str) -> Taught:
        """Return the training whose choices a day is imaged with: its own, or the only one."""
        return self.trainings.get(day) or next(iter(self.trainings.values()))

    def lines(self) -> list[str]:
        """Return the result in a few lines."""
        lines = []
        for day, taught in self.trainings.items():
            kept, of = len(taught.training.passed()), len(taught.training.whole)
            lines.append(f"{kept:,} of {of:,} choices recover all known images (trained on {day})")
        for day, seen in self.days.items():
            if seen.images is None:
                lines.append(f"{day}: none of them fits the data; {seen.fit:,} images of other choices do")
                continue
            ring, n = seen.images.ring, len(seen.images.points)
            text = "no ring" if ring is None else f"ring of {_pm(ring.diameter, ring.diameter_sd)} µas"
            lines.append(f"{day}: {text} in {len(seen.images.rings):,} of {n:,} images")
        if (whole := self.diameter()) is not None:
            lines.append(f"ring diameter over all days {_pm(*whole)} µas (spread over choices and days)")
        if (calibrated := self.calibrated()) is not None:
            lines.append(
                f"calibrated on the known ring, of which the same choices make another: {_pm(*calibrated)} µas"
            )
        return lines

    def calibrated(self) -> tuple[float, float] | None:
        """Return the diameter, rad, corrected by what the same choices make of the known ring, and its error.

        Both spreads count. None where either has no ring.
        """
        ratios, errors = [], []
        for day in self.days:
            taught = self.training_of(day)
            known = taught.images.get(KNOWN)
            if known is None or known.ring is None:
                return None
            ratios.append(extract_ring(taught.truths[KNOWN]).diameter / known.ring.diameter)
            errors.append(known.ring.diameter_sd / known.ring.diameter)
        whole = self.diameter()
        if whole is None:
            return None
        ratio = float(np.mean(ratios))
        return ratio * whole[0], ratio * float(np.hypot(whole[1], whole[0] * np.mean(errors)))

    def diameter(self, of: Callable[[Ring], float] = lambda ring: ring.diameter) -> tuple[float, float] | None:
        """Return the ring's diameter, rad, and its spread over choices and days; every day counts the same.

        of: another number of a ring. None where no image has a ring.
        """
        days = [
            np.array([of(ring) for ring in seen.images.rings])
            for seen in self.days.values()
            if seen.images is not None and seen.images.rings
        ]
        if not days:
            return None
        means = np.array([np.nanmean(day) for day in days])
        return float(means.mean()), float(np.sqrt(np.mean([np.nanvar(day) for day in days]) + means.var()))


def _pm(value: float, sd: float) -> str:
    return f"{value / UAS:.1f} ± {sd / UAS:.1f}"


def evaluate(parts: Sequence[Part], limits: Mapping[str, float], told: Mapping[str, Any]) -> Found:
    """Return what the surveys of a study say together, as far as they have been run; trainings come first."""
    found = Found(parts, told, limits)
    line = Line("measuring images")
    for part in parts:
        settings = {"data": list(part.day.files), **part.settings}
        with Survey(part.folder) as survey:
            if part.truths:
                taught = found.trainings[part.day.name] = _taught(part, settings, survey, line)
                chosen = [number for one in taught.images.values() if one is not None for number in one.points]
            else:
                seen = found.days[part.day.name] = _seen(part, settings, survey, found, line)
                chosen = [] if seen.images is None else seen.images.points
            _mark(survey, chosen)
    line.close()
    return found


def _mark(survey: Survey, chosen: Sequence[int]) -> None:
    """Give these points, and no others, the tag by which the gallery shows the Top Set."""
    before = {number for number, (names, _) in marks(survey.ledger).items() if TAG in names}
    tag(survey.run_dir, before - set(chosen), TAG, remove=True)
    tag(survey.run_dir, set(chosen) - before, TAG)


def _taught(part: Part, settings: Mapping[str, Any], survey: Survey, line: Line) -> Taught:
    _, match, least = survey_config.truths(settings, part.every)
    truths, resolution = survey_config.known_images(settings, part.every)
    training, images = judge(survey, match, least), {}
    kept = training.passed()
    for name, truth in truths.items():
        chosen = points_at(survey, {one | {(DATA, name)} for one in kept})
        images[name] = _summary(survey, chosen, f"{part.name}, {name}", line, truth, to=truth)
    return Taught(training, truths, resolution, images)


def _seen(part: Part, settings: Mapping[str, Any], survey: Survey, found: Found, line: Line) -> Seen:
    made = survey_config.prepared(settings, {})
    chosen = fitting(survey, found.training_of(part.day.name).training.passed(), found.limits)
    columns = [f"part.{name}" for name in survey.heading.parts if name.startswith("data.")]
    kept = set(chosen)
    chi2 = {
        row["id"]: {name.removeprefix("part.data."): row[name] for name in columns}
        for page in survey.ledger.pages()
        for row in page
        if row["id"] in kept
    }
    images = _summary(survey, chosen, part.name, line, made.prior)
    return Seen(images, len(below(survey, found.limits)), made.resolution, chi2)


def _summary(
    survey: Survey, chosen: Sequence[int], name: str, line: Line, about: Image, to: Image | None = None
) -> Images | None:
    """Return what some points have in common; None for none of them. about: an image of the same pixels."""
    began = time.monotonic()

    def show(n: int) -> None:
        left = (time.monotonic() - began) / n * (len(chosen) - n)
        line.show(f"{name}: {n:,} of {len(chosen):,}, {duration(left)} left")

    def image(number: int) -> Image:
        return about.replace(values={"I": survey.picture(number).astype(float)})

    return summarise(image, chosen, to, show) if chosen else None
