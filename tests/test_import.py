"""`import shardfit` is quick and leaves optional packages alone."""

import json
import subprocess
import sys

import pytest

CPU_SECONDS = 1.5  # user + system of the whole process, jax included
OPTIONAL = {"optax", "optimistix", "equinox", "matplotlib", "astropy", "numpyro", "h5py"}

PROBE = """
import json, resource, sys
import shardfit
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def probe() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    seconds, packages = json.loads(done.stdout)
    return seconds, set(packages)


def test_import_leaves_optional_packages_alone():
    _, packages = probe()
    assert not packages & OPTIONAL


def test_import_is_quick():
    pytest.importorskip("resource", reason="CPU time of a process is read through the resource module")
    probe()  # the first import may compile bytecode
    best = min(probe()[0] for _ in range(3))
    assert best < CPU_SECONDS, f"import shardfit took {best:.2f} s of CPU; python -X importtime tells why"
