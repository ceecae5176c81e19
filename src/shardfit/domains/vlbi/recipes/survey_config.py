"""A survey of images from the plain values of a configuration file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.domains.vlbi.models import MODELS
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.imaging import PRESETS, prior_image
from shardfit.domains.vlbi.recipes.measure import cross_correlation
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import compact_flux, prepare
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.recipes.surveys import OBSERVED, ImagingSurvey, imaging_survey, training_data
from shardfit.surveys.axes import Axis

EXAMPLE = """\
[vlbi]                    # any option of `shardfit vlbi image` by its Python name
data = "ring"             # a uvfits file, or ring, crescent, disk, double: simulated data of a known image
preset = "eht"            # errors and field of the Event Horizon Telescope; "default": data as they are
flux = 0.6                # compact flux, Jy
npix = 64
fov_uas = 128.0

[axes]                    # every value of every axis: a list, or { low = ..., high = ..., log = true } for a range
prior_fwhm_uas = [40, 50, 60]
systematic = [0.0, 0.01, 0.02, 0.05]
simple = [0, 1, 10, 100, 1000]
tv = [0, 1, 10, 100, 1000]
tv2 = [0, 1, 10, 100, 1000]
l1 = [0, 1, 10, 100, 1000]
"""


def make(
    settings: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]
) -> tuple[Problem, Mapping[str, Axis], dict[str, Any]]:
    """Return problem, axes and options of a survey of images.

    settings: data, a uvfits file or the name of a known image, and options of imaging.

    An axis 'data' may name known images: they are seen with the baselines of the data.
    """
    made = prepared(settings, axes)
    return made.problem, made.axes, made.options


def prepared(settings: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> ImagingSurvey:
    """Return the survey of a configuration; settings, axes: as for `make`."""
    given, obs = _read(settings)
    wanted = [name for name in axes.get("data", ()) if name in MODELS]
    others = {}
    if wanted:
        others = {name: seen for name, (seen, _) in training_data(obs, wanted, **_about(given)).items()}
    return imaging_survey(obs, axes, others=others, **given)


def truths(settings: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> tuple[str, Callable, dict[str, float]]:
    """Return how a training survey is judged: axis of the truths, match(truth, picture), least match by truth.

    A truth counts as brought back if a picture correlates with it at least as well as the truth, blurred to the nominal
    resolution, does: better than the array's beam could.
    """
    given, obs = _read(settings)
    names = [name for name in axes.get("data", ()) if name in MODELS]
    if not names:
        raise ValueError("a training survey has an axis data of known images: " + ", ".join(MODELS) + ".")
    known = {name: truth for name, (_, truth) in training_data(obs, names, **_about(given)).items()}
    least = {name: cross_correlation(truth, truth.blur(obs.nominal_resolution)) for name, truth in known.items()}

    def match(name: str, picture: Any) -> float:
        truth = known[name]
        return cross_correlation(truth.replace(values={"I": picture.astype(float)}), truth)

    return "data", match, least


def figures(settings: Mapping[str, Any], point: Mapping[str, Any], result: Any) -> dict[str, tuple[str, Any]]:
    """Return name → (caption, figure) of one point: its image, and data, model and residuals."""
    from shardfit.domains.vlbi import plots

    given, obs = _read(settings)
    changed = {k: v for k, v in point.items() if k in ("flux", "prior_fwhm_uas", "systematic")}
    preset = given.pop("preset", "default")
    chosen = options_from(preset, PRESETS, {**given, **changed}).sized(obs)
    flux = compact_flux(obs) if chosen.flux is None else float(chosen.flux)
    if point.get("data", OBSERVED) != OBSERVED:
        obs = training_data(obs, [point["data"]], **_about({**given, "preset": preset}))[point["data"]][0]
    ready = prepare(obs, flux, **chosen.preparation)
    start = prior_image(ready, flux, chosen)
    image = start.replace(values={"I": start.grid.embed(np.asarray(result.params["I"]), None)})
    beam = ready.nominal_resolution
    return {
        "image": ("The image; the circle is the nominal resolution.", plots.sky(image, beam_rad=beam)),
        "amplitudes": ("Amplitudes of data and image, and residuals over σ.", plots.amplitudes(ready, image)),
        "closure_phases": (
            "Closure phases of data and image, and residuals over σ.",
            plots.closure_phases(ready, image, uv_min=chosen.cp_uv_min, count=chosen.count),
        ),
    }


def _read(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Observation]:
    """Return the imaging options of a configuration, and its data."""
    given = dict(settings)
    if "data" not in given:
        raise ValueError(
            "[vlbi] data is missing: a uvfits file, or one of " + ", ".join(MODELS) + " for simulated data."
        )
    obs = _observation(str(given.pop("data")), int(given.pop("data_seed", 0)))
    if "data_weights" in given:  # `data` names the file here
        given["data"] = given.pop("data_weights")
    return given, obs


def _about(given: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k in ("preset", "flux", "npix", "fov_uas", "average")}


def _observation(data: str, seed: int) -> Observation:
    if data in MODELS:
        return observe(known_image(data), seed=seed)
    from shardfit.domains.vlbi.uvfits import read_uvfits

    return read_uvfits(data, channels="average")  # pyright: ignore[reportReturnType] (one, when averaged)
