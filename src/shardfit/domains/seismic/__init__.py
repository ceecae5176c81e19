"""Seismic waves: acoustic propagation in two dimensions with exact gradients, compiled on the CPU or in JAX."""

from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.geometry import Points, Shots, acquisition, select
from shardfit.domains.seismic.memory import Binomial, Checkpointed, Frame, Full, Stored
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.simulation import Simulation, check_velocity, largest_dt
from shardfit.domains.seismic.wavelet import ricker

__all__ = [
    "Binomial",
    "Checkpointed",
    "Frame",
    "Full",
    "Native",
    "Points",
    "Shots",
    "Simulation",
    "Stored",
    "acquisition",
    "check_velocity",
    "choose_engine",
    "largest_dt",
    "propagate",
    "ricker",
    "select",
]
