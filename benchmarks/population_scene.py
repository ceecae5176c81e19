"""What both sides of the population suite's KDE cases compare: sample, places, and which of them one call draws.

NumPy and JAX only: the peer's environment lacks our packages.
"""

import numpy as np

KERNELS = POSITIONS = 20
BANK = 300 * KERNELS
SHIFT = (0.1, -0.1)
SEED = 1


def sample(n: int) -> np.ndarray:
    """Return the model's points (n, 2)."""
    return np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)


def training() -> np.ndarray:
    """Return the training sample (10000, 2): the first points of every model sample that has as many."""
    return sample(10_000)


def places() -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel centres and the Fourier positions that draws choose from, (6000, 2) each."""
    rng = np.random.default_rng(7)
    return rng.normal(size=(BANK, 2)).astype(np.float32), rng.uniform(size=(BANK, 2)).astype(np.float32)


def draw_key():
    """Return the key from which both sides draw equal places: ours folds and splits the caller's key first."""
    import jax

    return jax.random.split(jax.random.fold_in(jax.random.key(SEED), 0))[0]
