"""XPCS fits of simulated laminar flow, each in a fresh process: CPU seconds without and with compiled programs.

Seconds begin when the data are there and JAX is not: `new` with an empty folder of compiled programs, `cached` with a
filled one, `again` the same fit once more in that process. Rates: millions of points of the upper triangle per CPU
second, of the normal equations and of the value. memory: bytes beyond those in use before the fit. error: largest
distance of a parameter from the truth, in standard errors.
"""

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.peers import ROOT

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "both cores for XLA", "processes": "fresh"}
CASES = {"23x210": (23, 210), "23x500": (23, 500), "23x1000": (23, 1000)}
QUICK = ("23x210",)
PROGRAM = """
import json, resource, sys, time
import numpy as np
from shardfit.domains.xpcs import Experiment, FitOptions, fit_correlation, laminar_flow, read, setup, simulate, write
n, nt, path, made = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "made"
model = laminar_flow()
truth = dict(zip(model.names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0)))
if not made:
    known = Experiment(phi=np.linspace(-90, 90, n), n_frames=nt, dt=20.0 / nt)
    write(path, simulate(model, truth, known, 1))
    sys.exit()
import jax
from shardfit import RunOptions
from shardfit.core.precision import arithmetic
data = read(path, gap=2e6)
options, quiet = FitOptions(scaling="individual"), RunOptions(progress=False)
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
answer = fit_correlation(data, model, options, quiet)
new = time.process_time() - began
memory = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
began = time.process_time()
answer = fit_correlation(data, model, options, quiet)
again = time.process_time() - began
ready = setup(data, model, options)
placed, rates = ready.problem.objective.place(), []
for evaluate in (placed.gram, placed.value):
    jax.block_until_ready(evaluate(ready.problem.x0))
    began = time.process_time()
    for _ in range(3):
        jax.block_until_ready(evaluate(ready.problem.x0))
    rates.append(3e-6 * ready.n_points / (time.process_time() - began))
error = max(abs(answer.params[k] - truth[k]) / answer.stderr[k] for k in truth)
print(json.dumps(dict(new=new, again=again, normal_rate=rates[0], value_rate=rates[1], memory=memory,
                      evaluations=answer.result.evaluations, error=error)))
"""


def run(quick: bool) -> dict[str, dict]:
    """Return {case: {new, cached, again, normal_rate, value_rate, memory, evaluations, error}}."""
    return {case: _case(*CASES[case]) for case in (QUICK if quick else CASES)}


def _case(n: int, nt: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        _program(folder, n, nt, "make")
        first, second = (json.loads(_program(folder, n, nt, "made").splitlines()[-1]) for _ in range(2))
    return {**second, "new": first["new"], "cached": second["new"], "memory": first["memory"]}


def _program(folder: str, n: int, nt: int, what: str) -> str:
    # JAX's own settings of the cache would come first
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    environment = {**plain, "JAX_PLATFORMS": "cpu", "SHARDFIT_COMPILE_CACHE": f"{folder}/compiled"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, "-c", PROGRAM, str(n), str(nt), f"{folder}/data.npz", what]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
