import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def devices():
    """Start JAX with the devices that all tests have: a command without --devices would ask for one."""
    return jax.devices()
