"""One solver on every landscape and seed: {"solver", "options", "seeds"} in, one record per run out, as JSON."""

import json
import sys
import time

import numpy as np

from benchmarks.problems.landscapes import LANDSCAPES, Landscape

PARTICLES = 100


def ours(landscape: Landscape, options: dict):
    import jax.numpy as jnp

    import shardfit as sf

    def loss(x, place, rotation):
        return landscape.function(rotation @ (x - place), jnp)

    def solve(seed):
        place, rotation = landscape.draw(seed)
        half = landscape.half
        objective = sf.Objective({"loss": sf.penalty(loss, place, rotation)})
        problem = sf.Problem(objective, np.zeros(landscape.dims), bounds=(-half, half))
        solver = sf.Swarm(particles=PARTICLES, maxiter=landscape.steps, **options)
        return lambda: sf.fit(problem, solver, seed=seed, progress=False, certify=False).value

    return solve


def evosax(landscape: Landscape, options: dict):
    import jax
    import jax.numpy as jnp
    from evosax.algorithms import CMA_ES, PSO

    jax.config.update("jax_enable_x64", True)
    half, dims = landscape.half, landscape.dims
    cma = options.get("cma", False)
    method = (CMA_ES if cma else PSO)(population_size=PARTICLES, solution=jnp.zeros(dims))
    settings = method.default_params
    if cma:
        settings = settings.replace(std_init=half / 2)

    @jax.jit
    def run(key, place, rotation):
        def losses(x):
            return landscape.function((x - place) @ rotation.T, jnp)

        key, first, second = jax.random.split(key, 3)
        start = jax.random.uniform(first, (PARTICLES, dims), minval=-half, maxval=half)
        state = method.init(second, start[0], settings) if cma else method.init(second, start, losses(start), settings)

        def step(carry, _):
            state, key, best = carry
            key, ask, tell = jax.random.split(key, 3)
            x, state = method.ask(ask, state, settings)
            x = jnp.clip(x, -half, half)
            found = losses(x)
            state, _ = method.tell(tell, x, found, state, settings)
            return (state, key, jnp.minimum(best, jnp.min(found))), None

        (_, _, best), _ = jax.lax.scan(step, (state, key, jnp.min(losses(start))), None, length=landscape.steps)
        return best

    def solve(seed):
        place, rotation = landscape.draw(seed)
        return lambda: float(run(jax.random.key(seed), place, rotation))

    return solve


def pyswarms(landscape: Landscape, options: dict):
    import logging

    from pyswarms.single import GlobalBestPSO

    logging.disable(logging.CRITICAL)
    half, dims = landscape.half, landscape.dims
    # the package has no defaults: these are the ones of its own introduction
    weights = {"c1": 0.5, "c2": 0.3, "w": 0.9, **options}

    def solve(seed):
        place, rotation = landscape.draw(seed)

        def losses(x):
            return landscape.function((x - place) @ rotation.T, np)

        def run():
            np.random.seed(seed)  # the package draws from NumPy's global state
            box = (np.full(dims, -half), np.full(dims, half))
            swarm = GlobalBestPSO(PARTICLES, dims, weights, bounds=box)
            return float(swarm.optimize(losses, landscape.steps, verbose=False)[0])

        return run

    return solve


def main() -> None:
    asked = json.load(sys.stdin)
    make = {"ours": ours, "evosax": evosax, "pyswarms": pyswarms}[asked["solver"]]
    records = []
    for name in asked.get("landscapes", LANDSCAPES):
        solve = make(LANDSCAPES[name], asked.get("options", {}))
        solve(0)()  # compiles
        for seed in range(*asked["seeds"]):
            run = solve(seed)
            wall, cpu = time.perf_counter(), time.process_time()
            value = run()
            times = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            records.append({"landscape": name, "seed": seed, "value": value, **times})
    print(json.dumps(records))


if __name__ == "__main__":
    main()
