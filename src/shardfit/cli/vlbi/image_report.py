"""Run directory of an image: FITS file, calibrated data, result, figures, report."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

SUBTITLE = (
    "Image of maximum entropy and small total variation that fits closure quantities and amplitudes or visibilities; "
    "restarted from the image blurred to the nominal resolution."
)
SD = "sd_under_regularisers.fits"
Cells = dict[str, tuple[Any, ...]]


def write_run(
    out: Path,
    imaging: Any,
    file: str,
    estimated: bool,
    errors: Any = None,
    polarised: Any = None,
    sections: Sequence[dict[str, Any]] = (),
) -> tuple[Path, Cells]:
    """Write everything, error map and polarisation too if there are any; sections: further ones of the report.

    Return the path of the report and the table of χ²: product → count, (kind, value)s.
    """
    from shardfit.cli.vlbi.polarised import write_polarisation
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.domains.vlbi.uvfits import write_uvfits
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.run import report_run, save_extra

    out.mkdir(parents=True, exist_ok=True)
    write_image(imaging.image, out / "image.fits", overwrite=True, beam=beam_of(imaging.data))
    if errors is not None:
        write_image(errors.sd, out / SD, overwrite=True)
    if imaging.calibrated is not None:
        write_uvfits(imaging.calibrated, out / "calibrated.uvfits", overwrite=True)
    table = chi2_table(imaging)
    save_result(answer_of(imaging, polarised), out)
    write_environment(out)
    pictures = _figures(out, imaging)
    blocks = [
        {"title": "Image", "blocks": [*pictures[:1], _chi2_block(table)]},
        *sections,
        *([] if polarised is None else [write_polarisation(out, polarised)]),
        *([] if errors is None else [_errors_section(out, errors)]),
        {"title": "Data and image", "blocks": pictures[1:]},
        {"title": "Fits", "blocks": [_fits_block(imaging)]},
        {"title": "Options", "blocks": [_options_block(imaging, file, estimated)]},
    ]
    save_extra(out, f"{imaging.data.source or 'Image'} from {file}", SUBTITLE, blocks)
    return report_run(out), table


def answer_of(imaging: Any, polarised: Any = None) -> Any:
    """Return the result that the run directory holds: of all fits, with all doubts."""
    from shardfit.domains.vlbi.recipes.quality import with_doubts

    derived = {f"χ² of {name}": value for name, value in imaging.chi2.items()}
    derived |= {"flux of the image (Jy)": imaging.image.flux, "compact flux of the data (Jy)": imaging.flux}
    doubts = (*imaging.doubts, *(() if polarised is None else polarised.doubts))
    return with_doubts(replace(whole_run(imaging), derived=derived), doubts)


def beam_of(data: Any) -> Any:
    """Return the ellipse of the array's beam, None where its main lobe is none."""
    from shardfit.domains.vlbi.beams import fit_beam

    try:
        return fit_beam(data)
    except ValueError:
        return None


def whole_run(imaging: Any) -> Any:
    """Return the result with steps, evaluations and times of all fits together."""
    total, compiling = (sum(getattr(one, name) for one in imaging.fits) for name in ("seconds", "compiling"))
    steps, evaluations = (sum(getattr(one, name) for one in imaging.fits) for name in ("steps", "evaluations"))
    times = {"compile": compiling, "fits": total - compiling, "total": total}
    note = f"Steps, evaluations and times are of all {len(imaging.fits)} fits." if len(imaging.fits) > 1 else ""
    note = " ".join(filter(None, (imaging.result.note, note)))
    return replace(imaging.result, steps=steps, evaluations=evaluations, timings=times, note=note)


def chi2_table(imaging: Any) -> Cells:
    """Return χ² per measurement by product: as fitted, and of the final image on data before and after calibration."""
    from shardfit.domains.vlbi.recipes import chi2, measurements

    options = imaging.options
    products = measurements(imaging.data, options).products
    settings = {"count": options.count, "cp_uv_min": options.cp_uv_min}
    plain = chi2(imaging.data, imaging.image, ("amp", *_closures(imaging.data, options)), **settings)
    after = {} if imaging.calibrated is None else chi2(imaging.calibrated, imaging.image, ("vis", "amp"), **settings)
    table: Cells = {}
    for name in dict.fromkeys([*imaging.chi2, *plain, *after]):
        columns = {"fit": imaging.chi2, "prepared data": plain, "self-calibrated": after}
        count = products[name].n if name in products else len(imaging.data) if name in ("amp", "vis") else "–"
        table[name] = (count, *((kind, f"{v[name]:.3f}") for kind, v in columns.items() if name in v))
    return table


def _closures(data: Any, options: Any) -> list[str]:
    """Return the closures that can be formed: two stations have none, three no amplitudes."""
    from shardfit.domains.vlbi.closures import quadrangles, triangles

    counts = {
        "cphase": len(triangles(data, count=options.count, uv_min=options.cp_uv_min)),
        "logcamp": len(quadrangles(data, count=options.count)),
    }
    return [name for name, n in counts.items() if n]


def _chi2_block(table: Cells) -> dict[str, Any]:
    kinds = [
        kind for kind in ("fit", "prepared data", "self-calibrated") if any(kind in dict(c[1:]) for c in table.values())
    ]
    rows = [(name, str(c[0]), *(dict(c[1:]).get(kind, "–") for kind in kinds)) for name, c in table.items()]
    caption = (
        "χ² per measurement, about 1 where the image explains the data within their errors. Fit: data and errors as in "
        "the last fit, station tolerances included. The other columns: the final image and errors without tolerances, "
        "data before and after self-calibration, which does not change closures."
    )
    return {"header": ["data product", "measurements", *kinds], "rows": rows, "caption": caption}


def _figures(out: Path, imaging: Any) -> list[dict[str, str]]:
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.report.run import save_figure

    options, image = imaging.options, imaging.image
    data = imaging.data if imaging.calibrated is None else imaging.calibrated
    what = "prepared" if imaging.calibrated is None else "self-calibrated"
    nominal, beam = data.nominal_resolution / UAS, beam_of(data)
    ellipse = (
        f"The circle is the nominal resolution, {nominal:.1f} µas."
        if beam is None
        else f"The ellipse is the main lobe of the array's beam (natural weights), {beam.major / UAS:.1f} × "
        f"{beam.minor / UAS:.1f} µas at {np.rad2deg(beam.pa_rad):.0f}°; the nominal resolution is {nominal:.1f} µas."
    )
    made = {
        "image": (
            f"The image. {ellipse}",
            lambda: plots.sky(image, beam_rad=beam or data.nominal_resolution),
        ),
        "amplitudes": (
            f"Amplitudes of the {what} data and of the image; residuals are in units of the errors without the "
            "stations' amplitude tolerance, which the fit may allow for.",
            lambda: plots.amplitudes(data, image),
        ),
        "closure_phases": (
            "Closure phases of the data and of the image.",
            lambda: plots.closure_phases(data, image, uv_min=options.cp_uv_min, count=options.count),
        ),
        "uv_coverage": ("Baselines of the prepared data, both orientations.", lambda: plots.uv_coverage(data)),
        "convergence": (
            "Objective of every fit above its lowest; each starts from a blurred image, so it begins high.",
            lambda: plots.convergence({f.label: f.history for f in imaging.fits}),
        ),
    }
    if "cphase" not in _closures(data, options):
        del made["closure_phases"]
    if imaging.gains is not None:
        caption = "Station gains of the last self-calibration; the data were divided by them."
        made["gains"] = (caption, lambda: plots.gains(imaging.gains))
    for name, (_, draw) in made.items():
        save_figure(draw(), out, name)
    return [{"picture": name, "caption": caption} for name, (caption, _) in made.items()]


def _errors_section(out: Path, errors: Any) -> dict[str, Any]:
    from shardfit.domains.vlbi import plots
    from shardfit.report.run import save_figure

    save_figure(plots.errors(errors.image, errors.sd), out, "errors")
    caption = (
        "Standard deviation of every pixel, and the image in units of it, at the minimum that the last fit leads to. "
        "From the curvature of the objective: they hold if the regularisers describe the sky, and other minima are not "
        "seen. `shardfit vlbi posterior` draws images under a prior that knows less."
    )
    figure = {"picture": "errors", "caption": caption}
    return {"title": "Error bars under the regularisers as prior", "blocks": [figure]}


def _fits_block(imaging: Any) -> dict[str, Any]:
    from shardfit.report.values import seconds

    names = list(dict.fromkeys(name for one in imaging.fits for name in one.chi2))
    rows = []
    for one in imaging.fits:
        values = [f"{one.chi2[name]:.3f}" if name in one.chi2 else "–" for name in names]
        end = one.message.partition(":")[0] + (", kept" if one is imaging.fits[imaging.kept] else "")
        rows.append((one.label, f"{one.value:.4f}", str(one.steps), end, seconds(one.seconds), *values))
    header = ["fit", "objective", "steps", "end", "time", *(f"χ² {name}" for name in names)]
    caption = "Objectives of different rounds have different weights and cannot be compared."
    return {"header": header, "rows": rows, "caption": caption if imaging.fits[-1].round else ""}


def _options_block(imaging: Any, file: str, estimated: bool) -> dict[str, Any]:
    rows = [("file", file), ("compact flux", f"{imaging.flux:.4f} Jy" + ", estimated from the data" * estimated)]
    names = [f.name for f in fields(imaging.options) if f.name not in ("flux", "rounds")]
    rows += [(name, _text(getattr(imaging.options, name))) for name in names]
    for k, one in enumerate(imaging.options.schedule(), start=1):
        rows += [(f"round {k}, {f.name}", _text(getattr(one, f.name))) for f in fields(one)]
    return {"header": ["option", "value"], "rows": rows}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {weight:.4g}" for name, weight in value.items())
    if isinstance(value, tuple):
        return "; ".join(map(_text, value)) or "–"
    return "–" if value is None else str(value)
