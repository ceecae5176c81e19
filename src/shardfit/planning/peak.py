"""Bytes per device: data from shapes, temporaries from XLA's analysis of the program that a fit will run."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.objective import Objective, replace_terms
from shardfit.core.params import Space
from shardfit.core.precision import PRECISIONS
from shardfit.core.rules import called
from shardfit.core.terms import RowTerm, numbers_in
from shardfit.core.work import operations
from shardfit.planning.shapes import n_bytes, placed_shapes, shape_of, split_bytes
from shardfit.solve.base import evaluate
from shardfit.solve.loop import traced_loop
from shardfit.solve.step import StepSolver

EQUATION_BYTES = 280_000  # that compiling an operation of a traced program takes; 230 to 350 kB were measured
CHECK_BYTES = 50_000_000  # of the programs of a certificate
TABLES = 34  # as large as a term's residuals, in 64 bits, that a certificate holds at once
VECTORS = 12  # as long as the parameters


@dataclass(frozen=True)
class Footprint:
    """Bytes per device, by what they are for.

    checks: what a certificate needs beyond all else. programs: compiled code and what compiling takes, which is in the
    memory of the host: 0 on devices with their own.
    """

    rows: int
    replicated: int
    temporaries: int
    outputs: int
    state: int
    checks: int = 0
    programs: int = 0

    @property
    def fixed(self) -> int:
        """What no chunk and no number of devices changes."""
        return self.replicated + self.outputs + self.state + self.checks

    @property
    def total(self) -> int:
        """All of it but the programs."""
        return self.rows + self.temporaries + self.fixed

    @property
    def whole(self) -> int:
        """All of it, with programs where they share the devices' memory."""
        return self.total + self.programs


@dataclass(frozen=True)
class Layout:
    """What is evaluated, and where: the question a plan answers."""

    objective: Objective
    space: Space
    precision: str
    mesh: Mesh | AbstractMesh | int | None
    needs: str
    state_bytes: int = 0
    loop: StepSolver | None = None  # whose device loop is run; None for evaluations one by one
    box: Any = None
    checked: bool = False  # a certificate is made
    platform: str = "cpu"

    def with_chunks(self, chunks: dict[str, int]) -> "Layout":
        """Return the layout with other chunks in the named terms."""
        terms = [replace(t, chunk=chunks[n]) if n in chunks else t for n, t in self.objective.items()]
        return replace(self, objective=replace_terms(self.objective, terms))

    def row_terms(self) -> dict[str, RowTerm]:
        """Return the terms that have rows, by name."""
        return {name: term for name, term in self.objective.items() if isinstance(term, RowTerm)}

    def shapes(self) -> tuple[Objective, Any, Any]:
        """Return objective, coordinates and key as shapes; call it in the problem's precision."""
        real = None if isinstance(self.mesh, int) else self.mesh
        everywhere = None if real is None else NamedSharding(real, P())
        z = jax.ShapeDtypeStruct((self.space.size,), PRECISIONS[self.precision], sharding=everywhere)
        key = shape_of(jax.random.key(0), everywhere) if self.objective.stochastic else None
        return placed_shapes(self.objective, self.mesh), z, key


def footprint(layout: Layout) -> Footprint:
    """Return the bytes per device of one evaluation, or of a solver's loop, which goes round them.

    Compiled from shapes alone; call it in the problem's precision.
    """
    objective, z, key = layout.shapes()
    if layout.loop is None:
        traced = evaluate.trace(layout.needs, layout.space, objective, z, key)
    else:
        traced = traced_loop(layout.loop, layout.space, objective, z, layout.box, key)
    compiled = traced.lower().compile()
    memory = compiled.memory_analysis()
    if memory is None:
        raise NotImplementedError(
            f"XLA offers no memory analysis for {jax.default_backend()!r} devices, so memory cannot be predicted here."
        )
    rows, replicated = split_bytes(objective)
    # arrays that the user's functions close over travel with the program
    constants = sum(int(np.prod(np.shape(c))) * c.dtype.itemsize for c in traced.jaxpr.consts if hasattr(c, "dtype"))
    held = Footprint(
        rows=rows,
        replicated=replicated + n_bytes((z, key)) + constants,
        temporaries=int(memory.temp_size_in_bytes),
        outputs=int(memory.output_size_in_bytes - memory.alias_size_in_bytes),
        state=layout.state_bytes,
        programs=EQUATION_BYTES * operations(traced.jaxpr.jaxpr) if layout.platform == "cpu" else 0,
    )
    if not layout.checked:
        return held
    more = CHECK_BYTES if layout.platform == "cpu" else 0
    # before and after the solver: nothing of what it works with is there
    beyond = check_bytes(layout) - held.temporaries - held.outputs - held.state
    return replace(held, checks=max(0, beyond), programs=held.programs + more)


def check_bytes(layout: Layout) -> int:
    """Return what a certificate holds of the terms that it evaluates whole: those without rows."""
    penalties = [term for term in layout.objective.terms if not isinstance(term, RowTerm)]
    params = jax.eval_shape(layout.space.unpack, jax.ShapeDtypeStruct((layout.space.size,), np.float64))
    sizes = [numbers_in(jax.eval_shape(lambda p, t: called(t.fn, p, *t.args), params, term)) for term in penalties]
    return 8 * (TABLES * max(sizes, default=0) + VECTORS * layout.space.size)
