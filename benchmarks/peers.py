"""Peers in environments of their own, built on first use, so that they never decide what this library runs with."""

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = {
    "least_squares": ("jax==0.10.2", "optimistix==0.1.0", "optax==0.2.8", "scipy==1.17.1"),
    "swarm": ("jax==0.10.2", "evosax==0.3.2", "pyswarms==1.3.0"),
    "diffopt": ("diffopt==2.0.0", "jax==0.10.2", "optax==0.2.8", "jaxopt==0.8.5", "mpi4py==4.1.2", "mpich==5.0.2"),
    # its NFFT needs a C library that no wheel brings: finufft stands in, see vlbi_ehtim.py
    "ehtim": ("ehtim==1.3.2", "finufft==2.5.1", "astropy==8.0.2", "numpy==2.4.6", "scipy==1.17.1"),
    "deepwave": ("torch==2.13.0", "deepwave==0.1.0", "numpy==2.4.6"),
    # it requires torch whichever of its backends runs; this version has a small build
    "sweep": ("torch==2.13.0", "jax==0.10.2", "sweep-solver==0.3.5", "numpy==2.4.6"),
}
# one thread each: unpinned libraries fight over the cores and the figures mean nothing
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


def peer_python(name: str) -> Path:
    """Return the interpreter of a peer's environment, made or remade if its requirements are not the stamped ones."""
    folder = ROOT / ".bench-envs" / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = hashlib.sha256(repr((sys.version_info[:2], REQUIREMENTS[name])).encode()).hexdigest()
    stamp = folder / "requirements.sha256"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"building the environment of peer {name!r} in {folder.relative_to(ROOT)}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *REQUIREMENTS[name]]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    return python


def run_peer(name: str, module: str, arguments: Any) -> Any:
    """Run `python -m module` in a peer's environment; arguments go in, and its last line comes back, as JSON."""
    return _run(peer_python(name), module, arguments)


def run_ours(module: str, arguments: Any) -> Any:
    """Run `python -m module` in this environment, in a process of its own under the same conditions as a peer."""
    return _run(Path(sys.executable), module, arguments)


def _run(python: Path, module: str, arguments: Any) -> Any:
    command = [python, "-m", module]
    env = {**os.environ, **THREADS}
    done = subprocess.run(command, input=json.dumps(arguments), env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} failed in {python}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
