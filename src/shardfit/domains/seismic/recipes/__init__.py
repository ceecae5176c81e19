"""Recipes: from recorded shots to a velocity model or an image in one call."""

from shardfit.domains.seismic.recipes.invert import Display, Inversion, engine_used, invert
from shardfit.domains.seismic.recipes.options import InversionOptions
from shardfit.domains.seismic.recipes.rtm import MigrationOptions, rtm

__all__ = ["Display", "Inversion", "InversionOptions", "MigrationOptions", "engine_used", "invert", "rtm"]
