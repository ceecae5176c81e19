"""Models with linear coefficients, which are eliminated: y ≈ Σ_k c_{g,k} B_k(params, row), with coefficients by group.

One term, two uses. For fits the coefficients take their best values at every point (variable projection: Golub and
Pereyra 1973, with Kaufman's Jacobian, so that error bars are those of a joint fit). For sampling they are integrated
out under a Gaussian or flat prior. Both need of the rows only K × K sums per group, so both stream and shard exactly.
`eliminated.py` gives the coefficients back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.equations import Equations, Gram, NormalEquations, Place
from shardfit.core.gram import block_rows
from shardfit.core.rows import leading, masked
from shardfit.core.term_makers import check_equations, row_fields
from shardfit.core.terms import RowTerm, numbers_in, static, with_shapes
from shardfit.stats.groups import (
    check_basis,
    check_data,
    check_prior,
    check_prior_shape,
    check_sizes,
    group_numbers,
    require_density,
)
from shardfit.stats.projection import (
    Normal,
    column_products,
    least,
    log_det,
    log_prior_scales,
    normal,
    prior_residuals,
    prior_slopes,
    products,
)

CANCELLING = 30.0  # squares of the parts of a model, over those of the data, from which on they cancel each other


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class LinearTerm(RowTerm):
    """A model with linear coefficients that are eliminated; made by linear_term.

    A row contributes its basis functions; what is summed are products of these and the data, per group: (G, K+1, K+1).
    """

    prior: Any  # (mean, sd), each as broad as (G, K); None: flat
    inner: Any  # groups of the numbers of a row; None if groups are those of rows
    sizes: Any  # (G,) numbers in each group
    centre: Any  # (G, K) coefficients around which sums are taken; None: zero
    group: str | None = static()  # entry of rows that holds the groups
    marginal: bool = static()

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return self.sizes.shape[0]

    @property
    def linear(self) -> bool:
        """Not a plain sum over rows: every group has its own best coefficients."""
        return False

    @property
    def shardable(self) -> bool:
        """Coefficients may be integrated out shard by shard; their prior would then count once per shard."""
        return self.marginal and self.prior is None

    @property
    def strata(self) -> str | None:
        """The groups of rows: a shard without rows of a group knows nothing of its coefficients."""
        return self.group if self.group is not None and np.ndim(self.rows[self.group]) == 1 else None

    @property
    def generic_equations(self) -> Equations | None:
        """Those of the projected residuals; integrated coefficients leave a determinant, so there are none."""
        return None if self.marginal else Projected()

    @property
    def least_squares(self) -> bool:
        """Whether the term has normal equations."""
        return not self.marginal

    @property
    def counted(self) -> bool:
        """Data and coefficients can be counted."""
        return not self.marginal

    def statistics(self, params: Any, rows: Any, mask: jax.Array | None, key: Any) -> jax.Array:
        """Return the products of a block's columns [B, y] by group (G, K+1, K+1)."""
        basis, y = self.contributions(params, rows, key), rows["y"]
        columns = jnp.unstack(basis, axis=-1)
        if self.centre is not None:
            own = jnp.unstack(self.own(self.centre, rows), axis=-1)
            y = y - sum(column * c for column, c in zip(columns, own, strict=True))
        # column by column, never as one array (n, K): what is computed for a row stays in registers
        columns = [self.whitened(column, rows, mask) for column in (*columns, y)]
        return column_products(columns, self.ids(rows), self.n_groups, inner=self.group is None)

    def losses(self, totals: jax.Array, key: Any) -> jax.Array:
        """Return ½Σ of the squared residuals at the best coefficients, or −log of the integral over coefficients."""
        solved = self.normal(totals)
        value = jnp.sum(least(solved))
        if not self.marginal:
            return value
        return value + jnp.sum(0.5 * log_det(solved) + log_prior_scales(self.prior, solved.vector))

    def normal(self, totals: jax.Array) -> Normal:
        """Return what data and prior say of the coefficients, from the totals of all rows."""
        return normal(totals, self.prior, self.centre)

    def centre_of(self, totals: jax.Array) -> jax.Array:
        """Return the best coefficients: around them values lose no digits to differences of large sums.

        Large ones that cancel each other, as at a poor start, would cost digits elsewhere: zero stands for them.
        """
        solved = self.normal(totals)
        size = jnp.diagonal(solved.matrix, axis1=1, axis2=2)
        sums = jnp.sum(size * solved.best**2, axis=1), solved.square + jnp.sum(size * solved.centre**2, axis=1)
        return jnp.where((sums[0] <= CANCELLING * sums[1])[:, None], solved.best, 0)

    def whitened(self, columns: jax.Array, rows: Any, mask: jax.Array | None) -> jax.Array:
        """Return columns (n, *shape, m), or one (n, *shape), in units of the noise, zero where masked."""
        if "sigma" in rows:
            sigma = rows["sigma"]
            columns = columns / sigma.reshape(sigma.shape + (1,) * (columns.ndim - sigma.ndim))
        return masked(mask, columns)

    def products(self, left: jax.Array, right: jax.Array, rows: Any) -> jax.Array:
        """Return the sums of products of columns by group."""
        return products(left, right, self.ids(rows), self.n_groups, inner=self.group is None)

    def ids(self, rows: Any) -> Any:
        """Return the group numbers of a block of rows, or those of the numbers of every row."""
        return self.inner if self.group is None else rows[self.group]

    def own(self, coefficients: jax.Array, rows: Any) -> jax.Array:
        """Return for every number of a block its group's coefficients, as broad as (n, *shape, K)."""
        if self.group is None:
            return coefficients[0] if self.inner is None else coefficients[self.inner]
        ids = rows[self.group]
        shape = ids.shape + (1,) * (rows["y"].ndim - ids.ndim)
        return coefficients[ids].reshape(*shape, coefficients.shape[1])

    def n_residuals(self, params: Any) -> Any:
        """Return the number of data less that of coefficients with a flat prior."""
        one = with_shapes(self, 1)
        basis = jax.eval_shape(lambda p, t: t.contributions(p, t.rows, None), params, one)
        n = leading(self.rows) if self.counts is None else jnp.sum(self.counts)
        flat = jnp.ones(basis.shape[-1]) if self.prior is None else jnp.isinf(jnp.asarray(self.prior[1]))
        flat = jnp.sum(jnp.broadcast_to(flat, (self.n_groups, basis.shape[-1])))
        return numbers_in(one.rows["y"]) * n - flat.astype(int)

    def sampled(self) -> "LinearTerm":
        """Return the term with one group: a few rows of each of many would not determine their coefficients."""
        if self.group is None:
            return self
        rows = {**self.rows, self.group: np.zeros_like(self.rows[self.group])}
        return replace(self, rows=rows)

    def with_marginal(self, marginal: bool, **changes: Any) -> "LinearTerm":
        """Return the term with its coefficients integrated out, or at their best."""
        if marginal:
            require_density(self.weight)
        return replace(self, marginal=marginal, **changes)

    def check_shapes(self, name: str, contributions: Any) -> None:
        """Raise where the basis does not fit the data, or groups are too small for their coefficients."""
        y = self.rows["y"]
        check_basis(name, y, contributions)
        k = contributions.shape[-1]
        check_prior_shape(name, self.prior, (self.n_groups, k))
        per_row = max(1, int(np.prod(y.shape[1:])))
        if self.chunk is not None and self.chunk * per_row < 2 * k:
            raise ValueError(
                f"term {name!r}: chunk={self.chunk} rows hold {self.chunk * per_row} numbers for {k} coefficients. Use "
                f"chunk={-(-2 * k // per_row)} or more."
            )
        if jax.process_count() == 1:  # else the data of other processes are not known here
            check_sizes(name, np.asarray(self.sizes) * (2 if jnp.iscomplexobj(y) else 1), self.prior, k)


@dataclass(frozen=True)
class Projected(Equations):
    """Normal equations of the residuals that the best coefficients leave.

    The first walk over the rows finds the coefficients, the second sums the residuals r and the derivatives J that they
    have at these coefficients: no digits are lost to differences of large sums. Of the projected Jacobian Kaufman's
    part is kept, (1 − BA⁻¹Bᵀ)J: its matrix is the Schur complement of a joint fit's, so covariances are the same.
    """

    two_walks: ClassVar[bool] = True

    def start(self, place: Place, totals: Any) -> Any:
        """Return the coefficients (G, K) and the totals that they are from."""
        return place.term.normal(totals).best, totals

    def sums(self, place: Place, rows: Any, mask: jax.Array | None) -> dict[str, jax.Array]:
        """Return products of [J, r] with themselves (n+1, n+1), and by group with the basis (G, K, n+1)."""
        term, z = place.term, place.z
        own = term.own(place.known[0], rows)

        def model(z):
            basis = term.contributions(place.space.unpack(z), rows, place.key)
            return jnp.sum(basis * own, axis=-1), basis

        predicted, push, basis = jax.linearize(model, z, has_aux=True)
        slopes = jnp.moveaxis(jax.vmap(push)(jnp.eye(z.size, dtype=z.dtype)), 0, -1)
        columns = jnp.concatenate([slopes, (predicted - rows["y"])[..., None]], axis=-1)
        columns = term.whitened(columns, rows, mask)
        basis = term.whitened(basis, rows, mask)
        whole = products(columns, columns, None, 1, inner=False)[0]
        return {"columns": whole, "basis": term.products(basis, columns, rows)}

    def gram(self, place: Place, totals: Any) -> Gram:
        """Return the normal equations of the projected residuals."""
        coefficients, first = place.known
        # the coefficients' own rounding leaves a little of the basis in the residuals: it is taken out here
        inside = place.term.normal(first).whiten(self.slopes(place, totals))
        whole = totals["columns"] - jnp.einsum("gka,gkb->ab", inside, inside)
        value = 0.5 * whole[-1, -1] + 0.5 * jnp.sum(prior_residuals(coefficients, place.term.prior) ** 2)
        return Gram(value, whole[:-1, -1], whole[:-1, :-1])

    def slopes(self, place: Place, totals: Any) -> jax.Array:
        """Return the products of basis with [J, r] (G, K, n+1), the prior's own residuals among them."""
        return totals["basis"].at[..., -1].add(prior_slopes(place.known[0], place.term.prior))

    def block_rows(self, place: Place) -> int | None:
        """Return how many rows keep the derivatives of a block in cache."""
        return block_rows(place)


def linear_term(
    basis: Callable,
    rows: Any,
    *args: Any,
    groups: Any = None,
    prior: Any = None,
    marginal: bool = False,
    weight: Any = 1.0,
    chunk: int | None = None,
    gram: NormalEquations | None = None,
) -> LinearTerm:
    """Make a data term of a model y ≈ Σ_k c_k B_k(params, rows) whose coefficients c are eliminated, group by group.

    Only the other, nonlinear parameters are left to a fit or sampler. `coefficients` and `recover` give c back.

    basis(params, rows, *args): basis functions (n, *shape, K) of a block of n rows, for data y (n, *shape).
    rows: dict with `y` (n, *shape), real or complex, and `sigma`, its standard deviations, (n,) or like y (1 if left
    out: standard errors are then scaled by the reduced χ²), and whatever basis needs.
    groups: which data share coefficients. None: all. The name of an entry of rows: group numbers 0 ... G-1 of rows (n,)
    or of single data (n, *shape); ("angle", 23) says how many there are, where not every process has rows of each. An
    array of whole numbers (*shape): groups of the inner axes, such as np.arange(23) for a row with one datum per angle.
    prior: None (flat) or (mean, sd) of Gaussian priors, each as broad as (G, K); an infinite sd is flat.
    marginal: False takes the best coefficients, value ½Σr² (+ ½Σ((c-mean)/sd)²), which `lm` can fit with the error bars
    of a joint fit. True integrates them out, for sampling: value -log ∫ exp(-½Σr²) prior(c) dc, exactly.
    chunk, weight: as for residual_term. gram: `NormalEquations` of your own for `lm`, compared with the generic ones by
    the certificate; solve gets the totals of your sums and returns the *projected* value, gradient and matrix.

    Example: `linear_term(lambda p, r: jnp.stack([jnp.exp(-p["k"] * r["t"]), jnp.ones_like(r["t"])], -1), {"t": t, "y":
    y, "sigma": s, "angle": angle}, groups="angle")` for a decay with an amplitude and an offset for each angle.
    """
    fields = row_fields("linear_term", basis, rows, args, weight, chunk)
    rows = check_data(fields["rows"], groups)
    if marginal:
        require_density(weight)
    group, inner, sizes = group_numbers(rows, groups)
    fields |= {"rows": rows, "equations": check_equations("linear_term", gram, weight)}
    settings = {"prior": check_prior(prior), "inner": inner, "sizes": sizes, "centre": None, "group": group}
    return LinearTerm(**fields, **settings, marginal=bool(marginal))
