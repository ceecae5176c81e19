"""A Slurm of one node, made of the distribution's packages, in a folder of its own; needs root and no configuration."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from shardfit.distributed.launchers import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why there can be no Slurm here, or ''."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurmctld slurmd slurm-client munge brings them"
    return "" if os.geteuid() == 0 else "a Slurm of one's own needs root"


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


@contextlib.contextmanager
def one_node(folder: Path):
    """Run munged, slurmctld and slurmd for a while; give the environment that srun needs."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    ports = {"ctld_port": free_port(), "slurmd_port": free_port()}
    text = CONFIGURATION.format(folder=folder, host=socket.gethostname(), cpus=os.cpu_count(), **ports)
    (folder / "slurm.conf").write_text(text)
    environ = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}"]
    munge += [f"--{what}-file={folder}/munge.{what}" for what in ("pid", "log", "seed")]
    running = []
    try:
        for command in (munge, ["slurmctld", "-D", "-c"], ["slurmd", "-D"]):
            with open(folder / f"{command[0]}.out", "wb") as log:
                running.append(subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(1.0)
        _wait_until_idle(environ, folder)
        yield environ
    finally:
        # slurmd first, while the others still answer it
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # it waits for steps that are still ending
                process.kill()
                process.wait()


def _wait_until_idle(environ: dict, folder: Path, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    said = ""
    while time.monotonic() < until:
        asked = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environ, capture_output=True, text=True, check=False)
        said = asked.stdout + asked.stderr
        if asked.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "\n".join(file.read_text(errors="replace")[-1500:] for file in sorted(folder.glob("*.out")))
    raise RuntimeError(f"Slurm's node did not become idle ({said}):\n{logs}")
