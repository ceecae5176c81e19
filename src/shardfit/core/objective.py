"""Objective: a weighted sum of terms that runs unchanged on any mesh.

A frozen pytree: data, arguments and weights are leaves, functions, names and the mesh are static. Pass it to jit as an
argument; new data of equal shape does not retrace.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jax.tree_util import register_dataclass

from shardfit.core import evaluations, reduce
from shardfit.core.current import as_they_are
from shardfit.core.errors import suggestion
from shardfit.core.functions import shared_objective
from shardfit.core.gram import Gram
from shardfit.core.mesh import ROWS, meet, n_shards, replicate, spans_processes
from shardfit.core.precision import arithmetic, cast, evaluation_precision, precision_of
from shardfit.core.rows import in_class, numbered, place_rows, rows_from_process, take
from shardfit.core.rules import our_rules
from shardfit.core.split import divided, split_terms
from shardfit.core.terms import ResidualPenalty, ResidualTerm, RowTerm, Term, static, with_weight
from shardfit.core.text import columns, html_table, number


@register_dataclass
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Objective:
    """A weighted sum of named terms.

    precision: that of its arrays when it was made, 'float64' if any has 64 bits, None if none is floating; changed
    copies keep it. Evaluations run in it.

    Example: `Objective({"data": residual_term(fn, rows), "smooth": penalty(roughness, weight=0.1)})`.
    """

    terms: tuple[Term, ...]
    names: tuple[str, ...] = static()
    mesh: Mesh | None = static()
    precision: str | None = static()

    def __init__(
        self,
        terms: Any,
        names: tuple[str, ...] | None = None,
        mesh: Mesh | None = None,
        precision: str | None = None,
    ):
        if names is None:
            if not isinstance(terms, Mapping) or not terms:
                raise TypeError('Objective takes a dict of named terms: Objective({"data": residual_term(...)}).')
            names, terms = tuple(terms), tuple(terms.values())
            for name, term in zip(names, terms, strict=True):
                if not isinstance(name, str) or "." in name:
                    raise ValueError(f"term name {name!r}: use text without a dot, which joins term and part names.")
                if not isinstance(term, Term):
                    raise TypeError(
                        f"Objective: {name!r} is {type(term).__name__}, not a term. Make it with residual_term, "
                        "statistic_term, penalty or residual_penalty."
                    )
            precision = precision_of(terms)
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "precision", precision)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (name, kind, rows, weight) of every term, as text."""
        rows = []
        for name, term in self.items():
            weights = term.weight.items() if isinstance(term.weight, dict) else [("", term.weight)]
            shown = ", ".join(f"{part} {_weight_text(weight)}".strip() for part, weight in weights)
            count = f"{term.n_rows:,} rows" if isinstance(term, RowTerm) else ""
            rows.append((name, type(term).__name__, count, shown))
        return rows

    def __repr__(self):
        return "Objective\n" + columns(self.table())

    def _repr_html_(self):
        return html_table(("term", "kind", "rows", "weight"), self.table())

    # ---- values -------------------------------------------------------------------------------------------------

    def value(self, params: Any, key: Any = None) -> jax.Array:
        """Return the value; jit, grad, vmap and Hessian-vector products of it are right on every mesh."""
        return self._evaluate(evaluations.value, params, key)

    def value_and_grad(self, params: Any, key: Any = None) -> tuple[jax.Array, Any]:
        """Return value and gradient at one forward and one backward pass."""
        return self._evaluate(evaluations.value_grad_parts, params, key)[:2]

    def value_grad_parts(self, params: Any, key: Any = None) -> tuple[jax.Array, Any, dict]:
        """Return value, gradient and the unweighted parts at the same cost as value_and_grad."""
        return self._evaluate(evaluations.value_grad_parts, params, key)

    def parts(self, params: Any, key: Any = None) -> dict[str, jax.Array]:
        """Return each term's loss before its weight, by name ('term' or 'term.product')."""
        return self._evaluate(evaluations.parts, params, key)

    def totals(self, params: Any, key: Any = None) -> dict[str, Any]:
        """Return the summed statistics of each row term, and auxiliary outputs beside them."""
        return self._evaluate(evaluations.totals, params, key)

    def sums(self, params: Any, key: Any = None) -> dict[str, Any]:
        """Return what totals are made of: it can be added to the same of other rows."""
        return self._evaluate(evaluations.sums, params, key)

    def residuals(self, params: Any, key: Any = None) -> jax.Array:
        """Return all residuals as one real vector r with value = ½Σr²; padded rows give zeros."""
        self.require_residuals("residuals")
        return self._evaluate(evaluations.residuals, params, key)

    def gram(self, params: Any, key: Any = None) -> Gram:
        """Return value, Jᵀr and JᵀJ over the flattened parameters, streamed over rows."""
        self.require_least_squares("gram")
        return self._evaluate(evaluations.gram, params, key)

    def hvp(self, params: Any, tangent: Any, key: Any = None) -> Any:
        """Return the Hessian times tangent, a pytree like params."""
        return self._evaluate(evaluations.hvp, params, tangent, key)

    def _evaluate(self, fn: Callable, params: Any, *more: Any) -> Any:
        *others, key = more
        objective = shared_objective(self)
        with arithmetic(self._precision_at(params)), as_they_are(objective, jax.tree.structure(params)):
            return fn(objective, params, *others, as_key(key))

    def _precision_at(self, params: Any = None) -> str | None:
        trees = (params,) if self.precision else (self, params)
        return evaluation_precision(self.precision, *trees)

    # ---- changed copies -----------------------------------------------------------------------------------------

    def with_weights(self, **weights: Any) -> "Objective":
        """Return a copy with other weights: `with_weights(tv=0.1, data={"cphase": 2.0})`."""
        return self._change(weights, with_weight)

    def with_precision(self, precision: str) -> "Objective":
        """Return a copy in 'float32' or 'float64': rows, args and weights are cast where they differ."""
        terms = tuple(cast(term, precision, f"term {name!r}: ") for name, term in self.items())
        return Objective(terms, self.names, self.mesh, precision)

    def with_args(self, **args: tuple) -> "Objective":
        """Return a copy with other args: `with_args(entropy=(prior_image,))`."""
        return self._change(args, lambda term, new: replace(term, args=tuple(new)))

    def with_rows(self, **rows: Any) -> "Objective":
        """Return a copy with other rows, of the same layout as the present ones (same shapes: no retrace)."""

        def change(term, new):
            if not isinstance(term, RowTerm):
                raise TypeError("with_rows: this term has no rows.")
            new = numbered(new) if term.per_row_keys else new
            old_shapes, new_shapes = (jax.tree.map(jnp.shape, t) for t in (term.rows, new))
            if old_shapes != new_shapes:
                raise ValueError(f"with_rows: shapes {new_shapes} differ from {old_shapes}. Make a new term instead.")
            return replace(term, rows=new)

        return self._change(rows, change)

    @our_rules()
    def freeze(self, key: Any) -> "Objective":
        """Return a copy in which every stochastic term uses one fixed realisation; key: as of value, or a number."""
        key = as_key(key)

        def fixed(i, term):
            stochastic = isinstance(term, RowTerm) and term.stochastic
            return replace(term, key=reduce.term_key(term, key, i)) if stochastic else term

        return replace_terms(self, [fixed(i, term) for i, term in enumerate(self.terms)])

    def only(self, *names: str) -> "Objective":
        """Return the objective of the named terms."""
        for name in names:
            self._require_name(name)
        kept = [(n, t) for n, t in zip(self.names, self.terms, strict=True) if n in names]
        return Objective(tuple(t for _, t in kept), tuple(n for n, _ in kept), self.mesh, self.precision)

    @our_rules()
    def take(self, select: Callable[[int, int], np.ndarray]) -> "Objective":
        """Return a host-side mini-batch: select(term position, n_rows) gives the row numbers kept in each row term.

        Totals are scaled by n_rows / n_selected, so that they estimate those of all rows.
        """

        def chosen(i, term):
            if not isinstance(term, RowTerm):
                return term
            n = term.n_rows
            index = np.sort(np.asarray(select(i, n)))
            if not len(index):
                raise ValueError(f"take: no rows chosen for term {self.names[i]!r}. Choose at least one of its {n}.")
            scale = float(term.scale) * n / len(index)  # a batch of a batch still stands for all rows
            return replace(term, rows=take(term.rows, index, term.counts), counts=None, scale=scale)

        terms = tuple(chosen(i, t) for i, t in enumerate(self.terms))
        return Objective(terms, self.names, None, self.precision)

    # ---- layout -------------------------------------------------------------------------------------------------

    def place(self, mesh: Mesh | None = None) -> "Objective":
        """Put the rows onto a mesh (None: the default device); the value stays the same.

        Every process of the mesh must hold all rows; where each holds its own, use place_local.
        """
        if mesh is None:
            terms = tuple(_in_class(t) if isinstance(t, RowTerm) else t for t in self.terms)
            with arithmetic(self._precision_at()):
                return Objective(replicate(terms, None), self.names, None, self.precision)  # one transfer for all
        return self._placed(mesh, lambda rows, counts: place_rows(rows, counts, mesh))

    def place_local(self, mesh: Mesh) -> "Objective":
        """Put the rows of each process onto its own devices of the mesh; together they are the data.

        Every process makes the same terms of its own rows, as many as it has, and calls this. In a single process it is
        the same as place.

        Example: `Objective({"decay": residual_term(fn, read(my_rows(n)))}).place_local(mesh)`.
        """
        if self.mesh is not None:
            raise ValueError(
                "place_local: these rows are on a mesh already. Make the objective of each process's rows."
            )
        return self._placed(mesh, lambda rows, _: rows_from_process(rows, mesh))

    def _placed(self, mesh: Mesh, put_rows: Callable) -> "Objective":
        if ROWS not in mesh.axis_names:
            raise ValueError(f"this mesh has axes {mesh.axis_names}, but no axis 'rows'. Make it with shardfit.mesh().")

        if spans_processes(mesh):
            meet(mesh)

        def put(term):
            if not isinstance(term, RowTerm):
                return replicate(term, mesh)
            rows, counts = put_rows(term.rows, term.counts)
            return replace(replicate(replace(term, rows=None, counts=None), mesh), rows=rows, counts=counts)

        with arithmetic(self._precision_at()):
            return Objective(tuple(put(t) for t in self.terms), self.names, mesh, self.precision)

    def map_shards(self, fn: Callable[["Objective", jax.Array], Any]) -> Any:
        """Return fn(shard's own objective, shard index) for every shard, stacked: the sum over shards is not taken.

        Penalties (the prior) are divided by the number of shards, so that the shards' objectives add up to this one.
        """
        self.require_sums("map_shards")
        shards = n_shards(self.mesh)
        for name, term in zip(self.names, self.terms, strict=True):
            if isinstance(term, RowTerm) and not isinstance(term.counts, Tracer) and term.n_rows < shards:
                raise ValueError(
                    f"map_shards: term {name!r} has {term.n_rows} rows for {shards} shards, so a shard would be "
                    "empty. Use a mesh with fewer rows."
                )

        def one(terms, index):
            terms = tuple(divided(term, shards) for term in terms)
            return fn(Objective(terms, self.names, None, self.precision), index)

        with arithmetic(self._precision_at()), as_they_are(self, fn):
            return reduce.map_shards(self.mesh, self.terms, one)

    def split(self, shards: int, by: Any = None, seed: int = 0) -> list["Objective"]:
        """Return the objectives of this many shards of the rows; they have equal shapes, and add up to this one.

        Rows are shuffled and split, penalties (the prior) divided by the number of shards. by: labels of which every
        shard gets its share: the name of an entry of the rows, an array with one label per row, or a dict of these by
        term; None: the groups of linear terms.

        Example: `objective.split(16, by="angle")`.
        """
        self.require_sums("split", nearly=True)
        with arithmetic(self._precision_at()):
            parts = split_terms(dict(self.items()), shards, by, seed)
        return [Objective(terms, self.names, None, self.precision) for terms in parts]

    # ---- what it can do -----------------------------------------------------------------------------------------

    @property
    def stochastic(self) -> tuple[str, ...]:
        """Names of terms that need a random key."""
        return tuple(n for n, t in self.items() if isinstance(t, RowTerm) and t.stochastic and t.key is None)

    @property
    def n_rows(self) -> dict[str, int]:
        """Number of rows of each row term."""
        return {n: t.n_rows for n, t in self.items() if isinstance(t, RowTerm)}

    def items(self):
        """Iterate over (name, term)."""
        return zip(self.names, self.terms, strict=True)

    def require_least_squares(self, what: str) -> None:
        """Raise unless every term has normal equations."""
        remedy = "Use residual_term / residual_penalty, or a solver that works on values: 'lbfgsb', 'lbfgs', 'adam'."
        self._require_squares(what, lambda term: term.least_squares, remedy)

    def require_residuals(self, what: str) -> None:
        """Raise unless every term is made of residuals."""
        remedy = "Use residual_term / residual_penalty, or a solver that works on values or normal equations: 'lm'."
        self._require_squares(what, lambda term: isinstance(term, ResidualTerm | ResidualPenalty), remedy)

    def _require_squares(self, what: str, fits: Callable[[Term], bool], remedy: str) -> None:
        wrong = [n for n, t in self.items() if not fits(t)]
        if wrong:
            raise TypeError(
                f"{what} needs residuals, but {', '.join(map(repr, wrong))} has none (a statistic term, a marginal "
                f"linear term, a penalty, or a loss of residuals that is not half their squares). {remedy}"
            )
        for name, term in self.items():
            for leaf in jax.tree.leaves(term.weight):
                if not isinstance(leaf, Tracer) and np.any(np.asarray(leaf) < 0):
                    raise ValueError(f"{what}: term {name!r} has a negative weight, so its root is not real.")

    def require_sums(self, what: str, nearly: bool = False) -> None:
        """Raise unless every data loss is a plain sum over rows; nearly: or declares that shards may be added."""
        wrong = [n for n, t in self.items() if isinstance(t, RowTerm) and not (t.shardable if nearly else t.linear)]
        if wrong:
            raise TypeError(
                f"{what} needs losses that are plain sums over rows, but {', '.join(map(repr, wrong))} applies a loss "
                "to the totals. One posterior over all rows (objective.value) has no such limit."
            )

    def _change(self, changes: dict, change: Callable[[Term, Any], Term]) -> "Objective":
        for name in changes:
            self._require_name(name)
        return replace_terms(self, [change(t, changes[n]) if n in changes else t for n, t in self.items()])

    def _require_name(self, name: str) -> None:
        if name not in self.names:
            raise ValueError(f"no term {name!r} in this objective.{suggestion(name, self.names)}")


def as_key(key: Any) -> Any:
    """Return a random key from a key or a whole number, or raise."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return jax.random.key(int(key))
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ()
    if key is None or typed or (dtype == np.uint32 and shape == (2,)):
        return key
    raise TypeError(f"key is {key!r}, which is no random key. Pass a whole number or jax.random.key(number).")


def _in_class(term: RowTerm) -> RowTerm:
    rows, counts = in_class(term.rows, term.counts)
    return replace(term, rows=rows, counts=counts)


def replace_terms(objective: Objective, terms: Any) -> Objective:
    """Return the objective with other terms under the same names."""
    return Objective(tuple(terms), objective.names, objective.mesh, objective.precision)


def normalised(objective: Objective) -> bool:
    """Return whether every data term has an entry `sigma`, so that its residuals are in units of known errors."""
    terms = [t for t in objective.terms if isinstance(t, RowTerm)]
    return all(isinstance(t.rows, dict) and "sigma" in t.rows for t in terms)


def _weight_text(weight: Any) -> str:
    """Return a weight as text; where only its shape is known, or there are many, what it is."""
    known = isinstance(weight, int | float | np.ndarray | np.generic | jax.Array) and not isinstance(weight, Tracer)
    return number(np.asarray(weight).item(), 6) if known and np.size(weight) == 1 else type(weight).__name__
