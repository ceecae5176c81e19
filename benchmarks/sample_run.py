"""One sampler on one density, in a process of its own; what is asked and what was found are JSON, draws go to files.

Asked: engine, density, chains, warmup, draws, seeds, start (a file with `z` (seeds, chains, n)), out (a folder). Found:
CPU seconds of compiling (ours: of a whole first call), and for every seed CPU seconds, gradients, divergences and the
useful share of gradients; draws z (chains, draws, n) are in `out`, one file for each seed.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers import use_devices


class Drawn(NamedTuple):
    """What a run hands back. z: (chains, draws, n); gradients: of warm-up and draws; step: mean step length.

    useful: share of the gradients computed that belong to a chain's own tree; 1 where chains do not share a batch.
    """

    z: np.ndarray
    gradients: int
    divergences: int
    useful: float
    step: float


def lock_step(counts: Any) -> float:
    """Return the useful share, at most, of chains in a batch whose transitions end together. counts: (chains, n)."""
    counts = np.asarray(counts)
    return float(counts.sum() / (counts.shape[0] * counts.max(0).sum()))


def ours(problem, asked: dict, first: np.ndarray):
    """Return a function of a seed; it fits first, as `sample` does, and that is part of its cost."""
    import shardfit as sf

    counts = {name: asked[name] for name in ("chains", "warmup", "draws")}

    def run(seed: int, _: np.ndarray) -> Drawn:
        found = sf.sample(problem, **counts, seed=seed, progress=False, **asked["options"])
        useful, step = found.extra["useful_gradients"], float(found.stats["step_size"].mean())
        gradients = round(useful * found.evaluations)
        return Drawn(found.z, gradients, int(found.stats["diverging"].sum()), useful, step)

    run(0, first)  # compiles
    return run


def numpyro(problem, asked: dict, first: np.ndarray):
    """Return a function of a seed and starts. options: method of running chains.

    NumPyro's kernel in one loop, as its MCMC class runs it; the class itself would compile anew for every run.
    """
    import jax
    import jax.numpy as jnp
    from numpyro.infer.hmc import hmc

    from benchmarks.problems.densities import potential

    method, warmup, draws = asked["options"]["method"], asked["warmup"], asked["draws"]
    begin, step = hmc(potential_fn=potential(problem), algo="NUTS")

    def chain(place):
        key, start = place
        state = begin(start, warmup, dense_mass=True, rng_key=key)

        def draw(state, _):
            state = step(state)
            return state, (state.z, state.num_steps, state.diverging, state.adapt_state.step_size)

        _, (z, counts, diverging, size) = jax.lax.scan(draw, state, None, length=warmup + draws)
        return z[warmup:], counts, diverging[warmup:], size[-1]

    batch = jax.jit(jax.vmap(chain)) if method == "vectorized" else jax.pmap(chain)

    def places(seed: int, start: np.ndarray):
        return jax.random.split(jax.random.PRNGKey(seed), len(start)), jnp.asarray(start)

    chains = batch.lower(places(0, first)).compile()

    def run(seed: int, start: np.ndarray) -> Drawn:
        z, counts, diverging, size = jax.device_get(chains(places(seed, start)))
        useful = lock_step(counts) if method == "vectorized" else 1.0
        return Drawn(z, int(counts.sum()), int(diverging.sum()), useful, float(size.mean()))

    return run


def blackjax(problem, asked: dict, first: np.ndarray):
    """Return a function of a seed and starts. options: metric, 'dense' from draws or 'low_rank' from gradients too."""
    import blackjax
    import jax
    import jax.numpy as jnp

    from benchmarks.problems.densities import potential

    value, warmup, draws = potential(problem), asked["warmup"], asked["draws"]

    def density(z):
        return -value(z)

    if asked["options"]["metric"] == "dense":
        adapt = blackjax.window_adaptation(blackjax.nuts, density, is_mass_matrix_diagonal=False)
    else:
        adapt = blackjax.window_adaptation_low_rank(blackjax.nuts, density)

    def chain(key, start):
        first, second = jax.random.split(key)
        (state, tuned), early = adapt.run(first, start, warmup)
        step = blackjax.nuts(density, **tuned).step

        def draw(state, key):
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps, info.is_divergent)

        _, (z, late, diverging) = jax.lax.scan(draw, state, jax.random.split(second, draws))
        return z, jnp.concatenate([early.info.num_integration_steps, late]), diverging, tuned["step_size"]

    def places(seed: int, start: np.ndarray):
        return jax.random.split(jax.random.key(seed), len(start)), jnp.asarray(start)

    chains = jax.jit(jax.vmap(chain)).lower(*places(0, first)).compile()

    def run(seed: int, start: np.ndarray) -> Drawn:
        z, counts, diverging, step = jax.device_get(chains(*places(seed, start)))
        return Drawn(z, int(counts.sum()), int(diverging.sum()), lock_step(counts), float(step.mean()))

    return run


def nutpie(problem, asked: dict, first: np.ndarray):
    """Return a function of a seed and starts. options: those of nutpie.sample. Chains call Python for each gradient."""
    import jax
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    from benchmarks.problems.densities import potential

    both = jax.jit(jax.value_and_grad(potential(problem))).lower(first[0]).compile()
    n = problem.unconstrained().space.size

    def density(z):
        value, gradient = both(z)
        return -float(value), -np.asarray(gradient)

    def run(seed: int, start: np.ndarray) -> Drawn:
        places = iter(start)
        model = from_pyfunc(
            n,
            lambda: density,
            lambda *_: lambda z: {"z": z},
            [np.dtype(float)],
            [(n,)],
            ["z"],
            make_initial_point_fn=lambda _: next(places).copy(),
        )
        counts = {"chains": len(start), "tune": asked["warmup"], "draws": asked["draws"]}
        trace = nutpie.sample(model, **counts, seed=seed, progress_bar=False, **asked["options"])
        late, early = trace.sample_stats, trace.warmup_sample_stats
        gradients = int(late.n_steps.sum() + early.n_steps.sum())
        z = np.asarray(trace.posterior.z)
        return Drawn(z, gradients, int(late.diverging.sum()), 1.0, float(late.step_size.mean()))

    return run


ENGINES = {"ours": ours, "numpyro": numpyro, "blackjax": blackjax, "nutpie": nutpie}


def main() -> None:
    asked, answers = json.load(sys.stdin), sys.stdout
    sys.stdout = sys.stderr  # what libraries print
    import jax

    from benchmarks.problems.densities import DENSITIES

    if asked["options"].get("method") == "parallel":
        use_devices(asked["chains"])
    if asked["engine"] != "ours":  # shardfit chooses float64 for itself
        jax.config.update("jax_enable_x64", True)
    problem = DENSITIES[asked["density"]]()
    starts, out = np.load(asked["start"])["z"], Path(asked["out"])
    began = time.process_time()
    run = ENGINES[asked["engine"]](problem, asked, starts[0])
    compiling, records = time.process_time() - began, []
    for seed, start in zip(asked["seeds"], starts, strict=True):
        wall, cpu = time.perf_counter(), time.process_time()
        drawn = run(seed, start)
        times = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        np.savez(out / f"{seed}.npz", z=drawn.z)
        records.append(times | {k: v for k, v in drawn._asdict().items() if k != "z"})
    print(json.dumps({"compile": compiling, "runs": records}), file=answers)


if __name__ == "__main__":
    main()
