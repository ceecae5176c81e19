"""A short waveform inversion on all devices there are; every rank writes what it found. Usage: waves.py FOLDER."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import shardfit as sf
from shardfit.domains.seismic import Conditioning, Recording, Simulation, acquisition, propagate, ricker
from shardfit.domains.seismic.recipes import InversionOptions, invert

OPTIONS = InversionOptions(
    learning_rate=10.0,
    epochs=4,
    batchsize=5,
    bands=(15.0, None),
    conditioning=Conditioning(illumination=0.5, smoothing=1.0),
    precision="float64",
)


def solve(mesh, run_dir=None):
    """Invert a survey of 7 shots, in batches of 5."""
    sim = Simulation((24, 30), 10.0, 1e-3, 120, 2800.0, 25.0, 2, widths=6)
    start, truth = np.full(sim.shape, 2000.0), np.full(sim.shape, 2000.0)
    truth[8:16, 10:20] = 2200
    wavelet = ricker(25.0, sim.dt, sim.nt)
    shots = acquisition(sim, [(2, x) for x in range(2, 30, 4)], [(20, x) for x in range(0, 30, 3)])
    with jax.enable_x64(True):
        data = np.asarray(propagate(sim, jax.numpy.asarray(truth), wavelet, shots))
    run = sf.RunOptions(mesh=mesh, run_dir=run_dir, progress=False)
    return invert(sim, start, Recording(shots, wavelet, data), OPTIONS, run)


def main(folder):
    """Write losses and a digest of the model."""
    found = solve(sf.mesh(), Path(folder) / "run")
    answer = {
        "processes": found.results[-1].layout["processes"],
        "loss": found.metrics["loss"].tolist(),
        "velocity": found.velocity.tolist(),
    }
    (Path(folder) / f"{jax.process_index()}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    sf.join()
    main(sys.argv[1])
