"""plan(): the same shapes as place, a measured time, advice that holds, and (slow) the measured peak."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from benchmarks import memory as truth
from benchmarks import plan as fits
from shardfit.core.free_memory import host_available_bytes
from shardfit.core.mesh import mesh as make_mesh
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.size_classes import size_class
from shardfit.core.term_makers import penalty, residual_term, statistic_term
from shardfit.planning import Plan, plan
from shardfit.planning.shapes import placed_shapes
from shardfit.planning.units import bytes_text, seconds_text

N = 200_003  # a prime: no number of shards or chunks divides it
START = {"a": 1.0, "tau": 1.3}


def constant(*shape):
    """Rows that take no memory, however many."""
    return np.broadcast_to(np.float64(1.0), shape)


def decay(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-rows["x"] / p["tau"])) / rows["sigma"]


def residual_problem(n=N, chunk=None, **options):
    term = residual_term(decay, {"x": constant(n), "y": constant(n), "sigma": constant(n)}, chunk=chunk)
    return Problem(Objective({"data": term}), START, **options)


def bins(p, rows, edges):
    return jnp.diff(jax.nn.sigmoid((edges - rows["x"][:, None] * p["a"]) / p["tau"]), axis=1)


def misfit(counts, edges):
    return jnp.mean(jnp.log(counts + 1.0) ** 2)


def mixed_problem(n=N, chunk=None):
    terms = {
        "bins": statistic_term(bins, {"x": constant(n)}, np.linspace(0, 1, 9), loss=misfit, chunk=chunk),
        "few": residual_term(lambda p, rows: p["a"] - rows["z"], {"z": constant(7)}),
        "ridge": penalty(lambda p: p["a"] ** 2 + p["tau"] ** 2, weight=0.1),
    }
    return Problem(Objective(terms), START)


@pytest.mark.parametrize("layout", [None, (1, 1), (4, 1), (3, 2)], ids=str)
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("n", [1003, 1200], ids=["padded", "even"])
def test_shapes_are_those_of_place(layout, precision, n):
    problem = mixed_problem(n).replace(precision=precision)
    mesh = layout and make_mesh(*layout)
    with arithmetic(precision):
        foreseen, real = placed_shapes(problem.objective, mesh), problem.objective.place(mesh)
        assert jax.tree.structure(foreseen) == jax.tree.structure(real)
        for shape, array in zip(jax.tree.leaves(foreseen), jax.tree.leaves(real), strict=True):
            assert isinstance(shape, jax.ShapeDtypeStruct)
            assert (shape.shape, shape.dtype) == (array.shape, array.dtype)
            assert mesh is None or shape.sharding.is_equivalent_to(array.sharding, array.ndim)


def test_rows_are_counted_per_device():
    one, four = plan(residual_problem()), plan(residual_problem(), mesh=make_mesh(4))
    assert one.memory.rows == 3 * 8 * size_class(N)
    assert four.memory.rows == 3 * 8 * size_class(-(-N // 4))
    assert four.memory.total < 0.3 * one.memory.total
    assert plan(residual_problem(precision="float32")).memory.rows == one.memory.rows // 2
    n = residual_problem().space.size
    longer = plan(residual_problem(), sf.LBFGS(memory=50)).memory.state
    # 40 more pairs of two vectors, two squares of their products, and three products of each
    assert longer - plan(residual_problem(), "lbfgs").memory.state == 8 * (80 * n + 2 * (50**2 - 10**2) + 3 * 40)


def test_a_number_of_shards_equals_a_mesh_of_them():
    problem = residual_problem()
    real, imagined = plan(problem, mesh=make_mesh(4)), plan(problem, mesh=4)
    assert imagined.memory.rows == real.memory.rows
    # the program without an exchange between shards is fused a little differently
    assert imagined.total == pytest.approx(real.total, rel=0.2)
    assert plan(problem, mesh=1000).memory.rows == 3 * 8 * size_class(-(-N // 1000))  # more than there are devices


def test_chunk_lowers_temporaries():
    n = 200_000  # divides evenly: neither of the two spends operations on a mask
    whole, pieces = plan(residual_problem(n)), plan(residual_problem(n, chunk=n // 50))
    assert pieces.memory.temporaries < whole.memory.temporaries / 10


def test_time_is_measured_on_a_few_rows_and_extrapolated(monkeypatch):
    from shardfit.planning import timing

    sizes = []

    def measured(problem, needs, share):
        sizes.append(round(share * N))
        return 1e-3 + 1e-4 * sizes[-1]  # a call, and every row

    monkeypatch.setattr(timing, "_measured", measured)
    seconds = timing.time_curve(residual_problem(), "value_and_grad").at(N)
    assert seconds == pytest.approx(1e-3 + 1e-4 * N, rel=1e-9)
    assert sizes[0] == 1 and sizes[-1] < N / 3 and len(sizes) <= 4
    quarter = timing.time_curve(residual_problem(), "value_and_grad", 0.25).at(N / 4)
    assert quarter == pytest.approx(1e-3 + 2.5e-5 * N, rel=1e-3)


def test_waiting_for_other_programs_does_not_count(monkeypatch):
    from types import SimpleNamespace

    from shardfit.planning import timing

    ticks = iter(range(100))
    monkeypatch.setattr(
        timing, "time", SimpleNamespace(perf_counter=lambda: next(ticks), process_time=lambda: 0.25 * next(ticks))
    )
    assert timing._seconds(lambda: None, 1) == 0.25 * 2
    monkeypatch.setattr(timing.jax, "default_backend", lambda: "gpu")  # its work is not in the processor's time
    assert timing._seconds(lambda: None, 1) == 2


def test_short_evaluations_are_timed_together(monkeypatch):
    from shardfit.planning import timing

    blocks = []
    monkeypatch.setattr(timing, "_seconds", lambda run, calls: blocks.append(calls) or 1e-4)
    monkeypatch.setattr(timing, "evaluate", lambda *_: 0.0)
    assert timing._measured(residual_problem(), "value_and_grad", 1 / N) == 1e-4
    assert len(blocks) >= timing.REPEATS and min(blocks) > 1
    assert sum(blocks) * 1e-4 >= timing.ENOUGH_SECONDS


def test_gram_and_stochastic_terms():
    problem = residual_problem(n=10**6)  # enough for gram to walk in blocks
    assert plan(problem, "lm").memory.temporaries < plan(problem).memory.temporaries / 2

    def noisy(p, rows, key):
        return p["a"] * rows["x"] + jax.random.normal(key, rows["x"].shape)

    def size(total, key):
        return total**2

    term = statistic_term(noisy, {"x": constant(1000)}, loss=size, stochastic=True)
    assert plan(Problem(Objective({"data": term}), START), "adam").fits


def test_constants_of_the_model_are_counted():
    table = np.ones(100_000)
    term = residual_term(lambda p, rows: p["a"] * rows["x"] * jnp.sum(jnp.asarray(table)), {"x": constant(10)})
    assert plan(Problem(Objective({"data": term}), START)).memory.replicated >= table.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual_problem, mixed_problem])
def test_suggestions_hold(make):
    problem = make(10 * N)  # large beside what compiling takes, which is more with chunks
    now = plan(problem)
    limit = now.total - now.memory.temporaries // 3
    refused = plan(problem, memory=limit)
    assert not refused.fits
    assert "chunk=" in refused.advice
    assert "few" not in refused.suggested_chunk  # seven rows are not worth a loop
    objective = problem.objective
    terms = {n: replace(t, chunk=refused.suggested_chunk.get(n)) if n != "ridge" else t for n, t in objective.items()}
    assert plan(problem.replace(objective=Objective(terms)), memory=limit).fits
    assert plan(problem, memory=limit, mesh=refused.suggested_shards).fits


def test_more_shards_where_the_rows_alone_do_not_fit():
    now = plan(residual_problem(10 * N, chunk=1000))
    refused = plan(residual_problem(10 * N, chunk=1000), memory=int((now.memory.programs + now.memory.rows / 3) / 0.9))
    assert refused.suggested_chunk is None
    assert 4 <= refused.suggested_shards <= 8
    assert f"{refused.suggested_shards} devices" in refused.advice


def test_nothing_helps():
    refused = plan(residual_problem(), sf.LBFGS(memory=100), memory=1000)
    assert not refused.fits
    assert refused.advice.startswith("Nothing helps")
    assert refused.suggested_chunk is refused.suggested_shards is None


def test_text():
    shown = plan(residual_problem(name="decay"))
    assert isinstance(shown, Plan)
    assert "'decay'" in str(shown)
    assert "MB" in str(shown)
    assert "fits" in str(shown)
    assert "<pre>" in shown._repr_html_()
    assert shown.to_dict()["total"] == shown.total
    assert shown.seconds > 0
    assert [bytes_text(n) for n in (0, 999, 1234, 1.2e9, 999.9e6)] == ["0 B", "999 B", "1.2 kB", "1.2 GB", "1 GB"]
    assert [seconds_text(s) for s in (3e-9, 3.4e-3, 0.25, 80)] == ["3 ns", "3.4 ms", "250 ms", "80 s"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"solver": "lmm"}, ValueError, "Did you mean 'lm'"),
        ({"solver": "lm"}, TypeError, "'bins'"),
        ({"mesh": 0}, ValueError, "at least 1"),
        ({"mesh": True}, ValueError, "number of row shards"),
        ({"memory": 0}, ValueError, "positive"),
    ],
)
def test_errors(options, error, words):
    with pytest.raises(error, match=words):
        plan(mixed_problem(n=10), **options)


def test_not_a_problem():
    with pytest.raises(TypeError, match="needs a Problem"):
        plan(mixed_problem(n=10).objective)


def write(root: Path, files: dict):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8_000_000 * 1024),
        ({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"}, 8_000_000 * 1024),
        (
            {
                "proc/self/cgroup": "0::/a/job\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "2000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500\n",
            },
            3500,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,memory:/\n2:pids:/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000",
            },
            3000,
        ),
    ],
    ids=["host", "no limit", "version 2, parent", "version 1"],
)
def test_available_memory(tmp_path, files, expected):
    write(tmp_path, {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n", **files})
    assert host_available_bytes(tmp_path) == expected


def test_devices_of_one_host_share_its_memory():
    one, four = plan(residual_problem(100)), plan(residual_problem(100), mesh=make_mesh(4))
    assert four.available == pytest.approx(one.available / 4, rel=0.2)


@pytest.mark.parametrize("case", ["pixels-adam", "rows-lbfgsb"])
def test_the_memory_of_a_whole_fit_is_foreseen(case):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not report peak memory through /proc")
    solver, options = fits.CASES[case]
    measured = fits.in_a_process("fit", case)["bytes"]
    assert measured > 200e6, "too small a case: what the process does besides would count"
    assert plan(fits.problem(case), solver, **options).total == pytest.approx(measured, rel=fits.TOLERANCE)


def test_a_fit_does_not_keep_the_state_it_began_with(monkeypatch):
    import gc
    import weakref

    from shardfit.solve import loop

    begun, kept = [], []

    def watched(*call, compiled=loop._compiled):
        begun.append(weakref.ref(call[3].state.pairs.vectors))
        return compiled(*call)

    def looked(*given, record=loop._thinned):
        gc.collect()
        kept.append(begun[-1]() is not None)
        return record(*given)

    monkeypatch.setattr(loop, "_compiled", watched)
    monkeypatch.setattr(loop, "_thinned", looked)
    sf.fit(mixed_problem(50), "lbfgs", maxiter=40, certify=False)
    assert kept and not kept[-1]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("case", truth.CASES)
def test_prediction_is_the_measured_peak(case, devices):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not report peak memory through /proc")
    found = truth.measure(case, devices)
    assert found["peer"] > 200e6, "too small a case: overheads would count"
    assert found["ratio"] == pytest.approx(1.0, abs=truth.TOLERANCE)
