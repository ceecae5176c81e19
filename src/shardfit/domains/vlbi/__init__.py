"""Very long baseline interferometry: data, closure quantities, images, self-calibration, imaging, simulation.

`image` and `simulate` here are functions; the modules of the same names are reached as `from
shardfit.domains.vlbi.images import ...`. Figures are in `plots`, which needs matplotlib. Names are imported when they
are first used: reading and calibrating data does not load JAX.
"""

from typing import TYPE_CHECKING

from shardfit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardfit.domains.vlbi.aligning import align, regrid
    from shardfit.domains.vlbi.beams import Beam, dirty_beam, dirty_image, fit_beam
    from shardfit.domains.vlbi.closures import quadrangles, triangles
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.ehtim_objects import from_ehtim_image, from_obsdata, to_ehtim_image, to_obsdata
    from shardfit.domains.vlbi.ehtim_text import read_ehtim_text
    from shardfit.domains.vlbi.error_sizes import NoiseScale, noise_scale
    from shardfit.domains.vlbi.fits_image import read_image, write_image
    from shardfit.domains.vlbi.gain_files import read_gains, write_gains
    from shardfit.domains.vlbi.grid import Grid
    from shardfit.domains.vlbi.images import Image, blank, gaussian, prior, ring
    from shardfit.domains.vlbi.joining import join
    from shardfit.domains.vlbi.leakage import Leakage, apply_leakage, solve_leakage
    from shardfit.domains.vlbi.models import model_image
    from shardfit.domains.vlbi.movies import Movie, read_movie, write_movie
    from shardfit.domains.vlbi.network import network_calibrate
    from shardfit.domains.vlbi.nufft import Nufft
    from shardfit.domains.vlbi.observation import Observation, Stations, make_observation
    from shardfit.domains.vlbi.operations import add_fractional_noise, average_scans, average_time, elevations, flag
    from shardfit.domains.vlbi.problem import image_maps, imaging_problem, with_data_weights
    from shardfit.domains.vlbi.recipes import (
        ErrorsUnderRegularisers,
        ImagePosterior,
        ImagingResult,
        MovieResult,
        PolarisedResult,
        PreCal,
        Round,
        SelfCal,
        SpectralResult,
        TopSetErrors,
        chi2,
        compact_flux,
        cross_correlation,
        errors_under_regularisers,
        image,
        known_image,
        movie,
        observe,
        polarimetric_image,
        posterior,
        prepare,
        spectral_image,
        top_set_errors,
    )
    from shardfit.domains.vlbi.recipes.geometric import ShapeFit, fit_shape
    from shardfit.domains.vlbi.recipes.weights import CrossValidation, cross_validate
    from shardfit.domains.vlbi.rings import Ring, extract_ring, mean_ring, ring_modes
    from shardfit.domains.vlbi.selfcal import Calibrated, GainTable, apply_gains, self_calibrate, solve_gains
    from shardfit.domains.vlbi.simulation import EHT2017, Gains, Night, read_array, simulate
    from shardfit.domains.vlbi.tables import DataSet, data_set
    from shardfit.domains.vlbi.text import read_text, write_text
    from shardfit.domains.vlbi.uvfits import read_uvfits, write_uvfits

__all__ = [
    "EHT2017",
    "UAS",
    "Beam",
    "Calibrated",
    "CrossValidation",
    "DataSet",
    "ErrorsUnderRegularisers",
    "GainTable",
    "Gains",
    "Grid",
    "Image",
    "ImagePosterior",
    "ImagingResult",
    "Leakage",
    "Movie",
    "MovieResult",
    "Night",
    "NoiseScale",
    "Nufft",
    "Observation",
    "PolarisedResult",
    "PreCal",
    "Ring",
    "Round",
    "SelfCal",
    "ShapeFit",
    "SpectralResult",
    "Stations",
    "TopSetErrors",
    "add_fractional_noise",
    "align",
    "apply_gains",
    "apply_leakage",
    "average_scans",
    "average_time",
    "blank",
    "chi2",
    "compact_flux",
    "cross_correlation",
    "cross_validate",
    "data_set",
    "dirty_beam",
    "dirty_image",
    "elevations",
    "errors_under_regularisers",
    "extract_ring",
    "fit_beam",
    "fit_shape",
    "flag",
    "from_ehtim_image",
    "from_obsdata",
    "gaussian",
    "image",
    "image_maps",
    "imaging_problem",
    "join",
    "known_image",
    "make_observation",
    "mean_ring",
    "model_image",
    "movie",
    "network_calibrate",
    "noise_scale",
    "observe",
    "polarimetric_image",
    "posterior",
    "prepare",
    "prior",
    "quadrangles",
    "read_array",
    "read_ehtim_text",
    "read_gains",
    "read_image",
    "read_movie",
    "read_text",
    "read_uvfits",
    "regrid",
    "ring",
    "ring_modes",
    "self_calibrate",
    "simulate",
    "solve_gains",
    "solve_leakage",
    "spectral_image",
    "to_ehtim_image",
    "to_obsdata",
    "top_set_errors",
    "triangles",
    "with_data_weights",
    "write_gains",
    "write_image",
    "write_movie",
    "write_text",
    "write_uvfits",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aligning": "align regrid",
        "beams": "Beam dirty_beam dirty_image fit_beam",
        "closures": "quadrangles triangles",
        "constants": "UAS",
        "ehtim_objects": "from_ehtim_image from_obsdata to_ehtim_image to_obsdata",
        "ehtim_text": "read_ehtim_text",
        "fits_image": "read_image write_image",
        "gain_files": "read_gains write_gains",
        "grid": "Grid",
        "images": "Image blank gaussian prior ring",
        "joining": "join",
        "leakage": "Leakage apply_leakage solve_leakage",
        "models": "model_image",
        "movies": "Movie read_movie write_movie",
        "network": "network_calibrate",
        "error_sizes": "NoiseScale noise_scale",
        "nufft": "Nufft",
        "observation": "Observation Stations make_observation",
        "operations": "add_fractional_noise average_scans average_time elevations flag",
        "problem": "image_maps imaging_problem with_data_weights",
        "recipes": "ErrorsUnderRegularisers ImagePosterior ImagingResult MovieResult PolarisedResult PreCal Round "
        "SelfCal SpectralResult TopSetErrors chi2 compact_flux cross_correlation errors_under_regularisers image "
        "known_image movie observe polarimetric_image posterior prepare spectral_image top_set_errors",
        "recipes.geometric": "ShapeFit fit_shape",
        "recipes.weights": "CrossValidation cross_validate",
        "rings": "Ring extract_ring mean_ring ring_modes",
        "selfcal": "Calibrated GainTable apply_gains self_calibrate solve_gains",
        "simulation": "EHT2017 Gains Night read_array simulate",
        "tables": "DataSet data_set",
        "text": "read_text write_text",
        "uvfits": "read_uvfits write_uvfits",
    },
)
