"""Recipes of XPCS: from data to an answer."""

from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.recipes.fitting import fit_correlation

__all__ = ["CorrelationFit", "fit_correlation"]
