"""Says who each process is and what all of them agree on."""

import jax
import numpy as np

from shardfit.core.mesh import gather

total = gather(np.array([jax.process_index()])).sum()
print(f"rank {jax.process_index()} of {jax.process_count()}: sum {total}", flush=True)
