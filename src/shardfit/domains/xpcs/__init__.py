"""X-ray photon correlation spectroscopy: two-time correlations, from file to transport coefficients and shear rates."""

from shardfit.domains.xpcs.cleaning import corrected_diagonal, estimate_noise, symmetrised, without_outliers
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.files import Selection, read, write
from shardfit.domains.xpcs.forward import Ahead, Geometry, Grid, Points
from shardfit.domains.xpcs.models import Homodyne, Model, TwoComponent, laminar_flow, static
from shardfit.domains.xpcs.problem import FitOptions, Setup, curved, setup
from shardfit.domains.xpcs.rates import Ageing, CurvedPower, Knots, Parameter, PowerLaw, Rate, Stretched
from shardfit.domains.xpcs.recipes import CorrelationFit, fit_correlation, power_law, sample_correlation
from shardfit.domains.xpcs.scaling import fourier_basis, quantile_scales
from shardfit.domains.xpcs.simulation import Experiment, simulate

__all__ = [
    "Ageing",
    "Ahead",
    "Correlation",
    "CorrelationFit",
    "CurvedPower",
    "Experiment",
    "FitOptions",
    "Geometry",
    "Grid",
    "Homodyne",
    "Knots",
    "Model",
    "Parameter",
    "Points",
    "PowerLaw",
    "Rate",
    "Selection",
    "Setup",
    "Stretched",
    "TwoComponent",
    "corrected_diagonal",
    "curved",
    "estimate_noise",
    "fit_correlation",
    "fourier_basis",
    "laminar_flow",
    "power_law",
    "quantile_scales",
    "read",
    "sample_correlation",
    "setup",
    "simulate",
    "static",
    "symmetrised",
    "without_outliers",
    "write",
]
