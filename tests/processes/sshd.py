"""An ssh server of this machine for a test, with keys of its own in a folder of its own; two names lead to it."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from shardfit.distributed.launchers import free_port

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
"""
CLIENT = """
Host alpha beta
HostName 127.0.0.1
Port {port}
IdentityFile {folder}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile {folder}/known
LogLevel ERROR
"""


def program():
    """Return the server's path, which it wants to be started by; None where it is not installed."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def server(folder: Path):
    """Give the ssh command that reaches alpha and beta, while the server runs; None if it does not start."""
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "server").write_text(SERVER.format(port=port, folder=folder))
    (folder / "client").write_text(CLIENT.format(port=port, folder=folder))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([program(), "-D", "-f", folder / "server"], stderr=subprocess.DEVNULL)
    command = ["ssh", "-F", str(folder / "client"), "-o", "BatchMode=yes"]
    try:
        for _ in range(20):
            if subprocess.run([*command, "alpha", "true"], capture_output=True, check=False).returncode == 0:
                yield command
                return
            time.sleep(0.25)
        yield None
    finally:
        process.terminate()
        process.wait()
