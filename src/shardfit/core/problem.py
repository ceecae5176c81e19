"""Problem: an objective with what a fit needs to know about its parameters."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from shardfit.core.bounds import box, boxed, by_name, ends_of, inside, pinned
from shardfit.core.current import working_on_it
from shardfit.core.errors import suggestion
from shardfit.core.fixed import hold, tie_up
from shardfit.core.mesh import replicate
from shardfit.core.objective import Objective
from shardfit.core.param_checks import check_params
from shardfit.core.params import Space, broadcast_prefix, leaf_labels, make_space
from shardfit.core.precision import PRECISIONS, arithmetic, cast, tracing
from shardfit.core.priors import check_prior, prior_term, transform_of
from shardfit.core.rules import our_rules
from shardfit.core.term_checks import check_terms
from shardfit.core.terms import Penalty
from shardfit.core.text import columns, html_table, short
from shardfit.core.ties import Tie
from shardfit.core.transforms import Identity


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Objective, start, and the parameters' bounds, transforms and units.

    bounds, transforms and units follow the structure of x0; names left out are free, untransformed, without unit.
    priors: what is known of parameters before the data, likewise: {"tau": HalfCauchy(5.0)}; they become the term
    "prior" of the objective, so that a fit gives the most probable parameters and `sample` their posterior. A prior
    that lives between two ends brings coordinates that cannot leave them, unless bounds or a transform are given.
    fixed: parameters that no fit moves, by name or path ('tau', 'stars.mass', 'w[2]', a list of them), with values to
    hold ({"tau": 0.3}; x0's unless given), or booleans like x0. Equal bounds mean the same. Fits of problems that
    differ in held values only share their compiled programs.
    tied: parameters that follow others, by functions of all parameters: {"b": lambda p: 2 * p["a"]}. No fit moves them
    by themselves; results have their values and errors as those of all others.
    precision: 'float64' (default) or 'float32'; arithmetic runs in it while this problem is worked on, nowhere else.
    decode: function from fitted parameters to physical quantities, shown beside them.

    Example: `Problem(objective, {"a": 1.0, "tau": 0.3}, bounds={"tau": (0, None)}, units={"tau": "s"})`.
    """

    objective: Objective
    x0: Any
    bounds: Any = None
    transforms: Any = None
    priors: Any = None
    fixed: Any = None
    units: Any = None
    name: str = "problem"
    decode: Callable[[Any], dict] | None = None
    precision: str = "float64"
    tied: Mapping[str, Callable[[Any], Any]] | None = None
    space: Space = field(init=False, repr=False)
    box: tuple[np.ndarray, np.ndarray] | None = field(init=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.objective, Objective):
            raise TypeError(f"Problem needs an Objective, not {type(self.objective).__name__}.")
        require_untraced("a Problem is made", self.objective, self.x0)
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}.{suggestion(self.precision, PRECISIONS)}")
        bounds = by_name(self.bounds, self.x0)
        held, x0 = hold(self.fixed, cast(check_params(self.x0), self.precision))
        held = [mask | pinned_here for mask, pinned_here in zip(held, pinned(x0, bounds), strict=True)]
        ties = ()
        if self.tied:
            with arithmetic(self.precision):
                ties, held, x0 = tie_up(self.tied, held, x0)
            _refuse_on_ties(ties, {"bounds": bounds, "transforms": self.transforms}, x0)
        with our_rules():
            known = _priors(self.priors, x0)
        with arithmetic(self.precision):
            space = make_space(x0, _transforms(self.transforms, bounds, known, x0), held, ties)
            ends = box(space, x0, bounds)
            _check_start(space, x0)
            objective = with_prior(self.objective, known).with_precision(self.precision)
            check_terms(objective, x0, self.precision)
        broadcast_prefix("units", self.units, x0)
        settled = {"x0": x0, "bounds": bounds, "objective": objective, "space": space, "box": ends}
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def table(self) -> list[tuple[str, str, str, str, str]]:
        """Return (name, start, unit, transform, held) of every parameter, as text."""
        leaves = zip(self.space.labels, jax.tree.leaves(self.x0), self.unit_labels(), strict=True)
        kinds = [type(transform).__name__ for transform in self.space.transforms]
        tied = {tie.leaf for tie in self.space.ties}
        ways = ["tied" if i in tied else "" if mask is None else "held" for i, mask in enumerate(self.space.masks)]
        return [
            (label or "x", short(leaf), unit, "" if kind == "Identity" else kind, way)
            for (label, leaf, unit), way, kind in zip(leaves, ways, kinds, strict=True)
        ]

    def __repr__(self):
        head = f"Problem {self.name!r}, {self.precision}, {self.space.size} free parameters"
        return f"{head}\n{columns(self.table())}\n{self.objective!r}"

    def _repr_html_(self):
        head = f"<p><b>{escape(self.name)}</b>: {self.space.size} free parameters, {self.precision}</p>"
        ends, priors = (broadcast_prefix(name, getattr(self, name), self.x0) for name in ("bounds", "priors"))
        added = ((_interval(each), str(prior or "")) for each, prior in zip(ends, priors, strict=True))
        rows = [(*row, *more) for row, more in zip(self.table(), added, strict=True)]
        shown = html_table(("parameter", "start", "unit", "coordinate", "", "bounds", "prior"), rows)
        return head + shown + self.objective._repr_html_()

    @working_on_it
    def z0(self) -> np.ndarray:
        """Return the start in solver coordinates, inside the box."""
        z0 = self.space.host_z(self.x0)
        return z0 if self.box is None else np.clip(z0, *self.box).astype(z0.dtype)

    def unconstrained(self) -> "Problem":
        """Return the problem in coordinates without a box: its bounds have become transforms, its fits are the same.

        A start on a bound, which such coordinates cannot reach, is moved inside by a thousandth.
        """
        if self.box is None:
            return self
        transforms = boxed(self.space, self.box)
        tree = jax.tree.structure(self.x0)
        z0 = inside(np.asarray(self.z0()), *self.box)
        x0 = self.space.host_params(z0)
        return replace(self, x0=x0, bounds=None, transforms=tree.unflatten(transforms), fixed=self._held())

    def _held(self) -> Any:
        masks = [self.space.held_at(i) for i in range(len(self.space.masks))]
        return jax.tree.structure(self.x0).unflatten(masks)

    def unit_labels(self) -> list[str]:
        """Return the unit of every parameter leaf, '' where none was given."""
        return [unit or "" for unit in broadcast_prefix("units", self.units, self.x0)]

    def replace(self, **changes: Any) -> "Problem":
        """Return a copy with other fields."""
        return replace(self, **changes)

    def with_checked(self, objective: Objective, space: Space | None = None) -> "Problem":
        """Return a copy with another objective, all of whose terms are known to fit the parameters, and equal space."""
        other = copy(self)
        object.__setattr__(other, "objective", objective)
        object.__setattr__(other, "space", space or self.space)
        return other


PRIOR = "prior"  # the term that a problem's priors become


def _priors(priors: Any, x0: Any) -> list | None:
    """Return one prior, or None, for every leaf of x0; None if none were given."""
    if priors is None:
        return None
    entries = broadcast_prefix("priors", priors, x0)
    for label, leaf, entry in zip(leaf_labels(x0), jax.tree.leaves(x0), entries, strict=True):
        check_prior(label, entry)
        if entry is not None and not np.isfinite(np.asarray(entry.log_prob(leaf))).all():
            raise ValueError(
                f"priors: x0 of {label} is {leaf}, where its prior {entry} has no density. Move the start."
            )
    return entries


def _interval(ends: Any) -> str:
    """Return bounds as text; of arrays that some are given."""
    low, high = ends if isinstance(ends, tuple | list) and len(ends) == 2 else (None, None)
    if low is None and high is None:
        return ""
    if any(end is not None and np.ndim(end) for end in (low, high)):
        return "entry by entry"
    return f"≤ {short(high)}" if low is None else f"≥ {short(low)}" if high is None else f"{short(low)} … {short(high)}"


def _transforms(transforms: Any, bounds: Any, priors: list | None, x0: Any) -> Any:
    """Return the transforms of all leaves: as given, or else those of priors that have ends."""
    if priors is None:
        return transforms
    given, ends = broadcast_prefix("transforms", transforms, x0), broadcast_prefix("bounds", bounds, x0)
    leaves = zip(leaf_labels(x0), map(np.shape, jax.tree.leaves(x0)), strict=True)
    chosen = [
        transform_of(*leaf, prior) if transform is None and pair is None and prior is not None else transform
        for leaf, transform, pair, prior in zip(leaves, given, ends, priors, strict=True)
    ]
    return jax.tree.structure(x0).unflatten(chosen)


def with_prior(objective: Objective, priors: list | None) -> Objective:
    """Return the objective with the term of these priors, in place of the one that it has from another problem."""
    if priors is None:
        return objective
    terms = dict(objective.items())
    earlier = terms.pop(PRIOR, None)
    if earlier is not None and not (isinstance(earlier, Penalty) and earlier.prior):
        raise ValueError(
            f"the objective has a term {PRIOR!r} already, which is the name of the priors' term. Rename it."
        )
    term = prior_term(priors)
    if term is not None:
        terms[PRIOR] = replicate(term, objective.mesh)
    return Objective(tuple(terms.values()), tuple(terms), objective.mesh, objective.precision)


def _refuse_on_ties(ties: tuple[Tie, ...], given: dict[str, Any], x0: Any) -> None:
    """Raise where a parameter that follows others has bounds or a transform of its own."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(x0)]
    for what, entries in given.items():
        each = broadcast_prefix(what, entries, x0)
        for tie in ties:
            entry = each[tie.leaf]
            if what == "transforms":
                own = tie.index is ... and not (entry is None or isinstance(entry, Identity))
            else:
                ends = ends_of(tie.name, entry, shapes[tie.leaf])
                own = any(np.isfinite(end[tie.index]).any() for end in ends)
            if own:
                raise ValueError(
                    f"{what}: {tie.name} is tied to other parameters, so it has none of its own. Give them to those it "
                    "follows (an array of bounds has inf for what is tied), or add a penalty on its value."
                )


def _check_start(space, x0):
    z0 = space.host_z(x0)
    if not np.isfinite(z0).all():
        bad = space.coordinate_labels()[int(np.argmin(np.isfinite(z0)))]
        raise ValueError(f"x0 of {bad} lies outside its transform's range. Start strictly inside.")


def require_untraced(what: str, *trees: Any) -> None:
    """Raise where numbers are traced by jit, grad or vmap: a problem and its fit work on numbers that are known."""
    with our_rules():
        inside_jit = tracing() and isinstance(jnp.zeros(()), Tracer)
    if inside_jit or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees)):
        raise TypeError(
            f"{what} inside a function that jit, grad or vmap traces: its numbers are not known there. Call it "
            "outside; Objective.value, value_and_grad, residuals and gram can be traced."
        )
