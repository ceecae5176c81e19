"""Our compiled engine with all receivers between cells and with all on cells, in turn: traces of 8 shots, and the
gradient of their energy. `ours` is between cells, `peer` on cells, `cost` the ratio of their CPU seconds.
"""

import json
import sys
import time
from dataclasses import replace

from benchmarks.peers import run_ours
from benchmarks.seismic_ours import modelling
from benchmarks.seismic_scene import scene

PEERS = ()
SETTINGS = {"precision": "float32", "threads": "one", "our kernel": "compiled here with -march=native"}
SIZE = {"shape": [100, 300], "nt": 500, "shots": 8}
ROUNDS = 4
SHIFT = (0.3, 0.6)  # of a cell, along z and x; the last receivers stay inside


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of traces and gradients; --quick takes one order."""
    cases = [(kind, order) for order in ((4,) if quick else (4, 8)) for kind in ("forward", "gradient")]
    return {f"{kind}-o{order}": _case(kind, order) for kind, order in cases}


def _case(kind: str, order: int) -> dict:
    figures = run_ours("benchmarks.seismic_offgrid", {**SIZE, "kind": kind, "order": order})
    return figures | {"cost": figures["cpu_ours"] / figures["cpu_peer"]}


def main(asked: dict) -> None:
    """Print the best times of both. asked: as of a scene, and kind."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    given = scene(asked)
    runs = {}
    for name, receivers in (("off", given.receivers[:-1] + np.array(SHIFT)), ("on", given.receivers[:-1])):
        traces = modelling(replace(given, receivers=receivers), "native")
        wanted = traces if asked["kind"] == "forward" else jax.grad(lambda v, traces=traces: jnp.sum(traces(v) ** 2))
        runs[name] = jax.jit(wanted)
    times: dict[str, list] = {name: [] for name in runs}
    for _ in range(1 + ROUNDS):  # the first compiles
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run(jnp.asarray(given.velocity)))
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    (off, cpu_off), (on, cpu_on) = (np.min(times[name][1:], axis=0) for name in ("off", "on"))
    print(json.dumps({"ours": off, "peer": on, "cpu_ours": cpu_off, "cpu_peer": cpu_on}))


if __name__ == "__main__":
    main(json.load(sys.stdin))
