"""What the parity certificate costs: CPU seconds of its checks, at start and answer, and of the whole call around them.

Every case runs in a process of its own without compiled programs of earlier ones: the first call compiles (`cold`), the
second is the same work on a new problem (`warm`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from benchmarks.peers import ROOT
from shardfit import Objective, Problem, RunOptions, data, fit, fitting, residual_term

PEERS = ()
SETTINGS = {"precision": "float64; fwi float32", "threads": "both cores for XLA", "processes": "fresh, one per case"}
QUICK = ("readme-lm", "smf")


def run(quick: bool) -> dict[str, dict]:
    """Return {case: {cold, cold_certificate, cold_share, warm, warm_certificate, warm_share}}, CPU seconds."""
    return {case: _in_process(case) for case in (QUICK if quick else CASES)}


def _in_process(case: str) -> dict[str, float]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    environment = {**plain, "JAX_PLATFORMS": "cpu", "SHARDFIT_COMPILE_CACHE": "off", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "benchmarks.certificate", case]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(work: Callable[[], object]) -> dict[str, float]:
    """Return CPU seconds of some work and of its certificates, first with and then without compilation."""
    spent = [0.0]

    def timed(check):
        def run(*args, **options):
            began = time.process_time()
            try:
                return check(*args, **options)
            finally:
                spent[0] += time.process_time() - began

        return run

    fitting.certify_start, fitting.certify_answer = timed(fitting.certify_start), timed(fitting.certify_answer)
    figures = {}
    for kind in ("cold", "warm"):
        spent[0], began = 0.0, time.process_time()
        work()
        figures[kind] = time.process_time() - began
        figures |= {f"{kind}_certificate": spent[0], f"{kind}_share": spent[0] / figures[kind]}
    return figures


def _readme(solver: str):
    t = np.linspace(0.0, 5.0, 100_000)
    rows = {"t": t, "y": 2.0 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(0).normal(size=t.size)}

    def residual(params, rows):
        return (rows["y"] - params[0] * jnp.exp(-params[1] * rows["t"])) / 0.1

    def work():
        objective = Objective({"decay": residual_term(residual, rows, chunk=10_000)})
        assert fit(Problem(objective, x0=np.array([1.0, 1.0])), solver, progress=False).success

    return work


def _m87():
    from shardfit.domains.vlbi import read_uvfits
    from shardfit.domains.vlbi.recipes import image

    observation = read_uvfits(data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits")
    return lambda: image(observation, preset="m87")


def _smf():
    from shardfit.domains.population import smf

    return lambda: fit(smf.problem("A", 100_000), "adam", learning_rate=0.01, maxiter=100, progress=False)


def _fwi():
    import jax

    from shardfit.domains.seismic import Recording, Simulation, acquisition, propagate, ricker
    from shardfit.domains.seismic.recipes import InversionOptions, invert

    sim = Simulation((60, 80), 10.0, 1e-3, 400, 2800.0, 15.0, 4, widths=10)
    z, x = np.mgrid[: sim.shape[0], : sim.shape[1]]
    start = np.full(sim.shape, 2000.0)
    truth = start + 200 * np.exp(-((z - 30) ** 2 + (x - 40) ** 2) / 120)
    shots = acquisition(sim, [(2, x) for x in range(4, 77, 6)], [(2, x) for x in range(0, 80, 2)])
    wavelet = ricker(15.0, sim.dt, sim.nt)
    with jax.enable_x64(True):
        recorded = np.asarray(propagate(sim, jnp.asarray(truth), wavelet, shots), np.float32)
    options = InversionOptions(epochs=40, batchsize=None, learning_rate=10.0)
    return lambda: invert(sim, start, Recording(shots, wavelet, recorded), options, RunOptions(progress=False))


CASES = {
    "readme-lbfgsb": lambda: _readme("lbfgsb"),
    "readme-lm": lambda: _readme("lm"),
    "m87": _m87,
    "smf": _smf,
    "fwi": _fwi,
}

if __name__ == "__main__":
    print(json.dumps(measure(CASES[sys.argv[1]]())))
