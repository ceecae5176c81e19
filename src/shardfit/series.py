"""FitSeries: fits that belong together, one after the other: rounds, restarts, bands, frames, refits, starts.

What differs between such tasks is how the next problem follows from the last result, and which result counts: that is
the caller's own loop. What they share is here: a folder for every fit, one certificate for all that compute the same,
what to do after an interruption, the lowest of the values, and the sum of steps and times.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import CheckpointError
from shardfit.core.functions import shared_objective
from shardfit.core.problem import Problem
from shardfit.core.result import Result, certified_by
from shardfit.core.status import Status
from shardfit.fitting import fit
from shardfit.io.run_dir import RunDir
from shardfit.run_options import RunOptions


class FitSeries:
    """Fits that belong together, one after the other.

    A call that is repeated in the same folder takes from there what had ended, and goes on with the fit that had not,
    so that it gives what an unbroken one gives: each problem has to follow from the results before it.

    Parameters
    ----------
    run
        devices, seed, folder and how to resume; its solver, unless `settings` name one.
    prefix
        of the folders of the fits: 'band-' for band-01, band-02, ... in that of the run, 'fits/' for fits/01, ...
        resume='must' fails if the first of them has not begun; later ones begin when their turn comes.
    certificate
        of an earlier fit of the same terms, so that no fit is certified again; may be set on the way.
    settings
        further keywords of every `fit`, such as solver and maxiter.

    Attributes
    ----------
    results
        of all fits so far, in order.

    Example: `series = FitSeries(RunOptions(run_dir="run"), "scale-", solver="lbfgs")`, then `series.fit(problem)` for
    one problem after the other until `series.interrupted`, and `series.answer()`.

    """

    def __init__(
        self,
        run: RunOptions | None = None,
        prefix: str = "fit-",
        *,
        certificate: dict[str, Any] | None = None,
        **settings: Any,
    ):
        self.run, self.prefix, self.certificate = run or RunOptions(), prefix, certificate
        self.settings = {"solver": self.run.solver, **settings}
        self.results: list[Result] = []
        # by what terms compute: another start, weight or data of the same kind does not change it
        self._certificates: dict[Any, dict[str, Any] | None] = {}
        if self.run.resume == "must" and not self._begun():
            raise CheckpointError(
                f"{self.run.folder or Path()} holds no run to resume. Check the path, or use resume='auto'."
            )

    def fit(self, problem: Problem, **settings: Any) -> Result:
        """Fit the next problem and return its result, with the certificate of an earlier fit if it has none.

        settings: keywords of this fit alone. Without `certify` the first fit of every program is checked, a program
        being what the terms compute, whatever their arrays.
        """
        program, run = jax.tree.structure(shared_objective(problem.objective)), self.run.later
        known = program in self._certificates or self.certificate is not None
        common = {"mesh": run.mesh, "seed": run.seed, "resume": run.resume, "progress": run.progress}
        common |= {"run_dir": self.folder, "certify": not known, **self.settings, **settings}
        result = certified_by(fit(problem, **common), self._certificates.get(program, self.certificate))
        if common["certify"]:
            self._certificates[program] = result.certificate
        self.results.append(result)
        return result

    @property
    def folder(self) -> Path | RunDir | None:
        """Of the fit that comes next."""
        return self.run.part(self._name(len(self.results) + 1))

    @property
    def interrupted(self) -> bool:
        """Whether the last fit was interrupted, which ends a series."""
        return bool(self.results) and self.results[-1].status is Status.INTERRUPTED

    def best(self, since: int = 0) -> int:
        """Return the place in `results` of the lowest value, from place `since` on; the first if none is finite."""
        values = [result.value if np.isfinite(result.value) else np.inf for result in self.results[since:]]
        return since + int(np.argmin(values))

    def answer(self, result: Result | None = None, *, planned: bool = False) -> Result:
        """Return the best result, or another, as that of the whole series; see `whole`."""
        return whole(self.results, self.results[self.best()] if result is None else result, planned=planned)

    def within(self, prefix: str, number: int | None = None) -> "FitSeries":
        """Return a series of further attempts at the last fit, or that of a number, in folders inside its own."""
        prefix = f"{self._name(number or len(self.results))}/{prefix}"
        inner = FitSeries(self.run.later, prefix, certificate=self.certificate, **self.settings)
        inner._certificates = self._certificates
        return inner

    def _name(self, number: int) -> str:
        return f"{self.prefix}{number:02d}"

    def _begun(self) -> bool:
        folder = self.run.folder
        return folder is not None and (folder / self._name(1) / "config.json").exists()


def whole(results: Sequence[Result], result: Result, *, planned: bool = False) -> Result:
    """Return one of several fits' results as that of all, with the steps, evaluations and times of all.

    It is interrupted if the last one was. planned: that a fit took all its steps was the plan, not a failure to
    converge.
    """
    status = Status.COMPLETED if planned and result.status is Status.MAX_STEPS else result.status
    status = Status.INTERRUPTED if results[-1].status is Status.INTERRUPTED else status
    if len(results) == 1:
        return replace(result, status=status)
    names = dict.fromkeys(name for one in results for name in one.timings)
    note = f"Steps, evaluations and times are of all {len(results)} fits."
    return replace(
        result,
        status=status,
        steps=sum(one.steps for one in results),
        evaluations=sum(one.evaluations for one in results),
        timings={name: sum(one.timings.get(name, 0.0) for one in results) for name in names},
        note=" ".join(filter(None, (result.note, note))),
    )
