"""Are observed data like the modelled ones at all? Scale, correlation and lag of some shots, before an inversion.

Data in other units, of reversed polarity or with another time of zero fit as well as any to an optimizer: it bends the
model until they do. The shots of the start model tell for the price of a forward run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from shardfit.core.precision import arithmetic, cast
from shardfit.domains.seismic.arrays import Response, Velocity
from shardfit.domains.seismic.bands import filtered
from shardfit.domains.seismic.geometry import select
from shardfit.domains.seismic.options import WaveOptions
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording, by_sample
from shardfit.domains.seismic.signature import matched
from shardfit.domains.seismic.simulation import Simulation

SHOTS = 4  # that are compared, spread over the survey
MOST_SCALE = 5.0  # ratio of rms amplitudes, either way
LEAST_CORRELATION = 0.3
CLEARLY = 0.2  # by which a lag or the other polarity must raise the correlation to be named


@dataclass(frozen=True)
class Likeness:
    """Observed beside modelled traces of some shots.

    scale: rms of the observed over that of the modelled; correlation: their zero-lag correlation coefficient; lag:
    seconds by which the observed are late where the correlation is largest in size, and best, the correlation there,
    negative for reversed polarity.
    """

    scale: float
    correlation: float
    lag: float
    best: float

    @property
    def remedy(self) -> str:
        """What to change, by what the best lag says; empty where none helps."""
        if abs(self.best) - self.correlation < CLEARLY:
            return ""
        turned, late = self.best < 0, self.lag != 0
        what = [f"delayed by {self.lag * 1e3:+.4g} ms"] if late else []
        what += ["of reversed polarity"] if turned else []
        do = ["shift the traces or the wavelet (delay)"] if late else []
        do += ["reverse the sign of the wavelet or the data"] if turned else []
        return (
            f"As {' and '.join(what)} they would have {abs(self.best):.2f}: {' and '.join(do)}, or let "
            "estimate_source = 'filter' find the wavelet."
        )


def likeness(
    sim: Simulation,
    velocity: Velocity | Mapping[str, Velocity],
    recording: Recording,
    *,
    response: Response | None = None,
    match: str | None = None,
    waves: WaveOptions | None = None,
) -> Likeness:
    """Compare some observed shots with those of a model, by weighted samples.

    response: filter of both; match: 'scalar' or 'filter' fits the source of every shot first, see `MisfitOptions`.

    Example: `likeness(sim, start, recording).correlation`.
    """
    waves = waves or WaveOptions()
    recording.check(sim)
    chosen = np.unique(np.linspace(0, recording.n_shots - 1, SHOTS).round().astype(int))
    weights = recording.weight_rows()
    weights = np.ones(1) if weights is None else np.asarray(by_sample(weights[chosen]), float)
    observed = np.stack([np.asarray(recording.observed[shot]) for shot in chosen])
    with arithmetic(waves.precision):
        rows = cast(
            (jax.tree.map(np.asarray, velocity), recording.wavelet_rows()[chosen], observed, weights), waves.precision
        )
        velocity, wavelet, observed, weights = rows
        shots = select(recording.shots, chosen)
        modelled = jax.jit(lambda v, w, s: propagate(sim, v, w, s, waves.engine))(velocity, wavelet, shots)
        if response is not None:
            observed, modelled = filtered(observed, response), filtered(np.asarray(modelled), response)
        if match is not None:
            modelled = matched(match, modelled, observed, weights)
    root = np.sqrt(weights)
    return _compared(np.asarray(observed, float) * root, np.asarray(modelled, float) * root, sim.dt)


def _compared(observed: np.ndarray, modelled: np.ndarray, dt: float) -> Likeness:
    power = float(np.sum(observed**2)), float(np.sum(modelled**2))
    if not min(power) > 0:  # these shots are silent: nothing can be said
        return Likeness(1.0, 1.0, 0.0, 1.0)
    nt = observed.shape[-1]
    # both normalised first: squares of squares of small amplitudes would be lost
    size = observed / power[0] ** 0.5, modelled / power[1] ** 0.5
    spectra = [np.fft.rfft(traces, 2 * nt) for traces in size]
    over_lags = np.fft.irfft((spectra[0] * np.conj(spectra[1])).sum((0, 1)), 2 * nt)
    at = int(np.argmax(np.abs(over_lags)))
    lag = at if at < nt else at - 2 * nt
    return Likeness((power[0] / power[1]) ** 0.5, float(over_lags[0]), lag * dt, float(over_lags[at]))


def require_likeness(found: Likeness, scale_matters: bool = True) -> None:
    """Raise where observed data cannot be what the simulation models, with the remedy."""
    instead = "Where this is known and meant: compare=False."
    if scale_matters and not 1 / MOST_SCALE <= found.scale <= MOST_SCALE:
        raise ValueError(
            f"observed data are {_times(found.scale)} the modelled ones in rms amplitude: units or the strength of the "
            "source differ, and the model would be bent to make up for it. Scale data or wavelet, or let "
            f"estimate_source = 'scalar' find the strength. {instead}"
        )
    if not found.correlation >= LEAST_CORRELATION:
        remedy = found.remedy or (
            "No shift and no change of sign helps: check positions, the order of traces, dt and the wavelet, or begin "
            "with a better model or lower frequencies (bands)."
        )
        raise ValueError(
            f"observed and modelled data of the start have a correlation of {found.correlation:.2f}, less than "
            f"{LEAST_CORRELATION}: an inversion would not end at the true model. {remedy} {instead}"
        )


def _times(scale: float) -> str:
    return f"{scale:.3g} times" if scale >= 1 else f"1/{1 / scale:.3g} of"
