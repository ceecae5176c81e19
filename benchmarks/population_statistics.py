"""Statistics as users write them: what the suite population_forms evaluates.

First one mass function in several ways, one row of statistics for each row. Then sums over the block, which get a
weight for each row. NumPy and JAX only: the peer's environment lacks our packages.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
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


def catalogue(n: int, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return these columns of a made catalogue of n galaxies."""
    columns: dict[str, Callable] = {
        "z": lambda rng: rng.uniform(0, 1, n),
        "c": lambda rng: rng.normal(0, 1, (n, 4)),
        "bin": lambda rng: rng.integers(0, BINS, n),
        "cell": lambda rng: rng.integers(0, CELLS, (n, 3)),
        "logm": lambda rng: rng.uniform(10, 11, n),
    }
    made = {name: columns[name](np.random.default_rng([7, len(name), ord(name[0])])) for name in names}
    return {k: v.astype(np.float32 if v.dtype == np.float64 else np.int32) for k, v in made.items()}


BINS, CELLS, SLICES, STEPS = 64 * 64, 64, 20, 20


def weight_of(p, rows):
    """Weights that parameters give: how a survey's selection is described."""
    return jnp.exp(p[0] * rows["z"] + p[2] * rows["c"][:, 0] + p[3] * rows["c"][:, 1])


def reweight(p, rows, w):
    """64 x 64 fixed bins, weights in the parameters."""
    return jnp.zeros(BINS, jnp.float32).at[rows["bin"]].add(w * weight_of(p, rows))


def cube(p, rows, w):
    """64^3 fixed bins."""
    i, j, k = jnp.moveaxis(rows["cell"], 1, 0)
    return jnp.zeros((CELLS,) * 3, jnp.float32).at[i, j, k].add(w * weight_of(p, rows))


def scan(p, rows, w):
    """Counts above a limit that changes with redshift, one slice after the other."""

    def slice_at(_, z):
        return None, jnp.sum(w * jax.nn.sigmoid(10 * p[1] * (rows["z"] + p[0] - z)))

    return jax.lax.scan(slice_at, None, jnp.linspace(0, 1, SLICES, dtype=jnp.float32))[1]


def drawn(p, rows, w, noise):
    """A mass function of masses with drawn scatter: noise (n,) unit normals."""
    mass = rows["logm"] + p[0] - 1 + jnp.abs(p[1]) * noise
    return jnp.stack([jnp.sum(w * jax.nn.sigmoid((mass - edge) / np.float32(0.05))) for edge in EDGES])


def grown(p, rows, w):
    """A mass function of masses that grow by a differential equation of their own, Runge-Kutta's fourth order."""
    h = np.float32(1 / STEPS)

    def rate(m, t):
        return p[0] * m * (1 - m / 12) + p[1] * t * rows["z"]

    def step(m, t):
        k1 = rate(m, t)
        k2 = rate(m + h / 2 * k1, t + h / 2)
        k3 = rate(m + h / 2 * k2, t + h / 2)
        return m + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(m + h * k3, t + h)), None

    mass, _ = jax.lax.scan(step, rows["logm"] - 1, h * jnp.arange(STEPS, dtype=jnp.float32))
    return jnp.stack([jnp.sum(w * jax.nn.sigmoid((mass - edge) / np.float32(0.1))) for edge in EDGES])


def ratio(p, rows, w):
    """Mean colour in 64 x 64 bins, as numerator and denominator."""
    weight = w * weight_of(p, rows)
    both = jnp.stack([weight, weight * rows["c"][:, 2]], axis=1)
    return jax.ops.segment_sum(both, rows["bin"], BINS)


def correlation(p, rows, w):
    """Correlation of two colours in three windows of mass, as six sums each."""
    x, y = rows["c"][:, 0] + p[0] * rows["z"], rows["c"][:, 1] + p[3] * rows["c"][:, 0]
    windows = jnp.array([10.2, 10.5, 10.8], jnp.float32)[:, None]
    inside = w * jnp.exp(-0.5 * ((rows["logm"] + p[1] - windows) / np.float32(0.2)) ** 2)
    moments = jnp.stack([jnp.ones_like(x), x, y, x * x, y * y, x * y])
    return inside @ moments.T


def level(totals, n):
    """Mean square logarithm of densities."""
    return jnp.mean(jnp.log10(jnp.abs(totals) / n + np.float32(1e-4)) ** 2)


def mean_level(totals, n):
    """Mean square of ratios."""
    return jnp.mean((totals[:, 1] / (totals[:, 0] + 1)) ** 2)


def coefficients(totals, n):
    """Squares of correlation coefficients about one half."""
    one, x, y, xx, yy, xy = (totals / totals[:, :1]).T
    return jnp.sum(((xy - x * y) / jnp.sqrt((xx - x * x) * (yy - y * y)) - np.float32(0.5)) ** 2)


class Form(NamedTuple):
    """A statistic, the loss of its totals, the columns it reads; summed: over the block. drawn: it gets normals."""

    statistic: Callable
    loss: Callable = misfit
    columns: tuple[str, ...] = ()
    summed: bool = False
    drawn: bool = False

    def rows(self, n: int) -> dict[str, np.ndarray]:
        """Return n rows."""
        return catalogue(n, self.columns)


CATALOGUE_POINT = np.array([0.1, 0.3, 0.2, 0.05], np.float32)
FORMS: dict[str, Form] = {form.__name__: Form(form) for form in (broadcast, diff, stack, leaves, above)}
FORMS |= {
    "reweight": Form(reweight, level, ("z", "c", "bin"), summed=True),
    "cube": Form(cube, level, ("z", "c", "cell"), summed=True),
    "scan": Form(scan, level, ("z",), summed=True),
    "draws": Form(drawn, level, ("logm",), summed=True, drawn=True),
    "growth": Form(grown, level, ("logm", "z"), summed=True),
    "ratio": Form(ratio, mean_level, ("z", "c", "bin"), summed=True),
    "correlation": Form(correlation, coefficients, ("z", "c", "logm"), summed=True),
}


def partial_sums(form: Form, params: Any, rows: Any, key: Any) -> Any:
    """Return a summed form's sums of all rows as plain JAX has them: every row counts, draws come from one key."""
    n = len(jax.tree.leaves(rows)[0])
    noise = (jax.random.normal(key, (n,), jnp.float32),) if form.drawn else ()
    return form.statistic(params, rows, jnp.ones(n, jnp.float32), *noise)
