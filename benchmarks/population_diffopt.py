"""diffopt's side of the population suite, with the model of its own example; runs in an environment of its own."""

from collections.abc import Callable

import numpy as np

from benchmarks import population_scene as scene
from benchmarks.duel import keeping_value, serve


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled where the package compiles, and what it says."""
    kinds = {"lossgrad": _lossgrad, "adam": _adam, "kde": _kde, "swarm": _swarm, "form": _form}
    return keeping_value(kinds[asked["kind"]](asked))


def _model(n):
    import jax.numpy as jnp
    from diffopt.multigrad.tests.smf_example import smf_grad_descent as example

    target = [2.30178721e-02, 1.69728529e-02, 1.16054425e-02, 7.10532581e-03, 3.77187086e-03]
    target += [1.69136131e-03, 6.28149020e-04, 1.90466686e-04, 4.66692982e-05, 9.17260695e-06]
    data = {
        "log_halo_masses": jnp.log10(example.load_halo_masses(n)),
        "smf_bin_edges": jnp.linspace(9, 10, 11),
        "volume": 10.0 * n,
        "target_sumstats": jnp.array(target),
    }
    return example.MySMFModel(aux_data=data), example.ParamTuple


def _shared_edges(asked):
    """The published example as a careful user would speed it up: every edge computed once, all of it compiled."""
    import jax
    import jax.numpy as jnp
    from diffopt.multigrad.tests.smf_example import smf_grad_descent as example

    published, point = _model(asked["n"])

    @jax.jit
    def statistics(params, masses, edges, volume):
        params = example.ParamTuple(*params)
        mean = masses + params.log_shmrat
        total = jnp.stack([jnp.sum(example.calc_smf_cdf(edge, mean, params.sigma_logsm)) for edge in edges])
        return jnp.diff(total) / volume / jnp.diff(edges)

    class Model(example.MySMFModel):
        def calc_partial_sumstats_from_params(self, params):
            data = self.aux_data
            return statistics(params, data["log_halo_masses"], data["smf_bin_edges"], data["volume"])

    return _timed(Model(aux_data=published.aux_data), point, asked)


def _form(asked):
    """A summed statistic as `calc_partial_sumstats_from_params`, compiled; of mass functions the fastest way known."""
    import jax
    import jax.numpy as jnp
    from diffopt import multigrad

    from benchmarks.population_statistics import CATALOGUE_POINT, FORMS, partial_sums

    form, n = FORMS[asked["form"]], asked["n"]
    if not form.summed:
        return _shared_edges(asked)
    rows = jax.device_put(form.rows(n))
    sums = jax.jit(lambda params, rows, key: partial_sums(form, params, rows, key))

    class Model(multigrad.OnePointModel):
        def calc_partial_sumstats_from_params(self, params, randkey=None):
            return sums(params, self.aux_data, randkey)

        def calc_loss_from_sumstats(self, sumstats, randkey=None):
            return form.loss(sumstats, np.float32(n))

    model, params = Model(aux_data=rows), jnp.asarray(CATALOGUE_POINT)
    key = {"randkey": jax.random.key(scene.SEED)} if form.drawn else {}

    def call():
        for _ in range(asked["repeats"]):
            loss, gradient = model.calc_loss_and_grad_from_params(params, **key)
        jax.block_until_ready(gradient)
        return loss

    return call


def _lossgrad(asked):
    return _timed(*_model(asked["n"]), asked)


def _timed(model, point, asked):
    import jax

    def call():
        for _ in range(asked["repeats"]):
            loss, gradient = model.calc_loss_and_grad_from_params(point(-1.9, 0.25))
        jax.block_until_ready(gradient)
        return loss

    return call


def _adam(asked):
    model, point = _model(asked["n"])
    return lambda: model.run_adam(point(-1.0, 0.5), nsteps=100, learning_rate=0.01, progress=False)[1][-1]


def _kde(asked):
    import jax
    import jax.numpy as jnp
    from diffopt import kdescent
    from diffopt.kdescent.kstats import _predict_fourier, _predict_kde_counts

    known, (centres, positions) = jnp.asarray(scene.training()), map(jnp.asarray, scene.places())
    counts = {"num_eval_kernels": scene.KERNELS, "num_eval_fourier_positions": scene.POSITIONS}
    bank = kdescent.KPretrainer.from_training_data(known, **counts, seed=0)
    # the places of the other side, with counts by the package's own functions, in pieces as it makes them
    pieces = np.split(np.arange(scene.BANK), 300)
    kernel = [_predict_kde_counts(known, None, centres[i], bank.kernelcov, return_err=True) for i in pieces]
    fourier = [_predict_fourier(known, None, positions[i], return_err=True) for i in pieces]
    bank.kernel_centers, bank.fourier_positions = centres, positions
    bank.kde_counts, bank.kde_err = (np.concatenate(part) for part in zip(*kernel, strict=True))
    bank.fourier_counts, bank.fourier_err = (np.concatenate(part) for part in zip(*fourier, strict=True))
    calculator, sample, key = kdescent.KCalc(bank), jnp.asarray(scene.sample(asked["n"])), scene.draw_key()
    both = jax.jit(jax.value_and_grad(lambda shift, x: calculator.reduced_chisq_loss(key, x + shift)))

    def call():
        for _ in range(asked["repeats"]):
            loss, gradient = both(jnp.array(scene.SHIFT), sample)
        jax.block_until_ready(gradient)
        return loss

    return call


def _swarm(asked):
    import jax
    import jax.numpy as jnp
    from diffopt.multiswarm import ParticleSwarm

    @jax.jit
    def ackley(x):
        distance = jnp.sqrt(0.5 * jnp.sum(x * x))
        return 20 + jnp.e - 20 * jnp.exp(-0.2 * distance) - jnp.exp(0.5 * jnp.sum(jnp.cos(2 * jnp.pi * x)))

    def call():
        swarm = ParticleSwarm(asked["n"], 4, [-5.0] * 4, [5.0] * 4, seed=0)
        return np.min(swarm.run_pso(ackley, nsteps=100, progress=False)["swarm_loss_history"])

    return call


if __name__ == "__main__":
    serve(prepare)
