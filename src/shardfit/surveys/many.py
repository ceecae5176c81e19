"""fit_many: thousands of small data sets, each fitted by itself, in the slots of a survey and without a ledger."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from shardfit.check.certificate import Certificate, certify_answer
from shardfit.check.certificate import certify as certify_start
from shardfit.core.current import at_work
from shardfit.core.functions import shared_problem
from shardfit.core.gram import gram
from shardfit.core.loaded_programs import release_compiled_programs
from shardfit.core.mesh import RUNS, n_shards, replicate, spans_processes
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.io.compile_cache import programs_kept
from shardfit.solve.capabilities import require
from shardfit.solve.covariance import errors_at
from shardfit.solve.registry import as_solver
from shardfit.solve.step import StepSolver
from shardfit.surveys.engine import Engine
from shardfit.surveys.fits import Fits, Sheet
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.sets import Sets, read_sets
from shardfit.surveys.variants import bind

NUMBERS = 1 << 20  # residuals and derivatives that all slots have at once: they stay in a core's cache
FEWEST, MOST = 16, 512  # slots
ERRORS_AT_ONCE = 1024  # sets
CERTIFIED = 3  # answers, of as many sets


@programs_kept()
def fit_many(
    problem: Problem,
    rows: Mapping[str, Any],
    x0: Any = None,
    *,
    solver: Any = "lm",
    slots: int | None = None,
    mesh: Any = None,
    seed: int = 0,
    certify: bool = True,
    **options: Any,
) -> Fits:
    """Fit one model to many data sets, each by itself, many at a time; return all answers and errors stacked.

    Parameters
    ----------
    problem
        of any one of the sets.
    rows
        by term, either a dict of entries with the sets as leading axis, {"data": {"y": (sets, n)}}, where entries that
        are left out are those of the problem, the same for all sets; or a list with the rows of each set, which may
        have different lengths.
    x0
        parameters like the problem's with the sets as leading axis; None: the problem's start for all.
    solver, options
        any solver of one evaluation per step, and its options.
    slots
        fits that share every evaluation; None: as many as a cache holds.
    mesh
        devices to split the slots over, such as `mesh(rows=1, runs=4)`.
    seed
        of all random numbers.
    certify
        check value and gradient on the first set that can be fitted, at its start, and at the answers of some sets.

    A set that cannot be fitted (numbers that are not finite, no rows, no convergence) does not stop the others: its
    status and reason say so, its numbers are NaN unless the fit had reached something, and `failures` lists it.

    Example: `fits = fit_many(problem, {"data": {"y": many_y}}); fits.params["tau"], fits.stderr["tau"]`.

    """
    release_compiled_programs()
    chosen = as_solver(solver, **options)
    require(problem, chosen, "survey")
    assert isinstance(chosen, StepSolver)  # what slots declare
    if n_shards(mesh) > 1 or spans_processes(mesh):
        raise ValueError("fit_many: sets are not split. Use mesh(rows=1, runs=...) with the devices of this process.")
    problem = shared_problem(problem)
    with at_work(problem, chosen):
        sets = read_sets(problem, rows, x0)
        sheet = Sheet(problem, chosen, sets)
        good = [i for i, wrong in enumerate(sets.wrong) if not wrong]
        start = None
        if certify and chosen.differentiates and good and problem.space.size:
            start = certify_start(sets.problem_of(good[0]), seed=seed, gram=chosen.needs == "gram")
        for group in sets.groups(good):
            family = _Family(sets.problem_of(group[0], like=group), group, sets)
            _fit(Engine(family, chosen, _slots(family, slots, mesh), mesh, seed, scaled=chosen.scaled), sheet)
        if start is not None:
            sheet.certificate = _certified(start, sets, sheet, seed)
        return sheet.fits()


@dataclass(frozen=True, eq=False)
class _Family:
    """Sets of one shape. problem: of the first of them, padded as all are; group: their numbers."""

    problem: Problem
    group: np.ndarray
    sets: Sets

    @property
    def precision(self) -> str:
        return self.problem.precision

    def leaves_of(self, point: Mapping[str, Any]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        i = point.get("set", self.group[0])
        return self.sets.leaves_of(i, self.group), self.sets.starts[i]

    def placed(self, mesh: Any) -> Objective:
        objective = self.problem.objective
        return replicate(Objective(objective.terms, objective.names, mesh, objective.precision), mesh)

    def places(self, placed: Objective) -> tuple[int, ...]:
        return self.sets.places


def _slots(family: _Family, slots: int | None, mesh: Any) -> int:
    runs = 1 if mesh is None else mesh.shape.get(RUNS, 1)
    if slots is None:
        rows = sum(family.problem.objective.n_rows.values())
        slots = min(max(NUMBERS // (rows * (family.problem.space.size + 1)), FEWEST), MOST, len(family.group))
    if slots < 1:
        raise ValueError(f"fit_many: slots={slots} must be at least 1.")
    return -(-slots // runs) * runs


def _fit(engine: Engine, sheet: Sheet) -> None:
    """Fit the sets of a family and write them, with their errors, into the sheet."""
    family = engine.variants
    assert isinstance(family, _Family)
    points = [SurveyPoint(int(i), {"set": int(i)}) for i in family.group]
    with closing(engine.run(points)) as batches:
        for ended in batches:
            for point in ended:
                sheet.write(point)
    there = np.array([i for i in family.group if sheet.finite(i)], int)
    if not len(there) or not sheet.with_errors:
        return
    objective, places = family.placed(None), family.sets.places
    for some in _blocks(there):
        leaves = [family.sets.leaves_of(i, family.group) for i in some]
        stacked = tuple(np.stack(each) for each in zip(*leaves, strict=True))
        bound = sheet.bound[some] if family.problem.box is not None else None
        here = _errors(family.problem.space, places, objective, stacked, sheet.z[some], bound, sheet.scale)
        sheet.write_errors(some, jax.device_get(here))


def _blocks(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks of one length, the last filled up with copies: another length would be compiled anew."""
    size = min(ERRORS_AT_ONCE, 1 << int(np.ceil(np.log2(len(numbers)))))
    for start in range(0, len(numbers), size):
        some = numbers[start : start + size]
        yield np.append(some, np.full(size - len(some), some[-1]))


@partial(jax.jit, static_argnums=(0, 1))
def _errors(space: Any, places: tuple, objective: Objective, leaves: tuple, z: Any, bound: Any, scale: Any) -> Any:
    def one(leaves, z, bound):
        return errors_at(gram, space, bind(objective, places, leaves), None, z, bound, scale)

    return jax.vmap(one)(leaves, z, bound)


def _certified(start: Certificate, sets: Sets, sheet: Sheet, seed: int) -> Certificate:
    """Return the certificate of the start with the worst of some answers."""
    ended = sheet.converged()
    for i in ended[np.linspace(0, len(ended) - 1, min(CERTIFIED, len(ended))).astype(int)]:
        start = certify_answer(sets.problem_of(i), start, sheet.z[i], seed=seed)
    return replace(start, points=tuple(dict.fromkeys(start.points)))
