"""Figures and report of the demo."""

from pathlib import Path

import numpy as np

from shardfit.cli.demo_study import SIGMAS, Study, distance, pulls_of
from shardfit.demo.ringdown import MODES, N_DETECTORS, exact_strain
from shardfit.report import figures
from shardfit.report.run import report_run, save_extra, save_figure
from shardfit.report.values import coordinates, pair

SUBTITLE = (
    "After a merger the remnant black hole rings in modes whose frequency and decay follow from its mass and spin "
    "alone. Two modes are fitted to generated data of an imagined array of detectors; both must name one black hole."
)


def write_pages(out: Path, study: Study) -> Path:
    """Write figures, report.json and report.html; return the path of the report."""
    captions = _figures(out, study)
    pictures = [{"picture": name, "caption": caption} for name, caption in captions.items()]
    sections = [
        {"title": "Data, model and residuals", "blocks": pictures[:2]},
        {"title": "Checks", "blocks": [_checks(study)]},
        {"title": "Truth and error bars", "blocks": [_truth(study), *pictures[2:4]]},
        {"title": "One black hole?", "blocks": _remnant(study)},
        {"title": "Devices and solvers", "blocks": [_agreement(study), pictures[4]]},
    ]
    n = f"{len(study.data.detector):,}"
    save_extra(out, "Ringdown of a black hole", f"{SUBTITLE} {n} rows, {N_DETECTORS} detectors.", sections)
    return report_run(out)


def _figures(out, study):
    data, result = study.data, study.fit
    model = exact_strain(result.params, data.rows)
    residuals = (data.rows["strain"] - model) / data.rows["sigma"]
    strongest = int(np.argmax(np.hypot(data.rows["plus"], data.rows["cross"])[:N_DETECTORS]))
    own = data.detector == strongest
    rows = {name: column[own] for name, column in data.rows.items()}
    shown = figures.data_and_model(
        1e3 * rows["time"],
        rows["strain"],
        model[own],
        rows["sigma"],
        bins=min(150, int(own.sum())),
        xlabel="time since the merger  (ms)",
        ylabel="strain  (10⁻²¹)",
    )
    names = [c.name for c in coordinates(result)]
    made = {
        "data": (f"Detector {strongest}: samples averaged in bins, and the fitted sum of both modes.", shown),
        "residuals": (
            "Residuals of all rows against the unit normal; below, each bin's distance in units of its counting noise.",
            figures.residual_histogram(residuals),
        ),
        "pulls": ("Distance of the fit from the truth in units of its own 1σ.", figures.pulls(result, data.truth)),
        "coverage": (
            f"{study.repeats} fits of fresh noise on fewer rows: how often the truth lies within the error bar.",
            figures.coverage(names, study.inside, study.repeats),
        ),
        "convergence": (
            "Value above its lowest, and the largest entry of the gradient, against evaluations.",
            figures.convergence({"Levenberg–Marquardt": result, "L-BFGS-B": study.other}),
        ),
    }
    for name, (_, figure) in made.items():
        save_figure(figure, out, name)
    return {name: caption for name, (caption, _) in made.items()}


def _checks(study):
    rows = [(c.name, c.found, "✓" if c.holds else "✗") for c in study.checks]
    return {"header": ["question", "found", ""], "rows": rows}


def _truth(study):
    rows = []
    pulls = pulls_of(study.fit, study.data.truth)
    truth = coordinates(study.fit, study.data.truth)
    for i, (c, known) in enumerate(zip(coordinates(study.fit), truth, strict=True)):
        value, error = pair(c.value, c.error)
        true, _ = pair(known.value, c.error)
        shares = [f"{100 * study.inside[k][i]:.0f} %" for k in SIGMAS]
        rows.append((c.name, true, f"{value} ± {error}", c.unit, f"{pulls[i]:+.2f} σ", *shares))
    header = ["parameter", "truth", "fit", "unit", "fit − truth", *(f"within {k:g}σ" for k in SIGMAS)]
    return {"header": header, "rows": rows}


def _remnant(study):
    rows = []
    for quantity, true, first, second in study.remnant:
        apart = f"{distance(first, second):.1f} σ"
        rows.append((quantity, f"{true:g}", *(" ± ".join(pair(*found)) for found in (first, second)), apart))
    text = "Mass and spin computed from the frequency and decay time of each mode alone, errors carried to first order."
    header = ["quantity", "truth", *(f"from {name}" for name in MODES), "distance"]
    return [{"text": text}, {"header": header, "rows": rows}]


def _agreement(study):
    rows = []
    devices, solvers = pulls_of(study.fit, study.single.params), pulls_of(study.fit, study.other.params)
    for i, c in enumerate(coordinates(study.fit)):
        value, _ = pair(c.value, c.error)
        rows.append((c.name, value, f"{abs(devices[i]):.1e} σ", f"{abs(solvers[i]):.1e} σ"))
    shards = study.fit.layout["rows"]
    header = ["parameter", f"LM on {shards} device" + "s" * (shards > 1), "distance of LM on 1", "distance of L-BFGS-B"]
    return {"header": header, "rows": rows}
