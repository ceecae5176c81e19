"""Our side of the population suite."""

from collections.abc import Callable

import numpy as np

from benchmarks import population_scene as scene
from benchmarks.duel import keeping_value, serve

POINT = {"efficiency": -1.9, "scatter": 0.25}


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    kinds = {"lossgrad": _lossgrad, "adam": _adam, "kde": _kde, "swarm": _swarm}
    if asked["kind"] == "form":
        return _form(asked)
    return keeping_value(kinds[asked["kind"]](asked))


def _repeated(objective, params, repeats, key=None):
    import jax

    placed = objective.place()

    def call():
        for _ in range(repeats):
            value, gradient = placed.value_and_grad(params, key)
        jax.block_until_ready(gradient)
        return value

    return call


def _lossgrad(asked):
    from shardfit.domains.population import smf

    problem = smf.problem("B", asked["n"], precision="float32")
    return _repeated(problem.objective, {k: np.float32(v) for k, v in POINT.items()}, asked["repeats"])


def _form(asked):
    """A user's own statistic, with nothing said about chunks; `plain` is CPU seconds of the same lines without us."""
    import jax

    from benchmarks.population_statistics import FORMS
    from benchmarks.timing import warm

    form, n = FORMS[asked["form"]], asked["n"]
    objective, params, rows, plain = (_summed if form.summed else _by_row)(form, n)
    key = jax.random.key(scene.SEED)
    call, describe = keeping_value(_repeated(objective, params, asked["repeats"], key if form.drawn else None))

    def measured():
        said, placed = describe(), jax.device_put(rows)
        (value, _), _, seconds = warm(lambda: jax.block_until_ready(plain(params, placed, key)))
        return said | {"plain": seconds, "plain_loss": float(value)}

    return call, measured


def _by_row(form, n):
    """Return objective, parameters, rows and plain JAX of a mass function with one row of statistics for each row."""
    import jax

    import shardfit as sf
    from shardfit.domains.population.halos import log_masses

    rows = {"logm": log_masses(n, top=0.95).astype(np.float32)}
    volume, params = np.float32(10.0 * n), np.array(list(POINT.values()), np.float32)
    objective = sf.Objective({"smf": sf.statistic_term(form.statistic, rows, volume, loss=form.loss)})

    @jax.jit
    def plain(params, rows, key):
        return jax.value_and_grad(
            lambda p: form.loss(jax.tree.map(lambda leaf: leaf.sum(0), form.statistic(p, rows, volume)), volume)
        )(params)

    return objective, params, rows, plain


def _summed(form, n):
    """Return the same of a statistic that sums its block."""
    import jax

    import shardfit as sf
    from benchmarks.population_statistics import CATALOGUE_POINT, partial_sums
    from shardfit.stats.compare import normals

    rows, size = form.rows(n), np.float32(n)
    sums, loss_of = form.statistic, form.loss  # an evaluation reads what functions reach: users hold no table of forms

    def statistic(p, rows, weights, size):
        return sums(p, rows, weights)

    def drawn_statistic(p, rows, weights, size, key, keys):
        return sums(p, rows, weights, normals(keys))

    def loss(totals, size, *key):
        return loss_of(totals, size)

    stochastic = "rows" if form.drawn else False
    fn = sf.block_statistic(drawn_statistic if form.drawn else statistic)
    term = sf.statistic_term(fn, rows, size, loss=loss, stochastic=stochastic)

    @jax.jit
    def plain(params, rows, key):
        return jax.value_and_grad(lambda p: form.loss(partial_sums(form, p, rows, key), size))(params)

    return sf.Objective({"sums": term}), CATALOGUE_POINT, rows, plain


def _adam(asked):
    import shardfit as sf
    from shardfit.domains.population import smf

    problem = smf.problem("B", asked["n"], precision="float32")
    options = {"learning_rate": 0.01, "maxiter": 100, "gtol": 0.0, "x_scale": 1.0, "certify": False, "progress": False}
    return lambda: sf.fit(problem, "adam", **options).value


def shifted(params, rows, key):
    """Return the sample moved by the parameters."""
    return rows["x"] + params


def _kde(asked):
    import jax

    import shardfit as sf
    from shardfit.stats.bank import BankOptions, bank_at
    from shardfit.stats.compare import chi2, comparison_term

    options = BankOptions(kernels=scene.KERNELS, positions=scene.POSITIONS)
    bank = bank_at(scene.training(), None, *scene.places(), options)
    term = comparison_term(shifted, {"x": scene.sample(asked["n"])}, bank, misfit=chi2)
    problem = sf.Problem(sf.Objective({"kde": term}), np.float32(scene.SHIFT), precision="float32")
    return _repeated(problem.objective, problem.x0, asked["repeats"], jax.random.key(scene.SEED))


def _swarm(asked):
    import shardfit as sf
    from shardfit.domains.population import ackley

    problem = ackley.problem(precision="float32")
    options = {"particles": asked["n"], "maxiter": 100, "certify": False, "progress": False}
    return lambda: sf.fit(problem, "swarm", **options).value


if __name__ == "__main__":
    serve(prepare)
