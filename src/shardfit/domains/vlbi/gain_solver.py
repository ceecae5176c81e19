"""Damped Newton method for station gains: a batch of small independent problems, one per interval, in float64.

Variables of an interval are x (2, s): ln|g| and the phase of every station. Inactive ones stay at zero. A direction
that changes nothing, such as a phase common to all stations, has neither gradient nor curvature: no step goes along it.
The curvature is exact: that of Gauss and Newton is wrong where data and image differ in amplitude, as they do before
amplitudes are calibrated, and steps then overshoot or creep. Derivatives are written out and NumPy does the work: the
problems are too small to pay for a compilation, and an interval that has converged drops out.
"""

from dataclasses import dataclass, fields

import numpy as np

MAX_STEPS = 200
TOLERANCE = 1e-13  # of the cost: what a full step may still be expected to gain
START = 1e-4  # rad
DAMPING = (1e-10, 1e10)  # range, relative to the largest curvature


@dataclass(frozen=True, eq=False)
class Intervals:
    """Baselines of t intervals, padded with weight 0 to the same number b; s stations.

    first, second: (t, b) stations; data, model: (t, b) complex; weight: (t, b) 1/σ or 0; active: (t, 2, s), which of
    ln|g| and phase is solved for; limits: (t, 2, s) tolerance of ln|g| above and below 0, infinite for none.
    third: (t, b), or None: a further variable that the model of a baseline is multiplied with, for models that are not
    known; it is counted with the stations.
    """

    first: np.ndarray
    second: np.ndarray
    data: np.ndarray
    model: np.ndarray
    weight: np.ndarray
    active: np.ndarray
    limits: np.ndarray
    third: np.ndarray | None = None

    def take(self, chosen: np.ndarray) -> "Intervals":
        """Return some of the intervals."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Intervals(**{name: value[chosen] for name, value in values.items() if value is not None})


def cost(x: np.ndarray, rows: Intervals) -> np.ndarray:
    """Cost (t,) of variables x (t, 2, s): Σ |data - g₁ g₂* model|²/σ² + Σ (ln|g|/tolerance)²."""
    x = np.where(rows.active, x, 0.0)
    return np.sum(np.abs(rows.weight * (rows.data - _turned(x, rows))) ** 2, 1) + np.sum(_held(x, rows)[0], 1)


def rounding(x: np.ndarray, rows: Intervals) -> np.ndarray:
    """How far the cost (t,) may be off by rounding: whether a step gains less than that cannot be seen."""
    data, model = rows.weight * rows.data, rows.weight * _turned(np.where(rows.active, x, 0.0), rows)
    return np.finfo(float).eps * np.sum(2 * np.abs(data - model) * (np.abs(data) + np.abs(model)), 1)


def derivatives(x: np.ndarray, rows: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (t, 2 s) and second derivatives (t, 2 s, 2 s) of the cost; zero for inactive variables.

    With p = ln|g₁ g₂|, q the difference of phases, and the weighted data d and model m e^(p + iq), the cost of a
    baseline is |d - m e^(p + iq)|²: all derivatives are real or imaginary parts of d* m e^(p + iq).
    """
    x = np.where(rows.active, x, 0.0)
    model = rows.weight * _turned(x, rows)
    overlap = (rows.weight * rows.data).conj() * model
    size = np.abs(model) ** 2
    # how p and q of each baseline depend on the variables, (t, b, s)
    stations = np.arange(x.shape[2])
    first, second = (index[..., None] == stations for index in (rows.first, rows.second))
    third = 0.0 if rows.third is None else 1.0 * (rows.third[..., None] == stations)
    by_p = np.where(rows.active[:, :1], first * 1.0 + second + third, 0.0)
    by_q = np.where(rows.active[:, 1:], first * 1.0 - second + third, 0.0)
    slope_p, slope_q = 2 * (size - np.real(overlap)), 2 * np.imag(overlap)
    _, slope, curvature = _held(x, rows)
    gradient = np.concatenate([_sum(by_p, slope_p) + slope, _sum(by_q, slope_q)], 1)
    pp = _products(by_p, 4 * size - 2 * np.real(overlap), by_p) + curvature[:, None] * np.eye(len(stations))
    pq, qq = _products(by_p, slope_q, by_q), _products(by_q, 2 * np.real(overlap), by_q)
    return gradient, np.block([[pp, pq], [pq.swapaxes(1, 2), qq]])


def solve(rows: Intervals) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Minimise every interval's cost → x (t, 2, s), cost (t,) at gains 1, cost at x, whether it converged."""
    n, _, n_stations = rows.active.shape
    # phases a little apart: data exactly opposite to the image have no gradient at zero
    x = np.stack([np.zeros((n, n_stations)), np.tile(START * np.arange(n_stations), (n, 1))], 1)
    value, damping, converged = cost(x, rows), np.full(n, 1e-3), np.zeros(n, bool)
    going = np.arange(n)
    for _ in range(MAX_STEPS):
        here = rows.take(going)
        at, now, damped = x[going], value[going], damping[going]
        expected, step = _newton_step(at, here, damped)
        done = expected <= TOLERANCE * (1 + now) + rounding(at, here)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far costs inf or NaN and is not taken
            there = cost(at - step, here)
        lower = there < now
        move = lower & ~done
        x[going] = np.where(move[:, None, None], at - step, at)
        value[going] = np.where(move, there, now)
        damping[going] = np.clip(np.where(lower, 0.1 * damped, 10 * damped), *DAMPING)
        converged[going] = done
        going = going[~done & (damping[going] < DAMPING[1])]
        if not len(going):
            break
    x = np.where(rows.active, x, 0.0)
    return x, cost(np.zeros_like(x), rows), value, converged


def _newton_step(x: np.ndarray, rows: Intervals, damping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what an undamped step may gain (t,), and the damped step (t, 2, s)."""
    gradient, hessian = derivatives(x, rows)
    curvature, axes = np.linalg.eigh(hessian)
    along = np.einsum("tij,ti->tj", axes, gradient)
    # downhill along every axis, also where the cost curves down
    size = np.abs(curvature)
    largest = size.max(1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    expected = 0.5 * np.sum(along**2 / (size + DAMPING[0] * scale), 1)
    step = np.einsum("tij,tj->ti", axes, along / (size + damping[:, None] * scale))
    return expected, step.reshape(x.shape)


def _turned(x: np.ndarray, rows: Intervals) -> np.ndarray:
    """Model (t, b) with gains."""
    log_gain, phase = x[:, 0], x[:, 1]
    t = np.arange(len(x))[:, None]
    size, turn = log_gain[t, rows.first] + log_gain[t, rows.second], phase[t, rows.first] - phase[t, rows.second]
    if rows.third is not None:
        size, turn = size + log_gain[t, rows.third], turn + phase[t, rows.third]
    return np.exp(size) * np.exp(1j * turn) * rows.model


def _held(x: np.ndarray, rows: Intervals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ln|g|/tolerance)² of every station (t, s), its first and second derivative."""
    log_gain = x[:, 0]
    weight = np.where(log_gain > 0, rows.limits[:, 0], rows.limits[:, 1]) ** -2.0
    return weight * log_gain**2, 2 * weight * log_gain, np.where(rows.active[:, 0], 2 * weight, 0.0)


def _sum(by: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.einsum("tbs,tb->ts", by, values)


def _products(one: np.ndarray, values: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * values[..., None]).swapaxes(1, 2) @ other
