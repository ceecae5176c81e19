"""Cold start: what a user waits for when a command or a script begins in a fresh process.

Every case runs in processes of its own: with an empty folder of compiled programs, made for the run (`cold`), then
again with what the first run left there (`warm`), then with other data of about the same size (`other`). Seconds are
the least of some rounds: wall, and CPU of the process over all threads. SHARDFIT_DATA names the folder whose subfolder
eht holds another day of M87.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import ROOT
from shardfit import data
from shardfit.cli.demo_chapters import SECTION

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "both cores for XLA", "processes": "fresh, bytecode compiled before"}
ROUNDS = 3
M87 = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
ANOTHER_DAY = Path(os.environ.get("SHARDFIT_DATA", "")) / "eht" / M87.name.replace("_101_", "_096_")
FIT = """
import jax.numpy as jnp, numpy as np, shardfit as sf
t = np.linspace(0.0, 5.0, {n})
rows = {{"t": t, "y": 2.0 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(0).normal(size=t.size)}}
def residual(params, rows):
    return (rows["y"] - params[0] * jnp.exp(-params[1] * rows["t"])) / 0.1
objective = sf.Objective({{"decay": sf.residual_term(residual, rows, chunk=10_000)}})
result = sf.fit(sf.Problem(objective, x0=np.array([1.0, 1.0])), {solver!r}, progress=False)
assert abs(result.params[0] - 2) < 0.01
"""
SAMPLE = """
import shardfit as sf
from benchmarks.problems.posteriordb import eight_schools
print(sf.sample(eight_schools({{"y": {y}, "sigma": {sigma}}}), draws=1000, progress=False).summary())
"""
Y, SIGMA = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]
SHARDFIT = ("-m", "shardfit")
FLOW = ("--mode", "laminar_flow")
MADE = ("--q", "0.0054", "--dt", "0.1", "--gap", "2000000", "--start", "D_offset=0", "--start", "gamma_dot_t_offset=0")


@dataclass(frozen=True)
class Case:
    """What is timed, the same with other data, and commands that prepare both; {work} and {out} are folders."""

    command: tuple[str, ...]
    other: tuple[str, ...] | None = None
    before: tuple[tuple[str, ...], ...] = ()


def _fit(solver: str) -> Case:
    return Case(*(("-c", FIT.format(n=n, solver=solver)) for n in (100_000, 101_000)))


def _image(*more: str) -> Case:
    days = [M87, ANOTHER_DAY] if ANOTHER_DAY.is_file() else [M87]
    return Case(*((*SHARDFIT, "vlbi", "image", str(day), "--out", "{out}", "--resume", "never", *more) for day in days))


def _flow(frames: int) -> tuple[str, ...]:
    file = f"{{work}}/{frames}.npz"
    return (*SHARDFIT, "xpcs", "fit", file, "--config", "{work}/flow.toml", "--out", "{out}", "--resume", "never")


def _simulated(frames: int) -> tuple[str, ...]:
    return (*SHARDFIT, "xpcs", "simulate", f"{{work}}/{frames}.npz", *FLOW, "--frames", f"1:{frames}", *MADE)


CASES = {
    "python": Case(("-c", "pass")),
    "help": Case((*SHARDFIT, "--help")),
    "import": Case(("-c", "import shardfit")),
    "jax": Case(("-c", "import jax.numpy")),
    "lm": _fit("lm"),
    "lbfgs": _fit("lbfgs"),
    "lbfgsb": _fit("lbfgsb"),
    "sample": Case(
        ("-c", SAMPLE.format(y=Y, sigma=SIGMA)),
        ("-c", SAMPLE.format(y=Y[::-1], sigma=SIGMA[::-1])),
    ),
    "image": _image(),
    "m87": _image("--preset", "m87"),
    "xpcs": Case(
        _flow(120),
        _flow(126),
        ((*SHARDFIT, "xpcs", "init", "{work}/flow.toml", *FLOW), _simulated(120), _simulated(126)),
    ),
    "seismic": Case((*SHARDFIT, "seismic", "invert", "{work}/fwi.toml", "--out", "{out}", "--resume", "never")),
}
FILES = {"fwi.toml": SECTION}
QUICK = ("python", "help", "import", "lm")
KINDS = ("cold", "warm", "other")


def run(quick: bool) -> dict[str, dict]:
    """Return {case: {cold, cold_cpu, warm, warm_cpu, other, other_cpu}}, seconds; None where there is no other data."""
    return {case: measure(CASES[case], 1 if quick else ROUNDS) for case in (QUICK if quick else CASES)}


def measure(case: Case, rounds: int) -> dict[str, float | None]:
    """Return the least wall and CPU seconds of a case: nothing compiled, the same again, and other data."""
    seconds: dict[str, list[float]] = {f"{kind}{unit}": [] for kind in KINDS for unit in ("", "_cpu")}
    with tempfile.TemporaryDirectory() as work:
        for name, text in FILES.items():
            (Path(work) / name).write_text(text)
        for command in case.before:
            _timed(_filled(command, work), Path(work))
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                for kind, command in zip(KINDS, (case.command, case.command, case.other), strict=True):
                    if command is None:
                        continue
                    wall, cpu = _timed(_filled(command, work, f"{folder}/run"), Path(folder))
                    seconds[kind].append(wall)
                    seconds[f"{kind}_cpu"].append(cpu)
    return {name: min(values, default=None) for name, values in seconds.items()}


def _filled(command: tuple[str, ...], work: str, out: str = "") -> list[str]:
    words = (word.replace("{work}", work).replace("{out}", out) for word in command)
    return [sys.executable, *words]


def _timed(command: list[str], folder: Path) -> tuple[float, float]:
    # JAX's own settings of the cache would come first
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "SHARDFIT_COMPILE_CACHE": str(folder / "compiled")}
    environment = {**plain, **own, "JAX_PLATFORMS": "cpu"}
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
