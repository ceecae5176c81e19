"""Randomise, then optimise: draws of a posterior as refits of perturbed data and priors, in survey slots."""

import shutil
import time
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from shardfit.check.identity import Identity, identity
from shardfit.core.current import at_work
from shardfit.core.errors import suggestion
from shardfit.core.mesh import RUNS, layout
from shardfit.core.problem import Problem
from shardfit.core.robust_terms import RobustTerm
from shardfit.core.status import Status
from shardfit.core.transforms import Identity as Untransformed
from shardfit.io.run_dir import RunDir, opened
from shardfit.sampling.density import caveats, sampled
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.psis import LARGEST_K, smoothed
from shardfit.sampling.refits.frame import Frame, find_frame, points_of
from shardfit.sampling.refits.hyper import weigh
from shardfit.sampling.refits.perturb import DRAW, MOST, SOLVED, Perturbed, log_weights, projection, refits
from shardfit.sampling.store import save_posterior
from shardfit.solve.covariance import count_residuals
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import Design
from shardfit.surveys.engine import Engine
from shardfit.surveys.ledger import points_finished
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.run import survey
from shardfit.surveys.variants import variants

WEIGHED = 200  # coordinates up to which draws get weights unless told otherwise: each costs as many derivatives
LARGEST_BASIS = 1 << 24  # numbers of the tangent basis, residuals by coordinates, up to which likewise
CHANCES = 2  # times that a refit which has not converged is tried again
MOST_LOST = 0.5  # share of refits without an answer beyond which there is no posterior


@dataclass(frozen=True)
class FrameLBFGS(LBFGS):
    """L-BFGS in the frame's own coordinates, whose unit is a standard deviation."""

    scaled: ClassVar[bool] = False


@dataclass(frozen=True)
class RefitOptions:
    """Options of `sample(problem, "rto")`.

    weights: give draws importance weights, which makes them exact; None: where parameters and residuals are few enough.
    axes: hyper-parameters of the priors as axes of a survey, each combination weighted by its Laplace evidence.
    slots: refits that share a batch, None to choose. maxiter: most steps of a refit.
    """

    weights: bool | None = None
    axes: Any = None
    slots: int | None = None
    maxiter: int = 300

    @classmethod
    def of(cls, options: dict[str, Any]) -> "RefitOptions":
        """Return options by name; raise for a name that is none."""
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(f"sample: method 'rto' has no option {name!r}.{suggestion(name, known)}")
        return cls(**options)

    @property
    def solver(self) -> LBFGS:
        """What refits with: tolerances are in standard deviations, the frame's unit."""
        return FrameLBFGS(maxiter=self.maxiter, gtol=0.0, gatol=1e-4, ftol=1e-13)


class Refitted(NamedTuple):
    """Answers of one problem: coordinates z (draws, n), importance weights as logarithms or None, their Pareto k.

    evaluations: of each draw. lost: how many perturbations have no answer; again: how many were tried again.
    """

    z: np.ndarray
    log_weights: np.ndarray | None
    k: float
    evaluations: np.ndarray
    lost: int
    again: int


def rto(
    problem: Problem,
    *,
    draws: int = 1000,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> Posterior:
    """Sample by perturbed refits; see `sample`, and `RefitOptions` for options.

    Every term must be made of residuals: data with Gaussian errors, Gaussian priors.
    """
    began = time.perf_counter()
    chosen = RefitOptions.of(options)
    if not 1 < draws <= MOST:
        raise ValueError(f"rto: draws={draws} must lie between 2 and {MOST:,}.")
    target = sampled(problem, "rto")
    target.objective.require_least_squares("rto")
    _require_gaussian(target)
    with opened(run_dir) as store, at_work(target):
        known = _identity(target, chosen, seed)
        if store is not None:
            store.begin(target, known, resume, mesh)
            if resume == "never":
                for old in store.path.glob("refits*"):
                    shutil.rmtree(old)
        with TemporaryDirectory() as spare:
            folder = Path(spare) if store is None else store.path
            study = _Study(chosen, mesh, seed, folder, known.digest, progress)
            if chosen.axes is None:
                posterior = _posterior(target, [study.run(target, draws)], [1.0])
            else:
                posterior = _over_hyper(study, target, draws)
        timings = {"total": time.perf_counter() - began}
        posterior = replace(posterior, timings=timings, layout=layout(mesh), seed=seed)
        if store is not None:
            save_posterior(posterior, store.path, store.run)
            store.event("finished", draws=posterior.size)
    return posterior


def _require_gaussian(problem: Problem) -> None:
    """Raise for losses that are not half the squares of residuals: data are perturbed by Gaussian errors."""
    terms = problem.objective.items()
    robust = [f"{name!r} has the loss {term.robust!r}" for name, term in terms if isinstance(term, RobustTerm)]
    if robust:
        raise TypeError(
            f"rto: term {', '.join(robust)}, and perturbed refits draw data with Gaussian errors. Use "
            "sample(problem), which takes any density, or leave the loss out."
        )


def _identity(problem: Problem, chosen: RefitOptions, seed: int) -> Identity:
    known = identity(problem, chosen.solver, seed)
    hyper = {name: axis.values for name, axis in sorted((chosen.axes or {}).items())}
    return replace(known, facts={**known.facts, "weights": str(chosen.weights), "hyper-parameters": str(hyper)})


@dataclass(frozen=True, eq=False)
class _Study:
    """What all refits have in common. folder: holds frames and ledgers; a refit that is there is not made again.
    known: digest of what is computed.
    """

    chosen: RefitOptions
    mesh: Any
    seed: int
    folder: Path
    known: str
    progress: bool | None

    def frame(self, problem: Problem, group: int = 0) -> Frame:
        """Return the frame of a problem, the one that was kept if there is one."""
        return find_frame(problem, self.mesh, self.folder / f"refits-{group:03d}" / "frame.npz", self.known)

    def run(self, problem: Problem, draws: int, group: int = 0) -> Refitted:
        """Return draws of one problem. group: its number among hyper-parameters."""
        frame = self.frame(problem, group)
        seed, basis = (self.seed, group), None
        if self._weighed(problem):
            perturbed, basis = projection(problem, frame, seed)
        else:
            perturbed = refits(problem, frame, seed)
        points = self._first(perturbed, draws, self.folder / f"refits-{group:03d}")
        points, again = self._again(perturbed, points, basis is not None)
        kept = [point for point in points if _ended(point, basis is not None)]
        if len(kept) < max(1, (1 - MOST_LOST) * draws):
            raise RuntimeError(
                f"rto: {draws - len(kept)} of {draws} refits did not converge ({_ways(points)}). Raise maxiter, or "
                "sample with 'nuts': the posterior is far from what the mode shows."
            )
        u = np.stack([np.frombuffer(point.params, frame.center.dtype) for point in kept])
        weights, k = None, -np.inf
        if basis is not None:
            weights, k = smoothed(log_weights(frame, u, problem.objective, basis))
        evaluations = np.array([point.evaluations for point in kept])
        return Refitted(np.asarray(frame.z(u)), weights, k, evaluations, draws - len(kept), again)

    def _weighed(self, problem: Problem) -> bool:
        if self.chosen.weights is not None:
            return self.chosen.weights
        numbers = int(count_residuals(problem.objective, problem.x0)) * problem.space.size
        return problem.space.size <= WEIGHED and numbers <= LARGEST_BASIS

    def _first(self, perturbed: Perturbed, draws: int, folder: Path) -> list[SurveyPoint]:
        """Return the refits of all perturbations, through a ledger."""
        axes = {DRAW: perturbed.axis}
        design = Design((DRAW,), tuple((i,) for i in range(MOST)))
        settings = {"run_dir": folder, "design": design, "solver": self.chosen.solver, "mesh": self.mesh}
        # a design without end: more draws of the same run are more of its points
        missing = max(0, draws - points_finished(folder))
        control = SurveyControl(slots=self.chosen.slots, limit=missing, progress=self.progress)
        with survey(perturbed.problem, axes, control=control, **settings) as found:
            return sorted(found.ledger.records(), key=lambda point: point.id)[:draws]

    def _again(self, perturbed: Perturbed, points: list, projected: bool) -> tuple[list[SurveyPoint], int]:
        """Try refits that have not converged again: first from where they stopped, then from the mode."""
        failed = [point.id for point in points if not _ended(point, projected)]
        points, count = list(points), len(failed)
        made = variants(perturbed.problem, {DRAW: perturbed.axis}, self.mesh)
        for chance in range(CHANCES if failed else 0):
            solver = replace(self.chosen.solver, maxiter=5 * self.chosen.maxiter, memory=30)
            starts = {i: np.frombuffer(points[i].params, perturbed.problem.x0.dtype) * (chance == 0) for i in failed}
            todo = [SurveyPoint(i, {DRAW: i}, z=np.nan_to_num(starts[i])) for i in failed]
            runs = 1 if self.mesh is None else self.mesh.shape.get(RUNS, 1)
            engine = Engine(made, solver, runs * min(16, -(-len(todo) // runs)), self.mesh)
            with closing(engine.run(todo)) as batches:
                for point in (one for batch in batches for one in batch):
                    points[point.id] = replace(point, evaluations=point.evaluations + points[point.id].evaluations)
            failed = [i for i in failed if not _ended(points[i], projected)]
        return points, count


def _ended(point: SurveyPoint, projected: bool) -> bool:
    """Return whether a refit has reached its answer: a projection equals its target there, a refit has converged."""
    if projected:
        return bool(point.value <= SOLVED)
    return Status[point.status].converged and bool(np.isfinite(point.value))


def _ways(points: list[SurveyPoint]) -> str:
    names, counts = np.unique([point.status for point in points], return_counts=True)
    return ", ".join(f"{count} {name}" for name, count in zip(names.tolist(), counts.tolist(), strict=True))


def _over_hyper(study: _Study, problem: Problem, draws: int) -> Posterior:
    """Return draws over hyper-parameters, of each combination as many as its evidence says."""
    hyper = weigh(problem, study.chosen.axes, study.frame, study.mesh)
    parts, shares = [], []
    for number, (own, count) in enumerate(zip(hyper.problems, hyper.counts(draws).tolist(), strict=True)):
        if count:
            parts.append(study.run(own, count, number))
            shares.append(count / draws)
    posterior = _posterior(problem, parts, shares)
    group = np.repeat(np.flatnonzero(hyper.counts(draws)), [len(part.z) for part in parts])
    extra = posterior.extra | hyper.table() | {"hyper_point": group}
    return replace(posterior, extra=extra, note=f"{posterior.note} {hyper.note}".strip())


def _posterior(problem: Problem, parts: list[Refitted], shares: list[float]) -> Posterior:
    """Return a Posterior of independent draws; parts: of each combination of hyper-parameters, with its share."""
    z = np.concatenate([part.z for part in parts])
    # infinite: too few draws of one combination to tell
    weights, k = None, max((part.k for part in parts if part.k < np.inf), default=np.inf)
    own = [s * np.exp(p.log_weights) for p, s in zip(parts, shares, strict=True) if p.log_weights is not None]
    if own:
        weights = np.concatenate(own) / sum(map(np.sum, own))
    values, params = points_of(problem, z)
    extra: dict[str, Any] = {"lost": sum(part.lost for part in parts), "again": sum(part.again for part in parts)}
    extra["independent"] = True
    if weights is not None:
        extra["pareto_k"] = float(k)
    evaluations = np.concatenate([part.evaluations for part in parts])
    return Posterior(
        draws=jax.tree.map(lambda leaf: np.asarray(leaf)[None], params),
        z=z[None],
        stats={"value": values[None], "gradients": evaluations[None]},
        weights=None if weights is None else weights[None],
        method="rto",
        problem=problem.name,
        labels=tuple(problem.space.coordinate_labels()),
        units=dict(zip(problem.space.labels, problem.unit_labels(), strict=True)),
        precision=problem.precision,
        note=" ".join(filter(None, (_in_words(problem, weights is not None, float(k), extra), caveats(problem)))),
        evaluations=int(evaluations.sum()),
        extra=extra,
    )


def _in_words(problem: Problem, weighed: bool, k: float, extra: dict[str, Any]) -> str:
    told = []
    if not weighed:
        told.append("Perturbed refits without weights: exact where the model is linear, approximate where it is not.")
        if not all(isinstance(transform, Untransformed) for transform in problem.space.transforms):
            told.append("The transforms' Jacobian is left out.")
    elif k > LARGEST_K:
        told.append(f"Pareto k {k:.2f}: the weights are unreliable, so the draws are approximate.")
    if extra["again"]:
        told.append(f"{extra['again']} refits were tried again; {extra['lost']} have no answer and are left out.")
    if extra["lost"] and weighed:
        told.append("That is right where the model cannot reach the perturbed data (a bound), and an error elsewhere.")
    elif extra["lost"]:
        told.append("Without them the draws are too narrow: raise maxiter.")
    return " ".join(told)
