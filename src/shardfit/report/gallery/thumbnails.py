"""Pictures as PNG: eight bits and a palette, written by hand, because a figure for each of thousands is too slow."""

import struct
import zlib

import numpy as np

DECADES = 3.0  # that the logarithmic stretch shows
STRETCHES = ("linear", "sqrt", "log")
# the usual perceptually even ramp, readable for the colour-blind and in grey
VIRIDIS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"]


def _afmhot() -> np.ndarray:
    x = np.linspace(0, 1, 256)
    return np.stack([2 * x, 2 * x - 0.5, 2 * x - 1], axis=1).clip(0, 1)


def _viridis() -> np.ndarray:
    nodes = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in VIRIDIS]) / 255
    x = np.linspace(0, len(nodes) - 1, 256)
    return np.stack([np.interp(x, np.arange(len(nodes)), nodes[:, k]) for k in range(3)], axis=1)


PALETTES = {
    name: (255 * table).round().astype(np.uint8).tobytes()
    for name, table in {"afmhot": _afmhot(), "viridis": _viridis()}.items()
}


def png(
    picture: np.ndarray,
    palette: str = "afmhot",
    stretch: str = "linear",
    limits: tuple[float, float] | None = None,
    most: int | None = None,
) -> bytes:
    """Return a picture (ny, nx) as PNG, first row on top; limits: of the colours; most: pixels of the longer side."""
    if palette not in PALETTES or stretch not in STRETCHES:
        raise ValueError(f"palette is one of {', '.join(PALETTES)}, stretch one of {', '.join(STRETCHES)}.")
    if most is not None and max(picture.shape) > most:
        picture = _shrunk(picture, -(-max(picture.shape) // most))
    low, high = limits_of(picture) if limits is None else limits
    scaled = np.nan_to_num((picture.astype(float) - low) / (high - low or 1.0), posinf=1, neginf=0).clip(0, 1)
    if stretch == "sqrt":
        scaled = np.sqrt(scaled)
    elif stretch == "log":
        scaled = 1 + np.log10(np.maximum(scaled, 10**-DECADES)) / DECADES
    return encode((255 * scaled).round().astype(np.uint8), PALETTES[palette])


def limits_of(*pictures: np.ndarray) -> tuple[float, float]:
    """Return the lowest and highest finite value of some pictures, (0, 1) if there is none."""
    finite = [picture[np.isfinite(picture)] for picture in pictures]
    finite = [values for values in finite if values.size]
    if not finite:
        return 0.0, 1.0
    return float(min(v.min() for v in finite)), float(max(v.max() for v in finite))


def encode(codes: np.ndarray, palette: bytes) -> bytes:
    """Return an image of palette codes (ny, nx) as PNG."""
    height, width = codes.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each line starts with its filter: none
    lines[:, 1:] = codes
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    pieces = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in pieces)


def _shrunk(picture: np.ndarray, factor: int) -> np.ndarray:
    """Return means of factor × factor pixels; the last ones may be of fewer."""

    def summed(array: np.ndarray) -> np.ndarray:
        for axis, n in enumerate(picture.shape):
            array = np.add.reduceat(array, np.arange(0, n, factor), axis=axis)
        return array

    return summed(picture.astype(float)) / summed(np.ones(picture.shape))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
