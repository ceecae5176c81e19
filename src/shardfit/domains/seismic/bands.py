"""From low frequencies to high: the zero-phase low-pass filter that makes a band of the data.

The filter is Butterworth's, run forward and backward, as a product in the frequency domain. It is applied to modelled
and observed traces alike. By linearity that is the same as filtering wavelet and data, but nothing is lost of what a
filtered wavelet would emit before time zero.
"""

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic.arrays import Response, Series
from shardfit.domains.seismic.simulation import Simulation

ORDERS = (3, 4, 5, 6)


def low_pass(sim: Simulation, corner: float, order: int = 4) -> Response:
    """Return the response (nt + 1,) of the filter; at the corner frequency, Hz, it is one half.

    Example: `filtered(traces, low_pass(sim, 5.0))`.
    """
    check_corner(sim, corner, order)
    frequencies = np.arange(sim.nt + 1) / (2 * sim.nt * sim.dt)
    with np.errstate(over="ignore"):
        # tangents: the digital filter, whose response ends at half the sampling frequency
        ratio = np.tan(np.pi * frequencies[:-1] * sim.dt) / np.tan(np.pi * corner * sim.dt)
        return np.append(1 / (1 + ratio ** (2 * order)), 0.0)


def filtered(traces: Series, response: Response | None) -> Series:
    """Return traces (..., nt) filtered along time, NumPy or JAX as given; silence is assumed beyond both ends."""
    if response is None:
        return traces
    fft = jnp.fft if isinstance(traces, jax.Array) else np.fft
    nt = traces.shape[-1]
    return fft.irfft(fft.rfft(traces, 2 * nt) * response, 2 * nt)[..., :nt].astype(traces.dtype)


def check_corner(sim: Simulation, corner: float, order: int) -> None:
    """Raise for a corner that the time axis cannot show."""
    if order not in ORDERS:
        raise ValueError(f"low-pass filter: order={order!r} must be one of {ORDERS}.")
    low, high = 1 / (sim.nt * sim.dt), 0.5 / sim.dt
    if not low <= corner < high:
        raise ValueError(
            f"low-pass filter: corner {corner!r} Hz must lie between {low:.3g} Hz, one period in the whole trace, and "
            f"{high:.3g} Hz, half the sampling frequency."
        )
