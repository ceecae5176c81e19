"""Kernel and Fourier counts, banks of places, comparison terms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import gaussian_kde, multivariate_normal

import shardfit as sf
from shardfit.stats import bank as banks
from shardfit.stats.bank import Bank, BankOptions, bank_at, make_bank
from shardfit.stats.compare import chi2, comparison_term, density_chi2, density_difference, row_normals, sample_counts
from shardfit.stats.kde import make_kernel, scott
from tests.reference import REFERENCE

CASES = ("d2", "d2_cov", "d3")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=CASES)
def golden(request):
    """Stored values (diffopt 2.0.0, float64) at given centres and positions, and our bank there."""
    with np.load(REFERENCE / "population" / f"kde_{request.param}.npz") as stored:
        g = {"train_w": None, "model_w": None} | {k: stored[k] for k in stored.files}
    options = BankOptions(
        kernels=int(g["num_eval_kernels"]),
        bandwidth=float(g["bandwidth_factor"]),
        reach=float(g["fourier_range_factor"]),
        covariant=bool(g["covariant"]),
    )
    return g, bank_at(g["train_x"], g["train_w"], g["kernel_centers"], g["fourier_positions"], options)


@jax.jit
def totals(places, points, weights=None):
    return jax.tree.map(lambda leaf: leaf.sum(0), sample_counts(places, jnp.asarray(points), weights))


def test_golden_training(golden):
    g, bank = golden
    places = bank.all
    np.testing.assert_allclose(
        np.linalg.inv(places.kernel.whiten.T @ places.kernel.whiten), g["kernelcov"], rtol=1e-10, atol=1e-15
    )
    factor = float(g["bandwidth_factor"]) * scott(bank.kernels, g["train_x"].shape[1])
    np.testing.assert_allclose(factor, g["bandwidth"], rtol=1e-12)
    np.testing.assert_allclose(places.kernel_counts, g["train_kde_counts"], rtol=1e-10)
    np.testing.assert_allclose(places.kernel_errors, g["train_kde_err"], rtol=1e-10)
    np.testing.assert_allclose(places.fourier_counts, g["train_fourier_counts"], rtol=1e-10)
    np.testing.assert_allclose(places.fourier_errors, g["train_fourier_err"], rtol=1e-10)


def test_golden_model(golden):
    g, bank = golden
    found = totals(bank.all, g["model_x"], g["model_w"])
    np.testing.assert_allclose(found["kernel"], g["model_kde_counts"], rtol=1e-10)
    np.testing.assert_allclose(found["cos"] + 1j * found["sin"], g["model_fourier_counts"], rtol=1e-10)
    np.testing.assert_allclose(chi2(found, bank.all), g["reduced_chisq"], rtol=1e-10)

    def shifted(shift):
        return density_difference(totals(bank.all, g["model_x"] + shift, g["model_w"]), bank.all)

    value, gradient = jax.jit(jax.value_and_grad(shifted))(jnp.asarray(g["shift"]))
    np.testing.assert_allclose(value, g["shift_loss"], rtol=1e-10)
    np.testing.assert_allclose(gradient, g["shift_grad"], rtol=1e-10)


def test_golden_in_single_precision(golden):
    g, bank = golden
    places = jax.tree.map(lambda a: np.asarray(a).astype(np.complex64 if np.iscomplexobj(a) else np.float32), bank.all)
    weights = None if g["model_w"] is None else g["model_w"].astype(np.float32)
    with jax.enable_x64(False):
        found = totals(places, g["model_x"].astype(np.float32), weights)
    assert found["kernel"].dtype == np.float32
    largest = np.abs(g["model_kde_counts"]).max()
    np.testing.assert_allclose(found["kernel"], g["model_kde_counts"], atol=2e-4 * largest)


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(5)
    return rng.multivariate_normal([30.0, -2.0], [[2.0, 0.6], [0.6, 0.5]], 700), rng.uniform(0.2, 3.0, 700)


def test_counts_against_scipy(sample):
    points, weights = sample
    bank = make_bank(points, weights, kernels=8, size=20, covariant=True, seed=3)
    covariance = np.linalg.inv(bank.all.kernel.whiten.T @ bank.all.kernel.whiten)
    wanted = [weights @ multivariate_normal.pdf(points, centre, covariance) for centre in bank.all.centres]
    np.testing.assert_allclose(bank.all.kernel_counts, wanted, rtol=1e-11)
    wanted = np.exp(1j * points @ bank.all.positions.T).T @ weights
    np.testing.assert_allclose(bank.all.fourier_counts, wanted, rtol=1e-11, atol=1e-9)


def test_density_is_scipys(sample):
    points, weights = sample
    at = points[:40] + 0.3
    known = gaussian_kde(points.T, weights=weights)(at.T)
    np.testing.assert_allclose(banks.density(points, weights, at), known, rtol=1e-10)


def test_places(sample):
    points, weights = sample
    bank = make_bank(points, weights, size=50, reach=2.0)
    mean = np.average(points, axis=0, weights=weights)
    std = np.sqrt(np.diag(np.cov(points.T, aweights=weights)))
    assert bank.kernels == bank.positions == 20
    assert bank.all.centres.shape == bank.all.positions.shape == (1000, 2)
    assert np.abs(bank.all.positions * std).max() < 2.0
    assert (bank.all.positions.min(0) * std < -1.9).all()
    assert (make_bank(points, one_sided=True, size=5).all.positions >= 0).all()
    assert np.abs(bank.all.centres.mean(0) - mean).max() < 0.15
    again = make_bank(points, weights, size=50, reach=2.0)
    assert np.array_equal(bank.all.centres, again.all.centres)
    assert not np.array_equal(bank.all.centres, make_bank(points, weights, size=50, seed=1).all.centres)


def test_inverse_density_spreads_centres_and_keeps_them_distinct():
    points = np.random.default_rng(0).standard_normal((800, 1))
    plain, even = (
        make_bank(points, kernels=10, size=40, candidates=10, inverse_density=power).all.centres for power in (0.0, 1.0)
    )
    assert len(np.unique(even)) == 400
    assert even.std() > 1.4 * plain.std()


def test_bank_survives_a_file(sample, tmp_path):
    bank = make_bank(*sample, size=4)
    bank.save(tmp_path / "bank.npz")
    back = Bank.load(tmp_path / "bank.npz")
    assert (back.kernels, back.positions) == (bank.kernels, bank.positions)
    for one, other in zip(jax.tree.leaves(bank), jax.tree.leaves(back), strict=True):
        assert np.array_equal(one, other)
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match="not a bank"):
        Bank.load(tmp_path / "other.npz")


def test_a_file_of_diffopt_is_a_bank(golden, tmp_path):
    g, bank = golden
    kept = {name: g[name] for name in ("kernel_centers", "fourier_positions", "kernelcov", "num_eval_kernels")}
    kept |= {name: g[f"train_{name}"] for name in ("kde_counts", "kde_err", "fourier_counts", "fourier_err")}
    weight = len(g["train_x"]) if g["train_w"] is None else g["train_w"].sum()
    np.savez(tmp_path / "k.npz", **kept, num_eval_fourier_positions=7, training_sum_of_weights=weight)
    read = Bank.load(tmp_path / "k.npz")
    assert (read.kernels, read.positions) == (bank.kernels, 7)
    np.testing.assert_allclose(read.all.weight, bank.all.weight)
    found = totals(read.all, g["model_x"], g["model_w"])
    np.testing.assert_allclose(found["kernel"], g["model_kde_counts"], rtol=1e-9)
    np.testing.assert_allclose(chi2(found, read.all), g["reduced_chisq"], rtol=1e-9)


@pytest.mark.slow
def test_blocks_do_not_show(sample, monkeypatch):
    bank = make_bank(*sample, size=7)
    monkeypatch.setattr(banks, "ROWS", 64)
    monkeypatch.setattr(banks, "PLACES", 33)
    jax.clear_caches()
    small = make_bank(*sample, size=7)
    np.testing.assert_allclose(small.all.kernel_counts, bank.all.kernel_counts, rtol=1e-12)
    np.testing.assert_allclose(small.all.fourier_errors, bank.all.fourier_errors, rtol=1e-12)
    jax.clear_caches()


@pytest.mark.parametrize(
    ("points", "weights", "options", "complaint"),
    [
        (np.zeros((50, 2)), None, {}, "singular"),
        (np.zeros((2, 2)), None, {}, "more points than dimensions"),
        (np.full((9, 1), np.nan), None, {}, "NaN"),
        (np.arange(9.0), np.ones(4), {}, "one each"),
        (np.arange(9.0), -np.ones(9), {}, "not negative"),
        (np.arange(9.0), None, {"bandwith": 2.0}, "Did you mean 'bandwidth'"),
        (np.arange(9.0), None, {"inverse_density": 2.0}, "between 0 and 1"),
        (np.arange(9.0), None, {"kernels": 0}, "at least 1"),
    ],
)
def test_complaints(points, weights, options, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        make_bank(points, weights, **options)


def moved(params, rows, key):
    return params["shift"] + rows["x"], rows["w"]


def shift_problem(sample, chunk=None, misfit=density_chi2):
    points, weights = sample
    bank = make_bank(points, weights, kernels=6, positions=5, size=8)
    rows = {"x": points[:301] + 0.2, "w": weights[:301]}
    term = comparison_term(moved, rows, bank, misfit=misfit, chunk=chunk)
    return sf.Problem(sf.Objective({"kde": term}), {"shift": np.array([0.1, -0.1])})


@pytest.mark.parametrize(
    "misfit", [density_chi2, *(pytest.param(m, marks=pytest.mark.slow) for m in (chi2, density_difference))]
)
def test_term_gradient_against_differences(sample, misfit):
    problem, key, step = shift_problem(sample, 64, misfit), jax.random.key(3), 1e-6
    gradient = problem.objective.value_and_grad(problem.x0, key)[1]["shift"]
    for i, unit in enumerate(np.eye(2)):
        up, down = (
            float(problem.objective.value({"shift": problem.x0["shift"] + s * unit}, key)) for s in (step, -step)
        )
        np.testing.assert_allclose(gradient[i], (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    "devices", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_term_is_the_same_on_any_devices(sample, devices):
    key = jax.random.key(7)
    one, many = shift_problem(sample), shift_problem(sample, 50)
    value, gradient = one.objective.value_and_grad(one.x0, key)
    found, slope = many.objective.place(sf.mesh(rows=devices)).value_and_grad(one.x0, key)
    np.testing.assert_allclose(found, value, rtol=1e-12)
    np.testing.assert_allclose(slope["shift"], gradient["shift"], rtol=1e-10)


def test_keys_draw_places(sample):
    problem = shift_problem(sample)
    objective, x0 = problem.objective, problem.x0
    values = [float(objective.value(x0, jax.random.key(k))) for k in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    frozen = objective.freeze(jax.random.key(0))
    assert not frozen.stochastic
    assert float(frozen.value(x0)) == values[0]


def test_several_points_per_row(sample):
    points, weights = sample
    places = make_bank(points, weights, size=3).all
    pairs = totals(places, points[:300].reshape(150, 2, 2), weights[:300].reshape(150, 2))
    single = totals(places, points[:300], weights[:300])
    for name in single:
        np.testing.assert_allclose(pairs[name], single[name], rtol=1e-12)


def test_row_normals_depend_on_the_row_only():
    key, index = jax.random.key(1), jnp.arange(20, dtype=jnp.int32)
    whole = row_normals(key, index, (2,))
    assert np.array_equal(whole[7:11], row_normals(key, index[7:11], (2,)))
    assert np.unique(np.asarray(whole)).size == 40


def test_a_nearly_singular_sample_is_refused_by_a_covariant_kernel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    points = np.column_stack([x, x.sum(1) + 1e-7 * rng.normal(size=500)])
    with pytest.raises(ValueError, match="nearly singular.*covariant=False"):
        make_kernel(points, None, 0.5, covariant=True)
    make_kernel(points, None, 0.5)
    make_kernel(x * [1.0, 1e-9], None, 0.5, covariant=True)  # units of a coordinate do not matter


def test_a_sample_of_another_dimension_is_refused_and_numbers_are_keys():
    bank = make_bank(np.random.default_rng(0).normal(size=(200, 2)), kernels=5, positions=5, size=3)
    np.testing.assert_array_equal(bank.draw(3).centres, bank.draw(jax.random.key(3)).centres)
    with pytest.raises(ValueError, match=r"shape \(7, 3\), but the bank's places have 2 coordinates"):
        sample_counts(bank.draw(0), np.zeros((7, 3)))
    with pytest.raises(TypeError, match="no random key"):
        bank.draw("first")
