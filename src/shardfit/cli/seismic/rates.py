"""What `shardfit bench` measures of waves: a section, forward and with gradient."""

import numpy as np

from shardfit.cli.bench import Case


def cases() -> list[Case]:
    """Four shots over 200 x 200 cells, 400 steps of time."""
    from shardfit.domains.seismic import Recording, Simulation, acquisition, inversion_problem, ricker

    sim = Simulation(shape=(200, 200), dh=10.0, dt=1e-3, nt=400, order=4, v_max=3200.0, f_peak=15.0)
    shots = acquisition(sim, [(2, x) for x in (40, 80, 120, 160)], [(3, x) for x in range(0, 200, 4)])
    recording = Recording(shots, ricker(15.0, sim.dt, sim.nt), np.ones((4, 50, sim.nt), np.float32))
    problem = inversion_problem(sim, np.full(sim.shape, 2500.0, np.float32), recording)
    cells = 4 * sim.nt * (200 + 2 * 20) ** 2
    return [
        Case("waves, 4 shots, forward", problem, "value", "cells", cells),
        Case("waves, 4 shots, with gradient", problem, "value_and_grad", "cells", cells),
    ]
