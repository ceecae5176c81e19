"""What `shardfit bench` measures of correlations: laminar flow at 23 angles."""

import numpy as np

from shardfit.cli.bench import Case


def cases() -> list[Case]:
    """Normal equations of 23 angles of 300 frames, contrast and offset eliminated."""
    from shardfit.domains.xpcs import Experiment, FitOptions, laminar_flow, setup, simulate

    model = laminar_flow()
    truth = dict(zip(model.names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0), strict=True))
    data = simulate(model, truth, Experiment(phi=np.linspace(-90, 90, 23), n_frames=300, dt=20.0 / 300), 1)
    problem = setup(data, model, FitOptions(scaling="individual")).problem
    return [Case("23 angles, 300 frames", problem, "gram", "points", 23 * 300 * 299 / 2)]
