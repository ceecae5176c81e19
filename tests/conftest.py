"""Eight virtual CPU devices for every test, and the shared data where it exists."""

import os
from pathlib import Path

import pytest

# XLA reads its flags once, when the first array is made: this must come before any test imports jax
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

ROOT = Path(__file__).resolve().parent.parent


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
def shared_data() -> Path:
    """Folder with the real data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SHARDFIT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}: set SHARDFIT_DATA to the folder that holds it")
    return folder
