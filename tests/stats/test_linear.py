"""Linear coefficients eliminated: against joint fits, dense algebra and numerical integration, on every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize

import shardfit as sf
from shardfit import coefficients, linear_term, marginalised, recover
from shardfit.core.centring import centred
from shardfit.core.precision import arithmetic
from shardfit.stats.eliminated import require_determined

N_GROUPS, SIGMA = 4, 0.02
PARAMS = {"k": np.float64(0.7), "w": np.array([0.3, 1.8])}
PRIORS = {"flat": None, "normal": (np.array([1.0, 0.2]), np.array([0.3, 0.05]))}


def basis(p, rows):
    t = rows["t"]
    return jnp.stack([jnp.exp(-p["k"] * t) + p["w"][0] * jnp.sin(p["w"][1] * t), jnp.ones_like(t)], axis=-1)


def data(n=61, seed=0):
    rng = np.random.default_rng(seed)
    t, group = rng.uniform(0, 4, n), rng.permutation(np.arange(n) % N_GROUPS)
    rows = {"t": t, "y": np.zeros(n), "sigma": SIGMA * rng.uniform(0.5, 2, n), "group": group.astype(np.int32)}
    with arithmetic("float64"):
        columns = np.asarray(basis({"k": 0.8, "w": np.array([0.25, 2.0])}, rows))
    truth = np.array([1.0, 0.3]) + 0.2 * rng.standard_normal((N_GROUPS, 2))
    return rows | {"y": np.sum(columns * truth[group], axis=1) + rows["sigma"] * rng.standard_normal(n)}


ROWS = data()


def dense(params, rows, prior=None):
    """Columns of the joint linear problem (n, G·K) and right-hand side, in units of the noise, prior rows included."""
    with arithmetic("float64"):
        columns = np.asarray(basis(params, rows))
    n = len(rows["t"])
    design = np.zeros((n, N_GROUPS, 2))
    design[np.arange(n), rows["group"]] = columns / rows["sigma"][:, None]
    design, right = design.reshape(n, -1), rows["y"] / rows["sigma"]
    if prior is not None:
        mean, sd = (np.broadcast_to(part, (N_GROUPS, 2)).ravel() for part in prior)
        design, right = np.vstack([design, np.diag(1 / sd)]), np.append(right, mean / sd)
    return design, right


def objective(prior=None, rows=ROWS, **options):
    return sf.Objective({"data": linear_term(basis, rows, groups="group", prior=prior, **options)})


@pytest.mark.parametrize("prior", PRIORS)
def test_value_is_the_minimum_over_coefficients(prior):
    prior = PRIORS[prior]
    design, right = dense(PARAMS, ROWS, prior)
    best = np.linalg.lstsq(design, right, rcond=None)[0]
    value = 0.5 * np.sum((design @ best - right) ** 2)
    assert float(objective(prior).value(PARAMS)) == pytest.approx(value, rel=1e-11)
    found = coefficients(sf.Problem(objective(prior), PARAMS), PARAMS)
    np.testing.assert_allclose(found.value.ravel(), best, rtol=1e-9)
    inverse = np.linalg.inv(design.T @ design).reshape(N_GROUPS, 2, N_GROUPS, 2)
    np.testing.assert_allclose(found.covariance, [inverse[g, :, g] for g in range(N_GROUPS)], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("marginal", [False, True])
def test_gradient_agrees_with_differences(marginal):
    target = objective(PRIORS["normal"], marginal=marginal)
    gradient = jax.device_get(target.value_and_grad(PARAMS)[1])
    for name, step in (("k", 1e-5), ("w", np.array([1e-5, 0])), ("w", np.array([0, 1e-5]))):
        ahead, behind = (float(target.value(PARAMS | {name: PARAMS[name] + s * step})) for s in (1, -1))
        assert (ahead - behind) / 2e-5 == pytest.approx(np.sum(gradient[name] * step) / 1e-5, rel=1e-6)


@pytest.mark.parametrize(("shards", "chunk"), [(1, 9), (4, None), (4, 5)])
def test_layout_and_order_do_not_matter(shards, chunk):
    order = np.random.default_rng(1).permutation(len(ROWS["t"]))
    shuffled = {name: array[order] for name, array in ROWS.items()}
    whole, other = objective(), objective(rows=shuffled, chunk=chunk).place(sf.mesh(rows=shards))
    pairs = [(whole.value_and_grad(PARAMS), other.value_and_grad(PARAMS)), (whole.gram(PARAMS), other.gram(PARAMS))]
    for one, same in pairs:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9), one, same)


def test_normal_equations_are_those_of_a_joint_fit():
    """Value and gradient as by the values; the matrix is the Schur complement of the joint one."""
    for prior in PRIORS.values():
        design, right = dense(PARAMS, ROWS, prior)
        best = np.linalg.lstsq(design, right, rcond=None)[0].reshape(N_GROUPS, 2)
        with arithmetic("float64"):
            slopes = jax.jacfwd(lambda p, c: jnp.sum(basis(p, ROWS) * c, axis=1))(PARAMS, best[ROWS["group"]])
        jacobian = np.column_stack([slopes["k"], slopes["w"]]) / ROWS["sigma"][:, None]
        jacobian = np.vstack([jacobian, np.zeros((len(design) - len(jacobian), 3))])
        joint = np.linalg.inv(np.column_stack([jacobian, design]).T @ np.column_stack([jacobian, design]))
        target = objective(prior)
        gram, (value, gradient) = target.gram(PARAMS), target.value_and_grad(PARAMS)
        assert float(gram.value) == pytest.approx(float(value), rel=1e-11)
        np.testing.assert_allclose(gram.gradient, np.append(gradient["k"], gradient["w"]), rtol=1e-8)
        np.testing.assert_allclose(np.linalg.inv(gram.matrix), joint[:3, :3], rtol=1e-7)


def test_fit_and_error_bars_are_those_of_a_joint_fit():
    def residuals(x):
        p = {"k": x[0], "w": x[1:3]}
        return (np.sum(numpy_basis(p, ROWS["t"]) * x[3:].reshape(-1, 2)[ROWS["group"]], 1) - ROWS["y"]) / ROWS["sigma"]

    start = np.concatenate([[0.7, 0.3, 1.8], np.tile([1.0, 0.3], N_GROUPS)])
    joint = optimize.least_squares(residuals, start, xtol=1e-14, ftol=1e-14, gtol=1e-14, x_scale="jac")
    covariance = np.linalg.inv(joint.jac.T @ joint.jac)
    problem = sf.Problem(objective(), PARAMS)
    result = sf.least_squares(problem)
    assert result.value == pytest.approx(joint.cost, rel=1e-10)
    np.testing.assert_allclose(np.append(result.params["k"], result.params["w"]), joint.x[:3], rtol=1e-6)
    found = coefficients(problem, result)
    np.testing.assert_allclose(found.value.ravel(), joint.x[3:], rtol=1e-6)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(found.joint() / scale, covariance / scale, atol=2e-5)
    np.testing.assert_allclose(found.stderr.ravel(), np.sqrt(np.diag(covariance))[3:], rtol=1e-4)


def numpy_basis(p, t):
    return np.stack([np.exp(-p["k"] * t) + p["w"][0] * np.sin(p["w"][1] * t), np.ones_like(t)], axis=-1)


def test_marginal_is_the_integral():
    """Two coefficients of one group, by quadrature: exactly, constants included."""
    rows = {name: array[:7] for name, array in ROWS.items() if name != "group"}
    columns = numpy_basis(PARAMS, rows["t"])
    for prior in PRIORS.values():
        target = sf.Objective({"data": linear_term(basis, rows, prior=prior, marginal=True)})
        centre = coefficients(sf.Problem(target, PARAMS), PARAMS)
        value = float(target.value(PARAMS))

        def density(b, a, prior=prior, value=value):
            c = np.array([a, b])
            log = -0.5 * np.sum(((columns @ c - rows["y"]) / rows["sigma"]) ** 2) + value
            if prior is not None:
                log += np.sum(-0.5 * ((c - prior[0]) / prior[1]) ** 2 - np.log(prior[1]) - 0.5 * np.log(2 * np.pi))
            return np.exp(log)

        (a, b), (sa, sb) = centre.value[0], 9 * centre.stderr[0]
        total = integrate.dblquad(density, a - sa, a + sa, b - sb, b + sb, epsabs=1e-9, epsrel=1e-7)[0]
        assert total == pytest.approx(1.0, abs=1e-5)


def test_recovered_draws_have_the_joint_moments():
    problem = sf.Problem(objective(PRIORS["normal"], marginal=True), PARAMS)
    draws = jax.tree.map(lambda x: np.broadcast_to(x, (2, 3000, *np.shape(x))), PARAMS)
    drawn = recover(problem, draws, jax.random.key(1))
    assert drawn.shape == (2, 3000, N_GROUPS, 2)
    expected, flat = coefficients(problem, PARAMS), drawn.reshape(-1, N_GROUPS, 2)
    np.testing.assert_array_less(np.abs(flat.mean(0) - expected.value) / expected.stderr, 5 / np.sqrt(6000))
    for g in range(N_GROUPS):
        np.testing.assert_allclose(np.cov(flat[:, g].T), expected.covariance[g], rtol=0.15)
    between = np.corrcoef(flat[:, 0, 0], flat[:, 1, 0])[0, 1]
    assert abs(between) < 5 / np.sqrt(6000)


def test_inner_groups_are_the_same_as_row_groups():
    rng = np.random.default_rng(3)
    t, phase = rng.uniform(0, 3, 30), np.linspace(0, 1, 5)

    y = rng.standard_normal((30, 5)) + 1j * rng.standard_normal((30, 5))

    def wide(p, rows, phase):
        f = jnp.exp(1j * (p * rows["t"][:, None] + phase))
        return jnp.stack([f, jnp.ones_like(f)], axis=-1)

    def long(p, rows):
        f = jnp.exp(1j * (p * rows["t"] + rows["phase"]))
        return jnp.stack([f, jnp.ones_like(f)], axis=-1)

    ids = np.array([0, 1, 1, 2, 0], np.int32)
    flat = {"t": np.repeat(t, 5), "phase": np.tile(phase, 30), "y": y.ravel(), "g": np.tile(ids, 30)}
    terms = [
        linear_term(wide, {"t": t, "y": y}, phase, groups=ids),
        linear_term(long, flat, groups="g"),
        linear_term(wide, {"t": t, "y": y, "g": np.tile(ids, (30, 1))}, phase, groups=("g", 3), chunk=8),
    ]
    first, *others = (sf.Objective({"data": term}) for term in terms)
    for other in others:
        for one, same in ((first.value_and_grad(1.3), other.value_and_grad(1.3)), (first.gram(1.3), other.gram(1.3))):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-10), one, same)


def test_collinear_groups_are_named_and_never_nan():
    def twins(p, rows):
        f = jnp.exp(-p * rows["t"])
        return jnp.stack([f, 2 * f, jnp.where(rows["group"] == 2, 0.0, 1.0)], axis=-1)

    problem = sf.Problem(sf.Objective({"data": linear_term(twins, ROWS, groups="group")}), 0.5)
    value, gradient = problem.objective.value_and_grad(0.5)
    assert np.isfinite([value, gradient]).all()
    best = np.linalg.lstsq(*_dense_of(twins, 0.5), rcond=None)[0]
    design, right = _dense_of(twins, 0.5)
    assert float(value) == pytest.approx(0.5 * np.sum((design @ best - right) ** 2), rel=1e-9)
    found = coefficients(problem, 0.5)
    np.testing.assert_array_equal(found.rank, [2, 2, 1, 2])
    assert np.isinf(found.stderr[:, :2]).all()
    assert np.isfinite(found.stderr[0, 2])
    with pytest.raises(ValueError, match=r"'data': at x0 .* 3 linear coefficients of 4 of 4 groups \(group 0, 1, 2"):
        require_determined(problem)
    with pytest.raises(ValueError, match="Give the coefficients a prior"):
        marginalised(problem)


def _dense_of(fn, p):
    with arithmetic("float64"):
        columns = np.asarray(fn(p, ROWS))
    n, k = columns.shape
    design = np.zeros((n, N_GROUPS, k))
    design[np.arange(n), ROWS["group"]] = columns / ROWS["sigma"][:, None]
    return design.reshape(n, -1), ROWS["y"] / ROWS["sigma"]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"y": None}, {}, "entry 'y'"),
        ({}, {"groups": "grup"}, "no entry of rows"),
        ({"group": ROWS["t"]}, {}, "whole numbers"),
        ({"group": ROWS["group"] - 1}, {}, r"holds -1 \.\.\. 2"),
        ({}, {"groups": ("group", 3)}, r"groups are 0 \.\.\. 2"),
        ({}, {"groups": ("group", 6)}, r"2 of 6 groups .* \(group 4 has 0, 5 has 0\)"),
        ({}, {"groups": np.arange(3)}, "has shape"),
        ({"sigma": np.ones((61, 2))}, {}, "one sigma per row"),
        ({}, {"prior": (0.0, -1.0)}, "positive standard deviations"),
        ({}, {"prior": (np.zeros(3), np.ones(3))}, "does not fit"),
        ({}, {"marginal": True, "weight": 2.0}, "weight 1"),
        ({}, {"chunk": 2}, "chunk=4 or more"),
        ({}, {"basis": lambda p, r: jnp.exp(-p["k"] * r["t"])}, "basis functions last"),
        ({}, {"gram": len}, "NormalEquations"),
    ],
)
def test_bad_input_is_refused_before_any_work(change, options, message):
    rows = {name: array for name, array in (ROWS | change).items() if array is not None}
    options = {"groups": "group", "basis": basis} | options
    with pytest.raises((ValueError, TypeError), match=message):
        sf.Problem(sf.Objective({"data": linear_term(options.pop("basis"), rows, **options)}), PARAMS)


def test_integrated_coefficients_are_no_least_squares():
    problem = marginalised(sf.Problem(objective(), PARAMS))
    with pytest.raises(TypeError, match="marginal linear term"):
        sf.least_squares(problem)
    again = marginalised(problem, False)
    assert float(again.objective.value(PARAMS)) == pytest.approx(float(objective().value(PARAMS)), rel=1e-12)


@pytest.mark.slow
def test_values_keep_their_digits_at_a_high_signal_to_noise_ratio():
    """Sums around the best coefficients of a start resolve values that plain sums would round away."""
    rows = ROWS | {"y": ROWS["y"] + 3e5}
    for prior in (None, (np.array([1.0, 3e5]), np.array([0.3, 9.0]))):
        plain = sf.Problem(objective(prior, rows), PARAMS).objective
        centre = centred(plain, PARAMS)
        near = PARAMS | {"k": PARAMS["k"] + 0.01}
        design, right = dense(near, rows, prior)
        best = np.linalg.lstsq(design, right, rcond=None)[0]
        value = 0.5 * np.sum((design @ best - right) ** 2)
        assert float(centre.value(near)) == pytest.approx(value, rel=1e-9)
        assert float(plain.value(near)) == pytest.approx(value, rel=1e-1)
        np.testing.assert_allclose(centre.gram(near).matrix, plain.gram(near).matrix, rtol=1e-6)
        found = coefficients(sf.Problem(centre, PARAMS), near).value
        np.testing.assert_allclose(found.ravel(), best, rtol=1e-9)
