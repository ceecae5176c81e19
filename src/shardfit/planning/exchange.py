"""What the shards of an evaluation exchange: the sums of the traced program, which `core/reduce.py` puts there.

The program is traced for an imagined mesh: no device need exist, and no number is computed.
"""

from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import AbstractMesh, AxisType

from shardfit.core.mesh import ROWS, RUNS
from shardfit.core.work import inner_programs
from shardfit.planning.peak import Layout
from shardfit.solve.base import evaluate


@dataclass(frozen=True)
class Exchange:
    """Of one evaluation: arrays that are summed over the shards, and bytes of each shard in them."""

    messages: int
    bytes: int

    def __add__(self, other: "Exchange") -> "Exchange":
        return Exchange(self.messages + other.messages, self.bytes + other.bytes)

    def times(self, n: int) -> "Exchange":
        """Return what n rounds exchange."""
        return Exchange(n * self.messages, n * self.bytes)


NOTHING = Exchange(0, 0)


def exchanged(layout: Layout, shards: int = 2) -> Exchange:
    """Return what one evaluation exchanges; call it in the problem's precision."""
    if shards == 1:
        return NOTHING
    imagined = AbstractMesh((shards, 1), (ROWS, RUNS), axis_types=(AxisType.Auto,) * 2)
    objective, z, key = replace(layout, mesh=imagined).shapes()
    return sums_in(evaluate.trace(layout.needs, layout.space, objective, z, key).jaxpr.jaxpr)


def sums_in(program: Any) -> Exchange:
    """Return the sums over shards in a traced program; those in a loop of unknown length count once."""
    total = NOTHING
    for step in program.eqns:
        if step.primitive.name.startswith("psum"):
            sizes = [v.aval.size * v.aval.dtype.itemsize for v in step.invars]
            total += Exchange(len(sizes), sum(sizes))
        rounds = step.params["length"] if step.primitive.name == "scan" else 1
        for inner in inner_programs(step):
            total += sums_in(inner).times(rounds)
    return total
