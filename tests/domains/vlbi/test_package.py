"""What the package exports, and that importing it stays light."""

import subprocess
import sys

import shardfit.domains.vlbi as vlbi

HEAVY = ("astropy", "optax", "optimistix", "jax_finufft", "matplotlib")


def test_names():
    assert sorted(vlbi.__all__, key=str) == sorted(set(vlbi.__all__), key=str)
    for name in vlbi.__all__:
        assert hasattr(vlbi, name), name
    for name in ("read_uvfits", "write_uvfits", "Observation", "Image", "image", "chi2", "self_calibrate", "simulate"):
        assert name in vlbi.__all__
        assert getattr(vlbi, name).__doc__


def test_import_is_light():
    code = f"import sys, shardfit.domains.vlbi; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
