"""Regularisers of spectral maps: distance from their prior (l2_x), total variation (tv_x), flux per observation."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from shardfit.domains.vlbi.penalties import Scalar, Scales, steps, variation
from shardfit.domains.vlbi.transforms import SPECTRAL, Maps, at_frequency

NAMES = tuple(f"{kind}_{name}" for kind in ("l2", "tv") for name in SPECTRAL)


def evaluate(name: str, maps: Maps, priors: Maps, scales: Scales) -> Scalar:
    """Value of 'l2_<map>' or 'tv_<map>'; maps and priors hold the spectral maps (n,)."""
    kind, _, which = name.partition("_")
    values = maps[which]
    n = values.shape[-1] if scales.norm else 1.0
    if kind == "l2":
        return jnp.sum((values - priors[which]) ** 2) / n
    rough = variation(steps(values, scales), scales.epsilon_tv)
    return rough * scales.beam / n if scales.norm else rough


def flux_mf(maps: Maps, log_ratios: Sequence[Any], targets: Sequence[Any], scales: Scales) -> Scalar:
    """Σ over observations of (Σ I_ν - F_ν)² / F_ν². log_ratios: ln ν/ν_ref of each; targets: Jy of each."""
    total = jnp.zeros(())
    for ratio, target in zip(log_ratios, targets, strict=True):
        off = (jnp.sum(at_frequency(maps, ratio)["I"]) - target) ** 2
        total = total + (off / target**2 if scales.norm else off)
    return total
