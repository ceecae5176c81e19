"""Things that processes must not disagree about; every refusal is printed by every rank."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

rank, mesh = jax.process_index(), sf.mesh()


def residual(p, rows):
    return rows["y"] - p


def broken(p, rows):
    return rows["y"] - jnp.log(p)


def problem_of(y, x0=1.0, fn=residual):
    return sf.Problem(sf.Objective({"mean": sf.residual_term(fn, {"y": np.asarray(y, float)})}), np.float64(x0))


same = problem_of([1, 2, 3, 4])
cases = {
    "seed": lambda: sf.fit(same, mesh=mesh, seed=rank),
    "start": lambda: sf.fit(problem_of([1, 2, 3, 4], 1.0 + rank), mesh=mesh),
    "rows": lambda: sf.fit(problem_of([1, 2, 3, 4 + rank]), mesh=mesh),
    "number of rows": lambda: sf.fit(problem_of(np.arange(4 + rank)), mesh=mesh),
    "no mesh": lambda: sf.fit(same),
    "idle": lambda: sf.mesh(rows=1),
    "moved": lambda: same.objective.place_local(mesh).place(None),
    "solver fails": lambda: sf.fit(same, lambda function, z0, **_: 1 / 0, mesh=mesh),
    "not finite": lambda: sf.fit(problem_of([1, 2, 3, 4], -1.0, broken), mesh=mesh, certify=False),
}
lines = []
for name, case in cases.items():
    try:
        case()
        lines.append(f"{name}: accepted")
    except Exception as error:
        lines.append(f"{name}: {error}")
alone = sf.fit(problem_of([rank, rank + 2]), mesh=sf.mesh(local=True))
lines.append(f"alone: {float(alone.params):.6f}")
ragged = sf.Objective({"mean": sf.residual_term(residual, {"y": np.arange(3.0 + 2 * rank)})}).place_local(mesh)
lines.append(f"ragged: {float(ragged.value(np.float64(1.0)))} {ragged.n_rows['mean']}")
Path(sys.argv[1], f"{rank}.txt").write_text("\n".join(lines))
