"""Posterior: what every way of sampling returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import jax
import numpy as np

from shardfit.core.current import as_they_are
from shardfit.core.errors import suggestion
from shardfit.core.extras import require_extra
from shardfit.core.lazy import lent
from shardfit.core.params import element_label, leaf_labels
from shardfit.core.precision import arithmetic
from shardfit.sampling.quality.diagnostics import weighted_quantile
from shardfit.sampling.quality.judgement import Verdict, judge
from shardfit.sampling.summary import Summary, summarize

STATS = ("value", "energy", "diverging", "depth", "gradients", "accept", "step_size")


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from a posterior, how they were made, and how far they can be trusted.

    draws: pytree like x0 whose leaves are (chains, draws, *shape), parameters. z: (chains, draws, n) the coordinates
    that were sampled, named by labels. stats: arrays (chains, draws) by name, as far as the method has them: value (the
    negative log density on z), energy, diverging, depth, gradients, accept, step_size. weights: (chains, draws) that
    sum to one, or None for equal ones. units: by name of a leaf. evaluations: gradients of the objective, warm-up
    included. extra: what only one method provides, arrays and numbers by name.

    Example: `posterior.summary()`, `posterior.flat("tau").mean()`.
    """

    draws: Any
    z: np.ndarray
    stats: dict[str, np.ndarray]
    weights: np.ndarray | None
    method: str
    problem: str = "problem"
    labels: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    precision: str = "float64"
    note: str = ""
    evaluations: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        leaves = jax.tree.leaves(self.draws)
        if not leaves or np.ndim(self.z) != 3:
            raise ValueError("a Posterior needs draws and z of shape (chains, draws, n).")
        named = [(label, np.shape(leaf)) for label, leaf in zip(leaf_labels(self.draws), leaves, strict=True)]
        named += [(f"stats[{name!r}]", np.shape(array)) for name, array in self.stats.items()]
        named += [("weights", np.shape(self.weights))] if self.weights is not None else []
        for name, shape in named:
            if shape[:2] != self.z.shape[:2]:
                raise ValueError(f"{name} has shape {shape}, but z has (chains, draws) = {self.z.shape[:2]}.")
        if self.labels and len(self.labels) != self.z.shape[2]:
            raise ValueError(f"{len(self.labels)} labels for {self.z.shape[2]} coordinates. Give one each.")

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.z.shape[0]

    @property
    def size(self) -> int:
        """Number of draws of all chains."""
        return self.z.shape[0] * self.z.shape[1]

    @property
    def independent(self) -> bool:
        """Whether no chain made the draws, so that there is nothing to converge."""
        return bool(self.extra.get("independent"))

    # ---- what the draws say -------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of every number of the parameters: 'a', 'w[0]', 'w[1]' ..."""
        leaves = zip(leaf_labels(self.draws), jax.tree.leaves(self.draws), strict=True)
        return tuple(element_label(label, at) for label, leaf in leaves for at in np.ndindex(*np.shape(leaf)[2:]))

    def numbers(self) -> np.ndarray:
        """Return all draws as (chains, draws, p), in the order of `names`."""
        leaves = [np.reshape(leaf, (*self.z.shape[:2], -1)) for leaf in jax.tree.leaves(self.draws)]
        return np.concatenate([np.asarray(leaf, float) for leaf in leaves], axis=-1)

    def flat(self, name: str) -> np.ndarray:
        """Return the draws of one parameter, chains joined: (chains · draws, *shape). name: 'w', or 'w[0]'."""
        labels = leaf_labels(self.draws)
        if name in labels:
            leaf = np.asarray(jax.tree.leaves(self.draws)[labels.index(name)])
            return leaf.reshape(self.size, *leaf.shape[2:])
        if name not in self.names:
            raise ValueError(f"no parameter {name!r} in this posterior.{suggestion(name, labels)}")
        return self.numbers()[:, :, self.names.index(name)].ravel()

    def mean(self) -> Any:
        """Return the mean, a pytree like x0."""
        return jax.tree.map(self._average, self.draws)

    def sd(self) -> Any:
        """Return the standard deviation, a pytree like x0."""

        def one(leaf):
            variance = self._average((leaf - self._average(leaf)) ** 2)
            # the mean is of the same draws; weighted draws have no such count
            return np.sqrt(variance * (self.size / (self.size - 1) if self.weights is None else 1.0))

        return jax.tree.map(one, self.draws)

    def quantile(self, q: float | Sequence[float]) -> Any:
        """Return a quantile, a pytree like x0; several q add a leading axis."""

        def one(leaf):
            joined = np.reshape(leaf, (self.size, *np.shape(leaf)[2:]))
            if self.weights is None:
                return np.quantile(joined, q, axis=0)
            found = weighted_quantile(joined, self.weights.ravel(), q)
            return found if np.ndim(q) else found[0]

        return jax.tree.map(one, self.draws)

    def covariance(self) -> np.ndarray:
        """Return the covariance (p, p) of the numbers of the parameters, in the order of `names`."""
        weights = None if self.weights is None else self.weights.ravel()
        return np.cov(self.numbers().reshape(self.size, -1).T, aweights=weights, bias=weights is not None).reshape(
            len(self.names), -1
        )

    def predict(self, fn: Callable[[Any], Any], draws: int | None = None) -> Any:
        """Return fn(params) at every draw, leaves (chains, draws, *shape); weights, if any, stay those of the draws.

        fn: from a pytree like x0 to arrays, written with jax.numpy. draws: take this many of each chain, evenly spaced.

        Example: `posterior.predict(lambda p: model(p, times), draws=100)` → (chains, 100, n_times).
        """
        kept = self.z.shape[1] if draws is None else min(draws, self.z.shape[1])
        if kept < 1:
            raise ValueError(f"predict: draws={draws} must be at least 1.")
        at = np.linspace(0, self.z.shape[1] - 1, kept).round().astype(int)
        joined = jax.tree.map(lambda leaf: np.asarray(leaf)[:, at].reshape(-1, *np.shape(leaf)[2:]), self.draws)
        with arithmetic(self.precision), as_they_are(fn):
            found = jax.jit(lambda points: jax.lax.map(fn, points))(joined)
        return jax.tree.map(lambda a: np.asarray(a).reshape(self.chains, kept, *a.shape[1:]), found)

    def _average(self, leaf: Any) -> np.ndarray:
        if self.weights is None:
            return np.mean(leaf, axis=(0, 1))
        return np.tensordot(self.weights, leaf, 2) / self.weights.sum()

    # ---- how well they say it -----------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """Return mean, sd, quantiles, Monte Carlo error, effective draws and R-hat of every number."""
        sizes = [int(np.prod(np.shape(leaf)[2:])) for leaf in jax.tree.leaves(self.draws)]
        labels = zip(leaf_labels(self.draws), sizes, strict=True)
        units = tuple(self.units.get(label, "") for label, size in labels for _ in range(size))
        return summarize(self.names, units, self.numbers(), self.weights, self.independent)

    def table(self) -> list[tuple[str, ...]]:
        """Return the summary as lines of text, the header first."""
        summary = self.summary()
        return [summary.header, *summary.lines()]

    def verdict(self) -> Verdict:
        """Return whether the draws can be trusted, why not, and what to do."""
        return judge(self.z, self.stats, self.weights, self.extra, self.labels)

    def to_arviz(self) -> Any:
        """Return an ArviZ InferenceData (or DataTree, in its newer versions) of draws and statistics.

        Weights are stored with the statistics; ArviZ does not use them.
        """
        with require_extra("to_arviz", "arviz"):
            import arviz  # pyright: ignore[reportMissingImports]
        draws = dict(zip(leaf_labels(self.draws), jax.tree.leaves(self.draws), strict=True))
        renamed = {"value": "lp", "depth": "tree_depth", "gradients": "n_steps", "accept": "acceptance_rate"}
        stats = {renamed.get(name, name): array for name, array in self.stats.items()}
        if "lp" in stats:
            stats["lp"] = -stats["lp"]  # ArviZ keeps the log density itself
        if self.weights is not None:
            stats["weight"] = self.weights
        groups = {"posterior": draws, "sample_stats": stats}
        return arviz.from_dict(**groups) if arviz.__version__.startswith("0.") else arviz.from_dict(groups)

    def plot(self, name: str | None = None) -> Any:
        """Draw a figure: 'trace', 'rank', 'pair', 'forest' or 'energy'. Example: `posterior.plot("pair")`."""
        return lent("shardfit.report.plotting:plot_posterior")(self, name)

    def _count(self) -> str:
        chains, draws = self.z.shape[:2]
        return f"{self.size} independent draws" if self.independent else f"{chains} chains of {draws} draws"

    def __str__(self):
        head = f"{self.problem}: {self.verdict()}\n{self._count()}, {self.evaluations} gradients, "
        head += f"{self.timings.get('total', 0.0):.2f} s ({self.method})"
        return "\n".join(filter(None, (head, self.note, str(self.summary()))))

    def __repr__(self):
        return str(self)  # its arrays would fill the screen

    def _repr_html_(self):
        return (
            f"<p><b>{escape(self.problem)}</b>: {escape(str(self.verdict()))}<br>{self._count()}, "
            f"{self.evaluations} gradients ({escape(self.method)})<br>{escape(self.note)}</p>"
            + self.summary()._repr_html_()
        )
