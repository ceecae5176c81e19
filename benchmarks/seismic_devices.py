"""The gradient of one survey on one and on two devices of one thread each, in turn, in this process."""

import json
import sys
import time

from benchmarks.core import memory, reset_peak
from benchmarks.peers import use_devices
from benchmarks.seismic_ours import simulation
from benchmarks.seismic_scene import scene

ROUNDS = 4


def main(asked: dict) -> None:
    """Print the best times of both."""
    use_devices(2)
    import jax
    import numpy as np

    import shardfit as sf
    from shardfit.core.term_makers import residual_term
    from shardfit.domains.seismic import Native, propagate

    given = scene(asked)
    sim, shots = simulation(given)
    rows = {"shots": shots, "traces": np.zeros((len(given.sources), len(given.receivers), sim.nt), np.float32)}

    def residual(params, rows):
        return propagate(sim, params["v"], given.wavelet, rows["shots"], engine=Native(threads=1)) - rows["traces"]

    objective = sf.Objective({"shots": residual_term(residual, rows)}).with_precision("float32")
    start = {"v": given.velocity}
    gradient = jax.jit(lambda objective, params: objective.value_and_grad(params))
    placed = {n: objective.place(sf.mesh(rows=n)) for n in (2, 1)}
    times: dict[int, list] = {n: [] for n in placed}
    peaks, found = {}, {}
    for _ in range(1 + ROUNDS):  # the first compiles
        for n, one in placed.items():
            before = memory("VmRSS")
            reset_peak()
            wall, cpu = time.perf_counter(), time.process_time()
            found[n] = jax.block_until_ready(gradient(one, start))
            times[n].append((time.perf_counter() - wall, time.process_time() - cpu))
            peaks[n] = memory("VmHWM") - before
    (two, cpu_two), (one, cpu_one) = (np.min(times[n][1:], axis=0) for n in (2, 1))
    arrays = [np.asarray(found[n][1]["v"], float) for n in (2, 1)]
    figures = {"ours": two, "peer": one, "ratio": one / two, "cpu_ours": cpu_two, "cpu_peer": cpu_one}
    figures |= {"peak_ours": peaks[2], "peak_peer": peaks[1]}
    figures |= {"difference": float(np.linalg.norm(arrays[0] - arrays[1]) / np.linalg.norm(arrays[1]))}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(json.load(sys.stdin))
