"""Processes on several machines, started through ssh: which hosts, whether they are ready, and the command for each.

Folder, Python and shardfit must be the same on all of them, as on a cluster with a common file system; this is looked
at before anything starts. A process ends when its connection does: it watches its standard input (`shardfit rank`).
"""

import ipaddress
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

SSH = "ssh -o BatchMode=yes"  # asks for no password: there is nobody to type it once for every process
PROBE_SECONDS = 60
FORWARDED = re.compile(r"(SHARDFIT|JAX|XLA|OMP|GLOO|NCCL)_\w+|PYTHON\w+|LD_LIBRARY_PATH|VIRTUAL_ENV")
NO_FOLDER, NO_PYTHON, NO_SCRIPT, NO_SHARDFIT, NO_CONNECTION = 91, 92, 93, 94, 255
VERSIONS = ("shardfit", "jax", "jaxlib")
PROBE = f"""
import json, os, socket, sys
from importlib import metadata, util
if util.find_spec("shardfit") is None:
    sys.exit({NO_SHARDFIT})
with socket.socket() as probe:
    probe.bind(("", 0))
    port = probe.getsockname()[1]
name = socket.gethostname()
try:
    address = socket.gethostbyname(name)
except OSError:
    address = ""
versions = dict((package, metadata.version(package)) for package in {VERSIONS})
print(json.dumps(dict(versions=versions, name=name, address=address, port=port, cpus=os.cpu_count() or 1)))
"""


class Facts(NamedTuple):
    """What a host says of itself; port: one that is free there, address: what its own name stands for."""

    versions: dict[str, str]
    name: str
    address: str
    port: int
    cpus: int


class HostError(RuntimeError):
    """Hosts that cannot take part: what is wrong with each of them, by name."""

    def __init__(self, wrong: Mapping[str, str]):
        self.wrong = dict(wrong)
        super().__init__("\n".join(f"host {name}: {text}" for name, text in wrong.items()))


def parse_hosts(text: str) -> tuple[str, ...]:
    """Return the host of every rank, from 'a:2,b:2' or a file with a host on each line ('a', 'a:2', 'a slots=2')."""
    entries = [entry.strip() for entry in text.split(",")]
    if Path(text).is_file():
        lines = [line.partition("#")[0].strip() for line in Path(text).read_text(encoding="utf-8").splitlines()]
        entries = [re.sub(r"\s+(slots=)?(?=\d+$)", ":", line) for line in lines if line]
    hosts: list[str] = []
    for entry in entries:
        match = re.fullmatch(r"((?:[\w.-]+@)?(?:\[[0-9a-fA-F:]+\]|\w[\w.-]*))(?::(\d+))?", entry)
        if match is None or match[2] == "0":
            raise ValueError(f"--hosts: {entry!r} is neither HOST nor HOST:PROCESSES, and {text!r} is no file here.")
        hosts += [match[1]] * int(match[2] or 1)
    if not hosts:
        raise ValueError(f"--hosts {text}: no host is named there.")
    return tuple(hosts)


def over_ssh(ssh: Sequence[str], host: str, environ: Mapping[str, str], words: Sequence[str], *tests: str) -> list[str]:
    """Return the command that runs words in this folder of a host; tests: shell commands that come first."""
    given = {name: value for name, value in os.environ.items() if FORWARDED.fullmatch(name)} | dict(environ)
    settings = [f"{name}={value}" for name, value in given.items()]
    enter = f"cd {shlex.quote(os.getcwd())} || exit {NO_FOLDER}"
    # not exec: the shell turns the end by a signal into 128 + its number, which ssh itself would not tell
    script = "; ".join([enter, *tests, f"{shlex.join(['env', *settings, *words])}; exit $?"])
    return [*ssh, host.replace("[", "").replace("]", ""), f"sh -c {shlex.quote(script)}"]


def inspect_hosts(hosts: Sequence[str], ssh: Sequence[str], script: str | None) -> dict[str, Facts]:
    """Return what every host says of itself; raise HostError for those that cannot take part. script: a file needed."""
    names = list(dict.fromkeys(hosts))
    with ThreadPoolExecutor(len(names)) as pool:
        found = dict(zip(names, pool.map(lambda name: _inspect(name, ssh, script), names), strict=True))
    wrong = {name: each for name, each in found.items() if isinstance(each, str)}
    if wrong:
        raise HostError(wrong)
    facts = {name: each for name, each in found.items() if isinstance(each, Facts)}
    _require_reachable(facts)
    return facts


def coordinator_of(facts: Mapping[str, Facts]) -> str:
    """Return host:port where all meet, on the first host; SHARDFIT_COORDINATOR, if given, overrides it."""
    if given := os.environ.get("SHARDFIT_COORDINATOR"):
        return given
    first, about = next(iter(facts.items()))
    name = first.rpartition("@")[2]
    try:
        socket.getaddrinfo(name.strip("[]"), None)
    except OSError:  # a name of ssh's configuration only
        name = about.address or about.name
    return f"{name}:{about.port}"


def _inspect(host: str, ssh: Sequence[str], script: str | None) -> Facts | str:
    """Return what a host says of itself, or what is wrong with it."""
    python = shlex.quote(sys.executable)
    tests = [f"test -x {python} || exit {NO_PYTHON}"]
    if script is not None:
        tests.append(f"test -f {shlex.quote(script)} || exit {NO_SCRIPT}")
    command = over_ssh(ssh, host, {}, [sys.executable, "-c", PROBE], *tests)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return f"`{shlex.join(ssh)} {host}` did not answer within {PROBE_SECONDS} s. Is it up, and its name right?"
    except OSError as error:
        return f"`{shlex.join(ssh)}` cannot be run ({error.strerror}). Name another one: --ssh."
    said = done.stderr.strip().splitlines()[-1:]
    reasons = {
        NO_FOLDER: f"there is no folder {os.getcwd()}. Processes work where `shardfit launch` is started: use a file "
        "system that all hosts see.",
        NO_PYTHON: f"there is no {sys.executable}. Install Python and shardfit in the same place on every host.",
        NO_SCRIPT: f"there is no script {script!r} in {os.getcwd()}.",
        NO_SHARDFIT: f"{sys.executable} has no shardfit there. Install the same version as here.",
        NO_CONNECTION: f"`{shlex.join(ssh)} {host}` does not connect ({''.join(said)}). It must work without a "
        "password; other options: --ssh.",
    }
    if done.returncode:
        return reasons.get(done.returncode, f"it could not be checked: exit code {done.returncode} ({''.join(said)}).")
    facts = Facts(**json.loads(done.stdout.strip().splitlines()[-1]))
    own = {package: metadata.version(package) for package in VERSIONS}
    others = [
        f"{name} {facts.versions[name]}, here {own[name]}" for name in VERSIONS if facts.versions[name] != own[name]
    ]
    return f"it has other versions: {'; '.join(others)}. Install the same everywhere." if others else facts


def _require_reachable(facts: Mapping[str, Facts]) -> None:
    """Raise where machines of several would offer each other an address that leads back to whoever asks."""
    if len({each.name for each in facts.values()}) == 1:
        return
    wrong = {}
    for host, each in facts.items():
        if not each.address or ipaddress.ip_address(each.address).is_loopback:
            wrong[host] = (
                f"its own name, {each.name}, stands for {each.address or 'nothing'} there, where the other hosts "
                "cannot find it. Give it its address in /etc/hosts."
            )
    if wrong:
        raise HostError(wrong)
    if coordinator_of(facts).rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]"):
        text = "the other hosts cannot find the first one by this name. Use its name in the network."
        raise HostError({next(iter(facts)): text})
