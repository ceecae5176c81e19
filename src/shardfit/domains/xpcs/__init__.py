"""X-ray photon correlation spectroscopy: two-time correlations, from file to transport coefficients and shear rates.

Names are imported when they are first used: reading options does not load JAX.
"""

from typing import TYPE_CHECKING

from shardfit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardfit.domains.xpcs.bins import Binned, delay_bins, multi_tau
    from shardfit.domains.xpcs.cleaning import corrected_diagonal, estimate_noise, symmetrised, without_outliers
    from shardfit.domains.xpcs.data import Correlation
    from shardfit.domains.xpcs.files import from_xarray, read, write
    from shardfit.domains.xpcs.forward import Ahead, Bins, Geometry, Grid, Points
    from shardfit.domains.xpcs.groups import Grouped, together
    from shardfit.domains.xpcs.models import Homodyne, Model, TwoComponent, laminar_flow, static
    from shardfit.domains.xpcs.options import FitOptions, Selection
    from shardfit.domains.xpcs.problem import Setup, curved, setup
    from shardfit.domains.xpcs.rates import Ageing, CurvedPower, Knots, Parameter, PowerLaw, Rate, Stretched
    from shardfit.domains.xpcs.recipes import (
        CorrelationFit,
        FitComparison,
        compare_fits,
        fit_correlation,
        power_law,
        sample_correlation,
    )
    from shardfit.domains.xpcs.scaling import fourier_basis, quantile_scales
    from shardfit.domains.xpcs.simulation import Experiment, simulate

__all__ = [
    "Ageing",
    "Ahead",
    "Binned",
    "Bins",
    "Correlation",
    "CorrelationFit",
    "CurvedPower",
    "Experiment",
    "FitComparison",
    "FitOptions",
    "Geometry",
    "Grid",
    "Grouped",
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
    "compare_fits",
    "corrected_diagonal",
    "curved",
    "delay_bins",
    "estimate_noise",
    "fit_correlation",
    "fourier_basis",
    "from_xarray",
    "laminar_flow",
    "multi_tau",
    "power_law",
    "quantile_scales",
    "read",
    "sample_correlation",
    "setup",
    "simulate",
    "static",
    "symmetrised",
    "together",
    "without_outliers",
    "write",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "bins": "Binned delay_bins multi_tau",
        "cleaning": "corrected_diagonal estimate_noise symmetrised without_outliers",
        "data": "Correlation",
        "files": "from_xarray read write",
        "forward": "Ahead Bins Geometry Grid Points",
        "groups": "Grouped together",
        "models": "Homodyne Model TwoComponent laminar_flow static",
        "options": "FitOptions Selection",
        "problem": "Setup curved setup",
        "rates": "Ageing CurvedPower Knots Parameter PowerLaw Rate Stretched",
        "recipes": "CorrelationFit FitComparison compare_fits fit_correlation power_law sample_correlation",
        "scaling": "fourier_basis quantile_scales",
        "simulation": "Experiment simulate",
    },
)
