"""What a study leaves: images as FITS, tables of choices and rings, study.json, figures, and a report of all of it."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.cli.vlbi.study_result import Found, Seen
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.fits_image import write_image
from shardfit.domains.vlbi.recipes import top_set_figures as draw
from shardfit.domains.vlbi.recipes.top_set import FILLED, UNEVEN, Images, kind_of, thin_diameter
from shardfit.domains.vlbi.rings import Ring
from shardfit.io.files import write_atomic
from shardfit.io.run_dir import environment
from shardfit.report.blocks import Block, Cards, Section, Table, Text
from shardfit.report.html import Badge, write_report
from shardfit.report.sections import about
from shardfit.report.study import save_figure

PUBLISHED = {"M87": (42.0, 3.0)}  # ring diameter and its error, µas: ApJL 875, L6 (2019)
KINDS = ("images", "ring", "filled", "uneven", "none")
SHOWN = 12  # choices in the report; all are in choices.csv
SUBTITLE = (
    "Choices of an imager, trained: kept are those that recover known images from synthetic data at least as well "
    "as the array's beam would show them, and that fit the real data."
)
RING_COLUMNS = ("diameter", "width", "x_rad", "y_rad", "diameter_sd", "width_sd")  # rad in a Ring, µas in the table


def write_study(out: Path, found: Found, asked: Mapping[str, Any]) -> Path:
    """Write everything; return the path of the report."""
    for day, seen in found.days.items():
        if seen.images is not None:
            write_image(seen.images.mean, out / f"mean-{day}.fits", overwrite=True)
            write_image(seen.images.spread, out / f"spread-{day}.fits", overwrite=True)
    _write_csv(out / "rings.csv", _ring_rows(found))
    _write_csv(out / "choices.csv", _choice_rows(found))
    text = json.dumps(numbers(found), indent=1, allow_nan=False)
    write_atomic(out / "study.json", lambda file: file.write(text.encode()))
    source = found.parts[0].day.source
    sections = [
        _result(found, source),
        _days(out, found),
        _rings(out, found, PUBLISHED.get(source)),
        *(_training(out, day, found) for day in found.trainings),
        _choices(out, found),
        _surveys(found),
        Section("How it was made", [Text(text) for text in _method(found)]),
        Section(
            "Options", [Table(["option", "value"], [[k, _plain(v)] for k, v in sorted(asked.items()) if _told(v)])]
        ),
        about(environment()),
    ]
    empty = [day for day, seen in found.days.items() if seen.images is None]
    badge = Badge("no Top Set", "bad") if len(empty) == len(found.days) else Badge("a Top Set for every day", "good")
    if empty and len(empty) < len(found.days):
        badge = Badge(f"no Top Set for {len(empty)} of {len(found.days)} days", "warn")
    footer = "Made by shardfit. It needs no other file and no network."
    path, title = out / "report.html", f"{source or 'A source'}: images of trained choices"
    return write_report(path, title, sections, badge=badge, subtitle=SUBTITLE, footer=footer)


# ---- numbers ------------------------------------------------------------------------------------------------------


def numbers(found: Found) -> dict[str, Any]:
    """Return the study in plain numbers, angles in µas."""
    diameters = {"": found.diameter(), "_thin": found.diameter(thin_diameter), "_calibrated": found.calibrated()}
    trainings = {}
    for day, taught in found.trainings.items():
        training = taught.training
        truths = {
            name: {"least": training.least[name], "passed": len(training.passed([name])), **_image_numbers(one)}
            for name, one in taught.images.items()
        }
        kept = {"choices": len(training.whole), "passed": len(training.passed())}
        trainings[day] = kept | {"resolution": taught.resolution / UAS, "truths": truths}
    days = {
        day: {"fit": seen.fit, "resolution": seen.resolution / UAS, **_image_numbers(seen.images)}
        for day, seen in found.days.items()
    }
    return {
        "source": found.parts[0].day.source,
        "limits": dict(found.limits),
        "surveys": {name: dict(one) for name, one in found.told.items()},
        "share": min(one["points"] / one["of"] for one in found.told.values()),
        "trainings": trainings,
        "days": days,
        **{f"diameter{k}": None if v is None else [v[0] / UAS, v[1] / UAS] for k, v in diameters.items()},
    }


def _image_numbers(images: Images | None) -> dict[str, Any]:
    if images is None:
        return {"images": 0}
    counts = {"images": len(images.points), **images.kinds}
    ring = images.ring
    if ring is None:
        return counts
    every = np.array([one.diameter / UAS for one in images.found if one is not None])
    return counts | {
        "any": float(every.mean()),
        "any_sd": float(every.std()),
        "diameter": ring.diameter / UAS,
        "diameter_sd": ring.diameter_sd / UAS,
        "around": float(np.mean([one.diameter_sd for one in images.rings])) / UAS,
        "thin": _number(float(np.nanmean([thin_diameter(one) for one in images.rings])) / UAS),
        "width": _number(ring.width / UAS),
        "width_sd": _number(ring.width_sd / UAS),
        "asymmetry": ring.asymmetry,
        "pa_deg": float(np.rad2deg(ring.pa_rad)),
        "pa_sd_deg": float(np.rad2deg(ring.pa_sd)),
        "contrast": ring.contrast,
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _ring_rows(found: Found) -> Iterable[Sequence[Any]]:
    fields = [f for f in Ring.__dataclass_fields__ if f != "pa_sd"]
    yield ["day", "point", "kind", *(f"{f.removesuffix('_rad')}_uas" if f in RING_COLUMNS else f for f in fields)]
    for day, seen in found.days.items():
        if seen.images is None:
            continue
        for point, ring in zip(seen.images.points, seen.images.found, strict=True):
            if ring is None:
                yield [day, point, kind_of(ring), *[""] * len(fields)]
                continue
            values = [getattr(ring, f) / (UAS if f in RING_COLUMNS else 1) for f in fields]
            yield [day, point, kind_of(ring), *(f"{v:.6g}" for v in values)]


def _choice_rows(found: Found) -> Iterable[Sequence[Any]]:
    """Every combination of choices with its match to every truth; passed: whether it reaches all."""
    axes, truths = list(found.parts[0].axes), list(next(iter(found.trainings.values())).training.least)
    yield ["training", *axes, *truths, "passed"]
    for day, taught in found.trainings.items():
        kept = taught.training.passed()
        for one, matches in taught.training.whole.items():
            values = dict(one)
            yield [day, *(values[a] for a in axes), *(f"{matches[t]:.5f}" for t in truths), one in kept]


def _write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    write_atomic(path, lambda file: file.write(text.getvalue().encode()))


# ---- sections -----------------------------------------------------------------------------------------------------


def _result(found: Found, source: str) -> Section:
    told = numbers(found)
    cards = []
    if told["diameter"] is not None:
        value, sd = told["diameter"]
        cards.append(("ring diameter", f"{value:.1f} ± {sd:.1f} µas", "spread over choices and days"))
    if told["diameter_calibrated"] is not None:
        value, sd = told["diameter_calibrated"]
        cards.append(("calibrated", f"{value:.1f} ± {sd:.1f} µas", "on the known ring"))
    if source in PUBLISHED:
        value, sd = PUBLISHED[source]
        cards.append(("published", f"{value:.0f} ± {sd:.0f} µas", "ApJL 875, L6, over all methods"))
    for day, one in told["trainings"].items():
        cards.append(("choices kept", f"{one['passed']:,}", f"of {one['choices']:,}, trained on {day}"))
    images, rings = (sum(one.get(k, 0) for one in told["days"].values()) for k in ("images", "ring"))
    cards.append(("images of the data", f"{images:,}", f"{rings:,} show a ring around a hole"))
    fits = sum(one["points"] for one in found.told.values())
    cards.append(("share of the grid", f"{told['share']:.3g}", f"{fits:,} fits"))
    return Section("", [Cards(cards), *(Text(line) for line in found.lines())])


def _days(out: Path, found: Found) -> Section:
    shown = {day: seen.images for day, seen in found.days.items() if seen.images is not None}
    if not shown:
        return Section("Images", [Text("No choice that recovers the known images fits the data of any day.")])
    caption = (
        "Mean and spread (standard deviation) of the images of the Top Set of every day, shifted onto the one that "
        "fits best. The circle has the mean diameter of the rings. North is up, east to the left."
    )
    return Section("Images", [save_figure(draw.days(shown), out, "days", caption)])


def _rings(out: Path, found: Found, published: tuple[float, float] | None) -> Section:
    shown = {day: seen.images for day, seen in found.days.items() if seen.images is not None and seen.images.rings}
    if not shown:
        return Section("Ring", [Text("No image shows a ring.")])
    told = numbers(found)
    named = {day: told["days"][day] for day in found.days}
    for day, one in told["trainings"].items():
        named |= {f"known {name}, {day}": truth for name, truth in one["truths"].items()}
    counts = [[_unbroken(name), *(f"{one.get(k, 0):,}" for k in KINDS)] for name, one in named.items()]
    text = (
        "How many images show a ring that is round and has a hole, one that is filled, one that is uneven, none. "
        "Known: what the same choices make of synthetic data."
    )
    header = ["", "diameter", "any ring", "around", "thin", "width", "bright side", "asymmetry", "inside"]
    rows = [_ring_row(_unbroken(name), one) for name, one in named.items() if "diameter" in one]
    caption = (
        "Means over the images that show a ring; ± is the spread over images. Angles in µas, bright side in degrees "
        "from north to east. Any ring: filled and uneven ones included. Around: spread over directions within an "
        "image. Thin: diameter plus w²/(4 ln 2 d), that of a thin ring which, blurred to the width w, has its peaks "
        "where these are. The known ring has 42 µas."
    )
    band = "" if published is None else f" Grey: {published[0]:.0f} ± {published[1]:.0f} µas, as published."
    figure = draw.diameters(shown, published)
    picture = save_figure(figure, out, "diameters", f"Diameters of the rings of all images of a day.{band}")
    return Section("Ring", [picture, Table(header, rows, caption), Table(["", *KINDS], counts, text)])


def _unbroken(text: str) -> str:
    """Return a text whose hyphens do not break a line."""
    return text.replace("-", "\u2011")


def _ring_row(name: str, one: Mapping[str, Any]) -> list[str]:
    width, thin = "–", "–"
    if one["width"] is not None:
        width, thin = f"{one['width']:.1f} ± {one['width_sd']:.1f}", f"{one['thin']:.1f}"
    return [
        name,
        f"{one['diameter']:.1f} ± {one['diameter_sd']:.1f}",
        f"{one['any']:.1f} ± {one['any_sd']:.1f}",
        f"{one['around']:.1f}",
        thin,
        width,
        f"{one['pa_deg']:.0f} ± {one['pa_sd_deg']:.0f}",
        f"{one['asymmetry']:.2f}",
        f"{one['contrast']:.2f}",
    ]


def _training(out: Path, day: str, found: Found) -> Section:
    taught = found.trainings[day]
    training = taught.training
    rows = []
    for name, least in training.least.items():
        values = np.array([one[name] for one in training.whole.values()])
        middle, best = (f"{v:.3f}" for v in (np.median(values), values.max())) if values.size else ("–", "–")
        rows.append([name, f"{least:.3f}", middle, best, f"{len(training.passed([name])):,}"])
    rows.append(["all of them", "–", "–", "–", f"{len(training.passed()):,}"])
    header = ["known image", "correlation asked for", "median", "best", f"choices of {len(training.whole):,}"]
    caption = (
        "The correlation asked for is that of the known image with itself blurred to the nominal resolution, "
        f"{taught.resolution / UAS:.1f} µas; position and flux are left free."
    )
    told = "All choices; right of the line: recovered."
    matches = save_figure(draw.matches(training), out, f"matches-{day}", told)
    told = "Known images, as the beam would show them, and mean and spread of what the choices kept make of them."
    known = save_figure(draw.known(taught.truths, taught.resolution, taught.images), out, f"known-{day}", told)
    return Section(f"Training on {day}", [Table(header, rows, caption), matches, known])


def _choices(out: Path, found: Found) -> Section:
    blocks: list[Block] = []
    axes = list(found.parts[0].axes)
    for day, taught in found.trainings.items():
        least, whole, kept = taught.training.least, taught.training.whole, taught.training.passed()
        if not kept:
            blocks.append(Text(f"None of those trained on {day} was kept."))
            continue
        shares = {}
        for name in axes:
            values, chosen = ([dict(one)[name] for one in some] for some in (whole, kept))
            shares[name] = {value: chosen.count(value) / values.count(value) for value in sorted(set(values))}
        if any(len(one) > 1 for one in shares.values()):
            caption = f"Share of the choices with each value that was kept, trained on {day}."
            blocks.append(save_figure(draw.choices(shares), out, f"choices-{day}", caption))
        # the one whose worst match is farthest above what is asked for comes first
        order = sorted(kept, key=lambda one, w=whole, t=least: -min(w[one][name] / t[name] for name in t))
        rows = [[*(f"{dict(one)[a]}" for a in axes), *(f"{whole[one][t]:.3f}" for t in least)] for one in order[:SHOWN]]
        text = f"The {len(rows)} of {len(kept):,} choices kept that are farthest above what is asked for, and their "
        blocks.append(Table([*axes, *least], rows, f"{text}correlations; choices.csv has all."))
    return Section("Choices", blocks)


def _surveys(found: Found) -> Section:
    products = next((list(chi2) for seen in found.days.values() for chi2 in seen.chi2.values()), [])
    header = ["survey", "files", "beam", "points", "of", "converged", "failed", "fit the data", *products]
    rows = []
    for part in found.parts:
        one = found.told[part.name]
        seen = (found.trainings if part.truths else found.days)[part.day.name]
        counts = [f"{one['points']:,}", f"{one['of']:,}", f"{one['converged']:.1%}", f"{one['failed']:,}"]
        fit = [f"{seen.fit:,}"] if isinstance(seen, Seen) else ["–"]
        best = [f"{_best(seen)[p]:.2f}" if p in _best(seen) else "–" for p in products]
        rows.append(
            [_unbroken(part.name), str(len(part.day.files)), f"{seen.resolution / UAS:.1f}", *counts, *fit, *best]
        )
    limits = ", ".join(f"{name} at most {limit:g}" for name, limit in found.limits.items())
    text = f"Beam: nominal resolution, µas. To fit the data: {limits}. Last: χ² of the Top Set's image that fits best."
    return Section("Surveys", [Table(header, rows, text)])


def _best(seen: Any) -> Mapping[str, float]:
    """Return χ² per measurement, by product, of the image that fits best."""
    return seen.chi2[seen.images.points[0]] if isinstance(seen, Seen) and seen.images is not None else {}


def _method(found: Found) -> list[str]:
    trained = " and ".join(found.trainings)
    known = ", ".join(next(iter(found.trainings.values())).truths)
    return [
        f"Training: synthetic data of {known}, seen with the baselines, times, thermal noise and gain errors of "
        f"{trained}, with random station phases. The same choices image each of them; a choice is kept if every one of "
        "its images correlates with its truth at least as well as the truth blurred to the nominal resolution does.",
        "Data: files of one day, its bands, are fitted together and form no closures with each other. Closure phases, "
        "log closure amplitudes and amplitudes with their tolerances are fitted once, from the prior or from the image "
        "of the next stronger entropy. There is no self-calibration, so χ² of amplitudes does not decide.",
        "Ring: along 120 directions from the centre, the distance of the brightest point; the centre is where these "
        "agree best. None: no point has peaks all around. Uneven: the distances spread by more than "
        f"{UNEVEN:g} of their mean, a limit chosen on the known double. Filled: the middle is brighter than "
        f"{FILLED:g} of the ring. These do not enter the diameters. Images are measured as fitted, neither blurred nor "
        "shifted.",
        "Resolution: regularised images make rings smaller and wider. The diameters of days are not corrected. The "
        "row of the known ring tells what the same choices make of a ring that has 42 µas; the calibrated diameter is "
        "divided by that ratio, and its error has the spread of the known ring too. The column thin is what a "
        "correction for the width alone would give.",
        "Error: the spread of the diameter over the choices kept and over days, every day counting the same. It holds "
        "neither calibration errors that all choices share, nor choices that this grid does not have.",
    ]


def _told(value: Any) -> bool:
    return isinstance(value, str | int | float | list | tuple)


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
