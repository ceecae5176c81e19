"""Results on disk: `result.json` for people and programs, `arrays.npz` for numbers; nothing is pickled."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.encoding import decode, encode, kind_of, plain, rebuilt
from shardfit.io.files import file_digest, read_arrays, read_json, write_arrays, write_json

FORMAT = 4
TREES = ("params", "stderr")  # stored by their leaves' paths, given back in the structure of x0
KINDS = {
    "value": float | int,
    "steps": int,
    "evaluations": int,
    "dof": int | None,
    **dict.fromkeys(("solver", "problem", "precision", "note"), str),
    **dict.fromkeys(("parts", "history", "timings", "layout", "units", "derived", "state"), dict),
    **dict.fromkeys(("doubts", "at_bound"), tuple),
}


def save_result(result: Result, folder: str | Path, run: str = "") -> Path:
    """Write result.json and arrays.npz into a folder, made if need be; load_result gives the same Result back.

    run: digest of the run that the result belongs to, where it belongs to one.
    """
    folder = Path(folder)
    content, arrays = encoded(result)
    folder.mkdir(parents=True, exist_ok=True)
    # two files cannot be replaced at once: without result.json there is no result, so no pair is ever torn
    (folder / "result.json").unlink(missing_ok=True)
    write_arrays(folder / "arrays.npz", arrays)
    write_json(folder / "result.json", {**content, "run": run, "arrays_sha256": file_digest(folder / "arrays.npz")})
    return folder


def load_result(folder: str | Path, like: Any = None) -> Result:
    """Read a Result back. like: a pytree such as the problem's x0, whose structure the parameters get.

    Without it they come in plain form: dicts, lists, tuples and NumPy arrays; the note says where that differs.
    """
    return read_result(folder, like)[0]


def read_result(folder: str | Path, like: Any = None) -> tuple[Result, str]:
    """Return a stored Result and the digest of its run; raise ValueError for damage of any kind."""
    folder = Path(folder)
    for name in ("result.json", "arrays.npz"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no result: {name} is missing.")
    try:
        content = read_json(folder / "result.json")
        if content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')}, not {FORMAT}: read it with its own version")
        if content["arrays_sha256"] != file_digest(folder / "arrays.npz"):
            raise ValueError("arrays.npz is damaged, or of another fit")
        result = _result_of(content, read_arrays(folder / "arrays.npz"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise ValueError(f"{folder}: the stored result cannot be read ({error}). Fit again, or use a copy.") from None
    if like is not None:
        result = replace(result, **{n: rebuilt(like, getattr(result, n), folder) for n in TREES})
    elif content["plain_form_of"]:
        note = f"The parameters were a {content['plain_form_of']} and are read in plain form; like=x0 rebuilds them."
        result = replace(result, note=" ".join(filter(None, (result.note, note))))
    return result, str(content["run"])


def encoded(result: Result) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a result as JSON and arrays; raise TypeError for what cannot be stored."""
    arrays: dict[str, np.ndarray] = {}
    values = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "status"}
    values |= {name: plain(values[name]) for name in TREES}
    content = {name: encode(value, name, arrays) for name, value in values.items()}
    content |= {"format": FORMAT, "status": result.status.name, "success": result.success, "message": result.message}
    return content | {"plain_form_of": kind_of(result.params)}, arrays


def require_storable(problem: Any) -> None:
    """Raise, before any work, for parameters or derived quantities that a run directory cannot hold."""
    with np.errstate(all="ignore"):  # only the kind of what decode returns matters here
        derived = {} if problem.decode is None else problem.decode(problem.x0)
    for name, value in (("params", plain(problem.x0)), ("derived", derived)):
        encode(value, name, {})


def _result_of(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> Result:
    names = {f.name for f in fields(Result)} - {"status"}
    values = {name: decode(content[name], arrays) for name in names}
    for name, kind in KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is {type(values[name]).__name__}")
    return Result(status=Status[content["status"]], **values)
