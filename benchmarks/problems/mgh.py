"""The 35 test problems of Moré, Garbow and Hillstrom (ACM TOMS 7, 1981), as residual vectors.

Numbers in the paper are sums of squares; the minima here are too, refined beyond the six printed digits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

RELATIVE, ABSOLUTE = 1e-6, 1e-10  # a run is solved when its sum of squares is this close to a known minimum


@dataclass(frozen=True)
class Problem:
    """One problem. x0: (p,); residual(x, rows) -> (n_rows,); minima: known ones of the sum of squares, least first."""

    name: str
    residual: Callable
    rows: Mapping[str, np.ndarray]
    x0: np.ndarray
    minima: tuple[float, ...]

    def start(self, factor: float) -> np.ndarray:
        """A harder start: x0 times `factor`, or `factor` itself where x0 is zero, as in MINPACK's tests."""
        return self.x0 if factor == 1 else factor * (self.x0 if self.x0.any() else np.ones_like(self.x0))

    def solved(self, sum_of_squares: float) -> bool:
        """Whether a final sum of squares is one of the known minima, or lower than the least of them."""
        excess = [sum_of_squares - f for f in self.minima]
        near = any(abs(e) <= RELATIVE * f + ABSOLUTE for e, f in zip(excess, self.minima, strict=True))
        return bool(near or excess[0] < 0)


PROBLEMS: dict[str, Problem] = {}


def _problem(x0, *minima: float, rows: Mapping | None = None) -> Callable:
    """Register a residual function: of (x, rows) where rows are given, else of x alone, its entries numbered."""
    x0 = np.array(x0, float)

    def register(fn):
        if rows is None:
            # a constant array traced in float32 first could not be traced in float64 later
            with jax.enable_x64(True):
                shape = jax.eval_shape(fn, x0).shape
            residual, table = lambda x, r: fn(x)[r["row"]], {"row": np.arange(*shape)}
        else:
            residual, table = fn, {key: np.array(column) for key, column in rows.items()}
        PROBLEMS[fn.__name__] = Problem(fn.__name__, residual, table, x0, minima or (0.0,))
        return fn

    return register


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


def _one_to(n: int) -> np.ndarray:
    return np.arange(1, n + 1.0)


@_problem([-1.2, 1])
def rosenbrock(x):
    return jnp.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])


@_problem([0.5, -2], 0.0, 48.98425367924001)
def freudenstein_roth(x):
    a, b = x
    return jnp.array([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])


@_problem([0, 1])
def powell_badly_scaled(x):
    return jnp.array([1e4 * x[0] * x[1] - 1, jnp.exp(-x[0]) + jnp.exp(-x[1]) - 1.0001])


@_problem([1, 1])
def brown_badly_scaled(x):
    return jnp.array([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


@_problem([1, 1], rows={"i": [1, 2, 3], "y": [1.5, 2.25, 2.625]})
def beale(x, rows):
    return rows["y"] - x[0] * (1 - x[1] ** rows["i"])


@_problem([0.3, 0.4], 124.36218235561, rows={"i": _one_to(10)})
def jennrich_sampson(x, rows):
    return 2 + 2 * rows["i"] - (jnp.exp(rows["i"] * x[0]) + jnp.exp(rows["i"] * x[1]))


@_problem([-1, 0, 0])
def helical_valley(x):
    turn = jnp.arctan2(x[1], x[0]) / (2 * jnp.pi)
    turn = jnp.where(turn < -0.25, turn + 1, turn)  # the paper's branch runs from -1/4 to 3/4
    return jnp.array([10 * (x[2] - 10 * turn), 10 * (jnp.hypot(x[0], x[1]) - 1), x[2]])


_BARD = _numbers(".14 .18 .22 .25 .29 .32 .35 .39 .37 .58 .73 .96 1.34 2.10 4.39")


@_problem([1, 1, 1], 8.21487730657e-3, 17.42869333333, rows={"u": _one_to(15), "y": _BARD})
def bard(x, rows):
    u, v = rows["u"], 16 - rows["u"]
    return rows["y"] - (x[0] + u / (v * x[1] + jnp.minimum(u, v) * x[2]))


_BELL = _numbers(".0009 .0044 .0175 .0540 .1295 .2420 .3521 .3989 .3521 .2420 .1295 .0540 .0175 .0044 .0009")


@_problem([0.4, 1, 0], 1.12793276961e-8, rows={"t": (8 - _one_to(15)) / 2, "y": _BELL})
def gaussian(x, rows):
    return x[0] * jnp.exp(-x[1] * (rows["t"] - x[2]) ** 2 / 2) - rows["y"]


_MEYER = _numbers("34780 28610 23650 19630 16370 13720 11540 9744 8261 7030 6005 5147 4427 3820 3307 2872")


@_problem([0.02, 4000, 250], 87.9458551709, rows={"t": 45 + 5 * _one_to(16), "y": _MEYER})
def meyer(x, rows):
    return x[0] * jnp.exp(x[1] / (rows["t"] + x[2])) - rows["y"]


_GULF = _one_to(99) / 100


@_problem([5, 2.5, 0.15], 0.0, rows={"t": _GULF, "y": 25 + (-50 * np.log(_GULF)) ** (2 / 3)})
def gulf(x, rows):
    return jnp.exp(-(jnp.abs(rows["y"] - x[1]) ** x[2]) / x[0]) - rows["t"]


@_problem([0, 10, 20], rows={"t": 0.1 * _one_to(10)})
def box(x, rows):
    t = rows["t"]
    return jnp.exp(-t * x[0]) - jnp.exp(-t * x[1]) - x[2] * (jnp.exp(-t) - jnp.exp(-10 * t))


@_problem([3, -1, 0, 1])
def powell_singular(x):
    a, b, c, d = x
    return jnp.array([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


@_problem([-3, -1, -3, -1])
def wood(x):
    a, b, c, d = x
    return jnp.array([10 * (b - a**2), 1 - a, 90**0.5 * (d - c**2), 1 - c, 10**0.5 * (b + d - 2), (b - d) / 10**0.5])


_KOWALIK = {
    "u": _numbers("4 2 1 .5 .25 .167 .125 .1 .0833 .0714 .0625"),
    "y": _numbers(".1957 .1947 .1735 .1600 .0844 .0627 .0456 .0342 .0323 .0235 .0246"),
}


@_problem([0.25, 0.39, 0.415, 0.39], 3.07505603849e-4, 1.02734304870e-3, rows=_KOWALIK)
def kowalik_osborne(x, rows):
    u = rows["u"]
    return rows["y"] - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


@_problem([25, 5, -5, -1], 85822.20162636, rows={"t": _one_to(20) / 5})
def brown_dennis(x, rows):
    t = rows["t"]
    return (x[0] + t * x[1] - jnp.exp(t)) ** 2 + (x[2] + x[3] * jnp.sin(t) - jnp.cos(t)) ** 2


_OSBORNE_1 = _numbers(
    ".844 .908 .932 .936 .925 .908 .881 .850 .818 .784 .751 .718 .685 .658 .628 .603 .580 "
    ".558 .538 .522 .506 .490 .478 .467 .457 .448 .438 .431 .424 .420 .414 .411 .406"
)


@_problem([0.5, 1.5, -1, 0.01, 0.02], 5.46489469748e-5, rows={"t": 10.0 * np.arange(33), "y": _OSBORNE_1})
def osborne_1(x, rows):
    t = rows["t"]
    return rows["y"] - (x[0] + x[1] * jnp.exp(-t * x[3]) + x[2] * jnp.exp(-t * x[4]))


@_problem([1, 2, 1, 1, 1, 1], 0.0, 5.65564992551e-3, rows={"t": 0.1 * _one_to(13)})
def biggs_exp6(x, rows):
    t = rows["t"]
    y = jnp.exp(-t) - 5 * jnp.exp(-10 * t) + 3 * jnp.exp(-4 * t)
    return x[2] * jnp.exp(-t * x[0]) - x[3] * jnp.exp(-t * x[1]) + x[5] * jnp.exp(-t * x[4]) - y


_OSBORNE_2 = _numbers(
    "1.366 1.191 1.112 1.013 .991 .885 .831 .847 .786 .725 .746 .679 .608 .655 .616 .606 .602 .626 .651 .724 .649 .649 "
    ".694 .644 .624 .661 .612 .558 .533 .495 .500 .423 .395 .375 .372 .391 .396 .405 .428 .429 .523 .562 .607 .653 "
    ".672 .708 .633 .668 .645 .632 .591 .559 .597 .625 .739 .710 .729 .720 .636 .581 .428 .292 .162 .098 .054"
)


@_problem(
    [1.3, 0.65, 0.65, 0.7, 0.6, 3, 5, 7, 2, 4.5, 5.5],
    4.01377362935e-2,
    rows={"t": 0.1 * np.arange(65), "y": _OSBORNE_2},
)
def osborne_2(x, rows):
    t = rows["t"][:, None]
    peaks = x[1:4] * jnp.exp(-((t - x[8:11]) ** 2) * x[5:8])
    return rows["y"] - (x[0] * jnp.exp(-rows["t"] * x[4]) + peaks.sum(1))


@_problem(np.zeros(9), 1.39976013812e-6)
def watson(x):
    j = np.arange(len(x))
    t = (_one_to(29) / 29)[:, None]
    slope = (j[1:] * t ** (j[1:] - 1)) @ x[1:]
    return jnp.concatenate([slope - (t**j @ x) ** 2 - 1, jnp.array([x[0], x[1] - x[0] ** 2 - 1])])


@_problem([-1.2, 1] * 5)
def extended_rosenbrock(x):
    return jax.vmap(rosenbrock)(x.reshape(-1, 2)).ravel()


@_problem([3, -1, 0, 1] * 3)
def extended_powell_singular(x):
    return jax.vmap(powell_singular)(x.reshape(-1, 4)).ravel()


@_problem(_one_to(10), 7.08765146709e-5)
def penalty_i(x):
    return jnp.append(1e-5**0.5 * (x - 1), x @ x - 0.25)


@_problem([0.5] * 10, 2.93660537457e-4)
def penalty_ii(x):
    n, grown = len(x), jnp.exp(x / 10)
    i = np.arange(2.0, n + 1)
    pairs = grown[1:] + grown[:-1] - (np.exp(i / 10) + np.exp((i - 1) / 10))
    small = 1e-5**0.5 * jnp.concatenate([pairs, grown[1:] - np.exp(-0.1)])
    return jnp.concatenate([x[:1] - 0.2, small, (np.arange(n, 0.0, -1) @ x**2 - 1)[None]])


@_problem(1 - _one_to(10) / 10)
def variably_dimensioned(x):
    total = _one_to(len(x)) @ (x - 1)
    return jnp.concatenate([x - 1, jnp.array([total, total**2])])


@_problem([0.1] * 10, 0.0, 2.79505612188e-5)
def trigonometric(x):
    return len(x) - jnp.cos(x).sum() + _one_to(len(x)) * (1 - jnp.cos(x)) - jnp.sin(x)


@_problem([0.5] * 10, 0.0, 1.0)
def brown_almost_linear(x):
    n = len(x)
    return jnp.append(x[:-1] + x.sum() - (n + 1), jnp.prod(x) - 1)


_GRID = _one_to(10) / 11


@_problem(_GRID * (_GRID - 1))
def discrete_boundary_value(x):
    padded = jnp.pad(x, 1)
    return 2 * x - padded[:-2] - padded[2:] + (x + _GRID + 1) ** 3 / (2 * 11**2)


@_problem(_GRID * (_GRID - 1))
def discrete_integral_equation(x):
    t = _GRID
    kernel = np.where(t[:, None] >= t, (1 - t[:, None]) * t, t[:, None] * (1 - t))
    return x + kernel @ (x + t + 1) ** 3 / (2 * 11)


@_problem([-1] * 10)
def broyden_tridiagonal(x):
    padded = jnp.pad(x, 1)
    return (3 - 2 * x) * x - padded[:-2] - 2 * padded[2:] + 1


@_problem([-1] * 10)
def broyden_banded(x):
    offset = np.arange(len(x))[:, None] - np.arange(len(x))
    band = ((offset <= 5) & (offset >= -1) & (offset != 0)).astype(float)
    return x * (2 + 5 * x**2) + 1 - band @ (x * (1 + x))


@_problem([1] * 10, 10.0)
def linear_full_rank(x):
    m = 2 * len(x)
    return jnp.pad(x, (0, m - len(x))) - 2 / m * x.sum() - 1


@_problem([1] * 10, 190 / 41, rows={"i": _one_to(20)})
def linear_rank_one(x, rows):
    return rows["i"] * (_one_to(len(x)) @ x) - 1


@_problem([1] * 10, 227 / 37)
def linear_rank_one_with_zeros(x):
    n = len(x)
    weights = np.arange(19.0)[:, None] * np.where((_one_to(n) > 1) & (_one_to(n) < n), _one_to(n), 0)
    return jnp.append(weights @ x, 0.0) - 1


@_problem(_one_to(8) / 9, 3.51687372568e-3)
def chebyquad(x):
    y, n = 2 * x - 1, len(x)
    polynomials = [jnp.ones(n), y]
    for _ in range(n - 1):
        polynomials.append(2 * y * polynomials[-1] - polynomials[-2])
    i = np.arange(1, n + 1)
    integrals = np.where(i % 2, 0.0, -1 / np.maximum(i**2 - 1, 1))
    return jnp.stack(polynomials[1:]).mean(1) - integrals
