import jax
import pytest

from shardfit.domains.seismic import loops


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def one_step_at_a_time(monkeypatch):
    """Several at a time spare copies, and take longer to compile than cases as small as these to run."""
    monkeypatch.setattr(loops, "TURNS", 1)
