"""Peers in environments of their own, built on first use, so that they never decide what this library runs with.

They live in the user's cache folder, or in SHARDFIT_BENCH_ENVS.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import peer_sources

ROOT = Path(__file__).resolve().parents[1]


class Peer(NamedTuple):
    """What an environment holds. source: a requirement that is compiled here, see peer_sources.py."""

    wheels: tuple[str, ...]
    source: str = ""


PEERS = {
    "least_squares": Peer(("jax==0.10.2", "optimistix==0.1.0", "optax==0.2.8", "scipy==1.17.1")),
    "small": Peer(("jax==0.10.2", "optimistix==0.1.0", "scipy==1.17.1", "lmfit==1.3.4")),
    "swarm": Peer(("jax==0.10.2", "evosax==0.3.2", "pyswarms==1.3.0", "cmaes==0.13.1")),
    "diffopt": Peer(
        ("diffopt==2.0.0", "jax==0.10.2", "optax==0.2.8", "jaxopt==0.8.5", "mpi4py==4.1.2", "mpich==5.0.2")
    ),
    # its NFFT needs a C library that no wheel brings: finufft stands in, see vlbi_ehtim.py
    "ehtim": Peer(("ehtim==1.3.2", "finufft==2.5.1", "astropy==8.0.2", "numpy==2.4.6", "scipy==1.17.1")),
    "deepwave": Peer(("torch==2.13.0", "numpy==2.4.6"), source="deepwave==0.1.0"),
    # it requires torch whichever of its backends runs; this version has a small build
    "sweep": Peer(("torch==2.13.0", "jax==0.10.2", "sweep-solver==0.3.5", "numpy==2.4.6")),
    "numpyro": Peer(("numpyro==0.22.0", "jax==0.10.2", "numpy==2.4.6", "scipy==1.17.1")),
    "blackjax": Peer(("blackjax==1.7.1", "jax==0.10.2", "numpy==2.4.6", "scipy==1.17.1")),
    "nutpie": Peer(("nutpie==0.16.8", "jax==0.10.2", "numpy==2.4.6", "scipy==1.17.1")),
}
# peers that no package index has: whoever has one installed names its interpreter in the environment variable
GIVEN = {"homodyne": ("SHARDFIT_HOMODYNE", ("homodyne", "nlsq", "jax", "jaxlib", "numpy"))}
# one thread each: unpinned libraries fight over the cores and the figures mean nothing
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",  # XLA's own threads; its flags for them no longer have an effect on CPUs
    "JAX_PLATFORMS": "cpu",
    # what is compiled counts as compiled here, in every run
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}


def use_devices(n: int) -> None:
    """Let this process have n CPU devices; call it before JAX looks for devices."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={n}"
    os.environ.pop("NPROC", None)  # devices that have fewer threads than they are wait for each other without end


class PeerMissingError(Exception):
    """A peer that is not built here is not there: its suite is left out."""


def peer_python(name: str) -> Path:
    """Return the interpreter of a peer's environment, made or remade if its requirements are not the stamped ones.

    One builds at a time, whether threads or processes ask: the others wait for it.
    """
    if name in GIVEN:
        return _given(name)
    folder = _home() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    flags = (peer_sources.FLAGS, peer_sources.NEEDED) if PEERS[name].source else {}
    wanted = hashlib.sha256(repr((sys.version_info[:2], PEERS[name], flags)).encode()).hexdigest()
    stamp = folder / "requirements.sha256"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"building the environment of peer {name!r} in {folder}", file=sys.stderr, flush=True)
            _build(folder, PEERS[name])
            stamp.write_text(wanted)
    return folder / "bin" / "python"


def peer_versions(name: str) -> dict[str, str]:
    """Return the versions of a peer's packages as installed; those compiled here say so."""
    peer = PEERS.get(name, Peer(()))
    names = [requirement.partition("==")[0] for requirement in (*peer.wheels, *filter(None, [peer.source]))]
    names = names or list(GIVEN[name][1])
    script = "import json, sys, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    shown = subprocess.run([peer_python(name), "-c", script, *names], capture_output=True, text=True, check=True)
    versions = json.loads(shown.stdout)
    if peer.source:
        versions[names[-1]] += f" ({peer_sources.HOW})"
    return versions


def run_peer(name: str, module: str, arguments: Any) -> Any:
    """Run `python -m module` in a peer's environment; arguments go in, and its last line comes back, as JSON."""
    return _run(peer_python(name), module, arguments)


def run_ours(module: str, arguments: Any) -> Any:
    """Run `python -m module` in this environment, in a process of its own under the same conditions as a peer."""
    return _run(Path(sys.executable), module, arguments)


def cache_folder(name: str) -> Path:
    """Return a folder of this project in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardfit" / name


def _given(name: str) -> Path:
    variable = GIVEN[name][0]
    python = Path(os.environ.get(variable, ""))
    if not python.is_file():
        raise PeerMissingError(
            f"{name} is not on the package index and is not built here. Install it into an environment of its own, and "
            f"set {variable} to the path of that environment's python."
        )
    return python


def _home() -> Path:
    return Path(os.environ.get("SHARDFIT_BENCH_ENVS") or cache_folder("bench-envs"))


def _build(folder: Path, peer: Peer) -> None:
    venv.create(folder, clear=True, with_pip=True)
    install = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    subprocess.run([*install, *peer.wheels], check=True)
    if peer.source:
        peer_sources.install(install, peer.source)


def _run(python: Path, module: str, arguments: Any) -> Any:
    command = [python, "-m", module]
    # peers are given our problems, so that both sides compute the same function
    env = {**os.environ, **THREADS, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, input=json.dumps(arguments), env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} failed in {python}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
