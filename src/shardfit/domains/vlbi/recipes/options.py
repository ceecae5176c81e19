"""From a preset and what differs from it to the options of an imaging run."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.imaging_options import ImagingOptions

OWN_WEIGHTS = {"regularisers", "rounds", "precal"}  # who gives them wants no others


def options_from(preset: str, presets: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> ImagingOptions:
    """Return the options of a preset, changed by those given."""
    if preset not in presets:
        raise ValueError(f"image: unknown preset {preset!r}.{suggestion(str(preset), presets)}")
    known = {f.name for f in fields(ImagingOptions)}
    for name in given:
        if name not in known:
            more = {"preset", "solver", "mesh", "seed", "run_dir"}
            raise TypeError(f"image has no option {name!r}.{suggestion(name, known | more)}")
    options = ImagingOptions(**{**presets[preset], **given})
    if options.follow is None:
        options = replace(options, follow=preset == "default" and not OWN_WEIGHTS & given.keys())
    if "data" in given and "rounds" not in given and any(one.data is not None for one in options.rounds):
        raise ValueError(
            f"image: the rounds of preset {preset!r} have data of their own, so those given would not be used. Leave "
            "them (--products) out, or give rounds=(Round(data=...), ...)."
        )
    return options
