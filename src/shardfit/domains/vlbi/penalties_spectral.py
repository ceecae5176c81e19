"""Regularisers of spectral maps: distance from their prior (l2_x), total variation (tv_x), flux per observation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from shardfit.domains.vlbi.penalties import Scales, variation
from shardfit.domains.vlbi.transforms import SPECTRAL, at_frequency, embed

NAMES = tuple(f"{kind}_{name}" for kind in ("l2", "tv") for name in SPECTRAL)


def evaluate(name: str, maps: Mapping[str, jax.Array], priors: Mapping[str, jax.Array], scales: Scales) -> jax.Array:
    """Value of 'l2_<map>' or 'tv_<map>'; maps and priors hold the spectral maps (n,)."""
    kind, _, which = name.partition("_")
    values = maps[which]
    n = values.shape[-1] if scales.norm else 1.0
    if kind == "l2":
        return jnp.sum((values - priors[which]) ** 2) / n
    found = variation(embed(scales.grid, values, scales.index), scales.epsilon_tv)
    return found * scales.beam / n if scales.norm else found


def flux_mf(maps: Mapping[str, jax.Array], log_ratios: Any, targets: Any, scales: Scales) -> jax.Array:
    """Σ over observations of (Σ I_ν - F_ν)² / F_ν². log_ratios: ln ν/ν_ref of each; targets: Jy of each."""
    total = jnp.zeros(())
    for ratio, target in zip(log_ratios, targets, strict=True):
        off = (jnp.sum(at_frequency(maps, ratio)["I"]) - target) ** 2
        total = total + (off / target**2 if scales.norm else off)
    return total
