"""Cold start: what a user waits for when a command or a script begins in a fresh process.

Every case runs in processes of its own: ours with an empty folder of compiled programs (`cold`), then again with what
the first run left there (`warm`). Seconds are the least of some rounds: wall, and CPU of the process over all threads.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import ROOT
from shardfit import data

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "both cores for XLA", "processes": "fresh, bytecode compiled before"}
ROUNDS = 3
M87 = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
FIT = """
import jax.numpy as jnp, numpy as np, shardfit as sf
t = np.linspace(0.0, 5.0, 100_000)
rows = {{"t": t, "y": 2.0 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(0).normal(size=t.size)}}
def residual(params, rows):
    return (rows["y"] - params[0] * jnp.exp(-params[1] * rows["t"])) / 0.1
objective = sf.Objective({{"decay": sf.residual_term(residual, rows, chunk=10_000)}})
result = sf.fit(sf.Problem(objective, x0=np.array([1.0, 1.0])), {solver!r}, progress=False)
assert abs(result.params[0] - 2) < 0.01
"""
SHARDFIT = ("-m", "shardfit")
CASES = {
    "python": ("-c", "pass"),
    "help": (*SHARDFIT, "--help"),
    "import": ("-c", "import shardfit"),
    "jax": ("-c", "import jax.numpy"),
    "lm": ("-c", FIT.format(solver="lm")),
    "lbfgs": ("-c", FIT.format(solver="lbfgs")),
    "lbfgsb": ("-c", FIT.format(solver="lbfgsb")),
    "image": (*SHARDFIT, "vlbi", "image", str(M87), "--out", "{out}", "--resume", "never"),
    "m87": (*SHARDFIT, "vlbi", "image", str(M87), "--out", "{out}", "--resume", "never", "--preset", "m87"),
}
QUICK = ("python", "help", "import", "lm")


def run(quick: bool) -> dict[str, dict]:
    """Return {case: {cold, cold_cpu, warm, warm_cpu}}, seconds."""
    return {case: measure(CASES[case], 1 if quick else ROUNDS) for case in (QUICK if quick else CASES)}


def measure(arguments: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Return the least wall and CPU seconds of a command, without and with compiled programs."""
    seconds: dict[str, list[float]] = {name: [] for name in ("cold", "cold_cpu", "warm", "warm_cpu")}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, *(word.replace("{out}", f"{folder}/run") for word in arguments)]
            for kind in ("cold", "warm"):
                wall, cpu = _timed(command, Path(folder))
                seconds[kind].append(wall)
                seconds[f"{kind}_cpu"].append(cpu)
    return {name: min(values) for name, values in seconds.items()}


def _timed(command: list[str], folder: Path) -> tuple[float, float]:
    # JAX's own settings of the cache would come first
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    environment = {**plain, "JAX_PLATFORMS": "cpu", "SHARDFIT_COMPILE_CACHE": str(folder / "compiled")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    with open(folder / "output", "w") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)  # reaped here, not by subprocess
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(folder / 'output').read_text()[-2000:]}")
    return wall, used.ru_utime + used.ru_stime
