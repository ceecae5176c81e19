"""The comparisons of a certificate, from evaluations of a term; every difference is relative.

The rows whole against the same rows in two blocks; the derivative of each row against a central difference of that row;
the gradient, taken backwards, against the rows' derivatives; for least squares the normal equations against both. A row
is measured by its own size, so that one wrong row among thousands shows. A difference counts where it can be trusted:
where it changes little from one step to the next.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shardfit.check.evaluations import Evaluations
from shardfit.check.probe import Setting, small_block

WRONG = 1e-4  # relative difference of a derivative that is an error
DOUBT = 10.0  # a difference is trusted to so many times its change from one step to the next
MANY = 8  # rows from which on one wrong among them could hide in their sum
TINY = np.finfo(np.float64).tiny
EPS = np.finfo(np.float64).eps


class Differences(NamedTuple):
    """Central differences (n, k), how far each row's changed from one step to the next, and from its derivative."""

    best: np.ndarray
    change: np.ndarray
    agreement: np.ndarray


class Comparison(NamedTuple):
    """How well one term agrees with itself; rows (n,) in the order of the probe."""

    values: np.ndarray  # (2,) at the given point and near it
    gradients: np.ndarray  # (2, n_parameters)
    block_rows: float  # largest difference of a row, whole against blocks
    block_gradient: float  # of the gradient, whole and backwards against blocks
    agreement: np.ndarray  # (n,) of a row's derivative from the nearest central difference
    wrong: np.ndarray  # (n,) of a row's derivative from a difference that can be trusted, else 0
    backward: float  # of the gradient from differences, where there is no forward derivative
    loss: float  # of the loss's derivative from a difference
    gram: float  # of the normal equations from value, gradient and the rows' derivatives

    @property
    def finite(self) -> bool:
        """Whether value and gradient near the point are numbers."""
        return bool(np.isfinite(self.values[1]) and np.isfinite(self.gradients[1]).all())

    @property
    def undecided(self) -> np.ndarray:
        """Which rows (n,) have no finite difference that can be trusted."""
        return (self.agreement > WRONG) & (self.wrong == 0)

    @property
    def suspicion(self) -> np.ndarray:
        """Which rows (n,), and last the term as a whole, have a derivative that differs from its differences."""
        return np.append(self.wrong > WRONG, self.backward > WRONG or self.loss > WRONG)

    @property
    def derivative_error(self) -> float:
        """Difference of derivatives from finite differences that 99 of 100 rows keep to; the largest if any is wrong.

        Along any direction a few rows hardly change, and of these a difference shows mostly its own error.
        """
        settled = np.sort(self.agreement[self.agreement <= WRONG])
        most = settled[math.ceil(0.99 * settled.size) - 1] if settled.size else 0.0
        return float(max(most, np.max(self.wrong), self.backward, self.loss))


def compare(
    term: Evaluations,
    setting: Setting,
    position: int,
    pull_back: Callable,
    rounding: float = EPS,
    by_row: bool = True,
) -> Comparison:
    """Return the comparison of a term; pull_back(cotangents (n, k)) gives the gradient of their sum with outputs.

    by_row: lines of its tables are rows, in the setting's order where they were taken in blocks.
    """
    order = setting.orders[position] if by_row else None
    back = slice(None) if order is None else np.argsort(order)
    with np.errstate(all="ignore"):  # a step may lead to where the model is not defined
        rates = None if term.rates is None else term.rates[back]
        central = differences(term.steps, setting.steps, rates, rounding)
        known = central.best if rates is None else rates
        slope, parts = np.vdot(term.gradients[1], setting.direction), np.sum(term.weights * known, axis=1)
        agreement, wrong, backward = central.agreement, np.zeros(len(known)), 0.0
        if rates is not None:
            wrong = _wrong_rows(rates, central)
            # a slope far below value is rounding: a term may not depend on its parameters at all
            value = np.sum(_norms(term.weights) * _norms(term.outputs))
            block_gradient = abs(slope - parts.sum()) / _positive(max(np.abs(parts).sum(), 1e-8 * value))
        else:
            errors = [_backward_error(slope, parts, term.weights, central)]
            if len(known) >= MANY and setting.orders[position] is not None:
                errors.append(_signed_error(setting, position, central, pull_back))
            decided = [error for error in errors if error is not None]
            backward, agreement = max(decided, default=0.0), agreement if decided else np.full(len(known), np.inf)
            block_gradient = _apart(term.block_gradient, term.gradients[1], setting.scale, term.values[1])
        return Comparison(
            values=term.values,
            gradients=term.gradients,
            block_rows=_block_rows(term, known, back),
            block_gradient=float(block_gradient),
            agreement=agreement,
            wrong=wrong,
            backward=float(backward),
            loss=0.0 if term.loss_rate is None else _loss_error(term, setting, rounding),
            gram=0.0 if term.gram is None else _gram_error(term, order, known),
        )


def combine(looks: list[Comparison]) -> Comparison:
    """Return one comparison of several in other directions: wrong is what is wrong in two and right in none."""
    agreement = np.min([look.agreement for look in looks], axis=0)
    second = {n: np.sort([getattr(look, n) for look in looks], axis=0)[-2:][0] for n in ("wrong", "backward", "loss")}
    second["wrong"] = np.where(agreement > WRONG, second["wrong"], 0.0)
    return looks[0]._replace(agreement=agreement, **second)


def differences(
    steps_taken: np.ndarray, steps: np.ndarray, rates: np.ndarray | None, rounding: float = EPS
) -> Differences:
    """Return central differences of values (2 s, n, k) at steps ±h, each row's at the step where it changes least.

    rounding: relative, of the program that gave the values.
    """
    ahead, behind, h = steps_taken[::2], steps_taken[1::2], steps[::2, None]
    each = (ahead - behind) / (2 * h[..., None])
    # rounding of the values themselves limits what a difference can resolve
    sizes = _norms(ahead) + _norms(behind)
    if rounding > EPS:  # of what a row is made of, which may be more than the row: a residual is what is left
        sizes = np.maximum(sizes, np.sqrt(np.mean(np.square(sizes), axis=1, keepdims=True)))
    noise = 4 * rounding * sizes / h
    changes = np.nan_to_num(_norms(np.diff(each, axis=0)) + noise[1:], nan=np.inf)
    best = np.take_along_axis(each[1:], np.argmin(changes, axis=0)[None, :, None], axis=0)[0]
    # the largest of the changes: two differences may agree by chance, where values move in jumps of rounding
    change = np.max(changes, axis=0)
    agreement = np.zeros(len(change))
    if rates is not None:
        apart = _norms(each - rates) / _positive(np.maximum(_norms(rates), _norms(each)))
        agreement = np.min(np.nan_to_num(apart, nan=np.inf), axis=0)
    return Differences(best, change, agreement)


def _norms(table):
    return np.sqrt(np.sum(table**2, axis=-1))


def _positive(scale):
    return np.maximum(scale, TINY)


def _block_rows(term, known, back) -> float:
    """Return the largest difference of a row, measured by its own size, or by what the parameters make of it."""
    scale = np.maximum(_norms(term.outputs), _norms(known))
    scale = np.maximum(scale, 1e-3 * np.sqrt(np.mean(scale**2)))
    return float(np.max(_norms(term.blocks[back] - term.outputs) / _positive(scale)))


def _wrong_rows(rates, central: Differences) -> np.ndarray:
    apart = _norms(central.best - rates)
    wrong = (central.agreement > WRONG) & (apart > DOUBT * central.change)
    return np.where(wrong, apart / _positive(np.maximum(_norms(rates), _norms(central.best))), 0.0)


def _backward_error(slope, parts, weights, central: Differences) -> float | None:
    """Return how far the gradient along the direction is from the rows' differences, beyond their own errors."""
    doubt = DOUBT * np.sum(_norms(weights) * np.where(np.any(weights, axis=1), central.change, 0.0))
    # where rows cancel, a small share of them still counts
    size = max(abs(parts.sum()), 1e-2 * np.abs(parts).sum())
    return _beyond(doubt, abs(slope - parts.sum()), size)


def _signed_error(setting, position, central: Differences, pull_back) -> float | None:
    """Return the same with every row at equal weight and random sign: rows' errors stand out, common ones cancel."""
    sizes = _norms(central.best)
    usable = central.change <= 1e-5 * sizes
    signs = np.where(usable, np.resize(setting.signs[position], len(usable)), 0.0)
    slope = np.vdot(pull_back((signs / _positive(sizes) ** 2)[:, None] * central.best), setting.direction)
    doubt = DOUBT * np.sum(central.change[usable] / sizes[usable])
    return _beyond(doubt, abs(slope - signs.sum()), 3 * np.sqrt(max(1, usable.sum())))


def _beyond(doubt: float, error: float, size: float) -> float | None:
    """Return the relative error; None where it is large, but no larger than differences can be trusted to."""
    relative = error / _positive(size)
    return None if relative > WRONG and error <= doubt else float(relative)


def _apart(other, gradient, scale, value) -> float:
    """Return how far two gradients are from each other, parameters measured in their scale."""
    # a gradient far below value / scale is rounding: a term may not depend on its parameters at all
    size = max(np.linalg.norm(scale * gradient), 1e-4 * abs(value))
    return np.linalg.norm(scale * (other - gradient)) / _positive(size)


def _loss_error(term, setting, rounding) -> float:
    rate = np.reshape(term.loss_rate, (1, 1))
    return float(_wrong_rows(rate, differences(term.loss_steps[:, None, None], setting.steps, rate, rounding))[0])


def _gram_error(term, order, known) -> float:
    """Return how far value, slope and curvature of the normal equations are from those of the same few rows."""
    if np.ndim(term.gram) == 2:
        own, expected = term.gram
        value, curvature = np.abs(expected[[0, 2]])
        # a slope is at most this: residuals and their change in the same direction
        sizes = value, np.sqrt(2 * value * curvature), curvature
        return max(abs(a - b) / _positive(size) for a, b, size in zip(own, expected, sizes, strict=True))
    few = slice(None) if order is None else order[: small_block(len(order))]
    outputs, weights, rates = term.outputs[few], term.weights[few], known[few]
    # the cotangent of a residual is its weight times itself
    share = np.where(outputs != 0, weights / np.where(outputs != 0, outputs, 1.0), 0.0)
    expected = 0.5 * np.sum(share * outputs**2), np.sum(weights * rates), np.sum(share * rates**2)
    sizes = expected[0], np.sum(np.abs(weights * rates)), expected[2]
    return max(abs(a - b) / _positive(size) for a, b, size in zip(term.gram, expected, sizes, strict=True))
