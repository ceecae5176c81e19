"""`shardfit vlbi image FILE FILE … --spectral-index`: one image of several frequencies and its spectral index."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli.vlbi.files import read_observation

SUBTITLE = "Image at the reference frequency and map of its spectral index, fitted to all files together."


def fit_spectrum(files: Sequence[str], fluxes: str | None, how: Any, options: Mapping[str, Any]) -> Any:
    """Fit all files together; fluxes: Jy of each with commas between, None to estimate them; how: RunOptions."""
    from shardfit.domains.vlbi.recipes import spectral_image

    channels = [read_observation(file) for file in files]
    for file, one in zip(files, channels, strict=True):
        name = one.source or "unnamed source"
        print(f"{Path(file).name}: {name}, {one.band}, {len(one):,} visibilities", flush=True)
    return spectral_image(channels, fluxes=_numbers(fluxes), run=how, **options)


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--fluxes {text}: give numbers in Jy with commas between, one for each file.") from None


def write_spectrum(out: Path, spectrum: Any, files: Sequence[str]) -> Path:
    """Write image.fits, alpha.fits, result, figures and report; return the path of the report."""
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import write_environment
    from shardfit.report.blocks import Section
    from shardfit.report.run import report_run
    from shardfit.report.study import Study, save_figure

    write_image(spectrum.image, out / "image.fits", overwrite=True)
    index = spectrum.image.replace(values={"I": spectrum.alpha})
    write_image(index, out / "alpha.fits", overwrite=True, unit="", shown=spectrum.mask)
    derived = {
        "spectral index of the whole source": spectrum.mean_alpha,
        "flux of the image (Jy)": spectrum.image.flux,
    }
    save_result(replace(spectrum.result, derived=derived), out)
    write_environment(out)
    beam = min(one.nominal_resolution for one in spectrum.data)
    caption = "Spectral index α, I ~ ν^α, where the image exceeds 5 % of its peak. That of the source as a whole, "
    caption += f"{spectrum.mean_alpha:.3f}, rests on the fluxes of the files, its structure on the data."
    image, index = plots.sky(spectrum.image, beam_rad=beam), plots.spectral_index(spectrum.image, spectrum.alpha)
    pictures = [
        save_figure(image, out, "image", f"The image at {spectrum.image.freq_hz / 1e9:.6g} GHz."),
        save_figure(index, out, "spectral_index", caption),
    ]
    title = f"{spectrum.image.source or 'Image'} at {len(spectrum.data)} frequencies"
    sections = [Section("Image", pictures), Section("Files", [_channels(spectrum, files)])]
    return report_run(out, Study(title, SUBTITLE, sections))


def _channels(spectrum: Any, files: Sequence[str]) -> Any:
    from shardfit.report.blocks import Table

    rows = []
    names = files if len(files) == len(spectrum.data) else [", ".join(files)] * len(spectrum.data)
    for k, (file, one) in enumerate(zip(names, spectrum.data, strict=True)):
        values = [f"{value[k]:.3f}" for value in spectrum.chi2.values()]
        rows.append((Path(file).name, f"{one.freq_hz / 1e9:.6g}", f"{spectrum.fluxes[k]:.4f}", *values))
    header = ["file", "GHz", "compact flux (Jy)", *(f"χ² {name}" for name in spectrum.chi2)]
    return Table(header, rows, "χ² per measurement, station tolerances included.")
