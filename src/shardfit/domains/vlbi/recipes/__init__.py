"""Recipes: from an observation to an image in one call, and what is needed around it."""

from typing import TYPE_CHECKING

from shardfit.core.lazy import lazy_names
from shardfit.domains.vlbi.imaging_options import ImagingOptions, PreCal, Round, SelfCal
from shardfit.domains.vlbi.recipes.eht import EHT2017_TOLERANCE, ZERO_BASELINE
from shardfit.domains.vlbi.recipes.errors import (
    ErrorsUnderRegularisers,
    TopSetErrors,
    errors_under_regularisers,
    posterior_scale,
    top_set_errors,
)
from shardfit.domains.vlbi.recipes.imaging import PRESETS, ImagingResult, image
from shardfit.domains.vlbi.recipes.measure import chi2, cross_correlation
from shardfit.domains.vlbi.recipes.movie import MovieResult, movie
from shardfit.domains.vlbi.recipes.polarised import PolarisedOptions, PolarisedResult, polarimetric_image
from shardfit.domains.vlbi.recipes.preparation import co_located, compact_flux, prepare
from shardfit.domains.vlbi.recipes.rounds import Fit, measurements
from shardfit.domains.vlbi.recipes.simulated import known_image, observe, simulated_ring
from shardfit.domains.vlbi.recipes.spectral import SpectralResult, spectral_image

if TYPE_CHECKING:
    from shardfit.domains.vlbi.recipes.image_posterior import ImagePosterior, posterior

__all__ = [
    "EHT2017_TOLERANCE",
    "PRESETS",
    "ZERO_BASELINE",
    "ErrorsUnderRegularisers",
    "Fit",
    "ImagePosterior",
    "ImagingOptions",
    "ImagingResult",
    "MovieResult",
    "PolarisedOptions",
    "PolarisedResult",
    "PreCal",
    "Round",
    "SelfCal",
    "SpectralResult",
    "TopSetErrors",
    "chi2",
    "co_located",
    "compact_flux",
    "cross_correlation",
    "errors_under_regularisers",
    "image",
    "known_image",
    "measurements",
    "movie",
    "observe",
    "polarimetric_image",
    "posterior",
    "posterior_scale",
    "prepare",
    "simulated_ring",
    "spectral_image",
    "top_set_errors",
]

# they need the samplers, which images do not
__getattr__, __dir__ = lazy_names(__name__, {"image_posterior": "ImagePosterior posterior"})
