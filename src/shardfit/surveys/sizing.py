"""How many slots: as many as memory holds and as pay. Memory is planned from shapes; what pays can be measured."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle

import numpy as np

from shardfit.core.current import working_on_it
from shardfit.core.free_memory import available_bytes
from shardfit.core.mesh import RUNS
from shardfit.planning.peak import Layout, footprint
from shardfit.planning.prediction import state_bytes
from shardfit.planning.shapes import working_devices
from shardfit.planning.units import bytes_text
from shardfit.surveys.axes import CannotMake
from shardfit.surveys.engine import Engine, Tally
from shardfit.surveys.point import SurveyPoint

USUAL = 64  # slots for each device: its matrix products are full
FEW = 16  # slots from which on batches pay; beyond, every slot should have as many points: at the end some wait idle
TRIED = (16, 32, 64, 128, 256)
SHARE_OF_MEMORY = 0.5
GAIN = 1.05  # a larger number must be this much faster to be worth its memory
MEASURED_SECONDS = 1.5


@working_on_it
def slot_bytes(engine: Engine) -> int:
    """Return the memory of one slot: its solver's state, its own leaves, and what one evaluation needs."""
    problem = engine.variants.problem
    kept = state_bytes(problem, engine.solver)
    layout = Layout(problem.objective, problem.space, problem.precision, engine.mesh, engine.solver.needs, kept)
    one = footprint(layout)
    leaves, z0 = engine.variants.leaves_of({})
    own = sum(leaf.nbytes for leaf in leaves) + 4 * z0.nbytes  # start, best and found coordinates, and their scale
    return one.state + engine.solver.points * (one.temporaries + one.outputs) + own


def choose_slots(engine: Engine, points: int) -> tuple[int, str]:
    """Return how many slots to use for so many points, and a sentence that says why."""
    runs, limit, each = _limits(engine)
    slots = _whole(min(USUAL * runs, limit, max(points // FEW, min(points, FEW * runs))), runs)
    if slots >= points:
        why = "one for every point"
    elif slots == limit:
        why = "all that fit into half of the free memory"
    else:
        why = "the usual number" if slots == USUAL * runs else f"for {points:,} points, so that few wait at the end"
    return slots, f"{slots} slots of {bytes_text(each)} each: {why}"


def measure_slots(engine: Engine, points: Sequence[SurveyPoint]) -> tuple[int, str]:
    """Return the number of slots that evaluates most points per second, tried out, and a sentence with the rates.

    Every number is compiled and run for a second or two, so this pays for surveys of many minutes.
    """
    runs, limit, each = _limits(engine)
    points = [point for point in points[: max(TRIED) * runs] if _can_be_made(engine, point)]
    if not points:
        return choose_slots(engine, 1)
    rates: dict[int, float] = {}
    for slots in dict.fromkeys(_whole(min(n * runs, limit, len(points)), runs) for n in TRIED):
        rates[slots] = _rate(replace(engine, slots=slots, tally=Tally()), points)
    best = next(n for n in rates if all(rates[m] <= GAIN * rates[n] for m in rates if m > n))
    told = ", ".join(f"{n}: {rate:,.0f}" for n, rate in rates.items())
    return best, f"{best} slots of {bytes_text(each)} each: the fewest that pay (evaluations per second, {told})"


def _can_be_made(engine: Engine, point: SurveyPoint) -> bool:
    try:
        engine.variants.leaves_of(point.axes)
    except CannotMake:
        return False
    return True


def _limits(engine: Engine) -> tuple[int, int, int]:
    runs = 1 if engine.mesh is None else engine.mesh.shape.get(RUNS, 1)
    each = slot_bytes(engine)
    room = SHARE_OF_MEMORY * available_bytes(working_devices(engine.mesh)) * runs
    return runs, max(1, int(room // each)), each


def _whole(slots: int, runs: int) -> int:
    return max(runs, slots // runs * runs)


def _rate(engine: Engine, points: Sequence[SurveyPoint]) -> float:
    began = None
    with closing(engine.run(cycle(points))) as batches:
        for _ in batches:
            began = began or (time.perf_counter(), engine.tally.total)
            if time.perf_counter() - began[0] > MEASURED_SECONDS:
                break
    assert began is not None
    seconds = time.perf_counter() - began[0]
    return (engine.tally.total - began[1]) / seconds if seconds else np.inf
