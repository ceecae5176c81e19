"""Losses of squared normalised residuals z, with scipy's definitions: the value is ½Σρ(z)."""

from shardfit.core import losses

LOSSES = {name: loss.rho for name, loss in losses.LOSSES.items()}
SLOPES = {name: loss.slope for name, loss in losses.LOSSES.items()}
