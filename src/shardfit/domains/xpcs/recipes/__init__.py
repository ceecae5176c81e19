"""Recipes of XPCS: from data to an answer."""

from shardfit.domains.xpcs.recipes.answer import CorrelationFit, power_law
from shardfit.domains.xpcs.recipes.comparison import FitComparison, compare_fits
from shardfit.domains.xpcs.recipes.fitting import fit_correlation
from shardfit.domains.xpcs.recipes.posterior import sample_correlation

__all__ = ["CorrelationFit", "FitComparison", "compare_fits", "fit_correlation", "power_law", "sample_correlation"]
