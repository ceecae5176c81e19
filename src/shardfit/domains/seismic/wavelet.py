"""Source signatures, sampled at n dt."""

import numpy as np


def ricker(f_peak: float, dt: float, nt: int, t0: float | None = None) -> np.ndarray:
    """Ricker wavelet (nt,): (1 - 2q) exp(-q), q = (π f (t - t0))². t0: time of its peak in s, by default 1.5 / f_peak.

    Example: `ricker(10.0, dt=0.001, nt=1000)`.
    """
    if not (f_peak > 0 and dt > 0 and nt > 0):
        raise ValueError(f"ricker: f_peak={f_peak!r}, dt={dt!r} and nt={nt!r} must be positive.")
    t0 = 1.5 / f_peak if t0 is None else t0
    if t0 < 1.2 / f_peak:
        raise ValueError(
            f"ricker: t0={t0:g} s cuts off the beginning of a {f_peak:g} Hz wavelet. Use at least {1.2 / f_peak:.4g} s."
        )
    # sample numbers, not arange(0, T, dt), which may give nt + 1 samples
    q = (np.pi * f_peak * (np.arange(nt) * dt - t0)) ** 2
    return (1 - 2 * q) * np.exp(-q)
