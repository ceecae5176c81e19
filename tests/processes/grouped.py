"""Decay curves of different lengths, fitted at the same time by groups of processes, each with a solver of its own.

Arguments: folder for the answers and run directories, number of groups or their sizes (2,2), and which curve the first
group has. A further pair of arguments says what a rank does in the middle of its fit: raise, kill, hang.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np

import shardfit as sf
from shardfit.core.mesh import gather
from tests.processes import decay

CURVES = (("lbfgs", 1001), ("lbfgsb", 501))  # solver, and how many of the rows


def main(folder, groups, first, how="", rank=-1):
    group, mesh = sf.my_group(groups)
    solver, n = CURVES[first + group]
    rows = decay.read(range(n)[sf.my_rows(n, mesh)])
    problem = sf.Problem(decay.objective_of(rows).place_local(mesh), {name: np.float64(1.0) for name in decay.POINT})

    def act(snapshot):
        if jax.process_index() == rank and snapshot.step >= 2:
            if how == "raise":
                raise ArithmeticError("the model broke")
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600)
        if rank >= 0 and rank not in {device.process_index for device in mesh.devices.flat}:
            time.sleep(1.0)  # the other group is at work for long

    run_dir = sf.RunDir(Path(folder, f"run-{first + group}"), seconds=0.0)
    answer = sf.fit(problem, solver, mesh=mesh, run_dir=run_dir, callback=act, every=1, progress=False)
    found = {
        "group": group,
        "processes": answer.layout["processes"],
        "n_rows": problem.objective.n_rows["decay"],
        "certified": answer.certificate is not None,
        "params": {name: float(p) for name, p in answer.params.items()},
        "values": answer.history["value"].tolist(),
        "status": answer.status.name,
    }
    found["everyone"] = gather(np.array([group])).ravel().tolist()  # all processes together, after work in groups
    Path(folder, f"{first}-{jax.process_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    how, rank = sys.argv[4:] or ("", "-1")
    groups = [int(n) for n in sys.argv[2].split(",")]
    main(sys.argv[1], groups if len(groups) > 1 else groups[0], int(sys.argv[3]), how, int(rank))
