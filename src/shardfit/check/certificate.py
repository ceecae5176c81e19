"""Parity certificate: proof, at run time and on the user's own model, that the gradient is right.

On a probe subset of the rows, every term is compared three ways: split over the mesh against unsplit, its derivative
against a central finite difference, and for float32 problems against float64. A mismatch stops the run.
"""

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

from shardfit.core import reduce
from shardfit.core.errors import NonFiniteError, ParityError
from shardfit.core.mesh import n_shards
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import PRECISIONS, cast, jit, problem_scope
from shardfit.core.terms import RowTerm, weighted_sum

log = logging.getLogger(__name__)

PROBE_BYTES = 1 << 20
PROBE_ROWS = 1024
STEPS = tuple(10.0**-k for k in range(1, 9))
LIMITS = {"sharded": {"float64": 1e-9, "float32": 2e-3}, "finite_difference": 1e-4, "precision": 3e-2}


@dataclass(frozen=True)
class Certificate:
    """Largest relative differences found, by term; None where a comparison did not apply."""

    shards: int
    probe_rows: dict[str, int]
    sharded: dict[str, float] | None
    finite_difference: dict[str, float]
    precision: dict[str, float] | None

    def to_dict(self) -> dict:
        """Return plain numbers, as stored in a Result."""
        return asdict(self)

    def __str__(self):
        worst = max(self.finite_difference.values())
        text = f"gradient agrees with finite differences to {worst:.1e}"
        if self.sharded is not None:
            text = f"{self.shards} shards agree with one to {max(self.sharded.values()):.1e}; " + text
        return text


def certify(
    objective: Objective, space: Space, z0: Any, *, mesh: Any = None, box: Any = None, precision: str, seed: int = 0
) -> Certificate:
    """Check value and gradient of every term near z0 (n,); raise ParityError naming the term that fails."""
    rng = np.random.default_rng([seed, 7919])
    shards = n_shards(mesh)
    probe = _probe(objective, shards, rng)
    scale = np.where(z0 != 0, np.abs(z0), np.max(np.abs(z0), initial=0.0) or 1.0)
    # a little off the start: flat images and zeros are the kinks of common penalties
    nudge = 1e-3 * scale * rng.uniform(0.5, 1, z0.shape) * rng.choice([-1, 1], z0.shape)
    z = np.asarray(z0 + nudge, np.float64)
    if box is not None:  # inside, not at the edge, so that differences have room on both sides
        z = np.clip(np.where((z < box[0]) | (z > box[1]), z0 - nudge, z), *box)
    direction = scale * rng.standard_normal(z0.shape)

    with problem_scope("float64"):
        exact = cast(probe, "float64")
        key = jax.random.key(seed)
        _require_finite("at x0", *_gradients(exact, space, np.asarray(z0, np.float64), key))
        values, gradients = _gradients(exact, space, z, key)
        _require_finite("near x0", values, gradients)
        slopes = {n: float(np.vdot(g, direction)) for n, g in gradients.items()}
        differences = _finite_differences(exact, space, z, direction, key, slopes, gradients)

    with problem_scope(precision):
        zp, key = np.asarray(z, PRECISIONS[precision]), jax.random.key(seed)
        single = _gradients(cast(probe, precision), space, zp, key)
        loss_of_digits = None if precision == "float64" else _compare(single, (values, gradients), scale)
        split = None
        if shards > 1:
            split = _compare(_gradients(cast(probe, precision).place(mesh), space, zp, key), single, scale)

    found = Certificate(shards, probe.n_rows, split, differences, loss_of_digits)
    _judge(found, precision)
    log.debug("parity certificate: %s", found)
    return found


def _probe(objective, shards, rng):
    """Choose rows at random: few enough to be cheap, and one more than divides evenly over the shards."""

    def select(position, n):
        leaves = jax.tree.leaves(objective.terms[position].rows)
        row_bytes = max(1, sum(leaf.nbytes for leaf in leaves) // n)
        size = int(np.clip(PROBE_BYTES // row_bytes, 1, PROBE_ROWS))
        size = min(n, size // shards * shards + 1 if size >= shards else shards + 1)
        return rng.choice(n, size, replace=False)

    return objective.take(select)


@jit
def _gradients(objective, space, z, key):
    values, gradients = {}, {}
    for i, (name, term) in enumerate(objective.items()):
        params, pull = jax.vjp(space.unpack, z)
        if isinstance(term, RowTerm):
            term = replace(term, key=reduce.term_key(term, key, i))
        value, gradient, _ = reduce.value_grad_losses(objective.mesh, (term,), params, None)
        values[name], gradients[name] = value, pull(gradient)[0]
    return values, gradients


@jit
def _values(objective, space, z, key):
    losses = reduce.losses(objective.mesh, objective.terms, space.unpack(z), key)
    return {n: weighted_sum(t.weight, loss) for (n, t), loss in zip(objective.items(), losses, strict=True)}


def _finite_differences(objective, space, z, direction, key, slopes, gradients):
    """Return each term's smallest relative difference over a range of steps."""
    best = dict.fromkeys(slopes, np.inf)
    for h in STEPS:
        ahead = _values(objective, space, z + h * direction, key)
        behind = _values(objective, space, z - h * direction, key)
        for name, slope in slopes.items():
            estimate = (float(ahead[name]) - float(behind[name])) / (2 * h)
            # a slope far below gradient x direction is rounding, not information
            floor = 1e-6 * float(np.linalg.norm(gradients[name] * direction))
            size = max(abs(estimate), abs(slope), floor, np.finfo(float).tiny)
            # rounding of the value itself limits what a difference can resolve
            noise = 8 * np.finfo(float).eps * max(abs(float(ahead[name])), abs(float(behind[name]))) / h
            if np.isfinite(estimate):
                best[name] = min(best[name], max(0.0, abs(estimate - slope) - noise) / size)
        if max(best.values()) < 1e-7:
            break
    return {name: float(x) for name, x in best.items()}


def _compare(one, other, scale):
    """Return the largest relative difference of value and gradient, by term; parameters are measured in their scale."""
    result = {}
    for name in one[0]:
        v1, v2 = float(one[0][name]), float(other[0][name])
        g1, g2 = (scale * np.asarray(g[1][name], np.float64) for g in (one, other))
        value = abs(v1 - v2) / max(abs(v2), np.finfo(np.float32).tiny)
        # a gradient far below value / scale is rounding: a term may not depend on its parameters at all
        gradient = np.linalg.norm(g1 - g2) / max(np.linalg.norm(g2), 1e-4 * abs(v2), np.finfo(np.float32).tiny)
        result[name] = float(max(value, gradient)) if np.any(g2) or v2 else float(np.abs(v1) + np.linalg.norm(g1))
    return result


def _require_finite(where, values, gradients):
    for name, value in values.items():
        if not np.isfinite(float(value)):
            raise NonFiniteError(
                f"term {name!r} is {float(value)} {where}. Start where the model is defined, or bound the parameters."
            )
        if not np.isfinite(np.asarray(gradients[name])).all():
            raise NonFiniteError(
                f"term {name!r} is finite {where} but its gradient is not. A square root, absolute value, power or "
                "division at zero inside the model is the usual cause: keep its argument away from zero."
            )


def _judge(found: Certificate, precision: str) -> None:
    for name, error in (found.sharded or {}).items():
        if not error <= LIMITS["sharded"][precision]:
            raise ParityError(
                f"term {name!r}: split over {found.shards} devices, value or gradient differs from one device by "
                f"{error:.1e}. A foreign function inside the model is probably not safe to split (its derivative rule "
                "under shard_map): give it its own custom_vjp, or run without a mesh."
            )
    for name, error in found.finite_difference.items():
        if not error <= LIMITS["finite_difference"]:
            raise ParityError(
                f"term {name!r}: the gradient differs from a finite difference by {error:.1e} (relative). Check any "
                "custom_vjp or custom_jvp in the model, and operations with a hard edge (round, argmax, comparisons). "
                "certify=False skips this check."
            )
    for name, error in (found.precision or {}).items():
        if not error <= LIMITS["precision"]:
            raise ParityError(
                f"term {name!r}: in float32 value or gradient is off by {error:.1e} (relative to float64): digits are "
                "lost to cancellation. Use precision='float64', or subtract the large common part first."
            )
