"""Result: what every way of getting an answer returns."""

import html
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.lazy import lent
from shardfit.core.params import element_label, label_of
from shardfit.core.status import Status
from shardfit.core.success import Verdict, decide
from shardfit.core.text import html_table, pair, short

EARLIER = " (in an earlier fit of this run, of the same terms)"


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A fit's answer, how it was reached, and how far it can be trusted.

    params: pytree like x0. value: objective at params. parts: unweighted losses by name. history: arrays by name, one
    entry per evaluation or step. evaluations: how often the objective was evaluated. timings: seconds, compile time
    apart. covariance: (p, p) over the flattened parameters where the solver gives one, stderr: pytree like params; any
    other fit gets them from `error_bars`. dof: residuals less free parameters, where there are residuals. state: what a
    later run can start from, where the solver leaves such a thing. doubts: what speaks against the answer, in words;
    at_bound: names of the numbers that a bound stopped. `verdict` weighs all of it.
    """

    params: Any
    value: float
    parts: dict[str, float]
    status: Status
    solver: str
    steps: int
    evaluations: int
    history: dict[str, np.ndarray]
    timings: dict[str, float]
    layout: dict[str, Any]
    problem: str = "problem"
    precision: str = "float64"
    note: str = ""
    certificate: dict | None = None
    covariance: np.ndarray | None = None
    stderr: Any = None
    dof: int | None = None
    units: dict[str, str] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict)
    state: dict[str, np.ndarray] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    at_bound: tuple[str, ...] = ()

    def verdict(self) -> Verdict:
        """Return whether the answer may be trusted, and why not; what success, badges and exit codes say."""
        missing = [] if np.isfinite(self.value) else ["the value"]
        missing += _leaves_with(np.isnan, self.params)
        # what is at a bound lies on one side only and has no standard error, which is told
        missing += [f"the standard error of {name}" for name in _leaves_with(np.isnan, self.stderr, self.at_bound)]
        lost = _leaves_with(np.isinf, self.stderr)
        return decide(self.status, self.doubts, not_numbers=missing, undetermined=lost, at_bound=self.at_bound)

    @property
    def success(self) -> bool:
        """Whether a tolerance was met, or a plan carried out, and nothing speaks against the answer; see `verdict`."""
        return self.verdict().success

    @property
    def message(self) -> str:
        """What happened, what speaks against the answer and, if need be, what to do."""
        verdict = self.verdict()
        reasons = verdict.reasons if self.status.converged or self.status is Status.COMPLETED else verdict.reasons[1:]
        told = [note for note in verdict.notes if note.removesuffix(".") not in self.note]
        if self.status is Status.NONFINITE and self.steps and np.isfinite(self.value):
            told.insert(0, "The best finite point is returned.")
        told += [self.note, *(f"Doubtful: {reason}" for reason in reasons), self.status.remedy]
        return " ".join(filter(None, (f"{self.status.message}.", *told)))

    @property
    def reduced_chi2(self) -> float | None:
        """Sum of squared residuals over the degrees of freedom; None where there are no residuals, or too few."""
        return 2 * self.value / self.dof if self.dof is not None and self.dof > 0 else None

    def correlation(self) -> np.ndarray:
        """Return the correlations (p, p) of the flattened parameters; NaN for those without a finite error."""
        if self.covariance is None:
            raise ValueError("this result has no covariance. Fit with 'lm', or use error_bars(problem, result).")
        sd = np.sqrt(np.diag(self.covariance))
        sd = np.where(np.isfinite(sd) & (sd > 0), sd, np.nan)
        return self.covariance / np.outer(sd, sd)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (name, value, standard error, unit) of every parameter leaf, as text."""
        errors = [None] * len(jax.tree.leaves(self.params)) if self.stderr is None else jax.tree.leaves(self.stderr)
        rows = []
        for (path, leaf), error in zip(jax.tree_util.tree_flatten_with_path(self.params)[0], errors, strict=True):
            name = label_of(path) or "x"
            if error is None or np.ndim(leaf) or np.ndim(error):
                told = short(leaf), "" if error is None else short(error)
            else:
                told = pair(float(leaf), float(error))
            rows.append((name, *told, self.units.get(name, "")))
        return rows

    def plot(self, name: str | None = None) -> Any:
        """Draw a figure of the result: 'convergence', or 'parameters' where there are error bars.

        Example: `fit(problem).plot()` at the end of a notebook's cell.
        """
        return lent("shardfit.report.plotting:plot_result")(self, name)

    def __str__(self):
        head = f"{self.problem}: {self.message}\nvalue {self.value:.10g} after {self.steps} steps, "
        head += f"{self.evaluations} evaluations, {self.timings.get('total', 0.0):.2f} s ({self.solver})"
        lines = [f"  {n} = {v}" + (f" ± {e}" if e else "") + (f" {u}" if u else "") for n, v, e, u in self.table()]
        summary = (self.certificate or {}).get("summary")
        checked = [f"checked: {summary}"] if summary else []
        return "\n".join([head, *lines, *checked])

    def __repr__(self):
        return str(self)  # its arrays would fill the screen

    def _repr_html_(self):
        parts = ", ".join(f"{html.escape(k)} {v:.6g}" for k, v in self.parts.items())
        return (
            f"<p><b>{html.escape(self.problem)}</b>: {html.escape(self.message)}<br>value {self.value:.8g} ({parts}), "
            f"{self.steps} steps, {self.evaluations} evaluations, {self.timings.get('total', 0.0):.2f} s</p>"
        ) + html_table(("parameter", "value", "1σ", "unit"), self.table())


def _leaves_with(trait: Any, tree: Any, excused: Collection[str] = ()) -> list[str]:
    """Return the names of a tree's leaves that have a number with a trait; excused: names of numbers that may."""
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array, name = np.asarray(leaf), label_of(path) or "x"
        if not jnp.issubdtype(array.dtype, np.inexact):
            continue
        odd = trait(array)
        if odd.any() and not (excused and {element_label(name, at) for at in np.argwhere(odd)} <= {*excused}):
            found.append(name)
    return found


def certified_by(result: Result, certificate: dict | None) -> Result:
    """Return the result of a series' later fit with the certificate of the earlier one that computed the same terms.

    One of its own is kept. The copy has `earlier`, so that reports can say which fit was checked.
    """
    if result.certificate or not certificate:
        return result
    summary = f"{certificate.get('summary', '').removesuffix(EARLIER)}{EARLIER}"
    return replace(result, certificate={**certificate, "earlier": True, "summary": summary})
