"""Particle swarm: the golden step, the same trajectory on every mesh, resume, restarts, and how it ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy.stats import qmc

import shardfit as sf
from shardfit.solve import swarm_start
from shardfit.solve.draws import threefry, uniform_pairs
from shardfit.solve.monitor import Snapshot, Trace
from shardfit.solve.points import values_at
from shardfit.solve.swarm import move
from shardfit.stats.latin import latin_hypercube
from tests.reference import REFERENCE

MINIMUM = np.e - np.e**2


def ackley(x):
    root = jnp.sqrt(0.5 * jnp.sum(x**2))
    return 20 + jnp.e - 20 * jnp.exp(-0.2 * root) - jnp.exp(0.5 * jnp.sum(jnp.cos(2 * jnp.pi * x)))


def ackley_problem(**changes):
    fields = {"bounds": (-5, 5), "name": "ackley", **changes}
    return sf.Problem(sf.Objective({"ackley": sf.penalty(ackley)}), np.full(4, 3.0), **fields)


def whole_numbers(p, rows):
    """A loss whose sum over rows is exact, so that it is the same to the bit however the rows are split."""
    return jnp.floor(64 * (p["a"] * rows["x"] + p["b"] - rows["y"]) ** 2) / 64


def exact_problem():
    x = np.linspace(0, 3, 37)
    term = sf.statistic_term(whole_numbers, {"x": x, "y": 1.5 * x - 0.5})
    bounds = {"a": (-4.0, 4.0), "b": (-3.0, 3.0)}
    return sf.Problem(sf.Objective({"line": term}), {"a": 0.0, "b": 0.0}, bounds=bounds)


def swarm(problem, **options):
    run = {name: options.pop(name) for name in ("seed", "mesh", "run_dir", "callback", "every") if name in options}
    return sf.fit(problem, "swarm", progress=False, **run, **options)


def same(one, other):
    assert one.value == other.value and one.steps == other.steps and one.status is other.status
    for name in other.state:
        np.testing.assert_array_equal(one.state[name], other.state[name])


# ---- one step ---------------------------------------------------------------------------------------------------


@pytest.fixture
def golden():
    return np.load(REFERENCE / "population" / "pso_step.npz")


def state_of(solver, x, v, own, guide, lower, upper):
    state = solver.init(x[0], lower, upper)
    return state._replace(position=x, velocity=v, best_x=own, guide_x=guide)


@pytest.mark.usefixtures("behind_doors")
def test_golden_step(golden):
    g = golden
    with jax.enable_x64(True):
        solver = sf.Swarm(
            particles=len(g["x"]),
            inertia=float(g["inertial"]),
            cognitive=float(g["cognitive"]),
            social=float(g["social"]),
            velocity_cap=float(g["vmax_frac"]),
        )
        names = ("x", "v", "personal_best", "global_best", "xmin", "xmax")
        state = state_of(solver, *(jnp.asarray(g[name]) for name in names))
        x, v = move(solver, state, g["u_cognitive"][:, None], g["u_social"][:, None])
        np.testing.assert_allclose(x, g["x_next"], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(v, g["v_next"], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(jax.vmap(ackley)(g["ackley_points"]), g["ackley_values"], rtol=1e-10)


@pytest.mark.usefixtures("behind_doors")
def test_drag_is_a_personal_best_at_the_place_before_the_move():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, v, guide = rng.uniform(-1, 1, (6, 3)), rng.uniform(-0.1, 0.1, (6, 3)), np.zeros(3)
        box = np.full(3, -5.0), np.full(3, 5.0)
        u1, u2 = jnp.asarray(rng.random((2, 6, 1)))
        drag = sf.Swarm(particles=6, inertia=1.0, cognitive=0.0, social=0.07, drag=0.21)
        other = sf.Swarm(particles=6, inertia=1.0, cognitive=0.21, social=0.07)
        moved = [move(s, state_of(s, *map(jnp.asarray, (x, v, x, guide, *box))), u1, u2) for s in (drag, other)]
    np.testing.assert_allclose(moved[0][1], moved[1][1], rtol=1e-13)


@pytest.mark.usefixtures("behind_doors")
def test_a_tie_goes_to_the_new_point():
    with jax.enable_x64(True):
        solver = sf.Swarm(particles=3)
        state = solver.init(jnp.zeros(2), jnp.full(2, -1.0), jnp.full(2, 1.0))
        state = state._replace(velocity=jnp.full((3, 2), 0.25), fresh=jnp.zeros((), bool), best_loss=jnp.ones(3))
        state = state._replace(guide_loss=jnp.ones(()), value=jnp.ones(()))
        after = solver.step(lambda x: jnp.ones(3), state)
    np.testing.assert_array_equal(after.best_x, np.full((3, 2), 0.25))
    np.testing.assert_array_equal(after.guide_x, [0.25, 0.25])
    np.testing.assert_array_equal(after.x, [0.25, 0.25])


def test_random_words_are_those_of_jax():
    key = jnp.array([123, 456789], jnp.uint32)
    high, low = jnp.arange(50, dtype=jnp.uint32) * 77777, jnp.arange(50, dtype=jnp.uint32) + 5
    np.testing.assert_array_equal(
        jnp.concatenate(threefry(key, high, low)), threefry_2x32((key[0], key[1]), jnp.concatenate([high, low]))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_numbers(dtype):
    with jax.enable_x64(dtype == np.float64):
        key = jax.random.key_data(jax.random.key(5))
        u = np.stack([uniform_pairs(key, jnp.asarray(step), (200, 50), dtype) for step in (0, 1)])
    assert u.dtype == dtype and u.min() >= 0 and u.max() < 1
    assert len(np.unique(u)) > 0.99 * u.size
    flat = u.reshape(4, -1)
    np.testing.assert_allclose(flat.mean(1), 0.5, atol=0.015)  # five standard errors
    assert np.abs(np.corrcoef(flat) - np.eye(4)).max() < 0.05


@pytest.mark.parametrize(("n", "dims"), [(100, 4), (64, 10), (7, 2), (2, 3), (9, 1)])
def test_latin_hypercube(n, dims):
    points = latin_hypercube(n, dims, np.random.default_rng(0))
    for axis in points.T:
        np.testing.assert_array_equal(np.sort(np.floor(axis * n)), np.arange(n))
    if n > 2 and dims > 1:
        plain = [qmc.discrepancy(qmc.LatinHypercube(dims, rng=seed).random(n)) for seed in range(20)]
        assert qmc.discrepancy(points) < np.quantile(plain, 0.3)


# ---- whole runs -------------------------------------------------------------------------------------------------


def test_reaches_the_minimum_of_ackley():
    gaps = [swarm(ackley_problem(), seed=seed).value - MINIMUM for seed in range(10)]
    assert np.sum(np.array(gaps) < 0.05) >= 9 and min(gaps) > 0


@pytest.mark.slow
def test_reaches_the_minimum_in_95_of_100_seeds():
    gaps = np.array([swarm(ackley_problem(), seed=seed).value - MINIMUM for seed in range(7000, 7100)])
    assert np.mean(gaps < 0.05) >= 0.95


def test_result_is_the_best_of_the_history():
    result = swarm(ackley_problem(), maxiter=20, particles=30, keep=1)
    assert result.status is sf.Status.MAX_STEPS and result.certificate is None
    assert result.evaluations == 21 * 30 and result.steps == 20
    history = result.history
    assert history["x"].shape == history["v"].shape == (20, 30, 4) and history["loss"].shape == (20, 30)
    assert len(history["value"]) == 21 and np.isnan(history["gradient"]).all()
    best = np.unravel_index(np.argmin(history["loss"]), (20, 30))
    assert result.value == pytest.approx(history["loss"][best], rel=1e-14)
    np.testing.assert_array_equal(result.params, history["x"][best])
    np.testing.assert_array_equal(history["value"][1:], np.minimum.accumulate(history["loss"].min(1)))
    np.testing.assert_allclose(jax.vmap(ackley)(history["x"][3]), history["loss"][3], rtol=1e-5)  # float32 here
    assert np.abs(history["x"]).max() <= 5 and np.abs(history["v"]).max() <= 4
    thin = swarm(ackley_problem(), maxiter=20, particles=30, keep=6)
    np.testing.assert_array_equal(thin.history["x"], history["x"][5::6])


MESHES = [(1, 1), (1, 2), (1, 3), (1, 8), (2, 1), (8, 1), (2, 2), (2, 4)]
QUICK = {(ackley_problem, 1, 8), (exact_problem, 1, 2), (exact_problem, 2, 2), (exact_problem, 2, 4)}
CASES = [
    pytest.param(
        p,
        *m,
        marks=[pytest.mark.slow] * ((p, *m) not in QUICK) + [pytest.mark.usual_code] * (p is ackley_problem),
    )
    for p in (ackley_problem, exact_problem)
    for m in MESHES
]


@pytest.mark.parametrize(("problem", "rows", "runs"), CASES)
def test_trajectory_is_the_same_on_every_mesh(problem, rows, runs):
    options = {"particles": 20, "maxiter": 25, "keep": 1}
    alone = swarm(problem(), **options)
    split = swarm(problem(), mesh=sf.mesh(rows=rows, runs=runs), **options)
    for name in ("x", "v", "loss"):
        np.testing.assert_array_equal(split.history[name], alone.history[name])
    same(split, alone)
    assert split.layout["runs"] == runs


@pytest.mark.usefixtures("behind_doors")
def test_particles_are_split_over_runs_and_losses_come_back_whole():
    mesh = sf.mesh(rows=2, runs=4)
    problem = exact_problem()
    with jax.enable_x64(True):
        placed = problem.objective.place(mesh)
        points = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (10, 2)))
        call = jax.jit(lambda o, p: values_at(problem.space, o, p, None))
        text = str(call.lower(placed, points).compile().as_text())
        values = call(placed, points)
    assert "f64[3,19]" in text and "f64[10,19]" not in text  # 12 of 10 particles over 4, 38 of 37 rows over 2
    assert values.sharding.is_fully_replicated
    expected = [float(problem.objective.value({"a": a, "b": b})) for a, b in np.asarray(points)]
    np.testing.assert_array_equal(values, expected)


def test_batches_bound_the_memory_and_change_nothing():
    rng = np.random.default_rng(1)
    rows, mix = rng.normal(size=(20000, 4)), jnp.asarray(rng.normal(size=4))

    def mixed(p, rows):
        """What is sorted is kept in memory; compilers join other operations, small products too, with the sum."""
        return jnp.sin(jnp.sort(p[0] * rows + p[1], axis=1)) @ mix

    objective = sf.Objective({"mixed": sf.statistic_term(mixed, rows, chunk=None)})
    problem = sf.Problem(objective, np.zeros(2), bounds=(-1, 1))
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2))

    def compiled(at_once):
        call = jax.jit(lambda o, p: values_at(problem.space, o, p, None, at_once))
        return call.lower(problem.objective, points).compile()

    with jax.enable_x64(True):
        whole, few = compiled(50), compiled(7)
        np.testing.assert_allclose(few(problem.objective, points), whole(problem.objective, points), rtol=1e-13)
    whole, few = (c.memory_analysis() for c in (whole, few))
    if few is not None and whole is not None:
        assert whole.temp_size_in_bytes >= len(points) * rows.nbytes
        assert few.temp_size_in_bytes < whole.temp_size_in_bytes / 4
    assert swarm(exact_problem(), maxiter=5, at_once=7).value == swarm(exact_problem(), maxiter=5).value


def test_large_data_are_evaluated_in_batches_by_default(monkeypatch):
    from shardfit.solve import points

    seen = []
    monkeypatch.setattr(points.jax.lax, "map", lambda fn, xs: seen.append(xs.shape) or jax.vmap(fn)(xs))
    monkeypatch.setattr(points, "LARGEST_BATCH", 37 * 6 + 6)
    problem = exact_problem()
    points.values_at(problem.space, problem.objective, jnp.zeros((20, 2)), None)
    assert seen == [(4, 5, 2)]


# ---- going on ---------------------------------------------------------------------------------------------------


def test_resumed_equals_unbroken_also_on_another_mesh(tmp_path):
    options = {"particles": 20, "maxiter": 30, "keep": 5, "stagnation": 8, "restarts": 3}
    unbroken = swarm(exact_problem(), **options)
    assert int(unbroken.state["drawn"]) < 30  # it was restarted at least once
    for mesh, stop in ((None, 10), (sf.mesh(rows=2, runs=2), 20), (None, 40)):
        look = {"callback": lambda s, stop=stop: s.step >= stop, "every": 10}
        resumed = swarm(exact_problem(), run_dir=tmp_path, mesh=mesh, **look, **options)
    assert resumed.status is not sf.Status.INTERRUPTED
    same(resumed, unbroken)
    np.testing.assert_array_equal(resumed.history["x"], unbroken.history["x"])
    assert resumed.note == unbroken.note and resumed.evaluations == unbroken.evaluations
    stored = sf.load_result(tmp_path)
    same(stored, unbroken)


def test_going_on_from_a_result_equals_one_longer_run(tmp_path):
    problem = ackley_problem()
    whole = swarm(problem, particles=20, maxiter=30)
    first = swarm(problem, particles=20, maxiter=12)
    sf.save_result(first, tmp_path)
    second = swarm(problem, particles=20, maxiter=18, start=sf.load_result(tmp_path))
    assert second.steps == 18 and second.evaluations == 18 * 20
    for name, array in whole.state.items():
        np.testing.assert_array_equal(second.state[name], array)
    assert "start=" in second.solver
    with pytest.raises(ValueError, match="same number of particles"):
        swarm(problem, particles=10, start=first)
    with pytest.raises(TypeError, match="Result of an earlier swarm"):
        swarm(problem, start=sf.fit(problem, "lbfgsb", maxiter=2, certify=False, progress=False))


def bowl_problem():
    return sf.Problem(sf.Objective({"bowl": sf.penalty(lambda x: jnp.sum(x**2))}), np.ones(2), bounds=(-5, 5))


def test_stagnation_stops_and_says_so():
    flat = sf.Problem(sf.Objective({"flat": sf.penalty(lambda x: 0 * x[0] + 3.0)}), np.ones(2), bounds=(-1, 1))
    result = swarm(flat, stagnation=7)
    assert result.status is sf.Status.STALLED and not result.success and result.steps == 7
    again = swarm(flat, stagnation=7, restarts=2)
    assert again.status is sf.Status.STALLED and again.steps == 3 * 7 + 2 and "restarted 2 times" in again.note
    coarse = swarm(bowl_problem(), stagnation=5, ftol=0.9, maxiter=500)
    assert coarse.status is sf.Status.STALLED and coarse.steps < 500


def test_contraction_is_convergence():
    result = swarm(bowl_problem(), xtol=1e-3, maxiter=500)
    assert result.status is sf.Status.CONVERGED_STEP and result.success
    extent = result.state["best_x"].max(0) - result.state["best_x"].min(0)
    assert extent.max() <= 1e-3 * 10 and np.abs(result.params).max() < 0.01


def test_a_restart_keeps_the_best_ever_seen():
    result = swarm(ackley_problem(), particles=10, maxiter=60, stagnation=4, restarts=5, keep=1)
    assert int(result.note.split("restarted ")[1].split()[0]) >= 2
    assert result.value == pytest.approx(result.history["loss"].min(), rel=1e-14)
    assert np.all(np.diff(result.history["value"]) <= 0)


# ---- where it starts --------------------------------------------------------------------------------------------


def start_of(problem, solver):
    lower, upper = problem.box
    return swarm_start.population(solver, problem.space, lower, upper, np.random.default_rng(0))


def test_start_fills_the_box():
    problem = exact_problem()
    x, v = start_of(problem, sf.Swarm(particles=50))
    for axis in ((x - [-4, -3]) / [8, 6]).T:
        np.testing.assert_array_equal(np.sort(np.floor(axis * 50)), np.arange(50))
    assert np.abs(v).max() < 0.4 * 8 and v.min() < -1
    assert start_of(problem, sf.Swarm(particles=50, symmetric=False))[1].min() >= 0


def test_constraint_on_the_start(monkeypatch):
    problem = exact_problem()
    x, _ = start_of(problem, sf.Swarm(particles=50, constraint=lambda p: p["a"] + p["b"] > 1))
    assert np.all(x.sum(1) > 1)
    assert swarm(problem, constraint=lambda p: p["a"] > 0, maxiter=3).steps == 3
    monkeypatch.setattr(swarm_start, "TRIES", 20)
    with pytest.raises(ValueError, match="constraint refused 20 points"):
        swarm(problem, constraint=lambda p: p["a"] > 100)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"bounds": None}, "a, b"),
        ({"bounds": {"a": (0, None), "b": (-1, 1)}}, "but a has"),
        ({"bounds": {"a": (-1, 1)}, "transforms": {"b": sf.Interval(-1, 1)}}, "but b has"),
        ({"bounds": {"a": (0, 1), "b": (-1, 1)}, "transforms": {"a": "log"}, "x0": {"a": 0.5, "b": 0.0}}, "but a has"),
    ],
)
def test_bounds_are_needed(changes, names):
    with pytest.raises(ValueError, match=names):
        swarm(exact_problem().replace(**changes))


@pytest.mark.slow
def test_log_coordinates_and_nested_parameters():
    def loss(p):
        return (jnp.log10(p["scale"]) + 3) ** 2 + jnp.sum((p["inner"]["w"] - 0.25) ** 2)

    problem = sf.Problem(
        sf.Objective({"loss": sf.penalty(loss)}),
        {"scale": 1.0, "inner": {"w": np.zeros((2, 2))}},
        bounds={"scale": (1e-6, 1e2), "inner": (-1, 1)},
        transforms={"scale": "log"},
    )
    result = swarm(problem, maxiter=150)
    assert result.params["scale"] == pytest.approx(1e-3, rel=0.1)
    np.testing.assert_allclose(result.params["inner"]["w"], 0.25, atol=0.02)


# ---- conduct ----------------------------------------------------------------------------------------------------


def test_non_finite_losses_count_as_infinite_and_are_counted():
    def half(x):
        return jnp.where(x[0] > 0, jnp.sum((x - 1) ** 2), jnp.nan)

    problem = sf.Problem(sf.Objective({"half": sf.penalty(half)}), np.ones(2), bounds=(-3, 3))
    result = swarm(problem, keep=1)
    expected = np.isinf(result.history["loss"]).sum()
    assert result.value < 1e-3 and expected > 0
    told = int(result.note.split(" evaluations were not finite")[0])
    assert expected < told < expected + 100  # the start is not in the history
    nowhere = sf.Problem(
        sf.Objective({"nan": sf.penalty(lambda x: jnp.where(x[0] == 1, 1.0, jnp.nan))}), np.ones(2), bounds=(-3, 3)
    )
    result = swarm(nowhere)
    assert result.status is sf.Status.NONFINITE and result.value == 1.0
    np.testing.assert_array_equal(result.params, [1, 1])


def test_stochastic_objectives_get_one_fresh_key_per_step():
    def noisy(p, rows, key):
        return (p - rows["v"]) ** 2 + jax.random.normal(key)

    term = sf.statistic_term(noisy, {"v": np.zeros(1)}, stochastic=True)
    problem = sf.Problem(sf.Objective({"noisy": term}), np.array(1.0), bounds=(-1, 1))
    result = swarm(problem, keep=1, maxiter=20, particles=10)
    noise = result.history["loss"] - result.history["x"][..., 0] ** 2
    np.testing.assert_allclose(noise, noise[:, :1] + 0 * noise, atol=1e-12)
    assert len(np.unique(noise[:, 0].round(9))) == 20


def test_callback_sees_the_best_so_far():
    seen = []

    def look(shot):
        seen.append((shot.step, shot.evaluations, shot.value, shot.params))
        return shot.step >= 20

    result = swarm(ackley_problem(), particles=25, callback=look, every=10)
    assert [s[:2] for s in seen] == [(10, 11 * 25), (20, 21 * 25)]
    assert result.status is sf.Status.INTERRUPTED and result.steps == 20 and "callback" in result.note
    assert seen[1][2] <= seen[0][2] and result.value == pytest.approx(seen[1][2], rel=1e-14)


@pytest.mark.slow
def test_float32():
    result = swarm(ackley_problem(precision="float32"))
    assert result.params.dtype == np.float32 and result.value - MINIMUM < 0.05


@pytest.mark.parametrize("name", ["lbfgsb", *(pytest.param(n, marks=pytest.mark.slow) for n in ("lbfgs", "lm"))])
def test_polish_is_part_of_one_result(name):
    def valley(x):
        return jnp.stack([10 * (x[1] - x[0] ** 2), 2.0 - x[0]])

    # the unbounded minimum is at (2, 4): the answer lies on the bound
    problem = sf.Problem(sf.Objective({"valley": sf.residual_penalty(valley)}), np.zeros(2), bounds=(-1.5, 1.5))
    plain = swarm(problem, maxiter=20)
    result = swarm(problem, maxiter=20, polish=name, polish_best=2)
    best = sf.fit(problem, "lbfgsb", progress=False).value
    assert result.value < plain.value and result.value == pytest.approx(best, rel=1e-5)
    assert np.abs(result.params).max() <= 1.5
    told = [int(n) for n in result.note.replace("evaluations", "#").split() if n.isdigit()]
    assert result.evaluations == told[1] + told[-1] and told[1] == 2100 and result.steps == 20 + told[-2]
    assert 21 < len(result.history["value"]) <= 21 + told[-1]  # evaluations that confirm an answer are no steps
    assert f"Polish by '{name}' from its best 2" in result.note and f"polish='{name}'" in result.solver
    assert result.certificate is not None


@pytest.mark.slow
def test_plan_of_a_swarm():
    text = str(sf.plan(exact_problem(), "swarm"))
    assert "value" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"particles": 1}, "particles=1 must be at least 2"),
        ({"stagnation": 0}, "stagnation"),
        ({"velocity_cap": 0.0}, "velocity_cap"),
        ({"gtol": 1e-3}, "gtol"),
        ({"restarts": 2}, "restarts need to know when"),
        ({"polish_best": 200, "polish": "lbfgs"}, "polish_best"),
        ({"polish": "lbfgz"}, "Did you mean"),
        ({"polish": "swarm"}, "no swarm"),
        ({"polish": "lm"}, "needs residuals"),
        ({"particle": 3}, "Did you mean 'particles'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        swarm(ackley_problem(), **options)


@pytest.mark.parametrize(("name", "options"), [("swarm", {"particles": 10}), ("cmaes", {"population": 10})])
def test_histories_and_live_pages_count_evaluations(name, options, tmp_path):
    """Not generations: eight of them stood beside the evaluations that they took."""
    from shardfit.io.live import read_live
    from shardfit.io.progress import FitLive

    result = sf.fit(ackley_problem(), name, maxiter=4, progress=False, **options)
    counts = result.history["evaluation"]
    assert counts[-1] == result.evaluations == 10 * len(counts)
    trace = Trace()
    trace.restore(result.history)
    live = FitLive(tmp_path, "a search", 4)
    live.update(Snapshot(4, result.evaluations, result.value, np.nan, 1.0, None, None), trace)
    at, _, across = read_live(tmp_path)["curves"]["lowest value"]
    assert across == "evaluations" and at[-1] == result.evaluations


def test_a_polish_counts_on():
    result = swarm(ackley_problem(), maxiter=3, particles=10, polish="lbfgsb")
    counts = result.history["evaluation"]
    assert len(counts) == len(result.history["value"])
    assert counts[-1] <= result.evaluations and np.all(np.diff(counts) > 0)


def test_a_search_without_a_finite_value_returns_none():
    """And does not say that it did."""
    here = sf.penalty(lambda x: jnp.where(jnp.all(x == 3.0), 0.0, jnp.nan))
    lost = sf.Problem(sf.Objective({"here": here}), np.full(2, 3.0), bounds=(-5, 5))
    result = sf.fit(lost, "swarm", particles=5, maxiter=2, progress=False, certify=False)
    assert not result.success and "non-finite" in result.message and "best finite" not in result.message
