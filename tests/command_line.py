"""The program as its users call it, within the test's process."""

from shardfit.cli import main


def run(capsys, *argv):
    """Run a command and return its exit code, what it printed, and what it printed to standard error."""
    code = main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out, err
