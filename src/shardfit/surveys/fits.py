"""What `fit_many` returns: answers of all sets stacked, and what became of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from shardfit.check.certificate import Certificate
from shardfit.core.mesh import layout
from shardfit.core.objective import normalised
from shardfit.core.params import label_of
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.robust_terms import is_robust
from shardfit.core.status import Status
from shardfit.core.success import chi2_doubt, decide
from shardfit.core.terms import RowTerm
from shardfit.solve.covariance import of_residuals, uncounted
from shardfit.solve.step import StepSolver
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.sets import Sets

FAR = 0.1  # standard errors from the minimum that an answer may be
SMALL = 1e-6  # change of a parameter, relative, that is rounding
SHOWN = 5  # failures that a summary names


@dataclass(frozen=True, eq=False, repr=False)
class Fits:
    """Answers of many fits; all arrays have the sets as leading axis. `fits[i]` is the Result of one of them.

    params: pytree like x0; value: (sets,); stderr: pytree like params and covariance: (sets, p, p), None where the
    objective is not made of residuals. dof: residuals less free parameters. status: of each; reasons: why its answer
    should not be trusted, '' if nothing speaks against it; at_bound: names of the numbers that a bound stopped.
    """

    params: Any
    value: np.ndarray
    stderr: Any
    covariance: np.ndarray | None
    dof: np.ndarray | None
    status: tuple[Status, ...]
    reasons: tuple[str, ...]
    at_bound: tuple[tuple[str, ...], ...]
    steps: np.ndarray
    evaluations: np.ndarray
    parts: dict[str, np.ndarray]
    problem: str
    solver: str
    precision: str
    units: dict[str, str]
    doubts: tuple[tuple[str, ...], ...]
    certificate: dict | None = None
    note: str = ""

    @property
    def success(self) -> np.ndarray:
        """Whether a tolerance was met and nothing speaks against the answer, (sets,)."""
        return np.array([not reason for reason in self.reasons], bool)

    @property
    def failures(self) -> dict[int, str]:
        """Why the answer should not be trusted, by number of the set."""
        return {i: reason for i, reason in enumerate(self.reasons) if reason}

    @property
    def reduced_chi2(self) -> np.ndarray | None:
        """Sum of squared residuals over the degrees of freedom, (sets,); NaN where there are none."""
        return None if self.dof is None else 2 * self.value / np.where(self.dof > 0, self.dof, np.nan)

    def __len__(self):
        return len(self.value)

    def __iter__(self) -> Iterator[Result]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Result:
        def of(tree):
            return jax.tree.map(lambda leaf: leaf[i], tree)

        status, reason = self.status[i], self.reasons[i]
        return Result(
            params=of(self.params),
            value=float(self.value[i]),
            parts={name: float(part[i]) for name, part in self.parts.items()},
            status=status,
            solver=self.solver,
            steps=int(self.steps[i]),
            evaluations=int(self.evaluations[i]),
            history={},
            timings={},
            layout=layout(None),
            problem=f"{self.problem}, set {range(len(self))[i]}",
            precision=self.precision,
            note=" ".join(filter(None, (self.note, reason if status is Status.FAILED else ""))),
            certificate=self.certificate,
            covariance=None if self.covariance is None else self.covariance[i],
            stderr=None if self.stderr is None else of(self.stderr),
            dof=None if self.dof is None else int(self.dof[i]),
            units=self.units,
            doubts=self.doubts[i],
            at_bound=self.at_bound[i],
        )

    def __str__(self):
        failures = self.failures
        lines = [f"{self.problem}: {len(self) - len(failures):,} of {len(self):,} sets fitted ({self.solver})"]
        for name, leaf in _named(self.params).items():
            middle = np.nanmedian(leaf[self.success], axis=0) if self.success.any() else np.nan
            lines.append(f"  {name}: median {np.array2string(np.asarray(middle), precision=4, threshold=8)}")
        lines += [f"  set {i}: {reason}" for i, reason in list(failures.items())[:SHOWN]]
        if len(failures) > SHOWN:
            lines.append(f"  and {len(failures) - SHOWN:,} more in .failures")
        return "\n".join(lines)

    def __repr__(self):
        return str(self)  # its arrays would fill the screen


def _named(params: Any) -> dict[str, np.ndarray]:
    return {label_of(path) or "x": leaf for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]}


class Sheet:
    """Where answers are written as they come; what is not written stays NaN, and FAILED."""

    def __init__(self, problem: Problem, solver: StepSolver, sets: Sets):
        self.problem, self.solver, self.sets = problem, solver, sets
        objective, n, space = problem.objective, len(sets), problem.space
        dtype = PRECISIONS[problem.precision]
        self.absolute = getattr(solver, "absolute_sigma", None)
        if self.absolute is None:
            self.absolute = normalised(objective)
        self.scale = not self.absolute and not is_robust(objective)
        self.squares = of_residuals(objective)
        self.with_errors = self.squares and not (self.scale and uncounted(objective)) and space.size > 0
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(problem.x0))
        self.z = np.full((n, space.size), np.nan, dtype)
        self.bound = np.zeros((n, space.size), bool)
        self.flat = np.full((n, size), np.nan, dtype)
        self.value = np.full(n, np.nan)
        self.parts: dict[str, np.ndarray] = {}
        self.status = [Status.FAILED] * n
        self.steps, self.evaluations = np.zeros(n, int), np.zeros(n, int)
        self.stderr, self.covariance = np.full((n, size), np.nan, dtype), np.full((n, size, size), np.nan, dtype)
        self.dof, self.far = np.zeros(n, int), np.zeros(n)
        self.certificate: Certificate | None = None

    def write(self, point: SurveyPoint) -> None:
        """Write where a set's fit ended."""
        i, box = point.id, self.problem.box
        assert point.z is not None
        self.status[i], self.value[i] = Status[point.status], point.value
        self.steps[i], self.evaluations[i], self.z[i] = point.steps, point.evaluations, point.z
        self.flat[i] = np.frombuffer(point.params, self.flat.dtype)
        for name, part in point.parts.items():
            self.parts.setdefault(name, np.full(len(self.value), np.nan))[i] = part
        if box is not None:
            self.bound[i] = (point.z <= box[0]) | (point.z >= box[1])

    def write_errors(self, some: np.ndarray, here: Any) -> None:
        """Write the errors of some sets, which may be named twice."""
        self.dof[some], self.far[some] = here.dof, here.distance
        self.covariance[some], self.stderr[some] = here.errors.matrix, here.errors.stderr

    def finite(self, i: int) -> bool:
        """Return whether there is an answer to give errors of."""
        return bool(np.isfinite(self.value[i]) and np.isfinite(self.z[i]).all())

    def converged(self) -> np.ndarray:
        """Return the numbers of the sets that met a tolerance."""
        return np.flatnonzero([status.converged for status in self.status])

    def fits(self) -> Fits:
        """Return all that was written."""
        problem, labels = self.problem, np.array(self.problem.space.coordinate_labels())
        at_bound = [tuple(labels[here]) if here.any() else () for here in self.bound]
        doubts = [(*each, *self._far_doubt(i)) for i, each in enumerate(self._doubts())]
        reasons = [self._reason(i, doubts[i], at_bound[i]) for i in range(len(self.value))]
        note = ""
        if not self.with_errors and problem.space.size:
            note = "No standard errors: use error_bars on the problem of a set."
        return Fits(
            params=self._tree(self.flat),
            value=self.value,
            stderr=self._tree(self.stderr) if self.with_errors else None,
            covariance=self.covariance if self.with_errors else None,
            dof=self.dof if self.with_errors else None,
            status=tuple(self.status),
            reasons=tuple(reasons),
            at_bound=tuple(at_bound),
            steps=self.steps,
            evaluations=self.evaluations,
            parts=self.parts,
            problem=problem.name,
            solver=self.solver.describe(),
            precision=problem.precision,
            units=dict(zip(problem.space.labels, problem.unit_labels(), strict=True)),
            doubts=tuple(doubts),
            certificate=None if self.certificate is None else self.certificate.to_dict(),
            note=note,
        )

    def _tree(self, flat: np.ndarray) -> Any:
        leaves, tree = jax.tree.flatten(self.problem.x0)
        pieces = np.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
        return tree.unflatten([piece.reshape(-1, *leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)])

    def _doubts(self) -> list[tuple[str, ...]]:
        """Return what is odd about χ² of each set, where errors of the data are known."""
        terms = {name: t for name, t in self.problem.objective.items() if isinstance(t, RowTerm)}
        n = len(self.value)
        if not (self.absolute and terms and all(t.least_squares and t.counted for t in terms.values())):
            return [()] * n
        chi2 = 2 * sum(part for name, part in self.parts.items() if name.partition(".")[0] in terms)
        residuals = np.zeros(n, int)
        for name, term in terms.items():
            each = int(term.n_residuals(self.problem.x0))
            counts = self.sets.counts.get(name)
            residuals += each if counts is None else each // term.n_rows * counts
        dof = residuals - np.sum(~self.bound, axis=1)
        each = zip(np.broadcast_to(chi2, n), dof, strict=True)
        told = [chi2_doubt(float(c), int(d)) if np.isfinite(c) else "" for c, d in each]
        return [(doubt,) if doubt else () for doubt in told]

    def _far_doubt(self, i: int) -> tuple[str, ...]:
        """Return a doubt where Newton's step is long, of solvers that do not take such steps themselves."""
        if self.solver.needs == "gram" or not FAR < self.far[i] < np.inf:
            return ()
        moved = self.far[i] * np.where(np.isfinite(self.stderr[i]), self.stderr[i], 0)
        if not np.any(moved > SMALL * np.abs(self.flat[i])):
            return ()
        return (f"The answer lies {self.far[i]:.2g} standard errors from the minimum: take solver 'lm'.",)

    def _reason(self, i: int, doubts: tuple[str, ...], at_bound: tuple[str, ...]) -> str:
        """Return why the answer of a set should not be trusted, '' if nothing speaks against it."""
        if self.sets.wrong[i]:
            return self.sets.wrong[i]
        not_numbers = [] if np.isfinite(self.value[i]) else ["the value"]
        lost = []
        if self.with_errors and np.isinf(self.stderr[i]).any():
            lost = [name for name, error in _named(self._tree(self.stderr[i : i + 1])).items() if np.isinf(error).any()]
        verdict = decide(self.status[i], doubts, not_numbers=not_numbers, undetermined=lost, at_bound=at_bound)
        return " ".join(verdict.reasons)
