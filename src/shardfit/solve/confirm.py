"""A success is confirmed: from the answer, with curvature and scale taken anew, a few evaluations may not go lower.

A solver's own tests can be met where scales differ by many orders, where a start was so steep that anything seems flat
beside it, or on a saddle. What looks here shares nothing with it: curvature comes from changes of the gradient over
small distances, in the space spanned by the gradient and what the Hessian makes of it, and a Newton step there is
tried. Up to `WHOLE` coordinates that space is all of them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shardfit.solve import residual_step
from shardfit.solve.base import Solver, Task
from shardfit.solve.covariance import of_residuals
from shardfit.solve.looking import SHORTER, Look, LookByValues

WHOLE = 8  # coordinates up to which curvature is known in all directions
FEW = 4  # directions looked at where there are more; and coordinates up to which differences are central
TRIALS = (1.0, 0.1, 0.01)  # shares of the Newton step that are tried
SHARES = 1e-3, 0.1  # least and largest share of the last of them, for one more
CLEARLY = 100  # times the tolerance that slopes must promise in vain for an answer to be doubtful
LONGEST = 0.3  # of a step, beside the coordinates' own size
CERTAIN = 0.1  # share of the tolerance that the Newton step must promise, for it to be tried
SMALL = 1e-3  # coordinates beside their scale that may have found another
NEAR = 1e-5  # distance at which that is asked
MUCH = 0.1  # relative change of the value that is not small
REACH = 1000  # roundings by which coordinates are never known better
VANISHED = 1.5  # power of the rounding: a value that has become so small beside its start is zero
RESOLVED = 100  # roundings of the value that a change must have to be compared with slopes
UNLIKE = 0.3  # relative difference between what slopes promise and what the value does that is not small
UNFELT = 1e-7  # relative change of squared residuals that says nothing about a parameter
SOFT = 1e-4  # curvature along a valley beside that across it
ALONG = 0.03  # of a step along it, beside the coordinates' own size
ROUNDS = 4  # evaluations that look round its bend
LEAST = 1e-8  # relative gain that is never more than rounding and the last steps of a good fit


class Finding(NamedTuple):
    """What a look from the answer has found: the best point, how much lower it is, and how much of that is no loss.

    lengths: of the coordinates, that make curvatures alike; None where these are not known in all directions. flat:
    coordinates that may change by their own size without the value noticing. unclear: slopes promise much more than
    the tolerance, but no trial is lower.
    """

    z: np.ndarray
    value: float
    gain: float
    allowed: float
    evaluations: int
    lengths: np.ndarray | None = None
    flat: Any = ()
    unclear: Any = False

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Finding":
        """Return what was found from its stored arrays."""
        value, gain, allowed = (float(arrays[name]) for name in ("value", "gain", "allowed"))
        return cls(
            arrays["z"],
            value,
            gain,
            allowed,
            int(arrays["evaluations"]),
            arrays.get("lengths"),
            arrays["flat"],
            bool(arrays["unclear"]),
        )

    @property
    def confirmed(self) -> bool:
        """Whether the answer stands."""
        return self.gain <= self.allowed


def confirm(solver: Solver, task: Task, z: np.ndarray, scale: np.ndarray, began: float) -> Finding:
    """Look whether a few evaluations from z lower the value by more than the solver's tolerances allow.

    began: the value that the solver started from.
    """
    eps = float(np.finfo(z.dtype).eps)
    by_values = solver.needs == "value"
    look, widths = (LookByValues if by_values else Look)(task, z, scale), scale
    u = look.inside(np.asarray(z / scale, float))
    value, gradient = look(u)
    began = abs(began) if np.isfinite(began) else 0.0
    # beside this a change of the value is large: a distance over which it changes so is not small
    much = MUCH * max(abs(value), np.sqrt(eps) * began) or np.inf
    small = np.flatnonzero((np.abs(u) < SMALL) & (u != 0)) if u.size <= WHOLE else ()
    shrunk = [i for i in small if _is_far(look, u, i, value, much)]
    if shrunk:
        scale = scale.copy()
        scale[shrunk] = np.abs(z[shrunk])
        gradient = gradient * (scale / look.scale)
        look = look.rescaled(z, scale)
        u = look.inside(np.asarray(z / scale, float))
    gradient = look.settled(u, value, gradient, much)
    loss, precision = solver.tolerated
    plain = max(loss, LEAST, 8 * eps) * abs(value) + solver.gatol
    allowed = plain + eps**VANISHED * began
    free = look.free(u, gradient)
    model = _curvature(look, u, value, gradient, free, much)
    if not (np.isfinite(value) and np.isfinite(model.bends).all() and len(model.bends)):
        return Finding(z, value, 0.0, allowed, look.evaluations)
    # what moves the answer by less than the precision that was asked for, or that there is, is no loss; searches
    # measure it by the box, and what works in the parameters as they are by their own size
    beside = widths / scale if by_values else model.size if solver.scaled else np.abs(u)
    reach = np.maximum(precision * beside, REACH * eps * model.size)
    moves, promised = _newton(model, gradient, eps)
    within = np.max(np.abs(model.modes * moves) / (reach * np.ones(u.size))[:, None], axis=0) <= 1
    allowed += 2 * np.sum(np.maximum(promised[within], 0))
    best, lowest = u, value
    ahead = np.sum(promised[~within])
    if ahead > CERTAIN * allowed:
        best, lowest = _tried(look, model, u, value, gradient, moves)
    whole = len(model.bends) == free.sum() == z.size
    if whole and lowest >= value:
        best, lowest = _slid(look, model, u, value, gradient, allowed)
    # what is searched by values may have no derivatives
    unmoved = not by_values and not value - lowest > allowed and residual_step.applies(look, free)
    if unmoved and not whole:
        best, lowest = residual_step.residual_step(look, u, value, allowed)
    elif unmoved and allowed > 2 * plain:
        # a start may be so steep that all is small beside it: residuals tell what rounding makes of their own
        further, lower = residual_step.residual_step(look, u, value, plain + residual_step.rounding(look, u))
        if lower < lowest:
            best, lowest, allowed = further, lower, plain
    # a perfect fit has slopes of nothing but rounding
    blurred = 0.5 * (REACH * eps * model.size) ** 2 * float(np.sum(np.abs(model.own)))
    ahead = min(ahead, value) if of_residuals(task.objective) else ahead
    # residuals have no constant that would hide what is small beside it
    unfelt = max(UNFELT if of_residuals(task.objective) else 0, 8 * eps) * abs(value)
    # values alone may have steps and edges, of which differences say nothing
    told = whole and not by_values
    flat = (np.abs(gradient) + 0.5 * np.abs(model.own) <= unfelt) & free if told else np.zeros(0, bool)
    better = look.space.z(np.asarray(best, z.dtype)).astype(z.dtype) if lowest < value else z
    lengths = model.lengths(scale) if whole else None
    return Finding(
        better,
        lowest,
        value - lowest,
        allowed,
        look.evaluations,
        lengths,
        np.flatnonzero(flat),
        told and lowest >= value and ahead > CLEARLY * allowed + blurred,
    )


def _is_far(look: Look, u: np.ndarray, i: Any, value: float, much: float) -> bool:
    """Return whether a coordinate that has become small is at home there: what was small beside its start is not."""
    moved = u.copy()
    moved[i] += (1 if u[i] > 0 else -1) * NEAR
    there = look(look.inside(moved))[0]
    return not abs(there - value) <= much


class _Model(NamedTuple):
    """Curvature around a point: modes (n, k) and their bends (k,), which are known to `noise`. size: of the point.

    Where all directions are known, coordinates are first made alike in curvature: modes need not be of unit length.
    """

    modes: np.ndarray
    bends: np.ndarray
    noise: float
    size: float
    own: np.ndarray  # (n,) curvature along each coordinate, where all directions are known

    def lengths(self, scale: np.ndarray) -> np.ndarray:
        """Return the lengths of coordinates that make all curvatures alike, none longer than its scale."""
        bent = np.abs(self.own)
        least = np.min(bent[bent > 0], initial=np.inf)
        return scale * np.sqrt(np.where(bent > 0, least / np.where(bent > 0, bent, 1), 1))


def _curvature(
    look: Look,
    u: np.ndarray,
    value: float,
    gradient: np.ndarray,
    free: np.ndarray,
    much: float,
) -> _Model:
    """Return the Hessian from changes of the gradient over small distances: whole, or in a Krylov space."""
    n, eps = int(free.sum()), look.eps
    central, size = n <= FEW, max(1.0, float(np.max(np.abs(u), initial=0)))
    distance = size * look.curvature_distance(central)
    rows: list[np.ndarray] = []
    images: list[np.ndarray] = []
    rng, ahead = np.random.default_rng(0), gradient
    for i in range(n if n <= WHOLE else FEW):
        if n <= WHOLE:
            direction = np.eye(u.size)[np.flatnonzero(free)[i]]
        else:
            direction = _orthogonal(np.where(free, ahead, 0), rows, free, rng)
        near = distance
        for _ in range(SHORTER):
            one = look.inside(u + near * direction)
            there, slope = look(one)
            rise = abs(there - value) if np.isfinite(there) else np.inf
            went = float(direction @ (one - u))
            # the rule of trapezoids: slopes at the ends of a small distance say how the value changes
            told = 0.5 * went * float(direction @ (gradient + slope))
            bent = max(abs(there - value), abs(told)) > RESOLVED * eps * abs(value) and not np.isclose(
                there - value, told, rtol=UNLIKE, atol=RESOLVED * eps * abs(value)
            )
            if rise <= much and not (central and bent):
                break
            near *= max(1e-4, 0.1 * np.sqrt(min(1, much / max(rise, 1e-300))))
        other = look.inside(u - near * direction) if central else u
        apart = float(direction @ (one - other)) or near
        ahead = (slope - (look(other)[1] if central else gradient)) / apart
        rows.append(direction)
        images.append(ahead)
    if not rows:
        return _Model(np.zeros((u.size, 0)), np.zeros(0), 0.0, size, np.zeros(u.size))
    basis, changes = np.array(rows), np.array(images)
    matrix = basis @ changes.T
    if not np.isfinite(matrix).all():
        return _Model(basis.T, np.full(len(rows), np.nan), 0.0, size, np.zeros(u.size))
    own = np.sum(basis * changes, axis=0)
    unit = np.sqrt(np.abs(np.diag(matrix))) if n <= WHOLE else np.ones(len(rows))
    unit = np.where(unit > 0, unit, np.max(unit) or 1)
    bends, modes = np.linalg.eigh(0.5 * (matrix + matrix.T) / np.outer(unit, unit))
    noise = float(np.max(np.abs(bends))) * distance / size * (eps**0.3 if central else 1)
    noise += look.blur / distance * float(np.max(1 / unit)) ** 2
    return _Model(basis.T @ (modes / unit[:, None]), bends, noise, size, own)


def _newton(model: _Model, gradient: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the Newton step (k,) along the modes, away from maxima and saddles, and what each promises to gain."""
    slopes, bends = model.modes.T @ gradient, model.bends
    longest = LONGEST * model.size / np.max(np.abs(model.modes), axis=0)
    least = np.max(np.abs(bends)) * eps**0.75 or 1.0
    moves = -slopes / np.where(np.abs(bends) > model.noise, np.abs(bends), least)
    # from a saddle or a maximum there is no slope, but a way down
    sinks = (bends < -model.noise) & (np.abs(moves) < longest)
    moves = np.clip(
        np.where(sinks, np.where(moves < 0, -longest, longest), moves),
        -longest,
        longest,
    )
    return moves, -(slopes * moves + 0.5 * np.where(np.abs(bends) > model.noise, bends, 0) * moves**2)


def _tried(
    look: Look, model: _Model, u: np.ndarray, value: float, gradient: np.ndarray, moves: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the first point along the step that is lower, and its value; in a bent valley, back at its bottom."""
    widest = np.abs(model.bends[np.argmax(np.abs(moves) * np.max(np.abs(model.modes), axis=0))])
    stiff = np.abs(model.bends) > max(10 * widest, model.noise)
    back = np.where(stiff, 1 / np.where(stiff, np.abs(model.bends), 1), 0)
    step, bend = model.modes @ moves, float(model.bends @ moves**2)
    rise = np.inf
    for share in (*TRIALS, None):
        share = share or TRIALS[-1] * _shorter(rise, TRIALS[-1], float(gradient @ step), bend)
        trial = look.inside(u + share * step)
        rise = np.inf
        for _ in range(2 if stiff.any() else 1):
            there, slope = look(trial)
            if np.isfinite(there) and there < value:
                return trial, there
            rise = min(rise, there - value) if np.isfinite(there) else rise
            if not np.isfinite(slope).all():
                break
            trial = look.inside(trial - model.modes @ (back * (model.modes.T @ slope)))
    return u, value


def _slid(
    look: Look, model: _Model, u: np.ndarray, value: float, gradient: np.ndarray, allowed: float
) -> tuple[np.ndarray, float]:
    """Return a lower point round the bend of a valley, and its value.

    The straight line along a bent valley climbs its side, which looks like curvature and makes the Newton step short.
    """
    slopes, reach = model.modes.T @ gradient, ALONG * model.size / np.max(np.abs(model.modes), axis=0)
    stiffest = np.max(np.abs(model.bends))
    promised = np.where(np.abs(model.bends) < SOFT * stiffest, np.abs(slopes) * reach, 0)
    soft = int(np.argmax(promised))
    if not promised[soft] > allowed:
        return u, value
    stiff = model.bends > np.sqrt(SOFT) * stiffest
    back = np.where(stiff, 1 / np.where(stiff, model.bends, 1), 0)
    trial = look.inside(u - np.sign(slopes[soft]) * reach[soft] * model.modes[:, soft])
    for _ in range(ROUNDS):
        there, slope = look(trial)
        if np.isfinite(there) and value - there > allowed:
            return trial, there
        if not np.isfinite(slope).all():
            break
        trial = look.inside(trial - model.modes @ (back * (model.modes.T @ slope)))
    return u, value


def _shorter(rise: float, share: float, slope: float, bend: float) -> float:
    """Return where, on the way to a trial, the value is least, if what the model missed grows with the cube."""
    slope, bend = slope * share, bend * share**2
    missed = rise - slope - 0.5 * bend
    if not (np.isfinite(missed) and missed > 0):
        return SHARES[0]
    at = (-bend + np.sqrt(max(bend**2 - 12 * missed * slope, 0))) / (6 * missed)
    return float(np.clip(at, *SHARES))


def _orthogonal(
    vector: np.ndarray,
    rows: list[np.ndarray],
    free: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return a unit vector orthogonal to the rows: the given one's rest, or a random one where nothing is left."""
    while True:
        length = np.sqrt(vector @ vector)
        rest = vector / length if np.isfinite(length) and length > 0 else np.zeros(vector.size)
        for _ in range(2):  # once leaves rounding
            for row in rows:
                rest = rest - (row @ rest) * row
        left = np.sqrt(rest @ rest)
        if left > 1e-6:
            return rest / left
        vector = np.where(free, rng.standard_normal(vector.size), 0)
