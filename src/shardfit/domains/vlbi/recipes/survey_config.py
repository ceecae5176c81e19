"""A survey of images from the plain values of a configuration file."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.models import MODELS
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.measure import cross_correlation
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.recipes.surveys import OBSERVED, ImagingSurvey, imaging_survey, training_data
from shardfit.domains.vlbi.recipes.top_set import least_matches
from shardfit.options.common import precision_option, seed_option
from shardfit.options.declared import like, option
from shardfit.options.writing import section_template
from shardfit.surveys.axes import Axis


@dataclass(frozen=True)
class Settings(ImagingOptions):
    """[vlbi]: the data, and options of imaging by their Python names; of two of the name data these are the files."""

    data: str | tuple[str, ...] = option(  # type: ignore[assignment]
        "ring", "a uvfits file, a list of such (bands, days), or a known image, simulated: ring, crescent, disk, double"
    )
    data_seed: int = seed_option("simulated data")
    data_weights: Mapping[str, float] = like(ImagingOptions, "data")
    preset: str = option("default", "eht: errors and field of that telescope", choices=("default", "eht"))
    precision: str = precision_option(default="float32")


SETTINGS = Settings
EXAMPLE = (
    section_template(
        "vlbi",
        Settings,
        {"data": "ring", "preset": "eht", "flux": 0.6, "npix": 64, "fov_uas": 128.0},
    )
    + """
[axes]                    # every value of every axis: a list, or { low = ..., high = ..., log = true } for a range
prior_fwhm_uas = [40, 50, 60]
systematic = [0.0, 0.01, 0.02, 0.05]
simple = [0, 1, 10, 100, 1000]
tv = [0, 1, 10, 100, 1000]
tv2 = [0, 1, 10, 100, 1000]
l1 = [0, 1, 10, 100, 1000]
"""
)


def make(settings: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[Problem, Mapping[str, Axis], dict[str, Any]]:
    """Return problem, axes and options of a survey of images.

    settings: data, a uvfits file, a list of such (bands or days, as one), or the name of a known image; and options of
    imaging.

    An axis 'data' may name known images: they are seen with the baselines of the data.
    """
    made = prepared(settings, axes)
    return made.problem, made.axes, made.options


def prepared(settings: Mapping[str, Any], axes: Mapping[str, Any]) -> ImagingSurvey:
    """Return the survey of a configuration; settings, axes: as for `make`."""
    given, parts = _read(settings)
    wanted = [name for name in axes.get("data", ()) if name in MODELS]
    others = {}
    if wanted:
        others = {name: seen for name, (seen, _) in training_data(parts, wanted, **_about(given)).items()}
    return imaging_survey(parts, axes, others=others, **given)


def truths(settings: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[str, Callable, dict[str, float]]:
    """Return how a training survey is judged: axis of the truths, match(truth, picture), least match by truth.

    A truth counts as brought back if a picture correlates with it at least as well as the truth, blurred to the nominal
    resolution, does: better than the array's beam could.
    """
    known, resolution = known_images(settings, axes)

    def match(name: str, picture: Any) -> float:
        truth = known[name]
        return cross_correlation(truth.replace(values={"I": picture.astype(float)}), truth)

    return "data", match, least_matches(known, resolution)


def known_images(settings: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[dict[str, Image], float]:
    """Return the known images of a training survey by name, and the nominal resolution of its data, rad."""
    given, parts = _read(settings)
    names = [name for name in axes.get("data", ()) if name in MODELS]
    if not names:
        raise ValueError("a training survey has an axis data of known images: " + ", ".join(MODELS) + ".")
    known = {name: truth for name, (_, truth) in training_data(parts, names, **_about(given)).items()}
    return known, min(one.nominal_resolution for one in parts)


def figures(
    settings: Mapping[str, Any], point: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, tuple[str, Any]]:
    """Return name → (caption, figure) of one point: its image, and data, model and residuals.

    point: its values of the axes; params: what its fit found.
    """
    from shardfit.domains.vlbi import plots

    made = _observed_as(json.dumps(dict(settings), sort_keys=True), "data" in point)
    ready, options = made.observed(point), made.source.options
    image = made.image(made.prior.grid.embed(np.asarray(params["I"]), None))
    more = " Scans as they were, before they were drawn with repetition." if point.get("bootstrap", -1) >= 0 else ""
    drawn = {"image": ("The image; the circle is the nominal resolution.", plots.sky(image, beam_rad=made.resolution))}
    phases = {"uv_min": options.cp_uv_min, "count": options.count}
    for name, words, draw in (
        ("amplitudes", "Amplitudes", lambda: plots.amplitudes(ready, image)),
        ("closure_phases", "Closure phases", lambda: plots.closure_phases(ready, image, **phases)),
        (
            "closure_amplitudes",
            "Closure amplitudes",
            lambda: plots.closure_amplitudes(ready, image, count=options.count),
        ),
    ):
        with suppress(ValueError):  # few stations form no closures
            drawn[name] = (f"{words} of data and image, and residuals over σ.{more}", draw())
    return drawn


@lru_cache(maxsize=2)
def _observed_as(settings: str, trained: bool) -> ImagingSurvey:
    """Return the data of a survey; kept, since points are looked at one after the other."""
    return prepared(json.loads(settings), {"data": (OBSERVED, *MODELS)} if trained else {})


def _read(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Observation]]:
    """Return the imaging options of a configuration, and its data."""
    given = dict(settings)
    if "data" not in given:
        raise ValueError(
            "[vlbi] data is missing: a uvfits file, a list of such, or one of "
            + ", ".join(MODELS)
            + " for simulated data."
        )
    data, seed = given.pop("data"), int(given.pop("data_seed", 0))
    names = [data] if isinstance(data, str) else list(data)
    if "data_weights" in given:  # `data` names the file here
        given["data"] = given.pop("data_weights")
    return given, [_observation(str(name), seed) for name in names]


def _about(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that prepare data, which are the same for those of known images."""
    return {k: v for k, v in given.items() if k != "precision"}


def _observation(data: str, seed: int) -> Observation:
    if data in MODELS:
        return observe(known_image(data), seed=seed)
    from shardfit.domains.vlbi.uvfits import read_uvfits

    if not Path(data).is_file():  # nor is a pipe or a device
        raise FileNotFoundError(f"[vlbi] data: there is no file {data!r} in {Path.cwd()}.")
    return read_uvfits(data)  # pyright: ignore[reportReturnType] (one, unless separate)
