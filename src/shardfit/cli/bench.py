"""`shardfit bench`: how fast this machine evaluates, science by science, on one device and on several."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

EXAMPLES = ("shardfit bench", "shardfit bench --devices 2 --only seismic --json")
SECONDS = 1.0  # of repeated evaluations in a case


@dataclass(frozen=True)
class Case:
    """A problem to evaluate: what is counted in one evaluation, and how many of it there are."""

    name: str
    problem: Any
    needs: str
    unit: str
    amount: float


@dataclass(frozen=True)
class Rate:
    """How fast a case went: amount per second of wall time and of processor time, and seconds to compile."""

    name: str
    devices: int
    unit: str
    per_second: float
    per_cpu_second: float
    compile_seconds: float


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add where, and what."""
    from shardfit.cli import options

    options.add_devices(parser, "devices that share the rows, measured beside a single one (1)")
    parser.add_argument("--only", metavar="NAME", action="append", help="core or a science; may be repeated (all)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from shardfit.cli.outcome import record_output
    from shardfit.cli.processes import request_devices
    from shardfit.core.errors import suggestion

    devices = request_devices(args.devices)
    known = _makers()
    for name in args.only or ():
        if name not in known:
            raise ValueError(f"--only {name}: no such part.{suggestion(name, known)}")
    rates = []
    for name, make in known.items():
        if args.only and name not in args.only:
            continue
        for rate in measured(make(), sorted({1, devices})):
            rates.append(rate)
            print(_line(rate), flush=True)
    record_output(args, rates=rates)
    return 0


def measured(cases: Sequence[Case], devices: Sequence[int]) -> Iterator[Rate]:
    """Yield the rate of every case on every number of devices."""
    import jax

    from shardfit.core.mesh import mesh
    from shardfit.core.precision import arithmetic
    from shardfit.solve.base import evaluate

    for case in cases:
        for count in devices:
            split = mesh(rows=count) if count > 1 else None
            with arithmetic(case.problem.precision):
                placed, z = case.problem.objective.place(split), case.problem.z0()
                began = time.perf_counter()
                jax.block_until_ready(evaluate(case.needs, case.problem.space, placed, z, None))
                compiled, repeats = time.perf_counter() - began, 0
                wall, cpu = time.perf_counter(), time.process_time()
                while not repeats or time.perf_counter() - wall < SECONDS:
                    jax.block_until_ready(evaluate(case.needs, case.problem.space, placed, z, None))
                    repeats += 1
                done = repeats * case.amount
                spent = time.perf_counter() - wall, time.process_time() - cpu
            yield Rate(case.name, count, case.unit, done / spent[0], done / max(spent[1], 1e-9), compiled)


def core() -> list[Case]:
    """A decay with a million rows: value and gradient, and normal equations."""
    import jax.numpy as jnp
    import numpy as np

    import shardfit as sf

    t = np.linspace(0.0, 5.0, 1_000_000)
    rows = {"t": t, "y": 2.0 * np.exp(-t / 1.5)}

    def decay(params, rows):
        return rows["y"] - params[0] * jnp.exp(-rows["t"] / params[1])

    problem = sf.Problem(sf.Objective({"decay": sf.residual_term(decay, rows)}), np.ones(2))
    return [
        Case("decay, value and gradient", problem, "value_and_grad", "rows", t.size),
        Case("decay, normal equations", problem, "gram", "rows", t.size),
    ]


def _makers() -> dict[str, Callable[[], Sequence[Case]]]:
    from shardfit.sciences import installed

    found: dict[str, Callable[[], Sequence[Case]]] = {"core": core}
    for each in installed():
        if each.science is not None and each.science.rates is not None:
            found[each.name] = each.science.module("rates").cases
    return found


def _line(rate: Rate) -> str:
    devices = f"{rate.devices} device{'s' * (rate.devices > 1)}"
    speeds = f"{_short(rate.per_second):>8} {rate.unit}/s wall {_short(rate.per_cpu_second):>8} per CPU-s"
    return f"{rate.name:<40} {devices:<10} {speeds}  (compiled in {rate.compile_seconds:.1f} s)"


def _short(value: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g} {letter}"
    return f"{value:.3g}"
