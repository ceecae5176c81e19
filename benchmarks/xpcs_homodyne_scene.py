"""What both sides of the suite xpcs_homodyne are given."""

import os

NAMES = ("D0", "alpha", "D_offset", "gamma_dot_t0", "beta", "gamma_dot_t_offset", "phi0")
TRUTH = (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0)
Q, GAP, SIGMA = 0.0054, 2e6, 0.01
GRID = 100_000  # below so many entries the peer fits differences without noise, with the diagonal
# the peer's small fits begin elsewhere than asked where parameters are of more than six orders of magnitude
SMALL_START = (5000.0, -0.2, 500.0, 6e-3, -0.1, 0.0, -2.0)


def one_core() -> None:
    """Keep this process, and every thread it starts, on one core; before anything is imported that starts threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def truth(mode: str) -> dict[str, float]:
    """Return the parameters of the simulated data."""
    return dict(list(zip(NAMES, TRUTH, strict=True))[: 3 if mode == "static" else 7])


def start(mode: str, entries: int) -> dict[str, float]:
    """Return where both sides begin: a fifth away from the truth, or where the peer can begin."""
    values = SMALL_START if entries < GRID else [1.2 * value for value in TRUTH]
    return dict(zip(truth(mode), values, strict=False))
