"""One solver on ten functions and every seed: {"solver", "options", "seeds"} in, one record per run out, as JSON."""

import json
import sys
import time

import numpy as np

from benchmarks.problems.landscapes import TEN, Landscape

POPULATION = 20


def start(landscape: Landscape, seed: int) -> np.ndarray:
    """Return where every solver begins."""
    return np.random.default_rng([seed, 1]).uniform(-landscape.half, landscape.half, landscape.dims)


def ours(landscape: Landscape, options: dict, swarm: bool = False):
    import jax.numpy as jnp

    import shardfit as sf

    def loss(x, place, rotation):
        return landscape.function(rotation @ (x - place), jnp)

    def solve(seed):
        objective = sf.Objective({"loss": sf.penalty(loss, *landscape.draw(seed))})
        problem = sf.Problem(objective, start(landscape, seed), bounds=(-landscape.half, landscape.half))
        solver = sf.CMAES(population=POPULATION, maxiter=landscape.steps, **options)
        if swarm:  # as many evaluations, in the proportion of its defaults
            solver = sf.Swarm(particles=100, maxiter=POPULATION * landscape.steps // 100)
        return lambda: sf.fit(problem, solver, seed=seed, progress=False, certify=False).value

    return solve


def evosax(landscape: Landscape, options: dict):
    import jax
    import jax.numpy as jnp
    from evosax.algorithms import CMA_ES

    jax.config.update("jax_enable_x64", True)
    half, dims = landscape.half, landscape.dims
    method = CMA_ES(population_size=POPULATION, solution=jnp.zeros(dims))
    settings = method.default_params.replace(std_init=half / 2)

    @jax.jit
    def run(key, first, place, rotation):
        def step(carry, _):
            state, key, best = carry
            key, ask, tell = jax.random.split(key, 3)
            x, state = method.ask(ask, state, settings)
            x = jnp.clip(x, -half, half)
            found = landscape.function((x - place) @ rotation.T, jnp)
            state, _ = method.tell(tell, x, found, state, settings)
            return (state, key, jnp.fmin(best, jnp.min(found))), None

        key, begin = jax.random.split(key)
        carry = method.init(begin, first, settings), key, jnp.inf
        return jax.lax.scan(step, carry, None, length=landscape.steps)[0][2]

    def solve(seed):
        place, rotation = landscape.draw(seed)
        return lambda: float(run(jax.random.key(seed), start(landscape, seed), place, rotation))

    return solve


def cmaes(landscape: Landscape, options: dict):
    import cmaes

    half, dims = landscape.half, landscape.dims
    bounds = np.tile([-half, half], (dims, 1)).astype(float)

    def solve(seed):
        place, rotation = landscape.draw(seed)

        def run():
            method = cmaes.CMA(start(landscape, seed), half / 2, bounds=bounds, seed=seed, population_size=POPULATION)
            best = np.inf
            for _ in range(landscape.steps):
                x = np.stack([method.ask() for _ in range(POPULATION)])
                values = landscape.function((x - place) @ rotation.T, np)
                best = min(best, float(values.min()))
                method.tell(list(zip(x, values.tolist(), strict=True)))
                if method.should_stop():
                    break
            return best

        return run

    return solve


SOLVERS = {
    "ours": ours,
    "ours-restarts": ours,
    "ours-swarm": lambda landscape, options: ours(landscape, options, swarm=True),
    "evosax": evosax,
    "cmaes": cmaes,
}


def main() -> None:
    asked = json.load(sys.stdin)
    records = []
    for name, landscape in TEN.items():
        solve = SOLVERS[asked["solver"]](landscape, asked.get("options", {}))
        if asked["solver"] != "cmaes":
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
