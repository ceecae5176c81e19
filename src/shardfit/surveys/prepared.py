"""A survey before it runs: what varies, the design, the solver, and the heading by which its ledger is known again."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from shardfit.check.identity import identity, of_value
from shardfit.core.current import working_on_it
from shardfit.core.mesh import spans_processes
from shardfit.core.params import label_of
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.solve.step import StepSolver
from shardfit.surveys.axes import Axis, check_axes
from shardfit.surveys.designs import Design, grid
from shardfit.surveys.engine import Engine
from shardfit.surveys.halving import Halving
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import LEDGER, Ledger
from shardfit.surveys.picture import Picture
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.solvers import Solvers, check_solvers, require_to_go_on, solvers_of
from shardfit.surveys.sweep import Parents, parents_of, turns_of
from shardfit.surveys.variants import Variants, variants

LEFT_OUT = "values of axis {!r} that could not be made"  # as a heading calls them


@dataclass(frozen=True, eq=False)
class Prepared:
    """A survey before it runs: variants, design, solver, and the heading of its ledger."""

    variants: Variants
    design: Design
    solver: StepSolver
    solvers: Solvers
    seed: int
    mesh: Any
    picture: Picture | None
    halving: Halving | None
    parents: Parents
    polish: int
    heading: Heading

    @classmethod
    def make(
        cls,
        problem: Problem,
        axes: Mapping[str, Axis],
        *,
        design: Design | None = None,
        solver: Any = "lbfgs",
        seed: int = 0,
        mesh: Any = None,
        picture: Picture | None = None,
        halving: Halving | None = None,
        sweep: str | None = None,
        polish: int = 0,
        left_out: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        **options: Any,
    ) -> "Prepared":
        """Check everything and return what can run; the arguments are those of `survey`.

        left_out: values of axes that could not be made when the survey began.
        """
        solvers = solvers_of(problem, solver, options, axes)
        chosen = solvers.make()
        check_axes(problem, axes)
        if isinstance(polish, bool) or not isinstance(polish, int) or polish < 0:
            raise TypeError(f"survey: polish={polish!r} must be a number of steps in float64; 0: none.")
        require_to_go_on(chosen, halving=halving, sweep=sweep, polish=polish)
        if spans_processes(mesh):
            raise ValueError("survey: the mesh spans several processes. Give each its own points: survey_parts.")
        made = variants(problem, axes, mesh, left_out)
        design = grid(axes) if design is None else design
        if set(design.names) != set(axes):
            raise ValueError(f"survey: the design is of {design.names}, the axes are {tuple(axes)}. Make them agree.")
        check_solvers(solvers, design)
        if solvers.options and (halving is not None or sweep in solvers.options):
            raise ValueError(
                "survey: options of the solver as axes go neither with halving, which ranks all points together, nor "
                "with a sweep along them."
            )
        parents = parents_of(design, sweep)
        more = {"halving": halving, "sweep": sweep, "polish": polish}
        heading = _heading(made, design, chosen, seed, picture, more, left_out)
        if halving is not None:
            halving.check(heading.parts)
            if sweep is not None:
                raise ValueError(f"survey: sweep={sweep!r} does not go with halving, which starts all points together.")
        return cls(made, design, chosen, solvers, seed, mesh, picture, halving, parents, polish, heading)

    def missing(self, ledger: Ledger, tried: Mapping[int, int]) -> list[int]:
        """Return the numbers of the points to run, line by line where they start from each other.

        tried: failed ones to run again, and how often they were tried.
        """
        failed = ledger.attempts()
        there = {i for i in ledger.ids() if i not in tried or failed.get(i, np.inf) > tried[i]}
        turns = turns_of(self.parents)
        return sorted((i for i in range(len(self.design)) if i not in there), key=lambda i: (turns[i], i))

    def start_from(self, record: SurveyPoint, *, lift: bool = True) -> np.ndarray | None:
        """Return the coordinates where a finished point ended, to begin there; None for one that failed."""
        if record.failed:
            return None
        leaves = list(self.heading.unpack(record.params).values())
        return self.variants.warm(jax.tree.structure(self.variants.problem.x0).unflatten(leaves), lift=lift)

    def in_double(self) -> "Prepared":
        """Return the same in float64, of the same numbers."""
        problem, axes = self.variants.problem.replace(precision="float64"), self.variants.axes
        return replace(self, variants=variants(problem, axes, self.mesh))

    def point(self, number: int, tried: Mapping[int, int]) -> SurveyPoint:
        """Return a point to run; tried: how often some have failed before."""
        return SurveyPoint(number, self.design[number], attempt=1 + tried.get(number, 0))

    def engine(self, made: Variants, solver: StepSolver) -> Engine:
        """Return what runs points with a solver."""
        return Engine(made, solver, 1, self.mesh, self.seed, self.picture, scaled=solver.scaled)


@working_on_it
def _heading(
    made: Variants, design: Design, solver: StepSolver, seed: int, picture, more: Mapping, left_out: Mapping
) -> Heading:
    problem = made.problem
    parts = jax.eval_shape(lambda o, p, k: o.parts(p, k), problem.objective, problem.x0, jax.random.key(0))
    labels = [label_of(path) or "x" for path, _ in jax.tree_util.tree_flatten_with_path(problem.x0)[0]]
    shapes = [tuple(np.shape(leaf)) for leaf in jax.tree.leaves(problem.x0)]
    params = dict(zip(labels, shapes, strict=True))
    shown = {} if picture is None else picture.described(params, problem.x0)
    known, drawn = identity(problem, solver, seed), of_value("picture", picture)
    asked = {
        **known.facts,
        **drawn.facts,
        "solver's maxiter": solver.maxiter,  # a point that has ended is not continued
        "design": hashlib.sha256(repr((design.names, design.points)).encode()).hexdigest(),
        # what an axis does: a survey is not continued with another prior under an old name
        **{f"axis {name!r}": made.digests[name] for name in made.axes},
        **_left_out(made, left_out),
        **{name: repr(value) for name, value in more.items()},
    }
    return Heading(
        name=problem.name,
        total=len(design),
        axes={name: axis.unit for name, axis in made.axes.items()},
        parts=tuple(parts),
        params=params,
        dtype=np.dtype(PRECISIONS[problem.precision]).name,
        asked=asked,
        unidentified=known.unidentified + drawn.unidentified,
        weighted=made.weighted,
        **shown,
    )


def _left_out(made: Variants, earlier: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return for every axis which values could not be made: their points fail, and they are in no digest."""
    told = {}
    for name, axis in made.axes.items():
        found = [v for v in axis.values if v in earlier.get(name, ()) or v in made.unmade.get(name, ())]
        if found:
            told[LEFT_OUT.format(name)] = found
    return told


def left_out_of(run_dir: str | Path) -> dict[str, list[Any]]:
    """Return the values by axis that could not be made when the survey of a folder began; none without a survey."""
    path = Path(run_dir) / LEDGER
    if not path.is_file() or not path.stat().st_size:  # its maker may have ended in its first instant
        return {}
    with Ledger.open(run_dir, read_only=True) as ledger:
        asked = ledger.heading.asked
        kinds = {name: asked.get(LEFT_OUT.format(name)) for name in ledger.heading.axes}
    return {name: values for name, values in kinds.items() if isinstance(values, list)}
