"""Other people's engines on our densities, for comparison: the NUTS of NumPyro and of BlackJAX.

They draw from the same density on the same coordinates, and start where ours starts. Neither can be stopped and go on.
"""

import time
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.current import at_work
from shardfit.core.extras import require_extra
from shardfit.core.mesh import layout
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.sampling.density import caveats, sampled
from shardfit.sampling.modes import shares
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.start import find_start


def numpyro(problem: Problem, **options: Any) -> Posterior:
    """Sample by NumPyro's NUTS, chains vectorised; options as for `sample(problem, "nuts")`, without folders."""
    return run_engine(problem, "numpyro", _by_numpyro, **options)


def blackjax(problem: Problem, **options: Any) -> Posterior:
    """Sample by BlackJAX's NUTS with its window adaptation, chains vectorised; options likewise."""
    return run_engine(problem, "blackjax", _by_blackjax, **options)


def run_engine(
    problem: Problem,
    name: str,
    engine: Any,
    *,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 500,
    target_accept: float = 0.8,
    max_depth: int = 10,
    seed: int = 0,
    mesh: Any = None,
    **other: Any,
) -> Posterior:
    """Sample with the engine of another package."""
    if other.get("run_dir") is not None:
        raise ValueError(f"sample: method {name!r} runs as one compiled call: it has no run_dir. Use 'nuts'.")
    unknown = set(other) - {"run_dir", "resume", "progress"}
    if unknown:
        raise TypeError(f"sample: method {name!r} has no option {min(unknown)!r}.")
    began, target = time.perf_counter(), sampled(problem)
    with at_work(target):
        start, key = find_start(target, mesh, seed), jax.random.key(seed)
        scale = np.full(start.z.size, 0.1) if start.root is None else np.asarray(start.root)
        spread = np.random.default_rng(seed).standard_normal((chains, start.z.size))
        points = start.for_chains(chains, seed).points
        away = spread * scale if scale.ndim == 1 else spread @ scale.T
        z0 = jnp.asarray(start.z + away if points is None else points)
        density = _LogDensity(target.space, target.objective.place(mesh))
        settings = {"draws": draws, "warmup": warmup, "target_accept": target_accept, "max_depth": max_depth}
        z, stats = engine(density, z0, key, **settings)
        flat = jax.vmap(target.space.unpack)(jnp.asarray(z.reshape(chains * draws, -1)))
        values = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(chains, draws, *leaf.shape[1:]), flat)
    return Posterior(
        draws=values,
        z=z,
        stats=stats,
        weights=None,
        method=f"{name}(chains={chains}, warmup={warmup}, draws={draws}, target_accept={target_accept})",
        problem=target.name,
        labels=tuple(target.space.coordinate_labels()),
        units=dict(zip(target.space.labels, target.unit_labels(), strict=True)),
        precision=target.precision,
        note=f"{caveats(target)} {start.note}".strip(),
        evaluations=int(stats["gradients"].sum()),
        timings={"total": time.perf_counter() - began},
        layout=layout(mesh),
        seed=seed,
        extra=shares(start.modes, z),
    )


class _LogDensity:
    """log density of coordinates z (n,), up to a constant."""

    def __init__(self, space: Space, objective: Objective):
        self.space, self.objective = space, objective

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.space.log_jacobian(z) - self.objective.value(self.space.unpack(z))


def _by_numpyro(density, z0, key, *, draws, warmup, target_accept, max_depth):
    with require_extra("engine 'numpyro'", "numpyro"):
        from numpyro.infer import MCMC, NUTS

    kernel = NUTS(
        potential_fn=lambda z: -density(z), dense_mass=True, target_accept_prob=target_accept, max_tree_depth=max_depth
    )
    run = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=len(z0),
        chain_method="vectorized",
        progress_bar=False,
    )
    fields = ("potential_energy", "energy", "diverging", "num_steps", "accept_prob", "adapt_state.step_size")
    run.run(key, init_params=z0 if len(z0) > 1 else z0[0], extra_fields=fields)
    told = run.get_extra_fields(group_by_chain=True)
    columns = {name: np.asarray(told[field]) for name, field in zip(NAMES, fields, strict=True)}
    return np.asarray(run.get_samples(group_by_chain=True)), _stats(columns)


def _by_blackjax(density, z0, key, *, draws, warmup, target_accept, max_depth):
    with require_extra("engine 'blackjax'", "blackjax"):
        library: Any = import_module("blackjax")
    adaptation = library.window_adaptation(
        library.nuts, density, is_mass_matrix_diagonal=False, target_acceptance_rate=target_accept
    )

    def chain(key, z):
        first, second = jax.random.split(key)
        (state, parameters), _ = adaptation.run(first, z, num_steps=warmup)
        kernel = library.nuts(density, max_num_doublings=max_depth, **parameters)

        def step(state, key):
            state, info = kernel.step(key, state)
            told = -state.logdensity, info.energy, info.is_divergent, info.num_integration_steps, info.acceptance_rate
            return state, (state.position, *told, parameters["step_size"])

        return jax.lax.scan(step, state, jax.random.split(second, draws))[1]

    z, *columns = jax.jit(jax.vmap(chain))(jax.random.split(key, len(z0)), z0)
    named = {name: np.asarray(column) for name, column in zip(NAMES, columns, strict=True)}
    return np.asarray(z), _stats(named)


NAMES = ("value", "energy", "diverging", "gradients", "accept", "step_size")


def _stats(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    gradients = columns["gradients"].astype(int)
    return {**columns, "gradients": gradients, "depth": np.ceil(np.log2(gradients + 1)).astype(int)}
