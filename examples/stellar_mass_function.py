"""Fit a stellar mass function with 200,000 halos, split over whatever devices there are.

Every process makes only its own halos. Between devices travel 11 counts and two derivatives, so the same script serves
one core, many devices, and `shardfit launch -n 4 -- stellar_mass_function.py`.
"""

import shardfit as sf
from shardfit.domains.population import smf

mesh = sf.mesh()
problem = smf.problem("A", 200_000, mesh=mesh)
result = sf.fit(problem, "lbfgsb", mesh=mesh)

print(result)
assert result.success
assert abs(result.params["efficiency"] + 2.0) < 1e-4
assert abs(result.params["log_scatter"] + 0.5) < 1e-4
