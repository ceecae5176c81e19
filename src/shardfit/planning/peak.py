"""Bytes per device of one evaluation: data from shapes, temporaries from XLA's analysis of the compiled function."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.objective import Objective, replace_terms
from shardfit.core.params import Space
from shardfit.core.precision import PRECISIONS
from shardfit.core.terms import RowTerm
from shardfit.planning.shapes import n_bytes, placed_shapes, shape_of, split_bytes
from shardfit.solve.base import evaluate


@dataclass(frozen=True)
class Footprint:
    """Bytes per device, by what they are for."""

    rows: int
    replicated: int
    temporaries: int
    outputs: int
    state: int

    @property
    def fixed(self) -> int:
        """What no chunk and no number of devices changes."""
        return self.replicated + self.outputs + self.state

    @property
    def total(self) -> int:
        """All of it."""
        return self.rows + self.temporaries + self.fixed


@dataclass(frozen=True)
class Layout:
    """What is evaluated, and where: the question a plan answers."""

    objective: Objective
    space: Space
    precision: str
    mesh: Mesh | AbstractMesh | int | None
    needs: str
    state_bytes: int = 0

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
    """Return the bytes per device of one evaluation, compiled from shapes alone; call it in the problem's precision."""
    objective, z, key = layout.shapes()
    traced = evaluate.trace(layout.needs, layout.space, objective, z, key)
    compiled = traced.lower().compile()
    memory = compiled.memory_analysis()
    if memory is None:
        raise NotImplementedError(
            f"XLA offers no memory analysis for {jax.default_backend()!r} devices, so memory cannot be predicted here."
        )
    rows, replicated = split_bytes(objective)
    # arrays that the user's functions close over travel with the program
    constants = sum(int(np.prod(np.shape(c))) * c.dtype.itemsize for c in traced.jaxpr.consts if hasattr(c, "dtype"))
    return Footprint(
        rows=rows,
        replicated=replicated + n_bytes((z, key)) + constants,
        temporaries=int(memory.temp_size_in_bytes),
        outputs=int(memory.output_size_in_bytes - memory.alias_size_in_bytes),
        state=layout.state_bytes,
    )
