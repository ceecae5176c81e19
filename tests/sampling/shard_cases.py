"""Problems of known posterior for tests of shards; importable by workers."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.priors import Gamma, Normal
from shardfit.core.problem import Problem
from shardfit.core.term_makers import residual_term, statistic_term

N, P, K = 121, 3, 4  # rows do not divide: some shards are padded
DRAW = np.random.default_rng(5)
A = DRAW.normal(size=(N, P)) @ np.array([[1, 0.9, 0], [0, 0.4, 0], [0, 0, 5.0]])
Y = A @ [1.0, -2.0, 0.3] + DRAW.normal(size=N)
SD = 2.0  # of the prior
QUICK = {"chains": 2, "warmup": 60, "draws": 250}
RATE, EVENTS = 3.0, DRAW.exponential(1 / 3.0, 160)
SHAPE0, RATE0 = 2.0, 1.0


def residual(p, rows):
    return rows["A"] @ p["w"] - rows["y"]


def line() -> Problem:
    """Return a linear regression with a normal prior: every posterior is a Gaussian."""
    rows = {"A": A, "y": Y, "third": np.arange(N) % 3}
    return Problem(
        Objective({"data": residual_term(residual, rows)}),
        {"w": np.zeros(P)},
        priors={"w": Normal(0.0, SD)},
        units={"w": "m"},
        name="line",
    )


def line_posterior() -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance."""
    covariance = np.linalg.inv(A.T @ A + np.eye(P) / SD**2)
    return covariance @ A.T @ Y, covariance


def waiting(p, rows):
    return p["rate"] * rows["t"] - jnp.log(p["rate"])


def decay() -> Problem:
    """Return exponential times with a gamma prior on their rate, sampled as its logarithm: a gamma posterior."""
    return Problem(
        Objective({"times": statistic_term(waiting, {"t": EVENTS})}),
        {"rate": 2.0},
        priors={"rate": Gamma(SHAPE0, RATE0)},
        name="decay",
    )


def decay_posterior() -> tuple[float, float]:
    """Return mean and standard deviation."""
    shape, rate = SHAPE0 + len(EVENTS), RATE0 + EVENTS.sum()
    return shape / rate, np.sqrt(shape) / rate


def line_or_wait(mark: str | None) -> Problem:
    """Return the problem; a worker that finds no mark leaves one and waits for ever; None: every worker waits."""
    if _is_first(mark):
        time.sleep(3600)
    return line()


def line_or_die(mark: str) -> Problem:
    """Return the problem; a worker that finds no mark leaves one and is killed."""
    if _is_first(mark):
        os.kill(os.getpid(), signal.SIGKILL)
    return line()


def _is_first(mark: str | None) -> bool:
    if multiprocessing.parent_process() is None:
        return False
    try:
        if mark is not None:
            Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
