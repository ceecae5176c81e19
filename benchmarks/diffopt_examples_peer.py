"""DiffOpt's side of its examples: documented settings, models written anew; runs in an environment of its own."""

from collections.abc import Callable

import numpy as np

from benchmarks.duel import serve


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled where the package compiles, and what it says."""
    fit, describe = {"smf": _smf, "kdescent": _kdescent, "ackley": _ackley}[asked["case"]]()
    last = {"found": fit()}

    def call():
        last["found"] = fit()

    return call, lambda: describe(last["found"])


def _smf():
    import jax
    import jax.numpy as jnp
    from diffopt import multigrad

    edges, floor = jnp.linspace(9, 10, 11), 1e-10

    @jax.jit
    def smf(params, logm):
        above = jax.scipy.stats.norm.sf(edges, (params[0] + logm)[:, None], 10 ** params[1])
        return -jnp.diff(above.sum(0)) / jnp.diff(edges)

    class Model(multigrad.OnePointModel):
        def calc_partial_sumstats_from_params(self, params):
            return smf(params, self.aux_data["logm"])

        def calc_loss_from_sumstats(self, sumstats):
            return jnp.mean((jnp.log10(sumstats + floor) - jnp.log10(self.aux_data["target"] + floor)) ** 2)

    logm = 10 - jnp.log10(1 - jnp.linspace(0, 0.9, 10_000))
    truth = jnp.array([-2.0, -0.5])
    model = Model(aux_data={"logm": logm, "target": smf(truth, logm)})

    def describe(found):
        error = float(np.abs(found.x - np.asarray(truth)).max())
        return {"loss": float(found.fun), "steps": int(found.nit), "evaluations": int(found.nfev), "error": error}

    return lambda: model.run_bfgs(jnp.array([-3.5, 0.2]), progress=False)[2], describe


def _kdescent():
    import jax
    import jax.numpy as jnp
    from diffopt import kdescent

    truth = jnp.array([1.6, 2.9, 0.8, 1.25, -0.2])

    def sample(params, key, n):
        shared = params[4] * jnp.sqrt(params[2] * params[3])
        covariance = jnp.array([[params[2], shared], [shared, params[3]]])
        return jax.random.multivariate_normal(key, params[:2], covariance, (n,))

    training = sample(truth, jax.random.key(42), 10_000)
    calculator = kdescent.KCalc(kdescent.KPretrainer.from_training_data(training, num_eval_kernels=20))

    @jax.jit
    def loss(params, randkey):
        draw, places = jax.random.split(randkey)
        counts, known = calculator.compare_kde_counts(places, sample(params, draw, 5000))
        return jnp.mean((counts / 5000 - known / 10_000) ** 2)

    start = jnp.array([0.0, 0.0, 1.0, 1.0, 0.0])
    bounds = [None, None, [0.001, jnp.inf], [0.001, jnp.inf], [-0.999, 0.999]]
    options = {"nsteps": 100, "param_bounds": bounds, "learning_rate": 1.0, "randkey": 12345, "progress": False}

    def describe(found):
        steps, losses = map(np.asarray, found)
        off = steps[-20:].mean(0) - np.asarray(truth)
        return {"loss": float(losses[-20:].mean()), "error": float(np.sqrt(np.mean(off**2)))}

    return lambda: kdescent.adam(loss, start, **options), describe


def _ackley():
    import jax
    import jax.numpy as jnp
    from diffopt.multiswarm import ParticleSwarm, get_best_loss_and_params

    @jax.jit
    def ackley(x):
        distance = jnp.sqrt(0.5 * jnp.sum(x * x))
        return 20 + jnp.e - 20 * jnp.exp(-0.2 * distance) - jnp.exp(0.5 * jnp.sum(jnp.cos(2 * jnp.pi * x)))

    def fit():
        found = ParticleSwarm(nparticles=100, ndim=4, xlow=-5, xhigh=5).run_pso(ackley, nsteps=100, progress=False)
        return get_best_loss_and_params(found["swarm_loss_history"], found["swarm_x_history"])

    return fit, lambda found: {"loss": float(found[0]), "error": float(np.abs(found[1]).max())}


if __name__ == "__main__":
    serve(prepare)
