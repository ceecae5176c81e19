"""A survey of images from the plain values of a configuration file."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardfit.core.problem import Problem
from shardfit.domains.vlbi.models import MODELS
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.recipes.surveys import imaging_survey, training_data
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
    given = dict(settings)
    if "data" not in given:
        raise ValueError(
            "[vlbi] data is missing: a uvfits file, or one of " + ", ".join(MODELS) + " for simulated data."
        )
    obs = _observation(str(given.pop("data")), int(given.pop("data_seed", 0)))
    if "data_weights" in given:  # `data` names the file here
        given["data"] = given.pop("data_weights")
    wanted = [name for name in axes.get("data", ()) if name in MODELS]
    others = {}
    if wanted:
        about = {k: v for k, v in given.items() if k in ("preset", "flux", "npix", "fov_uas", "average")}
        others = {name: seen for name, (seen, _) in training_data(obs, wanted, **about).items()}
    prepared = imaging_survey(obs, axes, others=others, **given)
    return prepared.problem, prepared.axes, {"picture": prepared.picture}


def _observation(data: str, seed: int) -> Observation:
    if data in MODELS:
        return observe(known_image(data), seed=seed)
    from shardfit.domains.vlbi.uvfits import read_uvfits

    return read_uvfits(data, channels="average")  # pyright: ignore[reportReturnType] (one, when averaged)
