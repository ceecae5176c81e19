"""FITS images: a plane, or a cube with a Stokes axis, in Jy per pixel."""

import datetime
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.extras import require_extra
from shardfit.domains.vlbi.beams import Beam
from shardfit.domains.vlbi.constants import STOKES
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.uvfits_tables import number


def read_image(path: Any, *, pulse: str = "triangle") -> Image:
    """Read a FITS image with square pixels in Jy/pixel; Stokes planes on an axis or in extensions named Q, U, V.

    Raises ValueError, naming the file, for anything else. Pixels that are NaN become zero.
    """
    with _named(path), _open(Path(path)) as hdus:
        size = Path(path).stat().st_size
        planes = _planes(hdus[0], size)
        for hdu in hdus[1:]:
            name = str(hdu.header.get("STOKES", hdu.header.get("EXTNAME", ""))).strip().upper()
            if getattr(hdu, "is_image", False) and name in STOKES and name not in planes:
                planes[name] = _planes(hdu, size)["I"]
        return _image(hdus[0].header, planes, pulse)


def read_cube(path: Any, extension: str, *, pulse: str = "triangle") -> tuple[list[Image], np.ndarray]:
    """Read a cube (planes, rows, columns) of Stokes I in Jy/pixel, and the numbers of an extension, one for each plane.

    Raises ValueError, naming the file, for anything else.
    """
    with _named(path), _open(Path(path)) as hdus:
        shape = _shape(hdus[0].header, Path(path).stat().st_size)
        if len(shape) != 3 or extension not in hdus:
            raise ValueError(f"axes {shape}, expected three, and an extension {extension}")
        numbers = np.asarray(hdus[extension].data, float)
        if numbers.shape != (shape[0],):
            raise ValueError(
                f"{extension} has shape {numbers.shape}, expected one number for each of {shape[0]} planes"
            )
        planes = np.asarray(hdus[0].data)
        return [_image(hdus[0].header, {"I": plane}, pulse) for plane in planes], numbers


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open the units of a FITS file; nothing is read before it is asked for."""
    with require_extra("a FITS image", "vlbi"):
        from astropy.io import fits

    # opened here: astropy leaves a file it cannot parse open
    with path.open("rb") as stream, fits.open(stream, memmap=False, lazy_load_hdus=True) as hdus:
        yield hdus


@contextmanager
def _named(path: Any) -> Iterator[None]:
    """Say which file an error is of."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # astropy warns of oddities it repairs; what matters is checked here
            yield
    except (FileNotFoundError, IsADirectoryError, PermissionError, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{path}: cannot be read as a FITS image ({error}).") from error


def _image(header: Any, planes: Mapping[str, np.ndarray], pulse: str) -> Image:
    step_x, step_y = number(header, "CDELT1"), number(header, "CDELT2")
    if step_x == 0 or not np.isclose(abs(step_x), abs(step_y), rtol=1e-6, atol=0):
        raise ValueError(f"pixels of {step_x} x {step_y} degrees are not square. Regrid the image")
    unit = str(header.get("BUNIT", "JY/PIXEL")).strip().upper()
    if unit not in ("JY/PIXEL", "JY/PIX"):
        raise ValueError(f"unit {unit!r} is not JY/PIXEL. Convert the values")
    # rows run from south to north in FITS; columns from east to west where the step is negative
    flip = (slice(None, None, -1 if step_y > 0 else 1), slice(None, None, 1 if step_x < 0 else -1))
    return Image(
        {name: np.nan_to_num(plane.astype(float)[flip]) for name, plane in planes.items()},
        pixel_rad=float(np.deg2rad(abs(step_x))),
        ra_hours=number(header, "OBSRA", number(header, "CRVAL1", 0.0)) / 15,
        dec_deg=number(header, "OBSDEC", number(header, "CRVAL2", 0.0)),
        freq_hz=number(header, "FREQ", _axis_value(header, "FREQ", 230e9)),
        mjd=int(number(header, "MJD", _mjd(str(header.get("DATE-OBS", ""))))),
        source=str(header.get("OBJECT", "")).strip(),
        pulse=pulse,
    )


def write_image(
    image: Image,
    path: Any,
    *,
    overwrite: bool = False,
    unit: str = "JY/PIXEL",
    shown: np.ndarray | None = None,
    beam: Beam | None = None,
) -> None:
    """Write an image as FITS, 64-bit; with polarised planes as a cube with frequency and Stokes axes.

    unit: of the values; empty for a map of numbers, which `read_image` refuses. shown: (ny, nx), false where a map says
    nothing: these pixels are NaN. beam: of the array, written as BMAJ, BMIN, BPA; the image is not convolved with it.
    """
    with require_extra("a FITS image", "vlbi"):
        from astropy.io import fits

    missing = [name for name in STOKES[: len(image.values)] if name not in image.values]
    if missing:
        raise ValueError(f"write_image: planes {list(image.values)} are no run of {STOKES}. Add {missing} as zeros.")
    planes = [plane if shown is None else np.where(shown, plane, np.nan) for plane in image.values.values()]
    cube = np.stack([plane[::-1] for plane in planes])
    data = cube[0] if len(cube) == 1 else cube[:, None]
    hdu = fits.PrimaryHDU(data)
    describe(hdu, image, [("FREQ", image.freq_hz, 1.0, 1.0), ("STOKES", 1.0, 1.0, 1.0)][: data.ndim - 2], unit)
    if beam is not None:
        angles = {"BMAJ": beam.major, "BMIN": beam.minor, "BPA": beam.pa_rad}
        hdu.header.update({key: float(np.rad2deg(value)) for key, value in angles.items()})
    hdu.writeto(path, overwrite=overwrite)


def describe(
    hdu: Any, image: Image, further: Sequence[tuple[str, float, float, float]], unit: str = "JY/PIXEL"
) -> None:
    """Write into a header what an image is of. further: kind, value, step and reference pixel of axes after the two."""
    ny, nx = image.shape
    step = float(np.rad2deg(image.pixel_rad))
    sky = [("RA---SIN", image.ra_hours * 15, -step, nx / 2 + 0.5), ("DEC--SIN", image.dec_deg, step, ny / 2 + 0.5)]
    for i, (kind, value, delta, pixel) in enumerate([*sky, *further], start=1):
        for key, entry in (("CTYPE", kind), ("CRVAL", value), ("CDELT", delta), ("CRPIX", pixel)):
            hdu.header[f"{key}{i}"] = entry
    day = datetime.date(1858, 11, 17) + datetime.timedelta(days=int(image.mjd))
    about = {
        "OBSRA": image.ra_hours * 15,
        "OBSDEC": image.dec_deg,
        "FREQ": image.freq_hz,
        "OBJECT": image.source[:68],
        "MJD": float(image.mjd),
        "DATE-OBS": day.isoformat(),
        "BUNIT": unit,
        "STOKES": "I",
    }
    hdu.header.update(about)


def _planes(hdu: Any, size: int) -> dict[str, np.ndarray]:
    """Return the Stokes planes of one unit, rows as stored."""
    header = hdu.header
    shape = _shape(header, size)
    kinds = [str(header.get(f"CTYPE{i}", "")).strip().upper() for i in range(len(shape), 0, -1)]
    extra = [i for i in range(len(shape) - 2) if shape[i] > 1]
    if any(kinds[i] != "STOKES" for i in extra):
        raise ValueError(f"several planes along {[kinds[i] for i in extra]}. Select one")
    stack = np.asarray(hdu.data).reshape(-1, *shape[-2:])
    names = STOKES[: len(stack)] if "STOKES" in kinds else ("I",)
    if len(names) != len(stack) or _axis_value(header, "STOKES", 1.0) != 1:
        raise ValueError("the Stokes axis is not I, or a run of I, Q, U, V")
    return dict(zip(names, stack, strict=True))


def _shape(header: Any, size: int) -> list[int]:
    """Return the axes, slowest first; size: bytes of the file, which bounds what is read."""
    shape = [int(number(header, f"NAXIS{i}")) for i in range(int(number(header, "NAXIS")), 0, -1)]
    if len(shape) < 2 or abs(int(number(header, "BITPIX"))) // 8 * int(np.prod(shape, dtype=object)) > size:
        raise ValueError(f"axes {shape} do not describe an image in a file of {size} bytes")
    return shape


def _axis_value(header: Any, kind: str, default: float) -> float:
    for i in range(1, int(header.get("NAXIS", 0)) + 1):
        if str(header.get(f"CTYPE{i}", "")).strip().upper() == kind:
            return number(header, f"CRVAL{i}", default)
    return default


def _mjd(date: str) -> int:
    try:
        return (datetime.date.fromisoformat(date[:10]) - datetime.date(1858, 11, 17)).days
    except ValueError:
        return 0
