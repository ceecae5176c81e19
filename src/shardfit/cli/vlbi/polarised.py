"""Second stage of `shardfit vlbi image --pol`: polarisation, its FITS file and its part of the report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def fit_polarisation(found: Any, how: Any, options: Mapping[str, Any]) -> Any:
    """Fit polarisation, beginning with a Stokes I image, and print the answer; how: RunOptions of the fits."""
    from shardfit.domains.vlbi.recipes import polarimetric_image

    print(f"  polarisation, {_kind(options['mode'])}", flush=True)
    polarised = polarimetric_image(found, run=how, **options)
    values = "  ".join(f"{name} {value:.3f}" for name, value in polarised.chi2.items())
    print(f"  χ² {values}; {_fractions(polarised)}")
    return polarised


def write_polarisation(out: Path, polarised: Any) -> Any:
    """Write polarisation.fits and its picture; return the section of the report."""
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.report.blocks import Section, Table
    from shardfit.report.study import save_figure

    write_image(polarised.image, out / "polarisation.fits", overwrite=True)
    beam = polarised.data.nominal_resolution
    caption = (
        "Ticks lie along the electric vector, as long as |P| is large, coloured by the linear fraction. In all: "
        f"{_fractions(polarised)}.{_winding(polarised.image)} Polarisation is fitted "
        f"{_kind(polarised.options.mode)}. Leakage and the offset between hands are not fitted."
    )
    rows = [(name, f"{value:.3f}") for name, value in polarised.chi2.items()]
    weights = {**polarised.options.data, **polarised.options.regularisers}
    told = "Weights: " + ", ".join(f"{name} {weight:g}" for name, weight in weights.items()) + "."
    picture = save_figure(plots.polarisation(polarised.image, beam_rad=beam), out, "polarisation", caption)
    return Section("Polarisation", [picture, Table(["data product", "χ² per measurement"], rows, told)])


def _kind(mode: str) -> str:
    """Return in words whether Stokes I is fitted too."""
    return "together with Stokes I, whose image is in polarisation.fits" if "I" in mode else "with Stokes I kept"


def _fractions(polarised: Any) -> str:
    return f"linear fraction {polarised.mean_fraction:.3f} resolved, {polarised.net_fraction:.3f} net"


def _winding(image: Any) -> str:
    """Return how polarisation winds around a ring, in words; nothing where there is no ring."""
    import numpy as np

    from shardfit.domains.vlbi.rings import ring_modes

    try:
        mode = ring_modes(image, (2,))[2]
    except ValueError:
        return ""
    return f" Around the ring |β₂| is {abs(mode):.3f}, its phase {np.rad2deg(np.angle(mode)):.0f}°."
