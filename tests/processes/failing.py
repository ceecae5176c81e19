"""Evaluates for ever; after a few evaluations one rank does what it is told: raise, exit, kill, hang or nothing."""

import os
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np

import shardfit as sf

how, rank, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
print(f"here is rank {jax.process_index()}", flush=True)
if how == "early" and jax.process_index() == rank:
    time.sleep(3600)
rows = {"x": np.arange(8.0)}
objective = sf.Objective({"sum": sf.statistic_term(lambda p, r: p * r["x"], rows)}).place(sf.mesh())
if how == "placed" and jax.process_index() == rank:
    time.sleep(3600)
for i in range(10**9):
    float(objective.value(np.float64(i)))
    if i == 3:
        (folder / f"{jax.process_index()}.pid").write_text(str(os.getpid()))
    if i == 5 and jax.process_index() == rank:
        (folder / "began").write_text(repr(time.time()))
        if how == "raise":
            raise ArithmeticError("the model broke")
        if how == "code":
            sys.exit(7)
        if how == "exit":
            sys.exit("no such file")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            time.sleep(3600)
