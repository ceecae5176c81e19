"""The program as its users call it, within the test's process or in one of its own."""

import os

from shardfit.cli import main


def run(capsys, *argv):
    """Run a command and return its exit code, what it printed, and what it printed to standard error."""
    code = main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out, err


def one_device():
    """Return the environment of a process that sees the devices of a user and compiles as quickly as tests."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag]
    return os.environ | {"XLA_FLAGS": " ".join(flags)}
