"""The source signature by linear least squares: a number or a filter that takes modelled traces to observed ones.

In the frequency domain the filter of a shot, or of all, is Σ conj(D) O / (Σ |D|² + ε max Σ |D|²), sums over traces. By
linearity it is what the wavelet has to be filtered with. `matched` does this inside a loss, for every shot anew.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.precision import arithmetic, cast
from shardfit.domains.seismic.arrays import Series, Traces, Velocity
from shardfit.domains.seismic.geometry import select
from shardfit.domains.seismic.illumination import blocks
from shardfit.domains.seismic.options import DAMPING, SOURCE_FITS, SourceOptions, WaveOptions, require_known
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording, by_sample
from shardfit.domains.seismic.simulation import Simulation


def products(kind: str, modelled: Traces, observed: Traces, weights: Any = None) -> tuple[Any, Any]:
    """Return numerator and denominator of every shot, (shots,) or (shots, nt + 1); they may be summed over shots."""
    require_known("source estimate", kind, SOURCE_FITS)
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


def apply(kind: str, source: Any, traces: Series) -> Series:
    """Return traces (..., nt) multiplied by, or filtered with, a source estimate, which broadcasts over them."""
    if kind == "scalar":
        return source[..., None] * traces
    nt = traces.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(traces, 2 * nt) * source, 2 * nt)[..., :nt].astype(traces.dtype)


def matched(kind: str, modelled: Traces, observed: Traces, weights: Any = None) -> Traces:
    """Return modelled traces with the source that fits each shot best."""
    source = solution(kind, *products(kind, modelled, observed, weights))
    return apply(kind, source[:, None], modelled)


def estimate_source(
    sim: Simulation,
    velocity: Velocity | Mapping[str, Velocity],
    recording: Recording,
    source: SourceOptions | None = None,
    *,
    waves: WaveOptions | None = None,
    batchsize: int = 8,
) -> np.ndarray:
    """Return the wavelet that fits observed data best in this velocity, one for all shots or one for each.

    Parameters
    ----------
    sim, velocity
        the simulation, and the model (nz, nx) in m/s, or a medium.
    recording
        shots and data; its wavelet is the guess that is scaled or filtered. Its weights count: what has weight 0
        has no share in the estimate. A filter sees weights that change along a trace as a taper of both traces.
    source
        what is estimated.
    waves
        how waves are computed.
    batchsize
        shots that are read and simulated at once.

    Example: `estimate_source(sim, start, Recording(shots, ricker(8.0, sim.dt, sim.nt), data))`.

    """
    source, waves = source or SourceOptions(), waves or WaveOptions()
    recording.check(sim)
    wavelet, n = cast(recording.wavelet, waves.precision), recording.n_shots
    weights = recording.weight_rows()
    with arithmetic(waves.precision):

        @jax.jit
        def block_products(velocity, wavelet, shots, observed, weights):
            modelled = propagate(sim, velocity, wavelet, shots, waves.engine)
            return products(source.kind, modelled, observed, weights)

        sums = []
        for block in blocks(n, batchsize):
            some = wavelet if wavelet.ndim == 1 else wavelet[block]
            traces = np.asarray(recording.observed[block])
            counted = None if weights is None else by_sample(weights[block])
            rows = (jax.tree.map(np.asarray, velocity), some, select(recording.shots, block), traces, counted)
            sums.append(jax.tree.map(np.asarray, block_products(*cast(rows, waves.precision))))
        top, bottom = (np.concatenate(parts) for parts in zip(*sums, strict=True))
        if not source.per_shot:
            top, bottom = top.sum(0), bottom.sum(0)
        answer = np.asarray(solution(source.kind, top, bottom, source.damping))
        if source.per_shot and wavelet.ndim > 1:
            answer = answer.reshape(n, *(1,) * (wavelet.ndim - 2), *answer.shape[1:])
        return np.asarray(apply(source.kind, answer, wavelet))
