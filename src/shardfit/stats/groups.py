"""What a linear term is given: data in groups, priors, and a basis that fits them; errors say what to change."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

SHOWN = 3  # groups named in a message


def check_data(rows: Any, groups: Any) -> dict[str, Any]:
    """Return rows with floating data, or raise where data, noise and groups do not fit each other."""
    if not isinstance(rows, dict) or "y" not in rows:
        raise ValueError("linear_term: rows must be a dict with an entry 'y', the data (and 'sigma', their noise).")
    y, sigma = rows["y"], rows.get("sigma")
    if not jnp.issubdtype(y.dtype, np.inexact):
        rows = {**rows, "y": np.asarray(y, float)}
    if sigma is not None and sigma.shape != y.shape[:1]:
        ok = sigma.ndim == y.ndim and all(s in (1, n) for s, n in zip(sigma.shape, y.shape, strict=True))
        if not ok:
            raise ValueError(
                f"linear_term: sigma has shape {sigma.shape}, y {y.shape}. Give one sigma per row, or one per datum."
            )
    name = groups[0] if isinstance(groups, tuple) else groups
    if isinstance(name, str) and name not in rows:
        raise ValueError(f"linear_term: groups={name!r} is no entry of rows. Entries: {', '.join(sorted(rows))}.")
    return rows


def group_numbers(rows: dict, groups: Any) -> tuple[str | None, Any, np.ndarray]:
    """Return the entry of rows with group numbers, or those of the inner axes, and the number of data in each group."""
    y = rows["y"]
    n, per_row = y.shape[0], int(np.prod(y.shape[1:]))
    if groups is None:
        return None, None, np.array([n * per_row])
    name, number = groups if isinstance(groups, tuple) else (groups, None)
    by_row = isinstance(name, str)
    ids, where = (rows[name], f"rows[{name!r}]") if by_row else (np.asarray(name), "groups")
    if not jnp.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"linear_term: {where} is {ids.dtype}. Group numbers are whole numbers 0, 1, 2 ...")
    shapes = (y.shape[:1], y.shape) if by_row else (y.shape[1:],)
    if ids.shape not in shapes or not ids.ndim:
        raise ValueError(f"linear_term: {where} has shape {ids.shape} for y {y.shape}. Give {_or(shapes)}.")
    if by_row and jax.process_count() > 1 and number is None:
        raise ValueError(
            f"linear_term: groups={name!r} with several processes: one may have rows of fewer groups than another. Say "
            f"how many there are: groups=({name!r}, n)."
        )
    if isinstance(ids, Tracer):
        raise TypeError("linear_term: group numbers are traced by jit, grad or vmap. Make terms outside of it.")
    flat = np.asarray(ids).reshape(-1)
    number = int(flat.max()) + 1 if number is None else int(number)
    if flat.min() < 0 or flat.max() >= number:
        raise ValueError(f"linear_term: {where} holds {flat.min()} ... {flat.max()}; groups are 0 ... {number - 1}.")
    times = (per_row if ids.ndim == 1 else 1) if by_row else n
    sizes = np.bincount(flat, minlength=number) * times
    return (name, None, sizes) if by_row else (None, np.asarray(ids, np.int32), sizes)


def _or(shapes: tuple) -> str:
    return " or ".join(map(str, dict.fromkeys(shapes)))


def require_density(weight: Any) -> None:
    """Raise for a weight with which the integral over coefficients is no density."""
    if isinstance(weight, dict) or not (isinstance(weight, Tracer) or np.all(np.asarray(weight) == 1)):
        raise ValueError(
            f"a linear term with weight {weight} cannot have its coefficients integrated out: the integral is a "
            "density with weight 1 only. Put the weight into sigma."
        )


def check_prior(prior: Any) -> Any:
    """Return mean and standard deviation as arrays, None for a flat prior."""
    if prior is None:
        return None
    if not isinstance(prior, tuple | list) or len(prior) != 2:
        raise TypeError("linear_term: prior is (mean, sd), or None for a flat one.")
    mean, sd = (np.asarray(part, float) for part in prior)
    if not np.isfinite(mean).all() or not (sd > 0).all():
        raise ValueError("linear_term: a prior has finite means and positive standard deviations (infinite: flat).")
    return mean, sd


def check_prior_shape(name: str, prior: Any, shape: tuple[int, int]) -> None:
    """Raise for a prior that is not as broad as shape (G, K)."""
    for part in prior or ():
        own = (1,) * (2 - part.ndim) + part.shape
        if len(own) > 2 or any(have not in (1, want) for have, want in zip(own, shape, strict=True)):
            raise ValueError(f"term {name!r}: the prior has shape {part.shape}, which does not fit {shape} (G, K).")


def check_basis(name: str, y: Any, basis: Any) -> None:
    """Raise for basis functions that are not those of data y; both may be shapes."""
    if not hasattr(basis, "shape") or basis.shape[:-1] != y.shape or not basis.shape[-1]:
        shown = getattr(basis, "shape", type(basis).__name__)
        raise ValueError(
            f"term {name!r}: basis returned {shown} for data of shape {y.shape}. Return one array with the basis "
            "functions last, (n, *shape, K): jnp.stack([f, jnp.ones_like(f)], axis=-1)."
        )
    if jnp.iscomplexobj(basis) and not jnp.iscomplexobj(y):
        raise TypeError(f"term {name!r}: basis is complex, but the data are real.")


def check_sizes(name: str, sizes: np.ndarray, prior: Any, k: int) -> None:
    """Raise for groups with fewer numbers, sizes (G,), than coefficients that no prior holds."""
    sd = np.inf if prior is None else np.asarray(prior[1])
    flat = np.sum(np.isinf(np.broadcast_to(sd, (len(sizes), k))), axis=1)
    small = np.flatnonzero(sizes < flat)
    if small.size:
        which = ", ".join(f"{g} has {sizes[g]}" for g in small[:SHOWN]) + (" ..." if small.size > SHOWN else "")
        raise ValueError(
            f"term {name!r}: {small.size} of {len(sizes)} groups have fewer data than their {k} coefficients (group "
            f"{which}), which are then not determined. Number the groups without gaps, merge small ones, or give the "
            "coefficients a prior."
        )
