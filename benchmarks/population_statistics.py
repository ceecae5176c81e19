"""The same mass function in the ways users write it: what the suite population_forms evaluates."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

EDGES = np.linspace(9, 10, 11).astype(np.float32)
TARGET = (
    *(2.30178721e-02, 1.69728529e-02, 1.16054425e-02, 7.10532581e-03, 3.77187086e-03),
    *(1.69136131e-03, 6.28149020e-04, 1.90466686e-04, 4.66692982e-05, 9.17260695e-06),
)


def broadcast(p, rows, volume):
    """Cumulative, an axis of edges beside the rows: (n, 11)."""
    return norm.cdf(EDGES, rows["logm"][:, None] + p[0], p[1])


def diff(p, rows, volume):
    """Bins, as differences of neighbouring edges: (n, 10)."""
    return jnp.diff(broadcast(p, rows, volume), axis=1)


def stack(p, rows, volume):
    """Cumulative, edge by edge, stacked: (n, 11)."""
    return jnp.stack([norm.cdf(edge, rows["logm"] + p[0], p[1]) for edge in EDGES], axis=1)


def leaves(p, rows, volume):
    """Cumulative, a list with one array (n,) for each edge."""
    return [norm.cdf(edge, rows["logm"] + p[0], p[1]) for edge in EDGES]


def above(p, rows, volume):
    """The library's own statistic: (n, 11)."""
    from shardfit.stats.histogram import above

    return above(rows["logm"] + p[0], p[1], EDGES)


def misfit(totals, volume):
    """Return the published loss of totals in any of the forms."""
    totals = jnp.stack(totals) if isinstance(totals, list) else totals
    counts = totals if len(totals) == len(TARGET) else jnp.abs(jnp.diff(totals))
    density = counts / volume / np.float32(0.1)
    return jnp.mean((jnp.log10(density + 1e-5) - jnp.log10(np.array(TARGET, np.float32) + 1e-5)) ** 2)


FORMS = {form.__name__: form for form in (broadcast, diff, stack, leaves, above)}
