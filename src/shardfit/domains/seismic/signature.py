"""The source signature by linear least squares: a number or a filter that takes modelled traces to observed ones.

In the frequency domain the filter of a shot, or of all, is Σ conj(D) O / (Σ |D|² + ε max Σ |D|²), sums over traces. By
linearity it is what the wavelet has to be filtered with. `matched` does this inside a loss, for every shot anew.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import cast, problem_scope
from shardfit.domains.seismic.geometry import Shots, select
from shardfit.domains.seismic.illumination import blocks
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.simulation import Simulation

KINDS = ("scalar", "filter")
DAMPING = 1e-3  # of the largest power: frequencies far below it are not excited, and noise there is not fitted


def products(kind: str, modelled: Any, observed: Any, weights: Any = None) -> tuple[Any, Any]:
    """Return numerator and denominator of every shot, (shots,) or (shots, nt + 1); they may be summed over shots."""
    if kind not in KINDS:
        raise ValueError(f"unknown source estimate {kind!r}.{suggestion(str(kind), KINDS)}")
    if weights is not None:
        root = jnp.sqrt(weights)
        modelled, observed = modelled * root, observed * root
    if kind == "scalar":
        return jnp.sum(modelled * observed, (1, 2)), jnp.sum(modelled**2, (1, 2))
    nt = modelled.shape[-1]
    spectrum, target = (jnp.fft.rfft(traces, 2 * nt) for traces in (modelled, observed))
    power = spectrum.real**2 + spectrum.imag**2
    return jnp.sum(jnp.conj(spectrum) * target, 1), jnp.sum(power, 1)


def solution(kind: str, numerator: Any, denominator: Any, damping: float = DAMPING) -> Any:
    """Return the number or filter from its products; 1 where nothing was modelled."""
    if kind == "filter":
        denominator = denominator + damping * jnp.max(denominator, -1, keepdims=True)
    return jnp.where(denominator > 0, numerator / jnp.where(denominator > 0, denominator, 1), 1)


def apply(kind: str, found: Any, traces: Any) -> Any:
    """Return traces (..., nt) multiplied by, or filtered with, what was found; it broadcasts over the leading axes."""
    if kind == "scalar":
        return found[..., None] * traces
    nt = traces.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(traces, 2 * nt) * found, 2 * nt)[..., :nt].astype(traces.dtype)


def matched(kind: str, modelled: Any, observed: Any, weights: Any = None) -> Any:
    """Return modelled traces with the source that fits each shot best."""
    found = solution(kind, *products(kind, modelled, observed, weights))
    return apply(kind, found[:, None], modelled)


def estimate_source(
    sim: Simulation,
    velocity: Any,
    wavelet: Any,
    shots: Shots,
    observed: Any,
    kind: str = "filter",
    *,
    per_shot: bool = False,
    damping: float = DAMPING,
    batchsize: int = 8,
    engine: str | Native = "auto",
    precision: str = "float32",
) -> np.ndarray:
    """Return the wavelet that fits observed data best in this velocity, one for all shots or one for each.

    wavelet: the guess that is scaled or filtered, (nt,), (shots, nt) or (shots, sources, nt). observed: (shots,
    receivers, nt), read a few shots at a time. damping: share of the largest power, for 'filter'.

    Example: `estimate_source(sim, start, ricker(8.0, sim.dt, sim.nt), shots, data)`.
    """
    wavelet, n = cast(np.asarray(wavelet), precision), len(shots.sources.cells)
    with problem_scope(precision):

        @jax.jit
        def block_products(velocity, wavelet, shots, observed):
            modelled = propagate(sim, velocity, wavelet, shots, engine)
            return products(kind, modelled, observed)

        found = []
        for block in blocks(n, batchsize):
            some = wavelet if wavelet.ndim == 1 else wavelet[block]
            rows = (np.asarray(velocity), some, select(shots, block), np.asarray(observed[block]))
            found.append(jax.tree.map(np.asarray, block_products(*cast(rows, precision))))
        top, bottom = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if not per_shot:
            top, bottom = top.sum(0), bottom.sum(0)
        answer = np.asarray(solution(kind, top, bottom, damping))
        if per_shot and wavelet.ndim > 1:
            answer = answer.reshape(n, *(1,) * (wavelet.ndim - 2), *answer.shape[1:])
        return np.asarray(apply(kind, answer, wavelet))
