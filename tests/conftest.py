"""Eight virtual CPU devices for every test, and the one data set that cannot be in the repository."""

import os
from pathlib import Path

import pytest

# XLA reads its flags once, when the first array is made: this must come before any test imports jax
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip("no GPU in use: set JAX_PLATFORMS=cuda (or rocm) on a machine that has one")


def pytest_collection_modifyitems(config, items):
    """Keep a file's tests in one worker, for they share what they compile, and those that start processes in one."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            group = "processes" if item.get_closest_marker("processes") else str(item.path)
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def marmousi_data() -> Path:
    """Folder that holds Marmousi, whose terms of use are unclear; its tests are skipped without it."""
    folder = os.environ.get("SHARDFIT_DATA")
    if not folder or not (Path(folder) / "marmousi").is_dir():
        pytest.skip("no Marmousi: set SHARDFIT_DATA to a folder that holds marmousi/")
    return Path(folder)
