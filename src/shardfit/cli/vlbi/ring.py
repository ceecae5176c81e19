"""`shardfit vlbi ring`: diameter, width, asymmetry, angle and polarisation of a ring in one image or several."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit vlbi ring vlbi-image/image.fits", "shardfit vlbi ring day-*.fits --json")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the images."""
    parser.add_argument("image", metavar="IMAGE", nargs="+", help="FITS image in Jy/pixel; several: mean and spread")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the ring."""
    import numpy as np

    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.rings import extract_ring, mean_ring, ring_modes

    images = [read_image(file) for file in args.image]
    rings = [extract_ring(image) for image in images]
    ring = rings[0] if len(rings) == 1 else mean_ring(rings)
    polarised = all({"Q", "U"} <= set(image.values) for image in images)
    modes = [ring_modes(image, (2,))[2] for image in images] if polarised else []
    told = {"beta2": [{"modulus": abs(mode), "phase": float(np.angle(mode))} for mode in modes]} if modes else {}
    if record_output(args, **asdict(ring), **told):  # angles in rad
        return 0
    spread = "directions" if len(rings) == 1 else f"{len(rings)} images"
    print(f"diameter   {ring.diameter / UAS:.2f} ± {ring.diameter_sd / UAS:.2f} µas (spread over {spread})")
    print(f"width      {ring.width / UAS:.2f} ± {ring.width_sd / UAS:.2f} µas (FWHM)")
    print(f"asymmetry  {ring.asymmetry:.3f}, brightest at {np.rad2deg(ring.pa_rad):.1f}° east of north")
    print(f"contrast   {ring.contrast:.3f} of the ring's brightness inside")
    if modes:
        each = ", ".join(f"{abs(mode):.3f} at {np.rad2deg(np.angle(mode)):.0f}°" for mode in modes)
        print(f"β₂         {each} (polarisation: 0° radial, 180° along the ring)")
    return 0
