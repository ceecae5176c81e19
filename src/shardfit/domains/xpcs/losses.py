"""Losses of squared normalised residuals z, with scipy's definitions: the value is ½Σρ(z)."""

from shardfit.core import losses
from shardfit.core.errors import suggestion

LOSSES = {name: loss.rho for name, loss in losses.LOSSES.items()}
SLOPES = {name: loss.slope for name, loss in losses.LOSSES.items()}


def check_loss(name: str) -> str:
    """Return the name of a loss, or raise naming those there are."""
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}.{suggestion(name, LOSSES)} Known: {', '.join(LOSSES)}.")
    return name
