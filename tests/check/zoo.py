"""Models for the certificate: honest ones of many kinds, which must pass, and wrong ones, which must not.

Each is a function without arguments that returns a Problem. A wrong one has the words by which its error names it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

RNG = np.random.default_rng(11)
N = 2000
ROWS = {"x": RNG.uniform(0.1, 2, N), "y": RNG.normal(size=N), "sigma": RNG.uniform(0.5, 1, N), "i": np.arange(N)}
X0 = {"a": 1.2, "k": 0.7}


def problem_of(terms, x0=None, **more) -> sf.Problem:
    terms = terms if isinstance(terms, dict) else {"d": terms}
    return sf.Problem(sf.Objective(terms), X0 if x0 is None else x0, **more)


def residuals(fn, rows=ROWS, x0=None, **more) -> sf.Problem:
    chunk = more.pop("chunk", None)
    return problem_of(sf.residual_term(fn, rows, chunk=chunk), x0, **more)


def statistics(fn, rows=ROWS, x0=None, **more) -> sf.Problem:
    term = {name: more.pop(name) for name in ("loss", "chunk", "stochastic") if name in more}
    return problem_of(sf.statistic_term(fn, rows, **term), x0, **more)


def sums(fn, weighted=True, **more) -> sf.Problem:
    """Return a problem with a statistic that sums its own blocks."""
    return statistics(sf.block_statistic(fn, weighted=weighted), **{"loss": log_misfit} | more)


def penalised(fn, x0, **more) -> sf.Problem:
    return problem_of(sf.penalty(fn), x0, **more)


def decay(p, r):
    return (r["y"] - p["a"] * jnp.exp(-p["k"] * r["x"])) / r["sigma"]


def log_misfit(total, *_):
    return jnp.sum(jnp.log(total) ** 2)


def membership(p, r):
    return jax.nn.sigmoid((jnp.linspace(-1, 2, 6) - p["k"] * r["x"][:, None]) / 0.1)


BIN = RNG.integers(0, 6, N)
BINNED = ROWS | {"bin": BIN}


def scattered(p, r):
    """Return what each row puts into its bin."""
    return p["a"] * jnp.exp(-p["k"] * r["x"])


def into_bins(p, r, w):
    return jnp.zeros(6).at[r["bin"]].add(w * scattered(p, r))


def by_a_scan(p, r, w):
    """Sums over rows for one edge after the other."""
    edges = jnp.linspace(0.5, 1.5, 6)
    return jax.lax.scan(lambda n, e: (n, jnp.sum(w * jax.nn.sigmoid(e - p["k"] * r["x"]) * p["a"])), 0, edges)[1]


def total_variation(image):
    dx, dy = jnp.diff(image, axis=0)[:, :-1], jnp.diff(image, axis=1)[:-1]
    return jnp.sum(jnp.sqrt(dx**2 + dy**2 + 1e-12))


# ---- derivative rules, right and wrong ---------------------------------------------------------------------------


def backward_rule(derivative):
    """Return the square with a reverse rule: derivative(x, cotangent)."""
    square = jax.custom_vjp(jnp.square)
    square.defvjp(lambda x: (x**2, x), lambda x, g: (derivative(x, g),))
    return square


def forward_rule(derivative):
    """Return the square with a forward rule: derivative(x, tangent)."""
    square = jax.custom_jvp(jnp.square)
    square.defjvp(lambda x, t: (x[0] ** 2, derivative(x[0], t[0])))
    return square


def with_square(square, rows=ROWS):
    return residuals(lambda p, r: r["y"] - square(p["a"] * r["x"]) - p["k"], rows)


def rule_wrong_in(period, forward, n=20_000):
    """Return a model whose rule is wrong by half in every period-th row."""
    rows = {"x": RNG.uniform(0.1, 2, n), "y": RNG.normal(size=n), "bad": (np.arange(n) % period == period // 2) * 0.5}

    def square(x, bad):
        return x**2

    if forward:
        square = jax.custom_jvp(square)
        square.defjvp(lambda x, t: (x[0] ** 2, (1 - x[1]) * 2 * x[0] * t[0]))
    else:
        square = jax.custom_vjp(square)
        square.defvjp(lambda x, bad: (x**2, (x, bad)), lambda kept, g: ((1 - kept[1]) * 2 * kept[0] * g, 0 * kept[1]))
    return residuals(lambda p, r: r["y"] - square(p["a"] * r["x"], r["bad"]) - p["k"], rows)


# ---- honest ------------------------------------------------------------------------------------------------------


def visibilities():
    uv = RNG.normal(size=(60, 2))
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 8)] * 2), -1).reshape(-1, 2)
    rows = {"A": np.exp(2j * np.pi * uv @ grid.T), "vis": RNG.normal(size=60) + 1j * RNG.normal(size=60)}
    return residuals(lambda p, r: r["A"] @ jnp.exp(p) - r["vis"], rows, RNG.normal(size=64))


def closure_phases():
    rows = {"A": RNG.normal(size=(50, 3, 25)) + 1j * RNG.normal(size=(50, 3, 25)), "phase": RNG.uniform(-3, 3, 50)}

    def misfit(p, r):
        bispectrum = jnp.einsum("ntp,p->nt", r["A"], jnp.exp(p)).prod(1)
        return {"cphase": jnp.exp(1j * jnp.angle(bispectrum)) - jnp.exp(1j * r["phase"])}

    return residuals(misfit, rows, np.zeros(25), precision="float32")


def wave():
    """A pulse through a medium of unknown speeds, recorded at its end: one row is a shot."""
    rows = {"pulse": RNG.normal(size=(3, 60)), "trace": RNG.normal(size=(3, 60))}

    def shot(speed, pulse):
        def step(fields, push):
            now, before = fields
            bend = jnp.zeros_like(now).at[1:-1].set(now[2:] - 2 * now[1:-1] + now[:-2])
            after = (2 * now - before + 0.2 * speed**2 * bend).at[4].add(push)
            return (after, now), after[-4]

        return jax.lax.scan(step, (jnp.zeros(30), jnp.zeros(30)), pulse)[1]

    return residuals(
        lambda p, r: jax.vmap(lambda pulse: shot(p, pulse))(r["pulse"]) - r["trace"], rows, np.ones(30), chunk=1
    )


def kernels(n_kernels=10):
    def mass(p, r, key):
        centres = jax.random.choice(key, jnp.linspace(-2, 2, 50), (n_kernels,))
        return jnp.exp(-0.5 * ((p["a"] * r["x"])[:, None] - centres) ** 2 / 0.1)

    return statistics(mass, loss=lambda total, key: jnp.mean(jnp.log1p(total) ** 2), stochastic=True)


def drawn_by_row():
    def noisy(p, r, key):
        draw = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i)))(r["i"])
        return jnp.cos(p["a"] * r["x"] + p["k"] * draw)

    return statistics(noisy, loss=lambda total, key: total**2, stochastic=True)


def implicit():
    """Kepler's equation by a loop that ends when it has converged, with the implicit derivative."""

    def solve(mean, e):
        step = lambda s: (s[0] - (s[0] - e * jnp.sin(s[0]) - mean) / (1 - e * jnp.cos(s[0])), s[1] + 1)  # noqa: E731
        return jax.lax.while_loop(lambda s: s[1] < 12, step, (mean, 0))[0]

    kepler = jax.custom_vjp(lambda mean, e: jax.vmap(solve, (0, None))(mean, e))

    def backward(kept, g):
        angle, e = kept
        slope = g / (1 - e * jnp.cos(angle))
        return slope, jnp.sum(slope * jnp.sin(angle))

    kepler.defvjp(lambda mean, e: ((angle := kepler(mean, e)), (angle, e)), backward)
    return residuals(lambda p, r: r["y"] - p["a"] * jnp.cos(kepler(r["x"], p["k"])), x0={"a": 1.0, "k": 0.3})


def many_decades(which):
    powers = 10.0 ** np.linspace(-12, 12, N)
    if which == "rows":
        return residuals(lambda p, r: r["s"] * decay(p, r), ROWS | {"s": powers})
    sizes = 10.0 ** np.linspace(-12, 12, 9)
    basis = {"b": RNG.normal(size=(N, 9)) / sizes, "y": ROWS["y"]}
    return residuals(lambda p, r: jnp.sin(r["b"] * p).sum(1) - r["y"], basis, sizes)


def exact_start():
    rows = ROWS | {"y": 1.2 * np.exp(-0.7 * ROWS["x"])}
    return residuals(decay, rows)


def gaussian_process(p):
    t = jnp.linspace(0, 3, 12)
    kernel = jnp.exp(-0.5 * ((t[:, None] - t) / p["k"]) ** 2) + 0.1 * jnp.eye(12)
    factor = jnp.linalg.cholesky(kernel)
    white = jax.scipy.linalg.solve_triangular(factor, p["a"] * jnp.sin(t), lower=True)
    return 0.5 * white @ white + jnp.sum(jnp.log(jnp.diag(factor)))


HONEST: dict[str, Callable[[], sf.Problem]] = {
    "decay": lambda: residuals(decay),
    "decay, float32": lambda: residuals(decay, precision="float32"),
    "decay in chunks": lambda: residuals(decay, chunk=100),
    "soft histogram, loss of totals": lambda: statistics(membership, loss=log_misfit),
    "soft histogram, float32": lambda: statistics(membership, loss=log_misfit, precision="float32"),
    "complex visibilities": visibilities,
    "closure phases, float32": closure_phases,
    "wave equation": wave,
    "kernel masses at drawn centres": kernels,
    "draws by row number": drawn_by_row,
    "implicit derivative": implicit,
    "right reverse rule": lambda: with_square(backward_rule(lambda x, g: 2 * x * g)),
    "right forward rule": lambda: with_square(forward_rule(lambda x, t: 2 * x * t)),
    "24 decades of rows": lambda: many_decades("rows"),
    "24 decades of parameters": lambda: many_decades("parameters"),
    "start at the answer": exact_start,
    "absolute residuals": lambda: statistics(lambda p, r: jnp.abs(decay(p, r))),
    "rectified": lambda: statistics(lambda p, r: jax.nn.relu(decay(p, r)) + jnp.maximum(p["a"], r["x"])),
    "clipped": lambda: residuals(lambda p, r: jnp.clip(decay(p, r), -1, 1)),
    "largest of several": lambda: statistics(lambda p, r: jnp.max(membership(p, r) * r["y"][:, None], axis=1)),
    "integer counts": lambda: statistics(
        lambda p, r: {"n": (r["x"] > 1).astype(int), "s": p["a"] * r["x"]}, loss=lambda t: (t["s"] - t["n"]) ** 2
    ),
    "digits cancel": lambda: residuals(
        lambda p, r: (1e6 * r["sigma"] + p["a"] * r["x"]) - 1e6 * r["sigma"] - p["k"] * r["y"]
    ),
    "float32 inside": lambda: residuals(
        lambda p, r: decay({k: v.astype(jnp.float32) for k, v in p.items()}, r).astype(jnp.float32).astype(np.float64)
    ),
    "mostly zero": lambda: statistics(lambda p, r: jnp.where(r["i"] % 50 == 0, jnp.sin(p["a"] * r["x"]), 0.0)),
    "unused parameter": lambda: residuals(lambda p, r: r["y"] - p["a"] * r["x"]),
    "total variation of a flat image": lambda: penalised(total_variation, np.full((12, 12), 0.3)),
    "absolute values of zeros": lambda: penalised(lambda p: jnp.sum(jnp.abs(p)), np.zeros(300)),
    "gaussian process": lambda: penalised(gaussian_process, {"a": 1.0, "k": 0.5}),
    "edge of a bound": lambda: penalised(lambda p: jnp.sum(p**1.5), np.zeros(4), bounds=(0, None)),
    "positive by transform": lambda: residuals(decay, transforms={"a": "log", "k": sf.Interval(0, 3)}),
    "simplex": lambda: penalised(lambda p: jnp.sum(p * jnp.log(p)), np.full(7, 1 / 7), transforms="simplex"),
    "prior residuals": lambda: problem_of(
        {"d": sf.residual_term(decay, ROWS), "prior": sf.residual_penalty(lambda p: (p["a"] - 1) / 0.3)}
    ),
    "block sums: bins": lambda: sums(into_bins, rows=BINNED),
    "block sums: bins, float32": lambda: sums(into_bins, rows=BINNED, precision="float32"),
    "block sums: a scan": lambda: sums(by_a_scan),
    "block sums: without weights": lambda: sums(lambda p, r: into_bins(p, r, 1.0), False, rows=BINNED),
    "block sums: right reverse rule": lambda: sums(
        lambda p, r, w: into_bins(p, r, w * backward_rule(lambda x, g: 2 * x * g)(p["a"] * r["x"])), rows=BINNED
    ),
    "block sums: signs that cancel": lambda: sums(
        lambda p, r, w: jnp.zeros(6).at[r["bin"]].add(w * r["y"] * p["a"]), rows=BINNED, loss=lambda t: jnp.sum(t**2)
    ),
}


# ---- wrong -------------------------------------------------------------------------------------------------------


class Wrong(NamedTuple):
    """A wrong model and a pattern of its error."""

    problem: Callable[[], sf.Problem]
    words: str


MIXES, DIFFERS = "depends on which rows share a block", "differs from a finite difference"
NO_SUM = "is no sum over rows"


def group_mean(p, r):
    """Subtract the mean of the rows of the same scan, which sit next to each other."""
    sums = jax.ops.segment_sum(jnp.stack([r["x"], jnp.ones_like(r["x"])], 1), r["i"] // 10, N // 10)
    means = sums[:, 0] / jnp.maximum(sums[:, 1], 1)
    return r["y"] - p["a"] * (r["x"] - means[r["i"] // 10]) - p["k"]


def backward_mean():
    """Return a rule that is right in value and spreads the mean of the cotangents over the rows."""
    same = jax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, None), lambda _, g: (jnp.full_like(g, jnp.mean(g)),))
    return residuals(lambda p, r: r["y"] - same(p["a"] * r["x"]))


def wrong_pixel():
    weight = np.ones(400)
    weight[123] = 0.0
    return penalised(lambda p: jnp.sum(p**2 * weight + jax.lax.stop_gradient(p**2) * (1 - weight)), np.full(400, 0.3))


def wrong_far_away():
    """A rule that is right up to a = 1.5, where the answer lies beyond."""
    square = backward_rule(lambda x, g: jnp.where(jnp.abs(x) > 1.5, 0.8, 1.0) * 2 * x * g)
    rows = {"x": ROWS["x"], "y": 2.0**2 * ROWS["x"] + 0.1 * ROWS["y"]}
    return residuals(lambda p, r: r["y"] - square(p["a"]) * r["x"], rows, {"a": 1.0})


def straight_through(p, r):
    value = p["a"] * r["x"]
    return r["y"] - (value + jax.lax.stop_gradient(jnp.round(value) - value))


WRONG: dict[str, Wrong] = {
    "mean over the block": Wrong(
        lambda: residuals(lambda p, r: r["y"] - p["a"] * (r["x"] - r["x"].mean()) - p["k"]), MIXES
    ),
    "mean in a small part": Wrong(lambda: residuals(lambda p, r: decay(p, r) + 1e-2 * p["a"] * r["x"].mean()), MIXES),
    "rank": Wrong(lambda: residuals(lambda p, r: p["a"] * jnp.argsort(jnp.argsort(r["x"])) / N - r["y"]), MIXES),
    "cumulative sum": Wrong(lambda: residuals(lambda p, r: p["a"] * jnp.cumsum(r["x"]) / N - r["y"]), MIXES),
    "divided by the block's length": Wrong(lambda: statistics(lambda p, r: decay(p, r) ** 2 / len(r["x"])), MIXES),
    "sorted": Wrong(lambda: residuals(lambda p, r: jnp.sort(decay(p, r))), MIXES),
    "neighbours": Wrong(lambda: residuals(lambda p, r: decay(p, r) - 0.5 * jnp.roll(decay(p, r), 1)), MIXES),
    "mean of the same scan": Wrong(lambda: residuals(group_mean), MIXES),
    "draw shaped like the block": Wrong(
        lambda: statistics(
            lambda p, r, key: jnp.cos(p["a"] * r["x"][:, None] + jax.random.normal(key, (len(r["x"]), 2))),
            loss=lambda total, key: jnp.sum(total**2),
            stochastic=True,
        ),
        "draws random numbers in the shape of its block",
    ),
    "block sums without their weights": Wrong(
        lambda: sums(lambda p, r, w: into_bins(p, r, 1.0), rows=BINNED), f"{NO_SUM}.*does not use its weights"
    ),
    "block sums by the number of rows": Wrong(
        lambda: sums(lambda p, r, w: into_bins(p, r, w) / len(w), rows=BINNED), f"{NO_SUM}.*normalises by its block"
    ),
    "block sums over the block's weights": Wrong(
        lambda: sums(lambda p, r, w: into_bins(p, r, w) / jnp.sum(w), rows=BINNED), f"{NO_SUM}.*divides by the weights"
    ),
    "block sums with a floor": Wrong(
        lambda: sums(lambda p, r, w: into_bins(p, r, w) + 1.0, rows=BINNED), f"{NO_SUM}.*added for every block"
    ),
    "largest of a block": Wrong(lambda: sums(lambda p, r, w: jnp.max(w * scattered(p, r))), f"{NO_SUM}.*maximum, rank"),
    "block sums of a product of sums": Wrong(
        lambda: sums(lambda p, r, w: jnp.sum(w * scattered(p, r)) * jnp.sum(w * r["x"])), f"{NO_SUM}.*plain sums"
    ),
    "block sums, draw shaped like the block": Wrong(
        lambda: sums(
            lambda p, r, w, key: into_bins(p, r, w * jax.random.uniform(key, w.shape)),
            rows=BINNED,
            loss=lambda total, key: log_misfit(total),
            stochastic=True,
        ),
        "draws random numbers in the shape of its block",
    ),
    "block sums, reverse rule off by 1.01": Wrong(
        lambda: sums(
            lambda p, r, w: into_bins(p, r, w * backward_rule(lambda x, g: 2.02 * x * g)(p["a"] * r["x"])),
            rows=BINNED,
        ),
        DIFFERS,
    ),
    "block sums, forward rule wrong in 1 of 1,000 rows": Wrong(
        lambda: sums(
            lambda p, r, w: into_bins(
                p, r, w * jnp.where(r["i"] % 1000 == 3, jax.lax.stop_gradient(p["a"]), p["a"]) * r["x"]
            ),
            rows=BINNED,
        ),
        DIFFERS,
    ),
    "normalised by the block": Wrong(lambda: statistics(lambda p, r: jax.nn.softmax(p["a"] * r["x"])), MIXES),
    "backward rule mixes rows": Wrong(backward_mean, f"{MIXES}|{DIFFERS}"),
    "forward rule wrong in 1 of 1,000 rows": Wrong(
        lambda: rule_wrong_in(1000, forward=True), f"rows probed.*{DIFFERS}"
    ),
    "reverse rule wrong in 1 of 1,000 rows": Wrong(lambda: rule_wrong_in(1000, False), DIFFERS),
    "forward rule off by 1.001": Wrong(lambda: with_square(forward_rule(lambda x, t: 2.002 * x * t)), DIFFERS),
    "reverse rule off by 1.001": Wrong(lambda: with_square(backward_rule(lambda x, g: 2.002 * x * g)), DIFFERS),
    "reverse rule forgets its cotangent": Wrong(lambda: with_square(backward_rule(lambda x, g: 2 * x)), DIFFERS),
    "reverse rule clips": Wrong(lambda: with_square(backward_rule(lambda x, g: jnp.clip(2 * x * g, -1, 1))), DIFFERS),
    "sign": Wrong(lambda: with_square(forward_rule(lambda x, t: -2 * x * t)), DIFFERS),
    "straight through a rounding": Wrong(lambda: residuals(straight_through), DIFFERS),
    "stop_gradient of a scale": Wrong(
        lambda: residuals(lambda p, r: decay(p, r) / jax.lax.stop_gradient(1 + p["a"] ** 2)), DIFFERS
    ),
    "wrong loss of totals": Wrong(
        lambda: statistics(membership, loss=lambda t: jnp.sum(backward_rule(lambda x, g: 1.9 * x * g)(jnp.log(t)))),
        "loss of its totals differs",
    ),
    "one pixel of 400": Wrong(wrong_pixel, DIFFERS),
    "one prior residual": Wrong(
        lambda: problem_of(
            {
                "d": sf.residual_term(decay, ROWS),
                "prior": sf.residual_penalty(lambda p: forward_rule(lambda x, t: 1.9 * x * t)(p["k"])),
            }
        ),
        f"'prior'.*{DIFFERS}",
    ),
    "float32 loses the digits": Wrong(
        lambda: residuals(
            lambda p, r: (1e6 * r["sigma"] + p["a"] * r["x"]) - 1e6 * r["sigma"], x0={"a": 1e-3}, precision="float32"
        ),
        "in float32",
    ),
}
