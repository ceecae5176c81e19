"""Arrays of seismics by their axes. A model has the cells of a grid: (nz, nx), or (nz, ny, nx)."""

import numpy as np

from shardfit.core.extras import require_extra

with require_extra("shardfit.domains.seismic", "seismic"):
    from jaxtyping import Array, Float

Velocity = Float[Array | np.ndarray, "*cells"]  # m/s
Traces = Float[Array | np.ndarray, "shots receivers nt"]
PerTrace = Float[Array | np.ndarray, "shots receivers"]
PerShot = Float[Array | np.ndarray, " shots"]
Series = Float[Array | np.ndarray, "*others nt"]  # anything along time
HostTraces = Float[np.ndarray, "shots receivers nt"]  # NumPy, or a memory map
HostSeries = Float[np.ndarray, "*others nt"]
Response = Float[Array | np.ndarray, " frequencies"]
