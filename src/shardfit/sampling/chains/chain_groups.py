"""Chains of any sampler: from a problem to a posterior, in groups that can be killed, continued and extended."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.check.identity import Identity, identity, of_value
from shardfit.core.current import at_work
from shardfit.core.errors import CheckpointError, NonFiniteError
from shardfit.core.mesh import layout
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.io.files import read_json, write_json
from shardfit.io.run_dir import RunDir, opened
from shardfit.sampling.chains.blocks import Blocks
from shardfit.sampling.chains.chain_solver import ChainSolver
from shardfit.sampling.chains.mams import MAMS, usual_warmup
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.chains.placement import Place, choose_width, measured_width, places, run_groups
from shardfit.sampling.chains.progress import SamplingProgress
from shardfit.sampling.density import caveats, parameters_of, sampled
from shardfit.sampling.landscape import Landscape
from shardfit.sampling.modes import shares
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.outside import MOST, mass_outside
from shardfit.sampling.start import FIT, Start, find_start, read_start, write_start
from shardfit.sampling.store import save_posterior
from shardfit.solve.base import Task, check_options
from shardfit.solve.loop import run_steps
from shardfit.solve.monitor import Monitor

LAYOUT = "layout.json"
IN_MEMORY = Identity({})  # of a run that leaves nothing by which another could take it for its own


def nuts(problem: Problem, **options: Any) -> Posterior:
    """Sample by NUTS; options as for `by_chains`, and those of the class."""
    return by_chains(problem, NUTS, **options)


def mams(problem: Problem, **options: Any) -> Posterior:
    """Sample by MAMS; options likewise. The usual warm-up depends on the number of coordinates."""
    if isinstance(problem, Problem) and "warmup" not in options:
        options["warmup"] = usual_warmup(problem.space.size)
    return by_chains(problem, MAMS, **options)


def by_chains(
    problem: Problem,
    sampler: type[ChainSolver],
    *,
    draws: int = 1000,
    chains: int = 4,
    width: int | str | None = None,
    start: Any = FIT,
    mesh: Any = None,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    seed: int = 0,
    progress: bool | None = None,
    chosen: str = "",
    **options: Any,
) -> Posterior:
    """Sample by chains of a class of samplers; see `sample`.

    chains: independent chains. width: how many share a batch, 'measure' to find out. start: 'fit' begins in the modes,
    'x0' around x0; or points, parameters with an axis of chains before their own. chosen: why this sampler, where the
    library has chosen. options: of the class.
    """
    if not (isinstance(sampler, type) and issubclass(sampler, ChainSolver)):
        raise TypeError(f"sample: {sampler!r} is no sampler by chains: derive it from ChainSolver, or name a method.")
    began = time.perf_counter()
    check_options(sampler.name, sampler, options)
    whole = sampler(chains=chains, draws=draws, **options)
    target = sampled(problem)
    with opened(run_dir) as store, at_work(target):
        study = Study.prepare(target, whole, (width, start, seed), mesh, store, resume)
        folder = store.path if store is not None and store.writes else None
        labels = target.space.coordinate_labels()
        with SamplingProgress(target.name, whole, study.groups, progress, folder, labels) as show:
            results = run_groups(partial(study.run, show), study.groups, places(mesh, study.groups))
        posterior = study.posterior(results, mesh)
        timings = posterior.timings | {"total": time.perf_counter() - began}
        posterior = replace(posterior, timings=timings, note=" ".join(filter(None, (posterior.note, chosen))))
        if store is not None and store.writes:
            save_posterior(posterior, store.path, study.known.digest)
            store.event("finished", draws=int(posterior.size))
    return posterior


def _width(
    problem: Problem, chains: int, given: int | str | None, mesh: Any, store: RunDir | None, resume: str
) -> tuple[int, str]:
    """Return how many chains share a batch, and why: as given, as an earlier call decided, or chosen now."""
    earlier = None if store is None or resume == "never" else store.path / LAYOUT
    if isinstance(given, int):
        if given < 1 or chains % given:
            raise ValueError(f"sample: width={given} must divide the {chains} chains.")
        return given, f"{given} chains in a batch, as given"
    if earlier is not None and earlier.exists():
        try:
            content = read_json(earlier)
        except ValueError as error:
            raise CheckpointError(f"{error} Give width=..., or start over with resume='never'.") from None
        return content["width"], content["why"]
    if given not in (None, "measure"):
        raise ValueError(f"sample: width={given!r} must be a number of chains, or 'measure'.")
    return (choose_width if given is None else measured_width)(problem, chains, mesh)


def _start(problem: Problem, mesh: Any, seed: int, how: Any, store: RunDir | None, resume: str, known: tuple) -> Start:
    """Return where chains begin; kept, so that a run goes on as it began whatever the devices. known: digest of the
    run, and how many chains.
    """
    run, chains = known
    path = None if store is None else store.path / "start.npz"
    kept = None if path is None or resume == "never" else read_start(path, run)
    if kept is not None:
        return kept
    found = find_start(problem, mesh, seed, how).for_chains(chains, seed)
    if path is not None and store is not None and store.writes:  # of several processes one writes
        write_start(path, found, run)
    return found


def _identity(problem: Problem, solver: ChainSolver, chains: int, start: Any, seed: int) -> Identity:
    """Return what must be equal for draws to be the same; how many are drawn is not part of it."""
    known = identity(problem, replace(solver, draws=1), seed)
    facts = {**known.facts, "chains": str(chains)}
    if isinstance(start, str):
        return replace(known, facts={**facts, "start": facts["start"] + start})
    return replace(known, facts={**facts, **of_value("points of chains", start).facts})


@dataclass(frozen=True, eq=False)
class Study:
    """What all groups of chains have in common. solver: of one group; why: so many chains share a batch."""

    problem: Problem
    solver: ChainSolver
    groups: int
    start: Start
    known: Identity
    seed: int
    store: RunDir | None
    why: str

    @classmethod
    def prepare(
        cls, problem: Problem, whole: ChainSolver, choices: tuple, mesh: Any, store: RunDir | None, resume: str
    ) -> "Study":
        """Decide the layout, find the start, and take the run directory. choices: width, start and seed, as given."""
        width, start, seed = choices
        together, why = _width(problem, whole.chains, width, mesh, store, resume)
        solver = replace(whole, chains=together)
        known = IN_MEMORY
        if store is not None:
            known = _identity(problem, solver, whole.chains, start, seed)
            store.begin(problem, known, resume, mesh)
            if resume == "never" and store.writes:
                Blocks(store).clear()
            if store.writes:
                write_json(store.path / LAYOUT, {"width": together, "why": why})
        beginning = _start(problem, mesh, seed, start, store, resume, (known.digest, whole.chains))
        return cls(problem, solver, whole.chains // together, beginning, known, seed, store, why)

    @classmethod
    def joined(cls, problem: Problem, whole: ChainSolver, choices: tuple, store: RunDir) -> "Study":
        """Return a study that another process has prepared in a run directory."""
        _, start, seed = choices
        together, why = _width(problem, whole.chains, None, None, store, "must")
        solver = replace(whole, chains=together)
        known = _identity(problem, solver, whole.chains, start, seed)
        beginning = _start(problem, None, seed, start, store, "must", (known.digest, whole.chains))
        return cls(problem, solver, whole.chains // together, beginning, known, seed, store, why)

    def run(self, show: SamplingProgress | None, number: int, place: Place) -> dict[str, np.ndarray]:
        """Return the draws and statistics of one group, by name; what its folder holds is not drawn again."""
        with at_work(self.problem), place.chosen():
            blocks = Blocks(self.store, number)
            stored = blocks.stored(self.known.digest)
            have = sum(block["z"].shape[1] for block in stored)
            if have < self.solver.draws:
                stored.append(self._block(show, number, place, blocks, stored[-1] if stored else None, have))
        return blocks.joined(stored, self.solver.draws)

    def _block(self, show, number: int, place: Place, blocks: Blocks, earlier: Any, have: int) -> dict:
        solver = replace(self.solver, draws=self.solver.draws - have)
        given = {"earlier": blocks.continuation(earlier)} if earlier is not None else None
        given = given or self.start.of_group(number, self.groups)
        with blocks.folder(self.problem, self.known, place.mesh) as store:
            monitor = Monitor(None, None, show and show.of_group(number), store)
            placed = self.problem.objective.place(place.mesh)
            space, seed = self.problem.space, _group_seed(self.seed, number)
            task = Task(self.problem, space, self.start.z, None, placed, place.mesh, seed, monitor, given)
            finish = run_steps(solver, task)
            _require_end(finish)
            block = {**(finish.leaves or {}), "compile_seconds": np.array(finish.compile_seconds)}
            blocks.write(block, self.known.digest, store)
        return block

    def posterior(self, results: list[dict], mesh: Any) -> Posterior:
        """Return all groups' draws as one posterior."""
        note = f"{caveats(self.problem)} {self.start.note}".strip()
        z = np.concatenate([one["z"] for one in results])
        chains, n, _ = z.shape
        flat = z.reshape(chains * n, -1)
        leaves = parameters_of(self.problem.space, flat)
        draws = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(chains, n, *leaf.shape[1:]), leaves)
        units = dict(zip(self.problem.space.labels, self.problem.unit_labels(), strict=True))
        useful = sum(int(np.sum(one["gradients"]) + np.sum(one["warmup_gradients"])) for one in results)
        total = sum(int(one["ticks"]) * len(one["z"]) for one in results)
        return Posterior(
            draws=draws,
            z=z,
            stats={name: np.concatenate([one[name] for one in results]) for name in self.solver.stats},
            weights=None,
            method=self.solver.describe(),
            problem=self.problem.name,
            labels=tuple(self.problem.space.coordinate_labels()),
            units=units,
            precision=self.problem.precision,
            note=note,
            evaluations=total,
            timings={"compile": float(max(one["compile_seconds"] for one in results))},
            layout=layout(mesh) | {"width": self.solver.chains, "why": self.why},
            seed=self.seed,
            extra={
                "useful_gradients": useful / total,
                **self.solver.told(results),
                **self._outside(z, np.concatenate([one["value"] for one in results]), mesh),
                **shares(self.start.modes, z),
            },
        )

    def _outside(self, z: np.ndarray, values: np.ndarray, mesh: Any) -> dict[str, float]:
        if not self.solver.looks_outside or z.shape[2] > MOST:
            return {}
        landscape = Landscape(self.problem, mesh)
        return {"outside": mass_outside(landscape.values, z.astype(float), values.astype(float), self.seed)}


def _require_end(finish: Any) -> None:
    if finish.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if finish.status is Status.NONFINITE:
        raise NonFiniteError(
            "the density is zero or undefined all around the start, so no chain could begin. Start elsewhere (x0), "
            "or bound the parameters."
        )


def _group_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
