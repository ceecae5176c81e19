"""Recipes: from recorded shots to a velocity model or an image in one call."""

from shardfit.domains.seismic.recipes.invert import Inversion, invert
from shardfit.domains.seismic.recipes.options import InversionOptions
from shardfit.domains.seismic.recipes.rtm import rtm

__all__ = ["Inversion", "InversionOptions", "invert", "rtm"]
