"""What a folder holds, seen from outside: a survey, a posterior, a fit; its outcome, and its numbers to compare."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.errors import folder_not_found_error
from shardfit.core.params import label_of
from shardfit.core.success import Verdict
from shardfit.report.provenance import read_command

LEDGER, POSTERIOR, RESULT, BEGUN = "ledger.sqlite", "posterior.json", "result.json", "config.json"
STORED = ("arrays.npz", "draws.npz", "start.npz")  # of which kinds read what counts
MOST_NUMBERS = 8  # of an array that an outcome spells out


class Kind(NamedTuple):
    """A kind of run: its name, the file by which it is known, its verdict, what it came to, and its numbers by name."""

    name: str
    file: str
    verdict: Callable[[Path], Verdict]
    outcome: Callable[[Path], dict[str, Any]]
    numbers: Callable[[Path], dict[str, np.ndarray]]


def kind_of(folder: str | Path) -> Kind | None:
    """Return what a folder holds, None if it is no run, or one that has nothing to show yet."""
    return next((kind for kind in KINDS if (Path(folder) / kind.file).is_file()), None)


def require_kind(folder: str | Path) -> Kind:
    """Return what a folder holds, or raise saying what it lacks."""
    kind = kind_of(folder)
    if kind is None:
        if not Path(folder).is_dir():
            raise folder_not_found_error(folder)
        raise FileNotFoundError(f"{folder} holds no result: {_why_none(Path(folder))}")
    return kind


def _why_none(folder: Path) -> str:
    told = read_command(folder)
    failure, code = told.get("error"), told.get("exit")
    if isinstance(failure, str) and failure:
        return f"its run failed: {failure}"
    if code == 130:
        return "its run was interrupted. The same command goes on from there."
    if (folder / BEGUN).is_file() or (told and code is None):
        return "its run has not ended."
    return f"there is neither {RESULT}, {POSTERIOR} nor {LEDGER}."


def verdict_in(folder: str | Path) -> Verdict:
    """Return the verdict on what a folder holds: what its badge, `success` and the exit code of its command say."""
    return require_kind(folder).verdict(Path(folder))


def outcome_of(folder: str | Path) -> dict[str, Any]:
    """Return what a run came to, in numbers and texts that JSON can hold."""
    kind = kind_of(folder)
    return {} if kind is None else {"kind": kind.name, **kind.outcome(Path(folder))}


def _fit_verdict(folder: Path) -> Verdict:
    from shardfit.io.results import load_result

    return load_result(folder).verdict()


def _fit_outcome(folder: Path) -> dict[str, Any]:
    from shardfit.io.results import load_result

    result = load_result(folder)
    found = {
        "status": result.status.name,
        **verdict_of(result.verdict()),
        "message": result.message,
        "value": finite(result.value),
        "parts": {name: finite(part) for name, part in result.parts.items()},
        "steps": result.steps,
        "evaluations": result.evaluations,
        "parameters": _spelt(result.params),
    }
    if result.stderr is not None:
        found["errors"] = _spelt(result.stderr)
    return found | {"units": dict(result.units), "derived": _spelt(result.derived)}


def verdict_of(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as `--json` tells it."""
    said = {"success": verdict.success, "badge": verdict.word}
    return said | {"reasons": list(verdict.reasons), "notes": list(verdict.notes)}


def _fit_numbers(folder: Path) -> dict[str, np.ndarray]:
    from shardfit.io.results import load_result

    result = load_result(folder)
    numbers = {"value": np.asarray(result.value)} | {f"part {n}": np.asarray(p) for n, p in result.parts.items()}
    return numbers | {name or "x": leaf for name, leaf in _leaves(result.params)}


def _posterior_verdict(folder: Path) -> Verdict:
    from shardfit.sampling.store import load_posterior

    return load_posterior(folder).verdict()


def _posterior_outcome(folder: Path) -> dict[str, Any]:
    from shardfit.sampling.store import load_posterior

    posterior = load_posterior(folder)
    table, verdict = posterior.summary(), posterior.verdict()
    columns = {"mean": "mean", "sd": "sd", "q05": "5 %", "q50": "50 %", "q95": "95 %"}
    columns |= {"ess_bulk": "ess_bulk", "ess_tail": "ess_tail", "rhat": "rhat"}
    parameters = {
        name: {key: finite(table[column][i]) for key, column in columns.items()} for i, name in enumerate(table.names)
    }
    found = {"method": posterior.method, **verdict_of(verdict), "message": str(verdict), "draws": posterior.size}
    return found | {"parameters": parameters, "units": dict(zip(table.names, table.units, strict=True))}


def _posterior_numbers(folder: Path) -> dict[str, np.ndarray]:
    from shardfit.sampling.store import load_posterior

    return {f"draws of {name or 'x'}": leaf for name, leaf in _leaves(load_posterior(folder).draws)}


def _survey_verdict(folder: Path) -> Verdict:
    from shardfit.surveys.reading import Survey

    with Survey(folder) as survey:
        return survey.verdict()


def _survey_outcome(folder: Path) -> dict[str, Any]:
    from shardfit.surveys.reading import Survey

    with Survey(folder) as survey:
        failed = len(survey.ledger.ids(failed=True))
        best = survey.best(1) if len(survey) > failed else []
        found: dict[str, Any] = {"points": len(survey), "total": survey.heading.total, "failed": failed}
        found |= {**verdict_of(survey.verdict()), "converged": finite(survey.converged)}
        found |= {"status": survey.status()}
        if best:
            found["best"] = {name: value for name, value in best[0].items() if isinstance(value, str | int | float)}
        return found


def _survey_numbers(folder: Path) -> dict[str, np.ndarray]:
    from shardfit.surveys.heading import part_column
    from shardfit.surveys.reading import Survey

    with Survey(folder) as survey:
        names = ["value", *map(part_column, survey.heading.parts)]
        return {f"{name} of all points": survey.ledger.column(name) for name in names}


# the first that is found counts: a posterior's folder also has the fit that it started from
KINDS = (
    Kind("survey", LEDGER, _survey_verdict, _survey_outcome, _survey_numbers),
    Kind("posterior", POSTERIOR, _posterior_verdict, _posterior_outcome, _posterior_numbers),
    Kind("fit", RESULT, _fit_verdict, _fit_outcome, _fit_numbers),
)


def finite(number: Any) -> float | None:
    """Return a number as JSON can hold it: None for what is not finite."""
    return float(number) if np.isfinite(number) else None


def _spelt(tree: Any) -> dict[str, Any]:
    """Return numbers and short arrays of a tree by name; of longer ones shape and range."""
    found: dict[str, Any] = {}
    for name, leaf in _leaves(tree):
        if not np.issubdtype(leaf.dtype, np.number):
            continue
        if leaf.size <= MOST_NUMBERS:
            found[name or "x"] = finite(leaf) if leaf.ndim == 0 else [finite(number) for number in leaf.ravel()]
        else:
            low, high = finite(np.min(leaf)), finite(np.max(leaf))
            found[name or "x"] = {"shape": list(leaf.shape), "smallest": low, "largest": high}
    return found


def numbers_of(folder: Path) -> dict[str, np.ndarray]:
    """Return the numbers of a run, and all arrays in the NumPy files that it left beside its answer.

    Of a folder that has none, the bytes of its pictures.
    """
    kind = kind_of(folder)
    found = {} if kind is None else kind.numbers(folder)
    for path in sorted(folder.glob("*.np[yz]")):
        if kind is not None and path.name in STORED:
            continue
        content = np.load(path, allow_pickle=False)
        arrays = {"": content} if isinstance(content, np.ndarray) else {f" {name}": content[name] for name in content}
        found |= {f"{path.name}{name}": array for name, array in arrays.items()}
    return found or {path.name: np.frombuffer(path.read_bytes(), np.uint8) for path in sorted(folder.glob("*.png"))}


def _leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    import jax

    return [(label_of(path), np.asarray(leaf)) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
