"""The objective of the survey suite, and the ways to bring many of its points down."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.recipes.surveys import WEIGHTS, imaging_survey
from shardfit.domains.vlbi.uvfits import read_uvfits
from shardfit.solve.base import evaluate
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.engine import Engine
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.variants import bind, variants

ITERATIONS = 100
AXES = dict.fromkeys(("simple", "tv", "tv2", "l1"), WEIGHTS)


@dataclass
class Method:
    """A way to fit points; batch: how many compile together."""

    study: "Study"
    batch: int
    run: Callable

    def __call__(self, points: list[dict]) -> np.ndarray:
        """Return the objective reached at every point."""
        return self.run(points)


@dataclass
class Study:
    """M87 imaged with many weights."""

    source: Path
    precision: str = "float32"
    transform: str = "log"  # as the peers have it
    useful: float = float("nan")
    made: Any = field(init=False)
    obs: Any = field(init=False)

    def __post_init__(self):
        self.obs = read_uvfits(self.source, channels="average")
        settings = {"preset": "eht", "flux": 0.6, "precision": self.precision, "transform": self.transform}
        self.made = imaging_survey(self.obs, AXES, **settings)
        self.variants = variants(self.made.problem, self.made.axes)

    def points(self, n: int) -> list[dict]:
        """Return n different points in random order, the same ones every time."""
        every = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]
        return [every[i] for i in np.random.default_rng(0).permutation(len(every))[:n]]

    def key(self, point: dict) -> str:
        """Return a name for a point."""
        return "/".join(f"{point[name]:g}" for name in AXES)

    def ours(self, slots: int) -> Method:
        """Return our engine."""
        solver = LBFGS(maxiter=ITERATIONS, ftol=0.0, gtol=0.0)

        def run(points):
            engine = Engine(self.variants, solver, slots)
            values = np.full(len(points), np.nan)
            for finished in engine.run(SurveyPoint(i, point) for i, point in enumerate(points)):
                for one in finished:
                    values[one.id] = one.value
            self.useful = engine.tally.efficiency
            return values

        return Method(self, slots, run)

    def vmapped(self, search: str, size: int) -> Method:
        """Return `vmap` of a whole optax optimizer."""
        steps = _optax_steps(search, self.made.problem.space, self.variants.varied)

        def run(points):
            with arithmetic(self.precision):
                objective = self.made.problem.objective.place()
                values = []
                for first in range(0, len(points), size):
                    leaves, z0 = self.stacked(points[first : first + size], size)
                    values.append(np.asarray(steps(objective, leaves, z0)))
            return np.concatenate(values)[: len(points)]

        return Method(self, size, run)

    def for_ehtim(self, folder: Path) -> dict:
        """Write data and prior for eht-imaging and return what it is to do."""
        from shardfit.domains.vlbi.recipes import EHT2017_TOLERANCE, ZERO_BASELINE, prepare
        from shardfit.domains.vlbi.uvfits import write_uvfits

        ready = prepare(self.obs, 0.6, systematic=0.02, average=True, zero_baseline=ZERO_BASELINE)
        write_uvfits(ready, folder / "data.uvfits", overwrite=True)
        np.save(folder / "prior.npy", self.made.prior.values["I"])
        return {
            "files": [str(folder / "data.uvfits")],
            "prior": str(folder / "prior.npy"),
            "pixel_rad": self.made.prior.pixel_rad,
            "data": {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0},
            "tolerance": dict(EHT2017_TOLERANCE),
            "iterations": ITERATIONS,
            "names": list(AXES),
        }

    def stacked(self, points: list[dict], size: int):
        starts = [self.variants.leaves_of(p) for p in [*points, *[points[-1]] * (size - len(points))]]
        leaves = tuple(jnp.asarray(np.stack(leaf)) for leaf in zip(*(s[0] for s in starts), strict=True))
        return leaves, jnp.asarray(np.stack([s[1] for s in starts]))


def optax_lbfgs(search: str) -> Any:
    """Return optax's L-BFGS; search: kind of line search and most steps of it, 'zoom-15'."""
    import optax

    kind, _, trials = search.partition("-")
    line = {
        "backtracking": lambda n: optax.scale_by_backtracking_linesearch(max_backtracking_steps=n, store_grad=True),
        "zoom": lambda n: optax.scale_by_zoom_linesearch(max_linesearch_steps=n),
    }[kind](int(trials))
    return optax.lbfgs(memory_size=10, linesearch=line)


def _optax_steps(search: str, space: Any, varied: tuple[int, ...]) -> Callable:
    import optax

    transform = optax_lbfgs(search)

    def one(objective, leaves, z0):
        def value(z):
            return evaluate("value", space, bind(objective, varied, leaves), z, None)

        value_and_grad = optax.value_and_grad_from_state(value)

        def step(_, carry):
            z, state = carry
            reached, gradient = value_and_grad(z, state=state)
            changes, state = transform.update(gradient, state, z, value=reached, grad=gradient, value_fn=value)
            return optax.apply_updates(z, changes), state

        _, state = jax.lax.fori_loop(0, ITERATIONS, step, (z0, transform.init(z0)))
        return optax.tree.get(state, "value")

    return jax.jit(lambda objective, leaves, z0: jax.vmap(lambda a, b: one(objective, a, b))(leaves, z0))
