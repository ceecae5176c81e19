"""The surveys that a study is made of: one of known images for the training, one of the data of every day.

Each is a survey of the command line in a folder of its own: `shardfit serve`, `survey status` and `survey resume` know
it, and it goes on after a crash at any instant.
"""

import json
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import prod
from pathlib import Path
from typing import Any

from shardfit.cli.surveys.config import SAVED, make
from shardfit.cli.surveys.run import save
from shardfit.core.errors import CheckpointError, file_not_found_error
from shardfit.domains.vlbi.recipes.surveys import SWEPT
from shardfit.domains.vlbi.recipes.top_set import DATA
from shardfit.surveys.ledger import LEDGER
from shardfit.surveys.reading import Survey

FIRST_DAY = date(1858, 11, 17)  # of modified Julian dates


@dataclass(frozen=True)
class Day:
    """A day of observation: its files, which are the bands; rows: visibilities in them."""

    name: str
    files: tuple[str, ...]
    rows: int
    source: str


@dataclass(frozen=True)
class Part:
    """A survey. truths: known images it is of, none for the data themselves; settings, axes: as in a configuration.

    seed: of the order in which points are run.
    """

    name: str
    folder: Path
    day: Day
    settings: Mapping[str, Any]
    axes: Mapping[str, Any]
    truths: tuple[str, ...] = ()
    seed: int = 0

    @property
    def every(self) -> dict[str, Any]:
        """All axes, that of the truths too."""
        return {**({DATA: list(self.truths)} if self.truths else {}), **self.axes}

    @property
    def along(self) -> list[str]:
        """Axes of which a line has every value: truths, and what points start from each other along."""
        return [name for name in (DATA, SWEPT) if name in self.every]

    def points(self, share: float) -> int:
        """Return how many points a share of the grid has, in whole lines, at least one."""
        line = prod(len(self.every[name]) for name in self.along)
        return line * max(1, round(share * prod(map(len, self.every.values())) / line))

    def missing(self, share: float) -> int:
        """Return how many points of a share have not been run yet."""
        if not (self.folder / LEDGER).is_file():
            return self.points(share)
        with Survey(self.folder) as found:
            return self.points(share) - sum(number < self.points(share) for number in found.ledger.ids())

    def text(self) -> str:
        """Return the configuration."""
        about = {"science": "vlbi", "out": str(self.folder)}
        sections = {"vlbi": {"data": list(self.day.files), **self.settings}, "axes": self.every}
        sections["design"] = {"kind": "lines", "along": self.along} | ({"seed": self.seed} if self.seed else {})
        lines = [f"# {self.name}; made by `shardfit vlbi study`", *_entries(about)]
        for name, content in sections.items():
            lines += ["", f"[{name}]", *_entries(content)]
        return "\n".join(lines) + "\n"

    def check(self) -> None:
        """Raise if another survey is in the folder."""
        path = self.folder / SAVED
        if path.is_file() and path.read_text(encoding="utf-8") != self.text():
            raise CheckpointError(f"{path} differs from what is asked for: another study is there.")

    def prepared(self) -> tuple[Any, Any, dict[str, Any]]:
        """Return problem, axes and options of `survey`."""
        return make(json.dumps(tomllib.loads(self.text())), str(self.folder / SAVED))


def check_parts(parts: Sequence[Part], resume: str) -> None:
    """Raise if another study is where these parts are to be, or none where one must be; resume: as of a fit."""
    if resume == "never":
        return
    if resume == "must" and not any((part.folder / SAVED).is_file() for part in parts):
        raise CheckpointError("there is no study to resume. Check the path, or use resume='auto'.")
    for part in parts:
        part.check()


def _entries(content: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in content.items()]


def days_of(files: Sequence[str]) -> list[Day]:
    """Return the days of some uvfits files, in order; files of one day belong together."""
    from shardfit.domains.vlbi.uvfits import read_uvfits

    seen: dict[int, list[tuple[str, Any]]] = {}
    for file in files:
        path = str(Path(file).resolve())
        if not Path(path).is_file():
            raise file_not_found_error(file)
        obs: Any = read_uvfits(path)
        day = seen.setdefault(obs.mjd, [])
        if path in (known for known, _ in day):
            raise ValueError(f"{file} is named twice.")
        day.append((path, obs))
    found = []
    for mjd, named in sorted(seen.items()):
        name = (FIRST_DAY + timedelta(days=int(mjd))).isoformat()
        observations = [obs for _, obs in named]
        found.append(Day(name, tuple(path for path, _ in named), sum(map(len, observations)), observations[0].source))
    sources = {day.source for day in found}
    if len(sources) > 1:
        raise ValueError(f"these are files of several sources, {', '.join(sorted(sources))}. Give those of one.")
    return found


class StudyProgress:
    """Shows how far a study is; the time left is that of all its parts. Compiling is left out of the rate."""

    def __init__(self, parts: Mapping[str, int]):
        self.left, self.parts = dict(parts), list(parts)
        self.seconds, self.counted = 0.0, 0
        self.line: Any = None

    def begin(self, part: str) -> None:
        """Go on to another part."""
        from shardfit.io.progress import Line

        self.close()
        self.part, self.first = part, None
        self.line = Line(f"{self.parts.index(part) + 1} of {len(self.parts)}, {part}")
        self.line.show(f"{self.left[part]:,} points to run, compiling")

    def __call__(self, points: Sequence[Any]) -> None:
        """Take note of points that have ended."""
        fresh = sum(point.attempt == 1 for point in points)
        self.left[self.part] = max(0, self.left[self.part] - fresh)
        now = time.monotonic()
        if self.first is None:
            self.first = self.last = now
        else:
            self.seconds, self.counted, self.last = self.seconds + now - self.last, self.counted + fresh, now
        self.line.show(self.text())

    def text(self) -> str:
        """Return the line."""
        from shardfit.io.progress import duration

        here, left = self.left[self.part], sum(self.left.values())
        text = f"{here:,} points to go" if here else "finishing points in float64"
        if not self.counted:
            return text
        rate = self.counted / max(self.seconds, 1e-9)
        return f"{text}, {rate:.3g}/s, {duration(here / rate)} left here, {duration(left / rate)} in all"

    def close(self) -> None:
        """Remove the line."""
        if self.line is not None:
            self.line.close()


def run_parts(
    parts: Sequence[Part],
    share: float,
    slots: int | str | None,
    listener: Callable[[Sequence[Any]], Any] | None = None,
    *,
    mesh: Any = None,
    resume: str = "auto",
) -> dict[str, dict[str, Any]]:
    """Run all parts as far as asked; return what became of each by name.

    share: of the grid, in whole lines, the same ones of every part; what was run before is not run again, unless
    resume is 'never'. listener: called with the points of every write.
    """
    from shardfit.surveys.run import survey

    anew = resume == "never"
    left = {part.name: part.points(share) if anew else part.missing(share) for part in parts}
    show, told = StudyProgress(left), {}

    def on_points(points: Sequence[Any]) -> None:
        show(points)
        if listener is not None:
            listener(points)

    for part in parts:
        show.begin(part.name)
        problem, axes, options = part.prepared()
        save(part.folder, part.text())
        control = replace(
            options.pop("control"),
            slots=slots,
            limit=left[part.name],
            progress=False,
            on_points=on_points,
            resume="never" if anew else "auto",  # a part begins when its turn comes
        )
        with survey(problem, axes, run_dir=part.folder, mesh=mesh, control=control, **options) as found:
            told[part.name] = {
                "points": len(found),
                "of": found.heading.total,
                "converged": found.converged,
                "failed": len(found.ledger.ids(failed=True)),
                "evaluations": int(found.column("evaluations").sum()) if len(found) else 0,
            }
    show.close()
    return told
