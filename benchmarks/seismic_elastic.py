"""Elastic waves against deepwave 0.1.0, one thread each, float32: our compiled engine and its, the same scheme.

forward-SIZE-oN, gradient-SIZE-oN: pressure of 8 explosions, and the gradient of its energy with respect to vp, vs and
density, see seismic.py for rates, peaks and `difference`.
"""

from benchmarks.seismic import SETTINGS, against

PEERS = ("deepwave",)
SIZES = (("100x300", 4), ("100x300", 8), ("200x600", 4), ("400x1200", 4))

__all__ = ["PEERS", "SETTINGS", "run"]


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick runs the smallest grid only."""
    cases = {}
    for kind in ("forward", "gradient"):
        for size, order in SIZES[: 1 if quick else None]:
            cases[f"{kind}-{size}-o{order}"] = against("deepwave", kind, size, order, "elastic")
    return cases
