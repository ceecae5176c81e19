"""Run folder of an inversion: model, metrics, result, pictures, report."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardfit.cli.seismic.pictures import save_film, save_png, save_survey
from shardfit.cli.seismic.setup import Setup
from shardfit.cli.seismic.velocities import speed

if TYPE_CHECKING:
    from shardfit.cli.seismic.config import Config

SUBTITLE = "Velocity model whose simulated shots match the recorded ones: {} waveform inversion in {} dimensions."
STOPPED = 0.01  # share of cells at a bound that nobody has set which is odd
Rows = list[tuple[str, str]]


def write_run(out: Path, inversion: Any, setup: Setup, config: "Config") -> tuple[Path, Rows]:
    """Write everything; return the path of the report and the table of what was reached."""
    from shardfit.domains.seismic.medium import bare
    from shardfit.io.files import write_atomic
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.blocks import Section, Table
    from shardfit.report.run import report_run
    from shardfit.report.study import Study, kept_picture

    for name, values in inversion.medium.items():
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(values, np.float32), allow_pickle=False)
        file = "model.npy" if name in ("velocity", "vp") else f"{name}.npy"
        write_atomic(out / file, lambda file, buffer=buffer: file.write(buffer.getvalue()))
    write_atomic(out / "metrics.csv", lambda file: file.write(metrics_csv(inversion.metrics).encode()))
    table = reached(inversion, setup)
    save_result(summary(inversion, setup), out)
    write_environment(out)
    save_survey(out, setup, setup.observed)
    pictures = _figures(out, inversion, setup)
    if config.film and len(setup.sim.shape) == 2:
        save_film(out, setup, bare(inversion.medium), config.simulation.engine)
        told = "The wave of the middle shot in the inverted model."
        pictures["wavefield"] = kept_picture(out, "wavefield", told)
    models = [pictures[name] for name in ("models", *inversion.medium) if name in pictures]
    shown = [name for name in ("data", "wavefield") if name in pictures]  # wide: each in a section of its own
    sections = [
        Section("Model", [*models, Table(["what was reached", ""], table)]),
        Section("Fit", [pictures["convergence"], pictures["profiles"]]),
        *(Section(name.capitalize(), [pictures[name]]) for name in shown),
        Section("Survey", [pictures["observed_data"], pictures["ricker"]]),
        Section("Settings", [Table(["setting", "value"], _settings(inversion, setup, config))]),
    ]
    subtitle = SUBTITLE.format(config.simulation.waves, "two" if len(setup.sim.shape) == 2 else "three")
    return report_run(out, Study(f"Waveform inversion of {_origin(config)}", subtitle, sections)), table


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
    for of, unit, start, found, truth in _compared(inversion, setup):
        error = [model_error(model, truth) for model in (start, found)]
        size = model_error(np.zeros_like(truth), truth)
        digits = ".1f" if unit == "m/s" else ".3g"
        rows.append((f"model error (rms){of}", f"{error[0]:{digits}} → {error[1]:{digits}} {unit}".rstrip()))
        if size:
            rows.append((f"relative model error{of}", f"{100 * error[0] / size:.2f} → {100 * error[1] / size:.2f} %"))
        if np.ptp(truth):  # a field that is the same everywhere has no structure
            alike = [structural_similarity(model, truth) for model in (start, found)]
            rows.append((f"structural similarity (SSIM){of}", f"{alike[0]:.3f} → {alike[1]:.3f}"))
    rows += _stopped(inversion)
    rows.append(("time of the inversion", seconds(inversion.result.timings.get("total", 0.0))))
    return rows


def _stopped(inversion: Any) -> Rows:
    """Return how many cells of every field ended at a bound; nothing where none did."""
    rows, last = [], inversion.results[-1]
    for name, cells in last.params.items():
        stopped = sum(of == name or of.startswith(f"{name}[") for of in last.at_bound)
        if stopped:
            found = np.asarray(cells)
            ends = f"between {found.min():.4g} and {found.max():.4g}"
            rows.append((f"cells of {name} at a bound", f"{stopped:,} of {found.size:,}, {ends}: set bounds, or v_max"))
    return rows


def _compared(inversion: Any, setup: Setup) -> list[tuple[str, str, Any, Any, Any]]:
    """Return (name, unit, start, found, truth) of every field that was fitted; none where the truth is not known."""
    if setup.truth is None:
        return []
    if not isinstance(setup.truth, dict):
        return [("", "m/s", setup.start, inversion.velocity, setup.truth)]
    models, kinds = (setup.start, inversion.medium, setup.truth), setup.sim.parameters
    return [(f" of {n}", kinds[n].unit, *(model[n] for model in models)) for n in inversion.options.fitted]


def summary(inversion: Any, setup: Setup) -> Any:
    """Return one result for all bands, with the numbers that were reached and what speaks against them."""
    from shardfit.domains.seismic.metrics import model_error, structural_similarity

    derived = {}
    for of, unit, _, found, truth in _compared(inversion, setup):
        derived[f"model error, rms{f' ({unit})' if unit else ''}{of}"] = model_error(found, truth)
        if np.ptp(truth):
            derived[f"structural similarity{of}"] = structural_similarity(found, truth)
    result = inversion.result
    doubts = (*result.doubts, *_doubts(inversion))
    return replace(result, history={"value": inversion.metrics["loss"]}, derived=derived, doubts=doubts)


def _doubts(inversion: Any) -> Iterator[str]:
    """Yield what speaks against an inversion: a loss that did not fall, cells at a bound that nobody has set."""
    metrics = inversion.metrics
    losses = metrics["loss"][metrics["band"] == metrics["band"][-1]]
    if len(losses) > 1 and not losses[-1] < losses[0]:
        yield f"the loss did not fall: {losses[0]:.4g} at the first epoch, {losses[-1]:.4g} at the last."
    last = inversion.results[-1]
    share = len(last.at_bound) / max(1, sum(np.size(cells) for cells in last.params.values()))
    if inversion.options.bounds is None and share > STOPPED:
        yield f"{share:.0%} of the cells are at a bound that nobody has set: set bounds, or v_max."


def _figures(out: Path, inversion: Any, setup: Setup) -> dict[str, Any]:
    """Draw and return the pictures of the report by name."""
    import jax.numpy as jnp

    from shardfit.cli.seismic.invert import band_marks
    from shardfit.domains.seismic import plots, propagate, select
    from shardfit.domains.seismic.medium import bare
    from shardfit.report.study import kept_picture, save_figure

    sim, dh = setup.sim, setup.spacing
    sections = {"start": speed(setup.start), "inverted": inversion.velocity}
    if setup.truth is not None:
        sections = {"true": speed(setup.truth), **sections}
    sections = {name: setup.section(model) for name, model in sections.items()}
    shot = setup.n_shots // 2
    chosen, positions = setup.line(shot)
    wavelet = inversion.wavelet if inversion.wavelet.ndim == 1 else inversion.wavelet[shot : shot + 1]
    medium = {name: jnp.asarray(values, jnp.float32) for name, values in inversion.medium.items()}
    modelled = np.asarray(propagate(sim, bare(medium), wavelet, select(setup.shots, slice(shot, shot + 1))))[0]
    error = next((inversion.metrics[n] for n in ("model_error", "model_error_vp") if n in inversion.metrics), None)
    loss = plots.loss(inversion.metrics["loss"], bands=band_marks(inversion.options), error=error)
    made = {
        "models": ("The models, all with the colours of the first.", plots.panels(sections, dh)),
        **_others(inversion, setup, plots),
        "profiles": ("Velocity along three vertical lines.", plots.profiles(sections, dh)),
        "convergence": ("Loss of every epoch, on the shots drawn for it; dashed: rms error of the model.", loss),
        "data": (
            f"Shot {shot + 1}: recorded, simulated in the inverted model, and the difference.",
            plots.comparison(setup.observed[shot][chosen], modelled[chosen], sim.dt, positions),
        ),
    }
    drawn = {name: save_figure(figure, out, name, caption) for name, (caption, figure) in made.items()}
    save_png(out, "loss", drawn["convergence"].png)
    drawn["observed_data"] = kept_picture(out, "observed_data", "Recorded pressure of the last shot.")
    return drawn | {"ricker": kept_picture(out, "ricker", "The source signature and its spectrum.")}


CAPTIONS = {"vs": "Velocities of shear waves, likewise.", "q": "Quality factors, likewise."}


def _others(inversion: Any, setup: Setup, plots: Any) -> dict[str, tuple[str, Any]]:
    """Return pictures of the fields that were fitted besides vp."""
    from shardfit.cli.seismic.invert import label_of

    found = {}
    for name in inversion.options.fitted or ():
        if name != "vp":
            models = {"true": setup.truth, "start": setup.start, "inverted": inversion.medium}
            sections = {n: setup.section(model[name]) for n, model in models.items() if model is not None}
            drawn = plots.panels(sections, setup.spacing, label=label_of(setup, name))
            found[name] = (CAPTIONS.get(name, f"{name.capitalize()}, likewise."), drawn)
    return found


def _origin(config: "Config") -> str:
    if config.data.file is not None:
        return Path(config.data.file).name
    return f"the model {config.model.name!r}" if config.model.name else Path(config.model.file or "").name


def _settings(inversion: Any, setup: Setup, config: "Config") -> Rows:
    sim, steps = setup.sim, " × ".join(f"{h:g}" for h in setup.sim.dh)
    rows = [
        ("grid", f"{' × '.join(map(str, sim.shape))} cells of {steps} m, order {sim.order}"),
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


def _start(config: "Config") -> str:
    section = config.start
    details = {"smoothed": f"by {section.metres:g} m", "linear": f"{section.top:g} to {section.bottom:g} m/s"}
    return f"{section.kind} {details.get(section.kind, section.file)}"
