"""Pictures that a seismic command leaves in its folder."""

from pathlib import Path
from typing import Any

import numpy as np

from shardfit.cli.seismic.setup import Setup
from shardfit.cli.seismic.velocities import speed

FRAMES = (0.12, 0.24, 0.36, 0.48, 0.6, 0.72)  # of the film, shown as a still


def save(out: Path, name: str, figure: Any) -> None:
    """Draw a picture into the folder."""
    from shardfit.report.style import png_bytes

    save_png(out, name, png_bytes(figure))


def save_png(out: Path, name: str, png: bytes) -> None:
    """Write a picture into the folder."""
    from shardfit.io.files import write_atomic

    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / f"{name}.png", lambda file: file.write(png))


def save_survey(out: Path, setup: Setup, observed: np.ndarray) -> None:
    """Write ricker.png, and observed_data.png of the last shot, unless they are there."""
    if (out / "observed_data.png").exists() and (out / "ricker.png").exists():
        return
    from shardfit.domains.seismic import plots

    save(out, "ricker", plots.wavelet(setup.wavelet, setup.sim.dt))
    title = f"shot {setup.n_shots} of {setup.n_shots}, source at {setup.sources[-1, -1] * setup.sim.dh[-1]:.0f} m"
    chosen, positions = setup.line(setup.n_shots - 1)
    save(out, "observed_data", plots.gather(observed[-1][chosen], setup.sim.dt, positions, title=title))


def save_film(out: Path, setup: Setup, velocity: Any, engine: str) -> None:
    """Write wavefield.gif of the middle shot, and stills of it as wavefield.png."""
    from shardfit.domains.seismic import plots
    from shardfit.domains.seismic.snapshots import wavefield

    source = setup.sources[setup.n_shots // 2]
    fields, times = wavefield(setup.sim, velocity, setup.wavelet, source, engine=engine)
    plots.animate(out / "wavefield.gif", fields, times, speed(velocity), setup.sim.dh)
    still = [round(part * (len(times) - 1)) for part in FRAMES]
    save(out, "wavefield", plots.snapshots(fields[still], times[still], speed(velocity), setup.sim.dh))
