"""Seismic waves: acoustic, elastic, anisotropic, attenuating, with exact gradients, compiled on the CPU or in JAX."""

from shardfit.domains.seismic.anisotropy import VTISimulation
from shardfit.domains.seismic.attenuation import ViscoacousticSimulation
from shardfit.domains.seismic.bands import filtered, low_pass
from shardfit.domains.seismic.born import born, migration_problem
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.domains.seismic.curvature import hessian_diagonal
from shardfit.domains.seismic.elastic import ElasticSimulation
from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.geometry import Points, Shots, acquisition, select
from shardfit.domains.seismic.illumination import illumination
from shardfit.domains.seismic.losses import L1, L2, NIM, W2, Correlation, Envelope, Huber, StudentT, as_loss
from shardfit.domains.seismic.medium import check_medium
from shardfit.domains.seismic.metrics import model_error, structural_similarity
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import MisfitOptions, ModelOptions, SourceOptions, WaveOptions
from shardfit.domains.seismic.penalties import deviation, tikhonov, total_variation
from shardfit.domains.seismic.problem import inversion_problem
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording
from shardfit.domains.seismic.signature import estimate_source
from shardfit.domains.seismic.simulation import Simulation, check_velocity, largest_dt
from shardfit.domains.seismic.strategies import Binomial, Checkpointed, Frame, Full, Stored
from shardfit.domains.seismic.wavelet import ricker

__all__ = [
    "Binomial",
    "Checkpointed",
    "Conditioning",
    "Correlation",
    "ElasticSimulation",
    "Envelope",
    "Frame",
    "Full",
    "Huber",
    "L1",
    "L2",
    "MisfitOptions",
    "ModelOptions",
    "NIM",
    "Native",
    "Points",
    "Recording",
    "Shots",
    "Simulation",
    "SourceOptions",
    "Stored",
    "StudentT",
    "VTISimulation",
    "ViscoacousticSimulation",
    "W2",
    "WaveOptions",
    "acquisition",
    "as_loss",
    "born",
    "check_medium",
    "check_velocity",
    "choose_engine",
    "deviation",
    "estimate_source",
    "filtered",
    "hessian_diagonal",
    "illumination",
    "inversion_problem",
    "largest_dt",
    "low_pass",
    "migration_problem",
    "model_error",
    "propagate",
    "ricker",
    "select",
    "structural_similarity",
    "tikhonov",
    "total_variation",
]
