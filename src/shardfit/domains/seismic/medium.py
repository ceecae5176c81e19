"""The ground as recipes see it: named fields, one for acoustic waves, three for elastic ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardfit.domains.seismic.elastic import PARAMETERS, ElasticSimulation
from shardfit.domains.seismic.simulation import Simulation

Medium = dict[str, np.ndarray]


def as_medium(sim: Simulation, model: Any) -> Medium:
    """Return a model by its names: 'velocity', or 'vp', 'vs' and 'rho' with an `ElasticSimulation`."""
    if not isinstance(sim, ElasticSimulation):
        return {"velocity": np.asarray(model)}
    if not isinstance(model, Mapping) or set(model) != set(PARAMETERS):
        found = sorted(model) if isinstance(model, Mapping) else f"an array of shape {np.shape(model)}"
        raise ValueError(f"an elastic model is a mapping of vp, vs and rho; got {found}.")
    return {name: np.asarray(model[name]) for name in PARAMETERS}


def bare(medium: Mapping[str, Any]) -> Any:
    """Return what `propagate` takes: the velocity alone, or the mapping."""
    return medium["velocity"] if "velocity" in medium else dict(medium)


def speed(medium: Mapping[str, Any]) -> Any:
    """Return the velocity of P waves."""
    return medium["velocity" if "velocity" in medium else "vp"]
