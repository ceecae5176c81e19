"""Surveys made of nothing: crescents that look like reconstructions of a black hole's shadow, with plausible χ².

`python -m tests.report.fake_survey FOLDER [COUNT [SIDE]]` writes one to look at.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shardfit.core.status import Status
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.point import SurveyPoint

WEIGHTS = (0.0, 1.0, 10.0, 100.0, 1000.0)
GRID = {
    "simple": WEIGHTS,
    "tv": WEIGHTS,
    "tv2": WEIGHTS,
    "l1": WEIGHTS,
    "fwhm": (40.0, 50.0, 60.0),
    "systematic": (0.0, 0.01, 0.02, 0.05),
    "start": ("gauss", "disk"),
}
UNITS = {"fwhm": "µas"}
PARTS = ("data.cphase", "data.logcamp", "data.amp")
REASONS = ("non-finite: the value or gradient became NaN or infinite", "the line search found no lower value")
FIELD = 64.0  # µas to each side


def design(count: int, seed: int = 0) -> list[dict]:
    """Return points of the grid in random order, each as axis → value; again from the start where count is larger."""
    full = list(itertools.product(*GRID.values()))
    order = np.random.default_rng(seed).permutation(len(full))
    return [dict(zip(GRID, full[order[i % len(full)]], strict=True)) for i in range(count)]


def heading(total: int, side: int, name: str = "M87, 11 April, low band") -> Heading:
    axes = {axis: UNITS.get(axis, "") for axis in GRID}
    extent = (FIELD, -FIELD, -FIELD, FIELD)
    return Heading(name, total, axes, PARTS, {"offset": (1,)}, "float32", "", (side, side), extent, "µas", "Jy/pixel")


def crescent(side: int, radius: float, width: float, tilt: float, lumps: np.ndarray) -> np.ndarray:
    """Return a ring in µas that is brighter towards the south, (side, side), of total 1."""
    x = np.linspace(-FIELD, FIELD, side, dtype=np.float32)
    east, north = x[None, ::-1], x[::-1, None]
    distance, angle = np.hypot(east, north), np.arctan2(east, north)
    image = np.exp(-0.5 * ((distance - radius) / width) ** 2) * (1 + 0.75 * np.cos(angle - tilt))
    for dx, dy, size, height in lumps:
        image = image + height * np.exp(-0.5 * ((east - dx) ** 2 + (north - dy) ** 2) / size**2)
    return (image / image.sum()).astype(np.float32)


def record(number: int, axes: dict, side: int, seed: int = 0) -> SurveyPoint:
    """Return a finished point: too little or too much regularisation fits worse; a few points fail."""
    draw = np.random.default_rng([seed, number])
    strength = {n: np.log10(1 + axes[n]) for n in ("simple", "tv", "tv2", "l1")}
    off = 0.25 * (strength["tv"] - 1.6) ** 2 + 0.18 * (strength["tv2"] - 2) ** 2 + 0.1 * (strength["l1"] - 1) ** 2
    off += 0.12 * max(0.0, strength["simple"] - 2) ** 2 + 0.002 * (axes["fwhm"] - 40) + 0.2 * draw.random() ** 2
    softer = 1 / (1 + 25 * axes["systematic"])
    parts = dict(
        zip(PARTS, (1.9 + 2.2 * off, 0.9 + off, 1.0 + 1.4 * off) * draw.normal(1, 0.03, 3) * softer, strict=True)
    )
    failed = draw.random() < 0.012 + 0.05 * (sum(strength.values()) < 2)
    lumpy = max(0.0, 2.5 - strength["tv"] - 0.6 * strength["tv2"])
    lumps = draw.normal(0, 1, (6, 4)) * (30, 30, 0.5, 0) + (0, 0, 5, 0.3 * lumpy)
    width = 4 + 1.6 * strength["tv2"] + 0.05 * (axes["fwhm"] - 40) + draw.random()
    image = crescent(side, 20.5 + draw.normal(0, 0.6), width, np.pi + draw.normal(0.35, 0.2), lumps)
    status = (
        draw.choice([Status.NONFINITE.name, Status.FAILED.name])
        if failed
        else draw.choice(
            [Status.CONVERGED_VALUE.name, Status.CONVERGED_GRADIENT.name, Status.MAX_STEPS.name], p=[0.7, 0.2, 0.1]
        )
    )
    return SurveyPoint(
        id=number,
        axes=axes,
        status=str(status),
        value=float("nan") if failed else sum(parts.values()) + 0.4 * draw.random(),
        parts={n: float("nan") for n in parts} if failed else parts,
        steps=int(draw.integers(60, 100)),
        evaluations=int(draw.integers(100, 130)),
        seconds=float(draw.gamma(4, 0.4)),
        reason=str(REASONS[number % 2]) if failed else "",
        params=np.zeros(1, "f4").tobytes(),
        picture=image,
    )


def records(numbers: Sequence[int], side: int, seed: int = 0) -> Iterator[SurveyPoint]:
    points = design(max(numbers) + 1, seed)
    return (record(number, points[number], side, seed) for number in numbers)


def write_survey(folder: Path, count: int, side: int = 32, total: int | None = None, rate: float = 20.0) -> Path:
    """Write a survey of `total` points of which `count` are finished, the last one now, `rate` per second."""
    began = time.time() - count / rate
    with Ledger.create(folder, heading(total or count, side)) as ledger:
        for start in range(0, count, 1000):
            made = records(range(start, min(count, start + 1000)), side)
            ledger.write([replace(r, finished=began + r.id / rate) for r in made])
    return folder


if __name__ == "__main__":
    target, numbers = Path(sys.argv[1]), [int(n) for n in sys.argv[2:]]
    write_survey(target, *numbers)
