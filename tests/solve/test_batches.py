"""Mini-batches and first-order steps: how they end, and what they report."""

import threading

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import monitoring

import shardfit as sf
from shardfit.solve.base import Task
from shardfit.solve.batches import Batches, Epochs
from tests.solve.cases import least_squares_problem, penalty_problem

ROWS = {"v": np.random.default_rng(3).normal(1.5, 1.0, 200)}


def noisy(p, rows, key):
    import jax

    return (p - rows["v"]) ** 2 + 0.1 * jax.random.normal(key) * p


def noisy_problem():
    term = sf.statistic_term(noisy, ROWS, stochastic=True, weight=1 / 200)
    return sf.Problem(sf.Objective({"noisy": term}), np.array(0.0))


def test_one_step_moves_the_parameters():
    problem = penalty_problem()
    result = sf.fit(problem, optax.sgd(1e-4), maxiter=1, progress=False)
    gradient = np.asarray(problem.objective.value_and_grad(problem.x0)[1])
    assert result.steps == 1 and result.evaluations == 2
    np.testing.assert_allclose(result.params, problem.x0 - 1e-4 * gradient, rtol=1e-12)
    assert result.value == pytest.approx(float(problem.objective.value(result.params)), rel=1e-12)


def test_batches_of_a_stochastic_term_return_their_result():
    result = sf.fit(noisy_problem(), "adam", batch=50, maxiter=150, learning_rate=0.05, progress=False)
    assert result.steps == 150 and abs(float(result.params) - 1.5) < 0.3
    assert np.isfinite(result.value)


def test_the_value_after_batches_stands_for_all_rows_that_a_part_stands_for():
    problem = least_squares_problem()
    part = problem.replace(objective=problem.objective.take(lambda term, n: np.arange(0, n, 4)))
    whole = sf.fit(part, "adam", maxiter=3, progress=False)
    batched = sf.fit(part, "adam", maxiter=3, batch=20, progress=False)
    value = float(part.objective.value(batched.params))
    assert batched.value == pytest.approx(value, rel=1e-12)
    assert batched.value == pytest.approx(whole.value, rel=0.05)


def test_batches_and_devices_draw_the_same_rows_at_every_tick():
    options = {"maxiter": 20, "batch": 30, "seed": 5, "progress": False}
    one, four = (sf.fit(least_squares_problem(), "adam", mesh=m, **options) for m in (None, sf.mesh(rows=4)))
    np.testing.assert_allclose(one.history["value"], four.history["value"], rtol=1e-10)
    assert len(np.unique(one.history["value"])) == 21


@pytest.mark.parametrize(("n", "size"), [(12, 4), (12, 8), (22, 4), (7, 7), (9, 1), (10, 9), (100, 33)])
def test_every_epoch_uses_every_row_once(n, size):
    """However steps and epochs divide; no step has a row twice, and any step can be asked for by itself."""
    epochs, steps = Epochs(n, size, (3, 0)), 4 * n
    rows = [epochs(step) for step in range(steps)]
    assert all(len(np.unique(batch)) == size for batch in rows)
    stream = np.concatenate(rows)[: steps * size // n * n].reshape(-1, n)
    assert (np.sort(stream) == np.arange(n)).all()
    assert len({tuple(order) for order in stream.tolist()}) > (0 if n == 7 else len(stream) // 2)
    for step in (steps - 1, 2, 17):  # a resumed run asks for a late one first
        assert np.array_equal(Epochs(n, size, (3, 0))(step), rows[step])
        assert np.array_equal(epochs(step), rows[step])
    other = [Epochs(n, size, seed)(step) for seed in ((4, 0), (3, 1)) for step in range(2)]
    assert any(not np.array_equal(a, b) for a, b in zip(other, rows[:2] * 2, strict=True))


def test_first_rows_of_an_epoch_are_uniform():
    """What a step over two epochs demands must not favour rows: each begins an epoch equally often."""
    epochs = Epochs(5, 3, (0,))
    stream = np.concatenate([epochs(step) for step in range(5000)]).reshape(-1, 5)
    counts = np.array([np.bincount(stream[:, place], minlength=5) for place in range(5)])
    assert np.abs(counts / len(stream) - 0.2).max() < 0.03  # six standard deviations


def mapped_problem(folder):
    path = folder / "v.npy"
    np.save(path, np.random.default_rng(0).normal(1.5, 1.0, (40, 3)))
    rows = {"v": np.load(path, mmap_mode="r")}
    term = sf.residual_term(lambda p, rows: p - rows["v"], rows)
    return sf.Problem(sf.Objective({"mean": term}), np.zeros(3))


def test_memory_maps_are_read_ahead_and_give_the_same(tmp_path, monkeypatch):
    problem = mapped_problem(tmp_path)
    inside = problem.replace(objective=problem.objective.with_rows(mean={"v": np.load(tmp_path / "v.npy")}))
    options = {"maxiter": 30, "batch": 7, "seed": 5, "progress": False}
    threads, read = set(), Batches._read
    monkeypatch.setattr(
        Batches, "_read", lambda self, step: threads.add(threading.current_thread().name) or read(self, step)
    )
    ahead, plain = (sf.fit(which, "adam", **options) for which in (problem, inside))
    assert ahead.history["value"].tolist() == plain.history["value"].tolist()
    assert threads == {"read-ahead_0", threading.main_thread().name}
    assert not any(thread.name.startswith("read-ahead") for thread in threading.enumerate())


def test_what_goes_wrong_in_the_reader_is_raised(tmp_path, monkeypatch):
    read = Batches._read

    def torn(self, step):
        if step == 3:
            raise OSError(5, "Input/output error", "line.npy")
        return read(self, step)

    monkeypatch.setattr(Batches, "_read", torn)
    with pytest.raises(OSError, match=r"Input/output error: 'line\.npy'"):
        sf.fit(mapped_problem(tmp_path), "adam", batch=7, maxiter=30, progress=False)


def test_one_batch_is_read_ahead_while_another_is_used(tmp_path, monkeypatch):
    """The reader is at work when the step before is handed out, and it reads no further than one."""
    problem, steps, may_go = mapped_problem(tmp_path), [], threading.Event()
    read = Batches._read

    def slow(self, step):
        assert step == 0 or may_go.wait(20)
        steps.append(step)
        return read(self, step)

    monkeypatch.setattr(Batches, "_read", slow)
    task = Task(problem, problem.space, problem.z0(), None, None, None, 0, None)
    with Batches(task, 8) as batches:
        batches.at(0)  # returns although step 1 is being read
        assert steps == [0]
        may_go.set()
        batches.at(1)
        batches.ahead[2].result()
        assert steps == [0, 1, 2]


@pytest.mark.parametrize("kind", ["optax", "optimistix"])
def test_a_fresh_but_equal_solver_object_compiles_nothing(kind):
    import optimistix

    compilations = []
    monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compilations.append(name) if "backend_compile" in name else None
    )

    def model(p, rows):
        return p[0] * jnp.exp(-p[1] * rows["t"]) - rows["y"]

    t = np.linspace(0, 3, 40)
    problem = sf.Problem(
        sf.Objective({"d": sf.residual_term(model, {"t": t, "y": np.exp(-t)})}), x0=np.array([0.5, 0.5])
    )
    make = {
        "optax": lambda rate: optax.chain(optax.clip(1.0), optax.adam(optax.linear_schedule(rate, 0.0, 50))),
        "optimistix": lambda rate: optimistix.LevenbergMarquardt(rtol=rate * 1e-6, atol=rate * 1e-6),
    }[kind]
    first = sf.fit(problem, make(0.1), maxiter=40, progress=False)
    before = len(compilations)
    again = sf.fit(problem, make(0.1), maxiter=40, progress=False)
    assert before and len(compilations) == before
    assert again.value == first.value
    other = sf.fit(problem, make(1e4), maxiter=40, progress=False)
    assert other.value != first.value  # another number is another solver
