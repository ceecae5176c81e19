"""How near the compiled engine comes to a loop that moves the same numbers and computes next to nothing.

A step reads u, u before and kappa and writes u after. The loop does that with fields of the same size, absorbing
layers left out, and is compiled with the same flags. The fraction reached is the case's ratio.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.core import memory
from benchmarks.seismic_ours import modelling
from benchmarks.seismic_scene import LAYER, scene

ROUNDS = 4
LOOP = """
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>
int main(int, char** given) {
  const long n = std::atol(given[1]), steps = std::atol(given[2]);
  std::vector<float> first(n, 1.f), second(n + 1024, 1.f), kappa(n, 1e-6f);
  float *u = first.data(), *p = second.data() + 512, *k = kappa.data();
  const auto began = std::clock();
  for (long i = 0; i < steps; ++i, std::swap(u, p))
    for (long x = 0; x < n; ++x) p[x] = 2 * u[x] - p[x] + k[x] * u[x];
  std::printf("%g %g\\n", double(std::clock() - began) / CLOCKS_PER_SEC, double(u[n / 2]));
}
"""


def main(asked: dict) -> None:
    """Print the best times of both, in turn."""
    import jax

    from shardfit.domains.seismic.build import compiler

    given = scene(asked)
    traces = jax.jit(modelling(given, "native"))
    jax.block_until_ready(traces(given.velocity))
    nz, nx = (n + 2 * LAYER for n in given.velocity.shape)
    best = [float("inf"), float("inf"), float("inf")]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "loop"
        build = [*(compiler() or ("c++",)), "-O3", "-march=native", "-x", "c++", "-", "-o", str(program)]
        subprocess.run(build, input=LOOP, text=True, check=True)
        for _ in range(ROUNDS):
            wall, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(traces(given.velocity))
            ours = time.perf_counter() - wall, time.process_time() - cpu
            run = [str(program), str(nz * nx), str(asked["nt"] * asked["shots"])]
            moved = float(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()[0])
            best = [min(pair) for pair in zip(best, (*ours, moved), strict=True)]
    wall, cpu, moved = best
    figures = {"ours": wall, "peer": moved, "ratio": moved / cpu, "cpu_ours": cpu, "cpu_peer": moved}
    print(json.dumps(figures | {"peak_ours": memory("VmHWM"), "peak_peer": None, "difference": None}))


if __name__ == "__main__":
    main(json.load(sys.stdin))
