"""Run folder of an inversion: model, metrics, result, pictures, report."""

import io
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.cli.seismic.config import Config
from shardfit.cli.seismic.pictures import save_film, save_survey
from shardfit.cli.seismic.setup import Setup

SUBTITLE = (
    "Velocity model whose simulated shots match the recorded ones: acoustic waveform inversion in two dimensions."
)
Rows = list[tuple[str, str]]


def write_run(out: Path, inversion: Any, setup: Setup, config: Config) -> tuple[Path, Rows]:
    """Write everything; return the path of the report and the table of what was reached."""
    from shardfit.io.files import write_atomic
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.run import report_run, save_extra

    buffer = io.BytesIO()
    np.save(buffer, np.asarray(inversion.velocity, np.float32), allow_pickle=False)
    write_atomic(out / "model.npy", lambda file: file.write(buffer.getvalue()))
    write_atomic(out / "metrics.csv", lambda file: file.write(metrics_csv(inversion.metrics).encode()))
    table = reached(inversion, setup)
    save_result(_summary(inversion, setup), out)
    write_environment(out)
    save_survey(out, setup, setup.observed)
    pictures = _figures(out, inversion, setup)
    if config.film:
        save_film(out, setup, inversion.velocity, config.simulation.engine)
        pictures["wavefield"] = _copied(out, "wavefield", "The wave of the middle shot in the inverted model.")
    shown = [name for name in ("data", "wavefield") if name in pictures]  # wide: each in a section of its own
    blocks = [
        {"title": "Model", "blocks": [pictures["models"], {"header": ["what was reached", ""], "rows": table}]},
        {"title": "Fit", "blocks": [pictures["convergence"], pictures["profiles"]]},
        *({"title": name.capitalize(), "blocks": [pictures[name]]} for name in shown),
        {"title": "Survey", "blocks": [pictures["observed_data"], pictures["ricker"]]},
        {
            "title": "Settings",
            "blocks": [{"header": ["setting", "value"], "rows": _settings(inversion, setup, config)}],
        },
    ]
    save_extra(out, f"Waveform inversion of {_origin(config)}", SUBTITLE, blocks)
    return report_run(out), table


def metrics_csv(metrics: Mapping[str, np.ndarray]) -> str:
    """Return columns as text, one line per epoch."""
    rows = zip(*(np.asarray(column).tolist() for column in metrics.values()), strict=True)
    lines = [",".join(f"{value:.9g}" if isinstance(value, float) else str(value) for value in row) for row in rows]
    return "\n".join([",".join(metrics), *lines, ""])


def reached(inversion: Any, setup: Setup) -> Rows:
    """Return loss, and error and similarity of the model where the truth is known, before and after."""
    from shardfit.domains.seismic.metrics import model_error, structural_similarity
    from shardfit.report.values import seconds

    metrics, corners = inversion.metrics, inversion.options.corners
    rows = []
    for band in np.unique(metrics["band"]):  # losses of two bands are of different data
        losses = metrics["loss"][metrics["band"] == band]
        corner = "all" if corners[band] is None else f"{corners[band]:g} Hz"
        name = f", band {corner}" if len(corners) > 1 else ""
        rows.append((f"loss{name}, first and last epoch", f"{losses[0]:.4g} → {losses[-1]:.4g}"))
    if setup.truth is not None:
        error = [model_error(model, setup.truth) for model in (setup.start, inversion.velocity)]
        size = model_error(np.zeros_like(setup.truth), setup.truth)
        rows.append(("model error (rms)", f"{error[0]:.1f} → {error[1]:.1f} m/s"))
        rows.append(("relative model error", f"{100 * error[0] / size:.2f} → {100 * error[1] / size:.2f} %"))
        alike = [structural_similarity(model, setup.truth) for model in (setup.start, inversion.velocity)]
        rows.append(("structural similarity (SSIM)", f"{alike[0]:.3f} → {alike[1]:.3f}"))
    rows.append(
        ("time of the inversion", seconds(sum(result.timings.get("total", 0.0) for result in inversion.results)))
    )
    return rows


def _summary(inversion: Any, setup: Setup) -> Any:
    """Return one result for all bands, with the numbers that were reached."""
    from shardfit import Status
    from shardfit.domains.seismic.metrics import model_error, structural_similarity

    last = inversion.results[-1]
    names = dict.fromkeys(name for result in inversion.results for name in result.timings)
    timings = {name: sum(result.timings.get(name, 0.0) for result in inversion.results) for name in names}
    derived = {}
    if setup.truth is not None:
        derived["model error, rms (m/s)"] = model_error(inversion.velocity, setup.truth)
        derived["structural similarity"] = structural_similarity(inversion.velocity, setup.truth)
    # the number of steps is the plan of an inversion, not a limit that it failed to stay below
    status = Status.COMPLETED if last.status is Status.MAX_STEPS else last.status
    steps, evaluations = (sum(getattr(r, n) for r in inversion.results) for n in ("steps", "evaluations"))
    changes = {"status": status, "steps": steps, "evaluations": evaluations, "timings": timings, "derived": derived}
    return replace(last, history={"value": inversion.metrics["loss"]}, **changes)


def _figures(out: Path, inversion: Any, setup: Setup) -> dict[str, dict[str, str]]:
    import jax.numpy as jnp

    from shardfit.cli.seismic.invert import band_marks
    from shardfit.cli.seismic.pictures import save
    from shardfit.domains.seismic import plots, propagate, select
    from shardfit.report.run import save_figure

    sim, dh = setup.sim, setup.sim.dh
    sections = {"start": setup.start, "inverted": inversion.velocity}
    if setup.truth is not None:
        sections = {"true": setup.truth, **sections}
    shot = setup.n_shots // 2
    wavelet = inversion.wavelet if inversion.wavelet.ndim == 1 else inversion.wavelet[shot : shot + 1]
    velocity = jnp.asarray(inversion.velocity, jnp.float32)
    modelled = np.asarray(propagate(sim, velocity, wavelet, select(setup.shots, slice(shot, shot + 1))))[0]
    loss = plots.loss(
        inversion.metrics["loss"], bands=band_marks(inversion.options), error=inversion.metrics.get("model_error")
    )
    save(out, "loss", loss)
    made = {
        "models": ("The models, all with the colours of the first.", plots.panels(sections, dh)),
        "profiles": ("Velocity along three vertical lines.", plots.profiles(sections, dh)),
        "convergence": ("Loss of every epoch, on the shots drawn for it; dashed: rms error of the model.", loss),
        "data": (
            f"Shot {shot + 1}: recorded, simulated in the inverted model, and the difference.",
            plots.comparison(setup.observed[shot], modelled, sim.dt, setup.receiver_x(shot)),
        ),
    }
    for key, (_, figure) in made.items():
        save_figure(figure, out, key)
    blocks = {key: {"picture": key, "caption": caption} for key, (caption, _) in made.items()}
    blocks["observed_data"] = _copied(out, "observed_data", "Recorded pressure of the last shot.")
    return blocks | {"ricker": _copied(out, "ricker", "The source signature and its spectrum.")}


def _copied(out: Path, name: str, caption: str) -> dict[str, str]:
    """Show a picture of the folder in the report, which reads figures/."""
    from shardfit.io.files import write_atomic

    png = (out / f"{name}.png").read_bytes()
    write_atomic(out / "figures" / f"{name}.png", lambda file: file.write(png))
    return {"picture": name, "caption": caption}


def _origin(config: Config) -> str:
    if config.data.file is not None:
        return Path(config.data.file).name
    return f"the model {config.model.name!r}" if config.model.name else Path(config.model.file or "").name


def _settings(inversion: Any, setup: Setup, config: Config) -> Rows:
    sim = setup.sim
    rows = [
        ("grid", f"{sim.shape[0]} × {sim.shape[1]} cells of {sim.dh[0]:g} × {sim.dh[1]:g} m, order {sim.order}"),
        ("time axis", f"{sim.nt} samples of {1e3 * sim.dt:g} ms"),
        ("edges", f"absorbing cells {sim.widths}, free surface: {'yes' if sim.free_surface else 'no'}"),
        ("survey", f"{setup.n_shots} shots, {setup.receivers.shape[1]} receivers each, wavelet {sim.f_peak:g} Hz"),
        ("start", _start(config)),
        ("noise", f"{config.data.noise:g} of the rms" if config.data.file is None else "as recorded"),
        ("engine", inversion.engine),
        ("seed", str(config.seed)),
    ]
    shown = [f for f in fields(inversion.options) if getattr(inversion.options, f.name) != f.default or f.name in SHOWN]
    return rows + [(f.name, str(getattr(inversion.options, f.name))) for f in shown if f.name != "engine"]


SHOWN = ("loss", "solver", "learning_rate", "epochs", "batchsize")


def _start(config: Config) -> str:
    section = config.start
    details = {"smoothed": f"by {section.metres:g} m", "linear": f"{section.top:g} to {section.bottom:g} m/s"}
    return f"{section.kind} {details.get(section.kind, section.file)}"
