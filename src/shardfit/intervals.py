"""profile: confidence intervals from the likelihood itself, where a standard error would be too simple.

One parameter is held at a value, all others are fitted again, and the rise of the objective is followed to both sides
until it reaches half the quantile of χ² with one degree of freedom. The square root of twice the rise is close to a
straight line, so a handful of refits finds each end; they differ in a held value only and share their programs.
"""

from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import jax
import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.curvature import error_bars
from shardfit.io.compile_cache import programs_kept
from shardfit.series import FitSeries
from shardfit.solve.base import Solver
from shardfit.solve.covariance import normalised, of_residuals
from shardfit.solve.registry import as_solver

CLOSE = 1e-3  # of the target: an end is known to about this share of a standard error
LOWER = 1e-3  # a refit this much below the fit, in units of the objective, has found another minimum
GROWTH = 3.0  # most that the distance from the fit grows in one step
FLAT = 100.0  # an end so many times further away, by the slope of the curve, is none
STEPS = 40  # most refits for one end


@dataclass(frozen=True, eq=False)
class Profile:
    """The rise of the objective along one parameter, and the interval it gives.

    lower, upper: its ends; open: for each, whether the rise stays too small up to there, a bound of the parameter or
    infinity. values, rises: (k,) the curve, held values in ascending order and the objective above its minimum, in
    units of the residual variance where errors are scaled by it. rise at the ends: `target`.
    """

    name: str
    level: float
    estimate: float
    lower: float
    upper: float
    open: tuple[bool, bool]
    values: np.ndarray
    rises: np.ndarray
    target: float
    unit: str = ""
    note: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """(lower, upper)."""
        return self.lower, self.upper

    def __str__(self):
        below, above = self.lower - self.estimate, self.upper - self.estimate
        ends = "".join(
            f" The {side} end is open: the data do not exclude {end:g}."
            for side, end, is_open in zip(("lower", "upper"), self.interval, self.open, strict=True)
            if is_open
        )
        unit = f" {self.unit}" if self.unit else ""
        text = f"{self.name} = {self.estimate:.6g} {below:+.3g} {above:+.3g}{unit} ({self.level:.3g} interval).{ends}"
        return " ".join(filter(None, (text, self.note)))


@programs_kept()
@working_on_it
def profile(
    problem: Problem,
    result: Result,
    name: str,
    *,
    level: float = 0.68,
    points: int = 2,
    solver: Any = None,
    mesh: Any = None,
) -> Profile:
    """Return the profile likelihood interval of one number among the parameters.

    The objective must be a negative log likelihood, or ½Σr² (scaled by the reduced χ² where a data term has no entry
    `sigma`). result: a fit that converged. name: of a parameter or of one number of it ('tau', 'w[2]'). level: of
    confidence. points: refits inside each side of the interval, for the curve. solver: for the refits; None: 'lm' for
    residuals, else 'lbfgsb'.

    Example: `profile(problem, fit(problem), "tau", level=0.95).interval`.
    """
    if not 0 < level < 1:
        raise ValueError(f"profile: level={level!r} must lie between 0 and 1, such as 0.68 or 0.95.")
    labels = problem.space.coordinate_labels()
    if name not in labels:
        held = " It is held." if name in problem.space.held_labels() else ""
        held = " It is tied: take one that it follows." if name in problem.space.tied_labels() else held
        raise ValueError(f"profile: no free number {name!r}.{held}{suggestion(name, labels)}")
    if problem.space.shapes != problem.space.inner_shapes:
        raise ValueError("profile: a transform mixes parameters (Simplex): none can be held alone.")
    scan = _Scan.at(problem, result, labels.index(name), _refitter(problem, solver), mesh)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    ends = [_end(scan, quantile, side) for side in (-1, 1)]
    if ends[0].value > ends[1].value:  # a transform that falls
        ends.reverse()
    for end in ends:
        for share in np.arange(1, points + 1) / (points + 1):
            if end.z != scan.start:
                scan.root(scan.start + share * (end.z - scan.start))
    values, rises = scan.curve()
    unit = dict(zip(problem.space.labels, problem.unit_labels(), strict=True)).get(name.partition("[")[0], "")
    notes = [f"{scan.stalled} refits stalled at the limit of rounding."] if scan.stalled else []
    if scan.start in scan.ends:
        notes.append(
            f"{name} is at a bound, where its interval is cut: it holds the truth at least as often as it says."
        )
    return Profile(
        name=name,
        level=level,
        estimate=scan.value_at(scan.start),
        lower=ends[0].value,
        upper=ends[1].value,
        open=(ends[0].open, ends[1].open),
        values=values,
        rises=rises,
        target=0.5 * quantile**2,
        unit=unit,
        note=" ".join(notes),
    )


def _refitter(problem: Problem, solver: Any) -> Solver:
    if solver is not None:
        return as_solver(solver)
    # rises are compared with numbers near 1, whatever the size of the objective itself
    return as_solver("lm") if of_residuals(problem.objective) else as_solver("lbfgsb", ftol=1e-14, gtol=1e-8)


@dataclass(frozen=True)
class _End:
    z: float
    value: float
    open: bool


@dataclass(eq=False)
class _Scan:
    """Refits along one coordinate of a problem. known: what each place gave, the root of its rise and its answer."""

    problem: Problem
    best: Result
    index: int
    refits: FitSeries
    z: np.ndarray
    width: float  # standard error of the coordinate
    variance: float
    known: dict[float, tuple[float, Any]] = field(default_factory=dict)
    stalled: int = 0

    @classmethod
    def at(cls, problem: Problem, result: Result, index: int, solver: Solver, mesh: Any) -> "_Scan":
        bars = error_bars(problem, result, mesh=mesh)
        if bars.stderr is None:
            raise ValueError(f"profile: the result is not at a minimum. {bars.note}")
        scaled = of_residuals(problem.objective) and not normalised(problem.objective)
        z = problem.space.host_z(result.params)
        z = z if problem.box is None else np.clip(z, *problem.box)  # an answer at its bound may miss it by rounding
        slope = jax.jvp(problem.space.unpack, (z,), (np.eye(z.size, dtype=z.dtype)[index],))[1]
        steepest = float(np.abs(problem.space.free(slope)).max(initial=0))
        error = float(problem.space.free(bars.stderr)[index])
        width = error / steepest if steepest > 0 else np.inf
        refits = FitSeries(solver=solver, mesh=mesh, progress=False)
        scan = cls(problem, result, index, refits, z, width, (bars.reduced_chi2 or 1.0) if scaled else 1.0)
        if not (np.isfinite(width) and width > 0):
            scan.width = 0.1 * max(1.0, abs(float(z[index])))
        scan.known[scan.start] = 0.0, result.params
        return scan

    @property
    def start(self) -> float:
        return float(self.z[self.index])

    @property
    def ends(self) -> tuple[float, float]:
        box = self.problem.box
        return (-np.inf, np.inf) if box is None else (float(box[0][self.index]), float(box[1][self.index]))

    def value_at(self, place: float) -> float:
        """Return the parameter's number at a coordinate."""
        moved = self.z.copy()
        moved[self.index] = place
        return float(self.problem.space.free(self.problem.space.host_params(moved))[self.index])

    def root(self, place: float) -> float:
        """Return √(2·rise) with the coordinate held at a place, all others fitted again."""
        if place not in self.known:
            nearest = min(self.known, key=lambda other: abs(other - place))
            result = self._refit(place, self.known[nearest][1])
            rise = (result.value - self.best.value) / self.variance
            if rise < -LOWER:
                raise ValueError(
                    f"profile: a refit is {-rise:.3g} below the fit it starts from: that was not the lowest minimum. "
                    f"Fit again from {jax.tree.map(lambda leaf: np.round(leaf, 6), result.params)} first."
                )
            self.known[place] = float(np.sqrt(2 * max(rise, 0.0))), result.params
        return self.known[place][0]

    def _refit(self, place: float, warm: Any) -> Result:
        """Fit with the coordinate held, from a neighbour's answer, and once more from the best fit's."""
        for start in (warm, self.best.params):
            result = self.refits.fit(self._held(place, start), certify=False)
            if self.refits.interrupted:
                raise KeyboardInterrupt
            if result.status.converged or result.status in (Status.STALLED, Status.COMPLETED):
                self.stalled += result.status is Status.STALLED
                return result
        label = self.problem.space.coordinate_labels()[self.index]
        raise RuntimeError(f"profile: the refit with {label} = {self.value_at(place):g} failed: {result.message}")

    def _held(self, place: float, start: Any) -> Problem:
        space = self.problem.space
        z = np.array(space.host_z(start))
        z = z if self.problem.box is None else np.clip(z, *self.problem.box)
        z[self.index] = place
        chosen = space.spread_out(np.arange(z.size) == self.index)
        masks = [
            space.held_at(i) | np.asarray(leaf, bool).reshape(space.shapes[i])
            for i, leaf in enumerate(jax.tree.leaves(chosen))
        ]
        tree = jax.tree.structure(self.problem.x0)
        return replace(self.problem, x0=space.host_params(z), fixed=tree.unflatten(masks))

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return values in ascending order and rises."""
        values = np.array([self.value_at(place) for place in self.known])
        rises = np.array([0.5 * root**2 for root, _ in self.known.values()])
        order = np.argsort(values)
        return values[order], rises[order]


def _end(scan: _Scan, quantile: float, side: int) -> _End:
    """Return where the root of the rise reaches a quantile: secant steps, kept inside the bracket once there is one."""
    limit = scan.ends[0 if side < 0 else 1]
    if limit == scan.start:  # the answer is at its bound: on this side there is nothing to follow
        return _End(limit, scan.value_at(limit), True)
    inner, outer = (scan.start, 0.0), None
    place = scan.start + side * quantile * scan.width
    for _ in range(STEPS):
        place = max(place, limit) if side < 0 else min(place, limit)
        root = scan.root(place)
        if abs(root - quantile) <= CLOSE * quantile:
            return _End(place, scan.value_at(place), False)
        if root < quantile:
            gone, slope = abs(place - scan.start), (root - inner[1]) / abs(place - inner[0])
            inner = place, root
            if place == limit or (outer is None and slope * gone * FLAT < quantile - root):
                return _End(place, scan.value_at(limit), True)
            place += side * min(1.02 * (quantile - root) / slope if slope > 0 else np.inf, (GROWTH - 1) * gone)
        else:
            outer = place, root
        if outer is not None:
            share = (quantile - inner[1]) / (outer[1] - inner[1])
            place = inner[0] + float(np.clip(share, 0.05, 0.95)) * (outer[0] - inner[0])
    name = scan.problem.space.coordinate_labels()[scan.index]
    raise RuntimeError(f"profile: no end of {name} after {STEPS} refits: its curve is not smooth. Try another solver.")
