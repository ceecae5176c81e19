"""The process that draws figures of survey points for the gallery: `python -P -m shardfit.report.gallery.draw_worker`.

A line of JSON comes in for every point, a line goes out. Loading a science takes seconds and memory, which the gallery
itself is spared. Only installed sciences are asked, with the plain values of a configuration: nothing of a ledger runs.
"""

import base64
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_MEMORY = 16 << 30  # bytes of address space: a stranger's settings may ask for any number of pixels
KINDNESS = 10  # a survey that runs on the same machine comes first


def main() -> None:
    """Answer until there are no more questions."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anyone else prints is no answer
    _limit()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(line)) + "\n")
        answers.flush()


def _answer(line: str) -> dict[str, Any]:
    try:
        return {"figures": drawn(json.loads(line))}
    except Exception as error:  # whatever a science meets in a stranger's settings is told, and the next point drawn
        return {"error": " ".join(str(error).split()) or type(error).__name__}


def drawn(asked: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return name, caption and PNG (base64) of every figure; asked: science, settings, point, params."""
    from shardfit.report.style import png_bytes
    from shardfit.sciences import get_science

    figures = getattr(get_science(asked["science"], "survey").module("survey"), "figures", None)
    if figures is None:
        raise ValueError(f"science {asked['science']!r} draws no figures of single points.")
    params = {name: _array(one) for name, one in asked["params"].items()}
    found = figures(asked["settings"], asked["point"], params)
    return [
        {"name": str(name), "caption": str(caption), "png": base64.b64encode(png_bytes(figure)).decode()}
        for name, (caption, figure) in found.items()
    ]


def packed(array: np.ndarray) -> dict[str, Any]:
    """Return an array as plain JSON."""
    plain = np.ascontiguousarray(array)
    return {"dtype": plain.dtype.str, "shape": plain.shape, "data": base64.b64encode(plain.tobytes()).decode()}


def _array(one: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(one["data"]), one["dtype"]).reshape(one["shape"])


def _limit() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has it, or allows it
        import resource

        os.nice(KINDNESS)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


if __name__ == "__main__":
    main()
