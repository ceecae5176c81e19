"""plan(): does a fit fit, and how long does it take? Answered from shapes and from a few of the rows."""

import operator
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import jax
from jax.sharding import Mesh

from shardfit.core.current import working_on_it
from shardfit.core.free_memory import available_bytes
from shardfit.core.mesh import ROWS
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.planning.advice import advise
from shardfit.planning.exchange import Exchange, exchanged
from shardfit.planning.peak import Footprint, Layout, check_bytes, footprint
from shardfit.planning.scaling import Cluster, Scaled, as_cluster, scaled, table
from shardfit.planning.shapes import count_shards, working_devices
from shardfit.planning.timing import Curve, step_seconds, time_curve
from shardfit.planning.units import bytes_text, seconds_text
from shardfit.solve.capabilities import require
from shardfit.solve.host import HostSolver
from shardfit.solve.registry import as_solver
from shardfit.solve.step import StepSolver

CHECK_SECONDS = 1.0  # of a certificate, most of it compiling
HOST_RATE = 1.1e-9  # seconds for each number that a host solver keeps: a step reads all of them
CHECK_RATE = 2e-9  # seconds for each byte that it holds


@dataclass(frozen=True)
class Plan:
    """Predicted bytes per device and seconds of a fit; print it for a summary.

    memory: bytes by use, per device. available: bytes per device. seconds: of an evaluation with the solver's own work;
    overhead: seconds before the first, for compiling and checks. notes: what a term's function says about how it
    computes, by term, where it has an attribute `note`.
    exchange: what a device that shares the rows with others sends in an evaluation.
    scaling: predictions for the numbers of devices asked for, on the cluster.
    suggested_chunk (by term) and suggested_shards: what would fit, where the present layout does not.
    """

    name: str
    needs: str
    platform: str
    n_rows: dict[str, int]
    shards: int
    memory: Footprint
    available: int
    seconds: float
    overhead: float
    advice: str
    notes: dict[str, str]
    exchange: Exchange
    cluster: Cluster
    scaling: tuple[Scaled, ...] = ()
    suggested_chunk: dict[str, int] | None = None
    suggested_shards: int | None = None

    @property
    def total(self) -> int:
        """Bytes per device, everything included; a CPU also holds what compiling takes."""
        return self.memory.whole

    @property
    def fits(self) -> bool:
        """Whether the total is within the available memory."""
        return self.total <= self.available

    def to_dict(self) -> dict:
        """Return plain numbers and texts."""
        return {**asdict(self), "total": self.total, "fits": self.fits}

    def __str__(self):
        rows = ", ".join(f"{name} {n:,}" for name, n in self.n_rows.items()) or "none"
        plural = "s" if self.shards > 1 else ""
        uses = ["rows", "replicated", "temporaries", "outputs", "state", "checks"]
        uses += ["programs"] if self.platform == "cpu" else []
        split = ", ".join(f"{use} {bytes_text(getattr(self.memory, use))}" for use in uses)
        verdict = "fits" if self.fits else "DOES NOT FIT"
        return (
            f"Plan of {self.name!r}: {self.needs}, rows: {rows}, on {self.shards} row shard{plural} ({self.platform})\n"
            f"  memory per device  {bytes_text(self.total)} of {bytes_text(self.available)}: {verdict}\n"
            f"                     {split}\n"
            f"  per evaluation     about {seconds_text(self.seconds)}, after about {seconds_text(self.overhead)} of "
            "compiling and checks\n"
            f"  exchange           {_exchange_text(self.exchange)}\n"
            + "".join(f"  {'term ' + repr(name):<19}{note}\n" for name, note in self.notes.items())
            + f"  {self.advice}"
            + (f"\n  On more devices    {self.cluster}\n{table(self.scaling)}" if self.scaling else "")
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@working_on_it
def plan(
    problem: Problem,
    solver: Any = None,
    *,
    mesh: Mesh | int | None = None,
    memory: int | None = None,
    devices: Sequence[int] = (),
    cluster: Cluster | str | None = None,
    certify: bool = True,
    **options: Any,
) -> Plan:
    """Predict memory and time of a fit: memory from shapes alone, time from evaluations and steps on a few rows.

    solver, certify and options: as for fit; the program that it would run is compiled.
    mesh: where it would run; a number asks for that many row shards, on devices that need not be present.
    memory: bytes each device offers; by default what is free now.
    devices: numbers of devices for which time, speed-up and efficiency are predicted as well.
    cluster: what to assume of devices that are not here, and of what connects them; 'infiniband' (the default),
    'ethernet', or a Cluster.

    Example: `print(plan(problem, "lm", mesh=64, memory=16 * 10**9, devices=[64, 1024]))`.
    """
    solver = as_solver(solver, **options)
    require(problem, solver, "plan")
    _check(mesh, memory)
    numbers, cluster = _numbers(devices), as_cluster(cluster)
    needs, kept = solver.needs, state_bytes(problem, solver)
    loop = solver if isinstance(solver, StepSolver) and not solver.batch else None
    certify = certify and solver.differentiates
    here = working_devices(mesh)
    platform = here[0].platform
    layout = Layout(
        problem.objective, problem.space, problem.precision, mesh, needs, kept, loop, problem.box, certify, platform
    )
    began = time.process_time()
    held = footprint(layout)
    compiling = time.process_time() - began
    available = available_bytes(here) if memory is None else int(memory)
    advice = advise(layout, held, available, platform)
    curve = time_curve(problem, needs, 1.0 if numbers else 1 / count_shards(mesh))
    own = HOST_RATE * kept / 8 if loop is None else step_seconds(problem, loop, curve)
    most = max(problem.objective.n_rows.values(), default=1)
    sent = exchanged(layout)
    return Plan(
        name=problem.name,
        needs=needs,
        platform=platform,
        n_rows=problem.objective.n_rows,
        shards=count_shards(mesh),
        memory=held,
        available=available,
        seconds=_seconds(curve, most, sent, mesh, here, cluster) + own,
        overhead=compiling + (CHECK_SECONDS + CHECK_RATE * check_bytes(layout) if certify else 0.0),
        advice=advice.text,
        notes={name: term.fn.note for name, term in problem.objective.items() if getattr(term.fn, "note", "")},
        exchange=sent,
        cluster=cluster,
        scaling=tuple(scaled(curve, most, sent, cluster, n) for n in numbers),
        suggested_chunk=advice.chunk,
        suggested_shards=advice.shards,
    )


def _seconds(curve: Curve, rows: int, sent: Exchange, mesh: Mesh | int | None, here: list, cluster: Cluster) -> float:
    if isinstance(mesh, int) and mesh > 1:
        return scaled(curve, rows, sent, cluster, mesh).seconds
    alone = curve.at(max(1, rows / count_shards(mesh)))
    # virtual devices of a CPU share its cores
    return alone * (len(here) if here[0].platform == "cpu" else 1)


def _exchange_text(sent: Exchange) -> str:
    arrays = "1 array" if sent.messages == 1 else f"{sent.messages} arrays"
    return f"{bytes_text(sent.bytes)} in {arrays}, where devices share the rows"


def state_bytes(problem, solver) -> int:
    """Return what a solver keeps, on devices or on the host."""
    if isinstance(solver, HostSolver):
        return 8 * solver.vectors() * problem.space.size
    if not isinstance(solver, StepSolver):
        return 0
    z0 = jax.ShapeDtypeStruct((problem.space.size,), PRECISIONS[problem.precision])
    state = jax.eval_shape(lambda z: solver.init(z, None, None), z0)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _numbers(devices: Sequence[int]) -> list[int]:
    """Return the numbers of devices to predict for, in order."""
    try:
        numbers = [operator.index(n) for n in devices]
    except TypeError:
        numbers = [0]
    if any(n < 1 for n in numbers):
        raise ValueError(f"plan: devices={devices!r} must be whole numbers of at least 1, such as [64, 1024].")
    return sorted(set(numbers))


def _check(mesh, memory) -> None:
    if isinstance(mesh, Mesh):
        if ROWS not in mesh.axis_names:
            raise ValueError(
                f"plan: this mesh has axes {mesh.axis_names}, but no axis 'rows'. Make it with shardfit.mesh()."
            )
    elif mesh is not None and (isinstance(mesh, bool) or not isinstance(mesh, int) or mesh < 1):
        raise ValueError(f"plan: mesh={mesh!r} must be a mesh, a number of row shards (at least 1), or None.")
    if memory is not None and memory <= 0:
        raise ValueError(f"plan: memory={memory!r} must be a positive number of bytes per device, or None.")
