"""Run directory of an image: FITS file, calibrated data, result, figures, report."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.report.blocks import PngBlock, Section, Table

SUBTITLE = (
    "Image of maximum entropy and small total variation that fits closure quantities and amplitudes or visibilities; "
    "restarted from the image blurred to the nominal resolution."
)
SD = "sd_under_regularisers.fits"
KINDS = ("fit", "prepared data", "self-calibrated")
Cells = dict[str, tuple[Any, dict[str, str]]]  # product → count, value by kind


def write_run(
    out: Path,
    imaging: Any,
    file: str,
    estimated: bool,
    errors: Any = None,
    polarised: Any = None,
    sections: Sequence[Section] = (),
) -> tuple[Path, Cells]:
    """Write everything, error map and polarisation too if there are any; sections: further ones of the report.

    Return the path of the report and the table of χ².
    """
    from shardfit.cli.vlbi.polarised import write_polarisation
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.domains.vlbi.uvfits import write_uvfits
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.run import report_run
    from shardfit.report.study import Study

    out.mkdir(parents=True, exist_ok=True)
    write_image(imaging.image, out / "image.fits", overwrite=True, beam=beam_of(imaging.data))
    if errors is not None:
        write_image(errors.sd, out / SD, overwrite=True)
    if imaging.calibrated is not None:
        write_uvfits(imaging.calibrated, out / "calibrated.uvfits", overwrite=True)
    table = chi2_cells(imaging)
    save_result(answer_of(imaging, polarised), out)
    write_environment(out)
    pictures = _figures(out, imaging)
    shown = [
        Section("Image", [*pictures[:1], _chi2_table(table)]),
        *sections,
        *([] if polarised is None else [write_polarisation(out, polarised)]),
        *([] if errors is None else [_errors_section(out, errors)]),
        Section("Data and image", pictures[1:]),
        Section("Fits", [_fits_table(imaging)]),
        Section("Options", [_options_table(imaging, file, estimated)]),
    ]
    return report_run(out, Study(f"{imaging.data.source or 'Image'} from {file}", SUBTITLE, shown)), table


def answer_of(imaging: Any, polarised: Any = None) -> Any:
    """Return the result that the run directory holds: of all fits, with all doubts."""
    from shardfit.domains.vlbi.recipes.quality import with_doubts

    derived = {f"χ² of {name}": value for name, value in imaging.chi2.items()}
    derived |= {"flux of the image (Jy)": imaging.image.flux, "compact flux of the data (Jy)": imaging.flux}
    doubts = (*imaging.doubts, *(() if polarised is None else polarised.doubts))
    return with_doubts(replace(imaging.result, derived=derived), doubts)


def beam_of(data: Any) -> Any:
    """Return the ellipse of the array's beam, None where its main lobe is none."""
    from shardfit.domains.vlbi.beams import fit_beam

    try:
        return fit_beam(data)
    except ValueError:
        return None


def chi2_cells(imaging: Any) -> Cells:
    """Return χ² per measurement by product: as fitted, and of the final image on data before and after calibration."""
    from shardfit.domains.vlbi.recipes import chi2, measurements

    options = imaging.options
    products = measurements(imaging.data, options).products
    settings = {"count": options.count, "cp_uv_min": options.cp_uv_min}
    plain = chi2(imaging.data, imaging.image, ("amp", *_closures(imaging.data, options)), **settings)
    after = {} if imaging.calibrated is None else chi2(imaging.calibrated, imaging.image, ("vis", "amp"), **settings)
    columns = dict(zip(KINDS, (imaging.chi2, plain, after), strict=True))
    table: Cells = {}
    for name in dict.fromkeys([*imaging.chi2, *plain, *after]):
        count = products[name].n if name in products else len(imaging.data) if name in ("amp", "vis") else "–"
        table[name] = count, {kind: f"{v[name]:.3f}" for kind, v in columns.items() if name in v}
    return table


def _closures(data: Any, options: Any) -> list[str]:
    """Return the closures that can be formed: two stations have none, three no amplitudes."""
    from shardfit.domains.vlbi.closures import quadrangles, triangles

    counts = {
        "cphase": len(triangles(data, count=options.count, uv_min=options.cp_uv_min)),
        "logcamp": len(quadrangles(data, count=options.count)),
    }
    return [name for name, n in counts.items() if n]


def _chi2_table(table: Cells) -> Table:
    kinds = [kind for kind in KINDS if any(kind in values for _, values in table.values())]
    rows = [(name, str(n), *(values.get(kind, "–") for kind in kinds)) for name, (n, values) in table.items()]
    caption = (
        "χ² per measurement, about 1 where the image explains the data within their errors. Fit: data and errors as in "
        "the last fit, station tolerances included. The other columns: the final image and errors without tolerances, "
        "data before and after self-calibration, which does not change closures."
    )
    return Table(["data product", "measurements", *kinds], rows, caption)


def _figures(out: Path, imaging: Any) -> list[PngBlock]:
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.report.study import save_figure

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
    return [save_figure(draw(), out, name, caption) for name, (caption, draw) in made.items()]


def _errors_section(out: Path, errors: Any) -> Section:
    from shardfit.domains.vlbi import plots
    from shardfit.report.study import save_figure

    caption = (
        "Standard deviation of every pixel, and the image in units of it, at the minimum that the last fit leads to. "
        "From the curvature of the objective: they hold if the regularisers describe the sky, and other minima are not "
        "seen. `shardfit vlbi posterior` draws images under a prior that knows less."
    )
    picture = save_figure(plots.errors(errors.image, errors.sd), out, "errors", caption)
    return Section("Error bars under the regularisers as prior", [picture])


def _fits_table(imaging: Any) -> Table:
    from shardfit.report.values import seconds

    names = list(dict.fromkeys(name for one in imaging.fits for name in one.chi2))
    rows = []
    for one in imaging.fits:
        values = [f"{one.chi2[name]:.3f}" if name in one.chi2 else "–" for name in names]
        end = one.message.partition(":")[0] + (", kept" if one is imaging.fits[imaging.kept] else "")
        rows.append((one.label, f"{one.value:.4f}", str(one.steps), end, seconds(one.seconds), *values))
    header = ["fit", "objective", "steps", "end", "time", *(f"χ² {name}" for name in names)]
    caption = "Objectives of different rounds have different weights and cannot be compared."
    return Table(header, rows, caption if imaging.fits[-1].round else "")


def _options_table(imaging: Any, file: str, estimated: bool) -> Table:
    rows = [("file", file), ("compact flux", f"{imaging.flux:.4f} Jy" + ", estimated from the data" * estimated)]
    names = [f.name for f in fields(imaging.options) if f.name not in ("flux", "rounds")]
    rows += [(name, _text(getattr(imaging.options, name))) for name in names]
    for k, one in enumerate(imaging.options.schedule(), start=1):
        rows += [(f"round {k}, {f.name}", _text(getattr(one, f.name))) for f in fields(one)]
    return Table(["option", "value"], rows)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {weight:.4g}" for name, weight in value.items())
    if isinstance(value, tuple):
        return "; ".join(map(_text, value)) or "–"
    return "–" if value is None else str(value)
