"""Value, gradient, Hessian-vector product, totals and normal equations on every layout, against plain jnp code."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.reduce import SMALL, on_shards
from shardfit.core.term_makers import penalty, residual_penalty, residual_term, statistic_term

TOLERANCE = 1e-12
EDGES = np.linspace(-1.0, 1.0, 4)
WEIGHT = {"vis": 1.5, "amp": 0.25}
PARAMS = {"a": np.float64(1.2), "w": np.array([0.4, -0.7, 0.9])}
TANGENT = {"a": np.float64(-0.3), "w": np.array([1.1, 0.2, -0.8])}
# 8 devices: two rows each with three shards empty (9), fewer rows than devices (3), a short last shard (13, 17)
N_ROWS = {"residual": 13, "complex": 9, "scan": 3, "histogram": 17, "fourier": 9, "mean": 5}
CHUNKS = {
    "some": {"residual": 3, "scan": 1, "fourier": 2},
    "others": {"complex": 2, "histogram": 3, "mean": 1},
}


def residual(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(p["w"][0] * rows["x"])) / rows["sigma"]


def products(p, rows):
    vis = p["a"] * jnp.exp(1j * p["w"][1] * rows["x"])
    return {"vis": (vis - rows["y"]) / rows["sigma"], "amp": jnp.abs(vis) + p["w"][2] - rows["y"]}


def propagate(p, rows, steps):
    def step(u, s):
        return jnp.tanh(p["a"] * u + s * rows["x"]), None

    return jax.lax.scan(step, jnp.zeros_like(rows["x"]), steps)[0]


def membership(p, rows, edges):
    return jnp.diff(jax.nn.sigmoid((edges - p["w"][2] * rows["x"][:, None]) / p["a"]), axis=1)


def log_misfit(counts, edges):
    return {"log": jnp.sum(jnp.log(counts) ** 2), "spread": jnp.var(counts)}


def wave(p, rows):
    phase = jnp.exp(1j * rows["x"][:, None] * jnp.arange(1.0, 3.0) * p["w"][0])
    u = jax.lax.scan(lambda u, _: (u * phase + p["a"], None), jnp.zeros_like(phase), None, length=3)[0]
    return u * rows["y"][:, None]


def power(total):
    return jnp.sum(jnp.abs(total) ** 2) + jnp.sum(total.real)


def count_and_sum(p, rows):
    return {"n": rows["k"], "s": jnp.sin(p["w"][1] * rows["x"])}


def mean(total):
    return (total["s"] / total["n"]) ** 2


def roughness(p):
    return jnp.sum(jnp.diff(p["w"]) ** 2)


def prior(p, centre):
    return jnp.append(p["w"] - centre, 2.0 * p["a"])


def make_rows(n, seed):
    rng = np.random.default_rng([n, seed])
    x, y, sigma = rng.normal(size=n), rng.normal(size=n), rng.uniform(0.5, 2, n)
    return {"x": x, "y": y, "sigma": sigma, "k": rng.integers(1, 9, n)}


def make_data(seed=0):
    return {name: make_rows(n, seed + i) for i, (name, n) in enumerate(N_ROWS.items())}


def make_objective(data, chunk):
    return Objective(
        {
            "residual": residual_term(residual, data["residual"], weight=0.7, chunk=chunk.get("residual")),
            "complex": residual_term(products, data["complex"], weight=WEIGHT, chunk=chunk.get("complex")),
            "scan": statistic_term(propagate, data["scan"], EDGES, weight=1.3, chunk=chunk.get("scan")),
            "histogram": statistic_term(
                membership, data["histogram"], EDGES, loss=log_misfit, chunk=chunk.get("histogram")
            ),
            "fourier": statistic_term(wave, data["fourier"], loss=power, weight=0.1, chunk=chunk.get("fourier")),
            "mean": statistic_term(count_and_sum, data["mean"], loss=mean, chunk=chunk.get("mean")),
            "smooth": penalty(roughness, weight=0.2),
            "prior": residual_penalty(prior, EDGES[:3], weight=0.3),
        }
    )


# ---- the same mathematics by hand -----------------------------------------------------------------------------------


def hand_parts(p, data):
    vis, amp = products(p, data["complex"]).values()
    histogram = log_misfit(membership(p, data["histogram"], EDGES).sum(0), EDGES)
    return {
        "residual": 0.5 * jnp.sum(residual(p, data["residual"]) ** 2),
        "complex.vis": 0.5 * jnp.sum(vis.real**2 + vis.imag**2),
        "complex.amp": 0.5 * jnp.sum(amp**2),
        "scan": jnp.sum(propagate(p, data["scan"], EDGES)),
        "histogram.log": histogram["log"],
        "histogram.spread": histogram["spread"],
        "fourier": power(wave(p, data["fourier"]).sum(0)),
        "mean": (jnp.sin(p["w"][1] * data["mean"]["x"]).sum() / data["mean"]["k"].sum()) ** 2,
        "smooth": roughness(p),
        "prior": 0.5 * jnp.sum(prior(p, EDGES[:3]) ** 2),
    }


def hand_totals(p, data):
    parts = hand_parts(p, data)
    return {
        "residual": parts["residual"],
        "complex": {"vis": parts["complex.vis"], "amp": parts["complex.amp"]},
        "scan": parts["scan"],
        "histogram": membership(p, data["histogram"], EDGES).sum(0),
        "fourier": wave(p, data["fourier"]).sum(0),
        "mean": {k: v.sum() * 1.0 for k, v in count_and_sum(p, data["mean"]).items()},
    }


HAND_WEIGHTS = {
    "residual": 0.7,
    "complex.vis": 1.5,
    "complex.amp": 0.25,
    "scan": 1.3,
    "histogram.log": 1.0,
    "histogram.spread": 1.0,
    "fourier": 0.1,
    "mean": 1.0,
    "smooth": 0.2,
    "prior": 0.3,
}


def hand_value(p, data):
    return sum(HAND_WEIGHTS[name] * part for name, part in hand_parts(p, data).items())


def hand_residuals(flat, data):
    p = {"a": flat[0], "w": flat[1:]}
    vis, amp = products(p, data["complex"]).values()
    return jnp.concatenate(
        [
            np.sqrt(0.7) * residual(p, data["residual"]),
            np.sqrt(1.5) * vis.real,
            np.sqrt(1.5) * vis.imag,
            np.sqrt(0.25) * amp,
            np.sqrt(0.3) * prior(p, EDGES[:3]),
        ]
    )


# the oracle runs once: compile it fast
ORACLE = {"xla_backend_optimization_level": 0}


@partial(jax.jit, compiler_options=ORACLE)
def by_hand(data, p, t):
    gradient = jax.grad(hand_value)
    flat = jnp.append(p["a"], p["w"])
    r, jacobian = hand_residuals(flat, data), jax.jacfwd(hand_residuals)(flat, data)
    return {
        "value": hand_value(p, data),
        "gradient": gradient(p, data),
        "hvp": jax.jvp(lambda p: gradient(p, data), (p,), (t,))[1],
        "parts": hand_parts(p, data),
        "totals": hand_totals(p, data),
        "gram": (0.5 * r @ r, jacobian.T @ r, jacobian.T @ jacobian),
    }


@jax.jit
def by_shardfit(objective, p, t):
    # what objective.hvp does, with value and parts from the same pass: compiling is most of this file's time
    (value, gradient, parts), (_, hvp, _) = jax.jvp(objective.value_grad_parts, (p,), (t,))
    return {
        "value": value,
        "gradient": gradient,
        "hvp": hvp,
        "parts": parts,
        "totals": objective.totals(p),
        "gram": tuple(objective.only("residual", "complex", "prior").gram(p)),
    }


def in_float64(fn, *args):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, fn(*args))


def assert_same(found, expected, tolerance=TOLERANCE):
    paths = jax.tree_util.tree_flatten_with_path(expected)[0]
    for (path, right), got in zip(paths, jax.tree.leaves(found), strict=True):
        label = jax.tree_util.keystr(path)
        assert got.shape == right.shape, label
        assert got.dtype == right.dtype, label
        assert np.max(np.abs(got - right)) <= tolerance * np.max(np.abs(right)), label


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def expected(data):
    return in_float64(by_hand, data, PARAMS, TANGENT)


LAYOUTS = {(1, "some"), (4, "some"), (8, "others")}
ALL_LAYOUTS = [(n, chunk) for n in (None, 1, 2, 3, 4, 8) for chunk in ("some", "others", "all", "none")]


@pytest.mark.parametrize(
    "devices, chunked", [pytest.param(*c, marks=() if c in LAYOUTS else pytest.mark.slow) for c in ALL_LAYOUTS]
)
def test_every_quantity_on_every_layout(data, expected, devices, chunked):
    chunk = {**CHUNKS, "all": CHUNKS["some"] | CHUNKS["others"], "none": {}}[chunked]
    objective = make_objective(data, chunk).place(None if devices is None else mesh(devices))
    assert_same(in_float64(by_shardfit, objective, PARAMS, TANGENT), expected)


def test_rows_and_runs_under_vmap(data):
    """Parameters split over runs, rows over rows: every lane is the value and gradient of its own parameters."""
    both = mesh(rows=4, runs=2)
    objective = small_objective(data).place(both)
    lanes = jax.tree.map(lambda x, t: np.stack([x + 0.05 * i * t for i in range(4)]), PARAMS, TANGENT)
    with jax.enable_x64(True):
        spread = jax.device_put(lanes, NamedSharding(both, P("runs")))
        values, gradients = jax.jit(lambda o, xs: jax.vmap(o.value_and_grad)(xs))(objective, spread)
        right = jax.jit(jax.vmap(jax.value_and_grad(lambda p: small_value(p, data))))(lanes)
        assert_same(jax.tree.map(np.asarray, (values, gradients)), jax.tree.map(np.asarray, right))
    assert not values.sharding.is_fully_replicated, "lanes must stay on their own devices"


# ---- derivatives in other orders ------------------------------------------------------------------------------------


def small_objective(data):
    terms = dict(make_objective(data, CHUNKS["some"]).items())
    return Objective({name: terms[name] for name in ("residual", "histogram", "smooth")})


def small_value(p, data):
    parts = hand_parts(p, data)
    return sum(HAND_WEIGHTS[n] * parts[n] for n in ("residual", "histogram.log", "histogram.spread", "smooth"))


def derivatives(value, histogram, residuals, p, t):
    def along(p):
        return sum(jnp.vdot(g, s) for g, s in zip(jax.tree.leaves(jax.grad(value)(p)), jax.tree.leaves(t), strict=True))

    return {
        "grad": jax.grad(value)(p),
        "jvp": jax.jvp(value, (p,), (t,)),
        "reverse over reverse": jax.grad(along)(p),
        "forward totals": jax.jacfwd(histogram)(p),
        "reverse totals": jax.vjp(histogram, p)[1](jnp.arange(1.0, 4.0)),
        "through residuals": jax.grad(lambda p: jnp.sum(jnp.cos(residuals(p))))(p),
    }


def test_derivatives_in_any_order_on_a_mesh(data):
    objective = small_objective(data).place(mesh(4))

    @jax.jit
    def found(o, p, t):
        return derivatives(o.value, lambda p: o.totals(p)["histogram"], o.only("residual").residuals, p, t)

    @partial(jax.jit, compiler_options=ORACLE)
    def right(p, t):
        return derivatives(
            lambda p: small_value(p, data),
            lambda p: membership(p, data["histogram"], EDGES).sum(0),
            lambda p: np.sqrt(0.7) * residual(p, data["residual"]),
            p,
            t,
        )

    assert_same(in_float64(found, objective, PARAMS, TANGENT), in_float64(right, PARAMS, TANGENT))


@pytest.mark.parametrize("devices", [None, 2])
def test_derivative_of_the_value_by_rows_is_refused(data, devices):
    objective = small_objective(data).place(devices and mesh(devices))
    rows = dict(objective.items())["residual"].rows

    def changed(s):
        return objective.with_rows(residual={**rows, "x": s * rows["x"]}).value(PARAMS)

    with pytest.raises(TypeError, match="parameters, args and weights, not to its rows. Make the quantity an argument"):
        in_float64(jax.grad(changed), 1.0)


def test_gradient_and_hessian_agree_with_finite_differences(data):
    objective = make_objective(data, CHUNKS["some"]).place(mesh(4))
    exact = in_float64(by_shardfit, objective, PARAMS, TANGENT)
    h = 1e-5

    def at(step):
        return in_float64(by_shardfit, objective, jax.tree.map(lambda p, t: p + step * t, PARAMS, TANGENT), TANGENT)

    ahead, behind = at(h), at(-h)
    slope = sum(np.vdot(g, t) for g, t in zip(*map(jax.tree.leaves, (exact["gradient"], TANGENT)), strict=True))
    assert (ahead["value"] - behind["value"]) / (2 * h) == pytest.approx(slope, rel=1e-8)
    curve = jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead["gradient"], behind["gradient"])
    assert_same(curve, exact["hvp"], 1e-7)


# ---- invariances ----------------------------------------------------------------------------------------------------


def test_order_of_rows_does_not_matter(data, expected):
    rng = np.random.default_rng(3)
    shuffled = {}
    for name, rows in data.items():
        order = rng.permutation(N_ROWS[name])
        shuffled[name] = {k: v[order] for k, v in rows.items()}
    objective = make_objective(shuffled, CHUNKS["some"]).place(mesh(4))
    assert_same(in_float64(by_shardfit, objective, PARAMS, TANGENT), expected)


def test_split_rows_add_up(data, expected):
    names = tuple(N_ROWS)
    pieces = [
        make_objective({n: {k: v[cut(N_ROWS[n])] for k, v in rows.items()} for n, rows in data.items()}, {})
        for cut in (lambda n: slice(0, n // 3), lambda n: slice(n // 3, None))
    ]
    one, two = (piece.only(*names).totals(PARAMS) for piece in pieces)
    summed = jax.tree.map(lambda a, b: np.asarray(a) + np.asarray(b), one, two)
    assert_same(summed, expected["totals"])


@pytest.mark.parametrize("devices", [None, 8])
@pytest.mark.parametrize("chunk", [None, 1])
def test_padding_gives_no_nan_in_logs(devices, chunk):
    """A padded or masked row must not bring log(0) into value or gradient."""
    rows = {"x": np.array([0.5, 2.0, 4.0])}
    term = statistic_term(lambda p, r: jnp.log(p * r["x"]) / r["x"], rows, chunk=chunk)
    value, gradient = Objective({"log": term}).place(devices and mesh(devices)).value_and_grad(np.float64(3.0))
    assert float(value) == pytest.approx(np.sum(np.log(3 * rows["x"]) / rows["x"]), rel=1e-14)
    assert float(gradient) == pytest.approx(np.sum(1 / (3 * rows["x"])), rel=1e-14)


def test_masked_rows_do_not_count_whatever_they_hold():
    """Only the counted rows enter, even where the model gives NaN on the others."""
    term = residual_term(lambda p, r: jnp.log(r["x"]) * p, {"x": np.array([1.0, 2.0, 3.0, 4.0])})
    padded = Objective({"log": term})
    padded = padded.with_rows(log={"x": np.array([1.0, 2.0, -1.0, 0.0])})
    padded = Objective((type(term)(**{**vars(padded.terms[0]), "counts": np.array([2], np.int32)}),), padded.names)
    assert float(padded.value(np.float64(2.0))) == pytest.approx(0.5 * (2 * np.log(2)) ** 2, rel=1e-14)
    np.testing.assert_allclose(padded.residuals(np.float64(2.0)), [0, 2 * np.log(2), 0, 0], rtol=1e-14)


def test_hessian_of_complex_residuals_at_a_perfect_fit():
    """|r|² is smooth at r = 0: the Hessian there is JᵀJ."""
    term = residual_term(lambda p, r: (p - 1.0) * jnp.exp(1j * r["x"]), {"x": np.arange(4.0)})
    assert float(Objective({"vis": term}).hvp(np.float64(1.0), np.float64(1.0))) == pytest.approx(4.0, rel=1e-14)


# ---- least squares --------------------------------------------------------------------------------------------------


def test_residuals_have_the_value_as_half_their_square(data, expected):
    objective = make_objective(data, {}).only("residual", "complex", "prior")
    for layout in (None, mesh(3)):
        r = np.asarray(objective.place(layout).residuals(PARAMS))
        assert r.dtype == np.float64
        assert 0.5 * r @ r == pytest.approx(float(expected["gram"][0]), rel=TOLERANCE)


def test_gram_with_more_parameters_than_residuals():
    x = np.linspace(0, 1, 3)
    term = residual_term(lambda p, r: jnp.sin(r["x"] * p.sum()) + p[0] - 1, {"x": x}, weight=2.0)
    p = np.linspace(0.1, 0.5, 5)
    found = Objective({"few": term}).gram(p)
    slope = np.cos(x * p.sum())[:, None] * x[:, None] * np.ones(5) + np.eye(5)[0]
    r = np.sin(x * p.sum()) + p[0] - 1
    np.testing.assert_allclose(found.matrix, 2 * slope.T @ slope, rtol=1e-13)
    np.testing.assert_allclose(found.gradient, 2 * slope.T @ r, rtol=1e-13)
    assert float(found.value) == pytest.approx(r @ r, rel=1e-13)


@pytest.mark.parametrize("what", ["gram", "residuals"])
def test_least_squares_names_the_terms_without_residuals(data, what):
    objective = make_objective(data, {})
    with pytest.raises(TypeError, match=f"{what} needs residuals, but .*'histogram'.*'smooth'.*residual_term"):
        getattr(objective, what)(PARAMS)
    with pytest.raises(ValueError, match="'residual' has a negative weight"):
        getattr(objective.only("residual").with_weights(residual=-1.0), what)(PARAMS)


# ---- memory and tracing ---------------------------------------------------------------------------------------------


def temporary_bytes(n_rows, chunk, loss, layout=None):
    def fn(p, rows):
        wide = jax.nn.sigmoid(jnp.linspace(-1, 1, 64) - p * rows["x"][:, None])
        return wide if loss else wide.sum(1)

    kind = {"loss": loss} if loss else {}
    objective = Objective({"s": statistic_term(fn, {"x": np.ones(n_rows)}, chunk=chunk, **kind)}).place(layout)
    with jax.enable_x64(True):
        run = jax.jit(lambda o, p: o.value_and_grad(p)).lower(objective, np.float64(1.0)).compile()
    return run.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("loss", [None, lambda t: jnp.sum(jnp.log(t) ** 2)], ids=["plain", "nonlinear"])
def test_chunk_bounds_the_memory_of_an_evaluation(loss):
    few, many = (temporary_bytes(n, 64, loss) for n in (1 << 12, 1 << 15))
    assert many < few + 8192, "memory must not grow with the rows"
    assert many < (1 << 15) * 64 * 8 / 100, "one block of 64 rows, not all of them"


def test_new_data_of_equal_shape_does_not_retrace():
    traced = 0

    def fn(p, rows):
        nonlocal traced
        traced += 1
        return rows["y"] - p * rows["x"]

    rng = np.random.default_rng(0)
    objective = Objective({"line": residual_term(fn, {"x": rng.normal(size=12), "y": rng.normal(size=12)}, chunk=5)})
    objective = objective.place(mesh(2))
    objective.value_and_grad(np.float64(0.1))
    first = traced
    assert 1 <= first <= 5
    for i in range(20):
        rows = {"x": rng.normal(size=12), "y": rng.normal(size=12)}
        new = Objective({"line": residual_term(fn, rows, chunk=5)}).place(mesh(2))
        value, _ = new.value_and_grad(np.float64(0.1 * i))
        assert float(value) == pytest.approx(0.5 * np.sum((rows["y"] - 0.1 * i * rows["x"]) ** 2), rel=1e-13)
        new.with_rows(line=dict(new.terms[0].rows)).value_and_grad(np.float64(0.2))
    assert traced == first


# ---- stochastic terms -----------------------------------------------------------------------------------------------


def random_kernels(p, rows, bank, key):
    return jnp.exp(-0.5 * (p * rows["x"][:, None] - bank[jax.random.randint(key, (3,), 0, 9)]) ** 2)


def random_misfit(mass, bank, key):
    return jnp.sum((mass - bank[jax.random.randint(key, (3,), 0, 9)]) ** 2)


@pytest.fixture(scope="module")
def stochastic():
    rows = {"x": np.linspace(-1, 1, 7)}
    return Objective(
        {
            "fixed": penalty(lambda p: p**2),
            "kde": statistic_term(random_kernels, rows, np.linspace(-2, 2, 9), loss=random_misfit, stochastic=True),
        }
    )


def test_stochastic_terms_draw_the_same_on_all_devices(stochastic):
    key, p = jax.random.key(4), np.float64(1.3)
    one = stochastic.value_and_grad(p, key)
    np.testing.assert_allclose(stochastic.place(mesh(4)).value_and_grad(p, key), one, rtol=1e-13)

    @jax.jit
    def by_hand(p, key):
        k, (rows, bank) = jax.random.fold_in(key, 1), (stochastic.terms[1].rows, jnp.linspace(-2, 2, 9))
        return p**2 + random_misfit(random_kernels(p, rows, bank, k).sum(0), bank, k)

    assert float(one[0]) == pytest.approx(float(in_float64(by_hand, p, key)), rel=1e-13)
    assert float(stochastic.value_and_grad(p, jax.random.key(5))[0]) != pytest.approx(float(one[0]))


def test_freeze_fixes_the_draw(stochastic):
    key, p = jax.random.key(4), np.float64(1.3)
    frozen = stochastic.freeze(key)
    assert stochastic.stochastic == ("kde",)
    assert frozen.stochastic == ()
    value = float(frozen.value(p))
    assert value == pytest.approx(float(stochastic.value_and_grad(p, key)[0]), rel=1e-14)
    assert value == float(frozen.freeze(jax.random.key(9)).value(p)), "a frozen term stays as it is"


@pytest.mark.parametrize("what", ["value", "value_and_grad", "parts", "totals"])
def test_a_missing_key_is_asked_for(stochastic, what):
    with pytest.raises(ValueError, match=r"stochastic term: pass key=.*or objective.freeze"):
        getattr(stochastic, what)(np.float64(1.0))


@pytest.mark.parametrize(("devices", "chunk"), [(1, None), (1, 4), (3, 2)])
def test_derivatives_that_a_term_knows_of_its_sums_give_the_same(devices, chunk):
    """The loss is no plain sum, parameters are a tree, totals too; the Hessian goes through what the term gives."""
    rng = np.random.default_rng(6)
    rows = {"x": rng.standard_normal((11, 3)), "y": rng.standard_normal(11)}
    params = {"a": np.array([0.3, -0.2, 0.5]), "b": np.array(0.1)}

    def fn(p, r):
        curve = jnp.tanh(r["x"] @ p["a"]) + p["b"] ** 2
        return {"square": curve**2, "pair": jnp.stack([curve, curve * r["y"]], -1)}

    def slopes(p, r, real):
        def sums(p):
            return jax.tree.map(lambda leaf: jnp.tensordot(real, leaf, axes=1), fn(p, r))

        return sums(p), jax.jacfwd(sums)(p)

    def loss(totals):
        return jnp.log1p(totals["square"]) + jnp.sum(jnp.sin(totals["pair"]))

    plain, known = (
        Objective({"t": statistic_term(fn, rows, loss=loss, chunk=chunk, slopes=s)}) for s in (None, slopes)
    )
    placed = known.place(mesh(rows=devices))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-10), placed.value_and_grad(params), plain.value_and_grad(params)
    )
    with arithmetic("float64"):
        curves = [jax.jit(jax.hessian(objective.value))(params) for objective in (placed, plain.place())]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10), *curves)


def test_derivatives_of_sums_are_a_function():
    with pytest.raises(TypeError, match="slopes is dict, not a function"):
        statistic_term(lambda p, r: r, np.ones(3), slopes={})  # pyright: ignore[reportArgumentType]


def test_small_arrays_travel_as_one():
    small, large = np.arange(6.0).reshape(2, 3), np.ones(SMALL + 1)
    tree = {"large": large, "small": [small, np.float64(2.0), np.ones(0)], "whole": np.arange(3), "complex": 1j * small}

    def summed(x):
        return on_shards(mesh(4), lambda shard, _, x: shard.sum(x), (), x)

    with arithmetic("float64"):
        traced, total = jax.make_jaxpr(summed)(tree), jax.jit(summed)(tree)
    assert str(traced).count("psum[") == 4  # the large one, and the small ones of three types
    assert jax.tree.map(lambda x: (x.shape, x.dtype), total) == jax.tree.map(lambda x: (x.shape, x.dtype), tree)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, 4 * b), total, tree)
