"""Whether q can be that of the data: the decay that is there, against the transport coefficients the model allows."""

import numpy as np

from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.models import Homodyne, Model
from shardfit.domains.xpcs.problem import FitOptions
from shardfit.domains.xpcs.rates import PowerLaw
from shardfit.domains.xpcs.recipes.starts import thinned

MOST = 15.0  # 1/Å: 4π/λ of the hardest X-rays in use; no wave vector is larger
NEAR = 3.0  # times the lower end of D0's range within which q is doubted
FALLS = 5.0  # standard errors by which correlations fall at least, if they do
UNITS = "q is in 1/Å: 0.0054 1/Å is 0.054 1/nm, 54 1/µm and 5.4e7 1/m."


def check_q(data: Correlation, model: Model, options: FitOptions) -> str:
    """Return what is odd about q, '' if nothing is; refuse it where no scattering has it.

    A correlation that falls by a factor e in a time τ, by diffusion or by shear, has a transport coefficient of 1/(q²τ)
    at most. Where that is below, or near the end of, the range of D0, the unit of q is the likeliest reason.
    """
    q = float(np.max(data.q))
    if q > MOST:
        seen = f" Here they fall within {t:.3g} s." if np.isfinite(t := _decay_time(data)) else ""
        raise ValueError(f"q = {q:g} 1/Å is larger than X-rays can have: up to {MOST:g}. {UNITS}{seen}")
    if not (isinstance(model, Homodyne) and isinstance(model.diffusion, PowerLaw)):
        return ""
    if {"D0"} & {*options.fixed, *options.bounds}:
        return ""  # whoever says this knows how fast the sample is
    lower, t = model.table["D0"].lower, _decay_time(data)
    level = 1 / (np.median(data.q) ** 2 * t)
    if not level < NEAR * lower:  # NaN: no decay to be seen
        return ""
    return (
        f"Correlations fall within {t:.3g} s. At q = {np.median(data.q):g} 1/Å this is a transport coefficient of "
        f"about {level:.3g} Å²/s, near or below the end of the range of D0 ({lower:g}): is the unit of q right? "
        f"{UNITS} If the sample is so slow, give bounds of D0."
    )


def _decay_time(data: Correlation) -> float:
    """Return the lag at which the mean correlation has fallen by a factor e of what it falls by; NaN where it does not.

    It is the longest of all bins: those across a flow show diffusion alone.
    """
    data = thinned(data)
    lag, times = np.broadcast_to(data.lag, data.c2.shape[1:]).ravel(), []
    for row in data.c2.reshape(len(data.c2), -1):
        seen = np.isfinite(row) & (lag > 0)
        lags, place = np.unique(np.round(lag[seen], 12), return_inverse=True)
        if len(lags) < 4:
            continue
        counts = np.bincount(place)
        means = np.bincount(place, row[seen]) / counts
        late = lags >= np.quantile(lags, 0.7)
        low = np.average(means[late], weights=counts[late])
        noise = np.std(row[seen] - means[place]) / np.sqrt(counts[0])
        if means[0] - low > FALLS * noise:
            below = means < low + (means[0] - low) / np.e
            times.append(lags[np.argmax(below)])
    return float(np.max(times)) if times else float("nan")
