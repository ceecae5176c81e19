"""Run directories: one writer, one run, and no damage that goes unnoticed or shows as an internal error."""

import errno
import functools
import json
import os
import random
import shutil
import threading
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardfit as sf
from benchmarks.reliability.mutation import mutated
from shardfit.io import files
from shardfit.io.files import read_json, write_json

T = np.linspace(0.0, 2.0, 9)
ROWS = {"t": T, "y": 2.0 * np.exp(-T / 0.6)}
X0 = {"a": 1.0, "tau": 1.0}
QUIET = {"progress": False, "certify": False}


def decay(scale, p, rows):
    return rows["y"] - scale * p["a"] * jnp.exp(-rows["t"] / p["tau"])


def squared(p, rows):
    return decay(1.0, p, rows) ** 2


PLAIN = functools.partial(decay, 1.0)


def problem_of(fn=PLAIN, x0=X0, **more):
    return sf.Problem(sf.Objective({"decay": sf.residual_term(fn, ROWS)}), x0, **more)


def statistic_problem(loss):
    return sf.Problem(sf.Objective({"decay": sf.statistic_term(squared, ROWS, loss=loss)}), X0)


def edited(p, rows):
    return rows["y"] - p["a"] * jnp.exp(-rows["t"] / p["tau"]) ** 2


# what a user changes between two calls, and the reason that must be named
PERSONAS = {
    "model edited": (problem_of(), problem_of(edited), None, None, "model of term 'decay'"),
    "partial": (problem_of(), problem_of(functools.partial(decay, 1.1)), None, None, "model of term 'decay'"),
    "loss": (statistic_problem(lambda s: s), statistic_problem(jnp.sqrt), None, None, "loss of term 'decay'"),
    "transform added": (problem_of(), problem_of(transforms={"tau": "log"}), None, None, "transform of tau"),
    "transform dropped": (problem_of(transforms={"tau": "log"}), problem_of(), None, None, "transform of tau"),
    "optax rate": (problem_of(), problem_of(), optax.adam(1e-1), optax.adam(1e-4), "solver's step"),
}


@pytest.mark.parametrize("persona", PERSONAS)
def test_another_fit_is_refused_with_its_reason(persona, tmp_path):
    before, after, solver, other, reason = PERSONAS[persona]
    options = {"maxiter": 3, **QUIET}
    first = sf.fit(before, solver, run_dir=tmp_path, **options)
    with pytest.raises(sf.CheckpointError, match=f"belongs to another fit: {reason} differ"):
        sf.fit(after, other, run_dir=tmp_path, **options)
    assert sf.fit(before, solver, run_dir=tmp_path, **options).timings == first.timings


def lowest(value_and_grad, x0, *, maxiter, tol, callback):
    for _ in range(3):
        value, gradient = value_and_grad(x0)
        x0 = x0 - 1e-3 * gradient * RATE[0]
        callback(x0)


RATE = [1.0]


def test_what_cannot_be_identified_runs_but_does_not_resume(tmp_path):
    rng = np.random.default_rng(0)

    def noisy(value_and_grad, x0, *, maxiter, tol, callback):
        value_and_grad(x0 + 1e-9 * rng.normal(size=x0.shape))

    for resume in ("auto", "never"):
        result = sf.fit(problem_of(), noisy, run_dir=tmp_path, resume=resume, **QUIET)
        assert "cannot be resumed: the solver uses rng, a numpy.random._generator.Generator" in result.note
    assert read_json(tmp_path / "config.json")["unidentified"]
    with pytest.raises(
        sf.CheckpointError, match=r"cannot be resumed: the solver uses rng, a numpy.*Use resume='never'"
    ):
        sf.fit(problem_of(), noisy, run_dir=tmp_path, **QUIET)


def test_a_minimiser_that_reads_a_changed_global_is_another_one(tmp_path, monkeypatch):
    sf.fit(problem_of(), lowest, run_dir=tmp_path, **QUIET)
    monkeypatch.setattr("tests.io.test_run_dir.RATE", [2.0])
    with pytest.raises(sf.CheckpointError, match="solver's run differ"):
        sf.fit(problem_of(), lowest, run_dir=tmp_path, **QUIET)


def test_other_versions_are_named(tmp_path):
    result = sf.fit(problem_of(), run_dir=tmp_path, **QUIET)
    assert "versions" not in result.note
    config = read_json(tmp_path / "config.json")
    now = config["packages"]["jax"]
    config["packages"]["jax"] = "0.1"
    write_json(tmp_path / "config.json", config)
    assert f"Started with other versions: jax 0.1, now {now}." in sf.fit(problem_of(), run_dir=tmp_path, **QUIET).note
    assert "versions changed" in (tmp_path / "events.jsonl").read_text()
    write_json(tmp_path / "config.json", config)
    with pytest.raises(sf.CheckpointError, match="start differ.*Versions have changed too"):
        sf.fit(problem_of(x0={"a": 1.5, "tau": 1.0}), run_dir=tmp_path, **QUIET)


# ---- pytrees ----------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    tau: float
    a: float


@jax.tree_util.register_dataclass
@dataclass
class Data:
    tau: float
    a: float


class Module(eqx.Module):
    tau: float
    a: float


def by_name(p, rows):
    return decay(1.0, {"a": p.a, "tau": p.tau}, rows)


def by_number(p, rows):
    return decay(1.0, {"a": p[7], "tau": p[3]}, rows)


@pytest.mark.parametrize("x0", [Named(1.0, 1.0), Data(1.0, 1.0), Module(1.0, 1.0), {7: 1.0, 3: 1.0}])
def test_any_tree_is_stored_and_comes_back_as_itself(x0, tmp_path):
    problem = problem_of(by_number if isinstance(x0, dict) else by_name, x0)
    first = sf.fit(problem, "lm", run_dir=tmp_path, **QUIET)
    again = sf.fit(problem, "lm", run_dir=tmp_path, **QUIET)
    assert first.timings == again.timings
    for tree in (again.params, again.stderr):
        assert type(tree) is type(x0) and jax.tree.structure(tree) == jax.tree.structure(x0)
    assert jax.tree.leaves(first.params) == jax.tree.leaves(again.params)
    assert sf.load_result(tmp_path).params == (
        {7: 2.0, 3: 0.6} if isinstance(x0, dict) else pytest.approx({"tau": 0.6, "a": 2.0})
    )


def test_what_cannot_be_stored_is_refused_before_the_work(tmp_path):
    problem = problem_of(decode=lambda p: {"tool": object()})
    with pytest.raises(TypeError, match="derived/tool: object cannot be stored"):
        sf.fit(problem, run_dir=tmp_path, callback=lambda shot: pytest.fail("it began"), every=1, **QUIET)
    assert sf.fit(problem, **QUIET).success


def test_derived_quantities_and_units_are_those_of_the_present_call(tmp_path):
    sf.fit(problem_of(decode=lambda p: {"rate": 1 / p["tau"]}), run_dir=tmp_path, **QUIET)
    again = sf.fit(problem_of(decode=lambda p: {"half": p["tau"]}, units={"tau": "s"}), run_dir=tmp_path, **QUIET)
    assert set(again.derived) == {"half"} and again.units["tau"] == "s"


# ---- one writer -------------------------------------------------------------------------------------------------


def test_two_fits_do_not_share_a_directory(tmp_path):
    store, inside, leave = sf.RunDir(tmp_path), threading.Event(), threading.Event()

    def wait(shot):
        inside.set()
        leave.wait(60)

    thread = threading.Thread(
        target=sf.fit, args=(problem_of(),), kwargs={"run_dir": store, "callback": wait, "every": 1, **QUIET}
    )
    thread.start()
    assert inside.wait(60)
    try:
        with pytest.raises(sf.CheckpointError, match="in use by another thread of this process. Wait for it"):
            sf.fit(problem_of(), run_dir=store, **QUIET)
    finally:
        leave.set()
        thread.join()
    assert sf.fit(problem_of(), run_dir=store, **QUIET).success


def test_a_failed_fit_lets_go(tmp_path):
    def fail(shot):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sf.fit(problem_of(), run_dir=tmp_path, callback=fail, every=1, **QUIET)
    assert sf.fit(problem_of(), run_dir=tmp_path, **QUIET).success


# ---- a full disk ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lbfgs", "lbfgsb"])
def test_a_full_disk_keeps_the_answer(solver, tmp_path, monkeypatch):
    expected = sf.fit(problem_of(), solver, **QUIET)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_):
        raise full

    def fill(shot):
        monkeypatch.setattr("shardfit.io.journal.Journal._write", refuse)
        monkeypatch.setattr("shardfit.io.files.os.fsync", refuse)

    with pytest.warns(RuntimeWarning, match="No space left on device.*continues in memory"):
        result = sf.fit(problem_of(), solver, run_dir=sf.RunDir(tmp_path, seconds=0.0), callback=fill, every=1, **QUIET)
    assert result.params == expected.params and result.status is expected.status
    assert "could not be written (the result is not stored: No space left on device)" in result.note
    monkeypatch.undo()
    again = sf.fit(problem_of(), solver, run_dir=tmp_path, **QUIET)
    assert again.params == expected.params and not again.note


def test_a_directory_that_cannot_be_written_is_said_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(sf.CheckpointError, match="cannot be used"):
        sf.fit(problem_of(), run_dir=tmp_path / "file", **QUIET)


# ---- damage -----------------------------------------------------------------------------------------------------

KINDS = ("config.json", "env.json", "result.json", "arrays.npz", "ckpt/state.npz", "ckpt/journal.bin", "events.jsonl")
CLEAR = (sf.CheckpointError,)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Interrupted and finished runs of a device loop and of a host solver, their answers, and a stranger's files."""
    root, made = tmp_path_factory.mktemp("runs"), {}
    for solver in ("lbfgs", "lbfgsb"):
        for state, options in (("interrupted", {"callback": lambda shot: True, "every": 3}), ("finished", {})):
            folder = root / f"{solver}-{state}"
            sf.fit(problem_of(), solver, run_dir=folder, **options, **QUIET)
            made[folder] = solver
        sf.fit(problem_of(x0={"a": 1.2, "tau": 1.1}), solver, run_dir=root / f"{solver}-other", **QUIET)
    answers = {solver: sf.fit(problem_of(), solver, **QUIET) for solver in ("lbfgs", "lbfgsb")}
    return root, made, answers


def damage(folder, rng, root, solver):
    """Change one file of a run at random: its bytes, or for another file altogether."""
    name = rng.choice([kind for kind in KINDS if (folder / kind).exists()])
    path = folder / name
    if rng.random() < 0.1:
        path.unlink()
    elif rng.random() < 0.1:
        others = [root / f"{solver}-other" / name, *(folder / kind for kind in KINDS)]
        shutil.copy(rng.choice([other for other in others if other.exists() and other != path]), path)
    else:
        path.write_bytes(mutated(path.read_bytes(), rng))
    return name


def survive(runs, folder, number):
    """Damage a copy of some run and use it; return what came of it."""
    root, made, answers = runs
    rng = random.Random(number)
    source = rng.choice(list(made))
    solver = made[source]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    name = damage(folder, rng, root, solver)
    if "finished" in source.name and name in ("result.json", "arrays.npz"):
        original = sf.load_result(source)
        try:
            alone = sf.load_result(folder)
            assert alone.params == original.params and alone.value == original.value, (number, name)
        except (ValueError, FileNotFoundError):
            pass
    try:
        result = sf.fit(problem_of(), solver, run_dir=folder, **QUIET)
    except CLEAR as error:
        assert str(folder) in str(error), (number, name)
        return "refused"
    assert result.params == answers[solver].params and result.value == answers[solver].value, (number, name)
    assert result.status is answers[solver].status, (number, name)
    return "same answer"


@pytest.mark.parametrize("first, count", [(0, 24), pytest.param(24, 976, marks=pytest.mark.slow)])
def test_random_damage_is_refused_or_harmless(runs, tmp_path, first, count):
    outcomes = [survive(runs, tmp_path / "run", first + i) for i in range(count)]
    assert outcomes.count("refused") > count / 4 and outcomes.count("same answer") > count / 10
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})


ODD = {
    "list": b"[]",
    "deep": b"[" * 100_000,
    "bytes": b"\xff\xfe\x00",
    "empty": b"",
    "old": json.dumps({"seed": 0}).encode(),
    "keys": None,
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_config_is_one_clear_error(runs, tmp_path, odd):
    folder = tmp_path / "run"
    shutil.copytree(next(iter(runs[1])), folder)
    if ODD[odd] is None:
        write_json(folder / "config.json", {"format": 2, "facts": 3})
    else:
        (folder / "config.json").write_bytes(ODD[odd])
    with pytest.raises(sf.CheckpointError, match="Use resume='never' to start over"):
        sf.fit(problem_of(), "lbfgs", run_dir=folder, **QUIET)
    assert sf.fit(problem_of(), "lbfgs", run_dir=folder, resume="never", **QUIET).success


def test_damaged_events_are_left_out(tmp_path):
    store = sf.RunDir(tmp_path)
    assert list(store.events()) == []
    store.event("first", step=1)
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b"\xff\xfe\n{\n[1]\n" + b"[" * 100_000 + b'\n{"time": 1}\n')
    store.event("second")
    assert [event["event"] for event in store.events()] == ["first", "second"]


def test_a_state_without_history_is_one_clear_error(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(next(iter(runs[1])), folder)
    path = folder / "ckpt" / "state.npz"
    arrays = {name: a for name, a in files.read_arrays(path).items() if name != "history_seconds"}
    files.write_arrays(path, arrays)
    with pytest.raises(sf.CheckpointError, match="does not fit this solver's state"):
        sf.fit(problem_of(), "lbfgs", run_dir=folder, **QUIET)
