"""Posteriors on disk: `posterior.json` for people and programs, `draws.npz` for numbers; nothing is pickled."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from shardfit.io.encoding import decode, encode, kind_of, plain, rebuilt
from shardfit.io.files import file_digest, read_arrays, read_json, write_arrays, write_json
from shardfit.sampling.posterior import Posterior

FORMAT = 1
POSTERIOR, DRAWS = "posterior.json", "draws.npz"
KINDS = {
    **dict.fromkeys(("seed", "evaluations"), int),
    **dict.fromkeys(("method", "problem", "precision", "note"), str),
    **dict.fromkeys(("stats", "units", "timings", "layout", "extra"), dict),
    "labels": tuple,
}


def save_posterior(posterior: Posterior, folder: str | Path, run: str = "") -> Path:
    """Write posterior.json and draws.npz into a folder, made if need be; load_posterior gives the same back.

    run: digest of the run that the posterior belongs to, where it belongs to one.
    """
    folder = Path(folder)
    arrays: dict[str, Any] = {}
    values = {f.name: getattr(posterior, f.name) for f in fields(posterior)} | {"draws": plain(posterior.draws)}
    content = {name: encode(value, name, arrays) for name, value in values.items()}
    content |= {"format": FORMAT, "plain_form_of": kind_of(posterior.draws), "verdict": str(posterior.verdict())}
    folder.mkdir(parents=True, exist_ok=True)
    # two files cannot be replaced at once: without posterior.json there is no posterior, so no pair is ever torn
    (folder / POSTERIOR).unlink(missing_ok=True)
    write_arrays(folder / DRAWS, arrays)
    write_json(folder / POSTERIOR, {**content, "run": run, "draws_sha256": file_digest(folder / DRAWS)})
    return folder


def doubted(posterior: Posterior, doubts: Sequence[str], folder: str | Path | None = None) -> Posterior:
    """Return a posterior with what speaks against it, and keep it so in the folder that holds it."""
    changed = replace(posterior, extra={**posterior.extra, "doubts": list(doubts)})
    if list(doubts) == list(posterior.extra.get("doubts", ())):
        return posterior
    if folder is not None:
        save_posterior(changed, folder, read_posterior(folder)[1])
    return changed


def load_posterior(folder: str | Path, like: Any = None) -> Posterior:
    """Read a Posterior back. like: a pytree such as the problem's x0, whose structure the draws get.

    Without it they come in plain form: dicts, lists, tuples and NumPy arrays; the note says where that differs.
    """
    return read_posterior(folder, like)[0]


def read_posterior(folder: str | Path, like: Any = None) -> tuple[Posterior, str]:
    """Return a stored Posterior and the digest of its run; raise ValueError for damage of any kind."""
    folder = Path(folder)
    for name in (POSTERIOR, DRAWS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no posterior: {name} is missing.")
    try:
        content = read_json(folder / POSTERIOR)
        if content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')}, not {FORMAT}: read it with its own version")
        if content["draws_sha256"] != file_digest(folder / DRAWS):
            raise ValueError(f"{DRAWS} is damaged, or of another posterior")
        posterior = _posterior_of(content, read_arrays(folder / DRAWS))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError) as error:
        what = f"{folder}: the stored posterior cannot be read ({error})."
        raise ValueError(f"{what} Sample again, or use a copy.") from None
    if like is not None:
        posterior = replace(posterior, draws=rebuilt(like, posterior.draws, folder, lead=2))
    elif content["plain_form_of"]:
        note = f"The draws were a {content['plain_form_of']} and are read in plain form; like=x0 rebuilds them."
        posterior = replace(posterior, note=" ".join(filter(None, (posterior.note, note))))
    return posterior, str(content["run"])


def _posterior_of(content: dict[str, Any], arrays: dict[str, Any]) -> Posterior:
    values = {f.name: decode(content[f.name], arrays) for f in fields(Posterior)}
    for name, kind in KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is {type(values[name]).__name__}")
    return Posterior(**values)
