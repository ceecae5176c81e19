"""Options of commands that prepare data, and of those that make images: the preset, and what differs from it."""

import argparse
from typing import Any

from shardfit.cli import options
from shardfit.domains.vlbi.imaging_options import ImagingOptions

# option of a command → field of ImagingOptions; what is not given is left to the preset
FIELDS = {
    "average": "average",
    "zero_baseline": "zero_baseline",
    "systematic": "systematic",
    "tolerance": "tolerance",
    "cp_uv_min": "cp_uv_min",
}
IMAGE_FIELDS = {
    **FIELDS,
    "npix": "npix",
    "fov": "fov_uas",
    "flux": "flux",
    "prior": "prior_fwhm_uas",
    "restarts": "restarts",
    "maxiter": "maxiter",
    "snr_cut": "snr_cut",
}
FITTED = {"products": "data"}  # of commands whose products are those of `image`
FAINTER = {"amp": 0.2}  # weights of products that are named without one, where it is not 1


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """Add preset, averaging, extended flux and errors."""
    parser.add_argument(
        "--preset", metavar="NAME", default="default", help="default: data as they are; eht; m87: the released pipeline"
    )
    options.add_declared(parser, ImagingOptions, "none", reads=_average, average="S")
    add_zero_baseline(parser, "as they are")
    options.add_declared(parser, ImagingOptions, systematic="F")
    doc = "fraction added to amplitude errors, or AA=0.1,LM=0.2 (0)"
    options.add_declared(parser, ImagingOptions, doc=doc, tolerance="F")
    options.add_declared(parser, ImagingOptions, cp_uv_min="L")


def add_zero_baseline(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Add which baselines are scaled to the flux of the compact source; otherwise: what becomes of them without it."""
    parser.add_argument(
        "--zero-baseline",
        metavar="L",
        nargs="?",
        const="auto",
        type=_length,
        help="scale baselines shorter than so many wavelengths to the flux; without a number, or with 'auto', those "
        f"within a site ({otherwise})",
    )


def add_image(parser: argparse.ArgumentParser, maxiter: str, restarts: str) -> None:
    """Add the preparation, the image's size, its flux and its fits; maxiter, restarts: what these say of themselves."""
    add_preparation(parser)
    options.add_declared(parser, ImagingOptions, snr_cut="S")
    options.add_declared(parser, ImagingOptions, npix="N")
    options.add_declared(parser, ImagingOptions, "8 resolutions; eht, m87 128", flag="fov", fov_uas="UAS")
    options.add_declared(parser, ImagingOptions, "estimated; m87 0.6", flux="JY")
    options.add_declared(parser, ImagingOptions, "0.3 fields; eht, m87 40", flag="prior", prior_fwhm_uas="UAS")
    options.add_declared(parser, ImagingOptions, doc=maxiter, maxiter="N")
    options.add_declared(parser, ImagingOptions, doc=restarts, restarts="N")


def add_products(parser: argparse.ArgumentParser) -> None:
    """Add the data that are fitted."""
    parser.add_argument(
        "--products",
        metavar="A,B",
        type=_weights,
        help="data that are fitted: vis of calibrated data, or amp, cphase, logcamp, logamp, bs, camp, with weights as "
        "in amp=0.2,cphase=1 (amp,cphase,logcamp)",
    )


def given(args: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    """Return the fields of ImagingOptions that a command line names."""
    return {field: getattr(args, option) for option, field in names.items() if getattr(args, option) is not None}


def _average(text: str) -> bool | float:
    if text in ("scan", "scans"):
        return True
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'scan' nor a number of seconds") from None


def _length(text: str) -> str | float:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'auto' nor a number of wavelengths") from None


def _weights(text: str) -> dict[str, float]:
    try:
        pairs = [(name.strip(), weight) for name, _, weight in (part.partition("=") for part in text.split(","))]
        return {name: float(weight) if weight else FAINTER.get(name, 1.0) for name, weight in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like amp,cphase or amp=0.2,cphase=1") from None
