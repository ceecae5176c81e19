"""Every reader of files, with valid files for it and what must hold of whatever it reads."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reliability.fuzzing import Reader


def readers(folder: Path) -> list[Reader]:
    """Return all readers; seeds are made in a folder."""
    subprocess.run([sys.executable, "-m", "benchmarks.reliability.seeds", str(folder)], check=True)
    return [
        Reader(name, [_files(seed) for seed in sorted((folder / name).iterdir())], **options)
        for name, options in READERS.items()
    ]


def _files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _only(folder: Path, ending: str = "") -> Path:
    return next(path for path in sorted(folder.iterdir()) if path.name.endswith(ending))


# ---- observations and images ----------------------------------------------------------------------------------------


def _uvfits(folder: Path) -> Any:
    from shardfit.domains.vlbi.uvfits import read_uvfits

    path = _only(folder)
    return read_uvfits(path), read_uvfits(path, channels="separate", station_order="file")


def _text(folder: Path) -> Any:
    from shardfit.domains.vlbi.text import read_text

    return read_text(_only(folder))


def _ehtim_text(folder: Path) -> Any:
    from shardfit.domains.vlbi.ehtim_text import read_ehtim_text

    return read_ehtim_text(_only(folder))


def _array(folder: Path) -> Any:
    from shardfit.domains.vlbi.simulation import read_array

    return read_array(_only(folder))


def _image(folder: Path) -> Any:
    from shardfit.domains.vlbi.fits_image import read_image

    return read_image(_only(folder))


def _movie(folder: Path) -> Any:
    from shardfit.domains.vlbi.movies import read_movie

    return read_movie(_only(folder))


def _observed(obs: Any) -> list[Any]:
    return [obs.u, obs.v, obs.time, obs.tint, obs.vis["I"], obs.sigma["I"], obs.freq_hz, obs.ra_hours, obs.dec_deg]


def _both(content: Any) -> list[Any]:
    average, separate = content
    return [number for obs in (average, *separate) for number in _observed(obs)]


def _seen(image: Any) -> list[Any]:
    return [*image.values.values(), image.pixel_rad, image.freq_hz, image.ra_hours, image.dec_deg]


# ---- correlations and gathers ---------------------------------------------------------------------------------------


def _correlation(folder: Path) -> Any:
    from shardfit.domains.xpcs.files import read

    return read(_only(folder), q=0.0054, dt=0.1)


def _gathers_or_model(folder: Path) -> Any:
    from shardfit.domains.seismic.files import load_gathers, load_model

    path = _only(folder)
    raw, known = path.suffix == ".bin", path.suffix in (".sgy", ".npz")
    if path.stem == "model":
        return load_model(path, shape=(6, 9) if raw else None)
    found = load_gathers(path, shape=(2, 4, 24) if raw else None, dt=None if known else 0.004)
    return np.array(found.traces), found.dt, found.sources, found.receivers, found.live


def _placed(content: Any) -> list[Any]:
    """Return the model, or what places gathers: their samples are looked at by whoever uses them."""
    if hasattr(content, "velocity"):
        return [content.velocity, 0.0 if content.dh is None else content.dh]
    return [0.0 if part is None else part for part in content[1:]]


# ---- configurations -------------------------------------------------------------------------------------------------


def _toml(folder: Path) -> Any:
    from shardfit.cli.population.config import read_config as population
    from shardfit.cli.problems.config import read_config as fit
    from shardfit.cli.seismic.config import read_config as seismic
    from shardfit.cli.seismic.invert import inversion_options
    from shardfit.cli.surveys.config import read_config as survey

    path = _only(folder, ".toml")
    if path.stem == "seismic":
        config = seismic(path)
        return repr(config), repr(inversion_options(config))
    if path.stem == "xpcs":
        return _settings(path)
    return repr({"fit": fit, "survey": survey, "population": population}[path.stem](path))


def _yaml(folder: Path) -> Any:
    return _settings(_only(folder))


def _settings(path: Path) -> Any:
    from shardfit.cli.xpcs.config import read_config

    config = read_config(path)
    return repr(config), repr(config.options()), repr(config.model())


# ---- run directories ------------------------------------------------------------------------------------------------


def _result(folder: Path) -> Any:
    from shardfit.io.results import load_result

    return load_result(folder)


def _run_directory(folder: Path) -> Any:
    from shardfit.io.run_dir import RunDir
    from shardfit.report.folders import numbers_of, outcome_of, require_kind
    from shardfit.report.run import read_environment, read_extra

    require_kind(folder)
    # what is only shown: damage may change it, but never what the run found
    for read in (outcome_of, read_environment, read_extra):
        read(folder)
    list(RunDir(folder).events())
    return numbers_of(folder)


def _checkpoint(folder: Path) -> Any:
    from shardfit.io.files import read_arrays, read_json
    from shardfit.io.journal import Journal

    heading = read_json(folder / "config.json")
    if (folder / "ckpt" / "state.npz").exists():
        return heading, read_arrays(folder / "ckpt" / "state.npz")
    path = folder / "ckpt" / "journal.bin"
    head = path.read_bytes().partition(b"\n")[0].decode(errors="replace")
    journal = Journal(path, np.zeros(2), head.removeprefix("shardfit journal 2 "))
    journal.close()
    return heading, "journal"


def _posterior(folder: Path) -> Any:
    from shardfit.sampling.store import load_posterior

    return load_posterior(folder)


def _ledger(folder: Path) -> Any:
    from shardfit.surveys.reading import Survey

    with Survey(folder) as survey:
        told = [survey.best(), survey.status(), survey.column("value").tolist(), len(survey)]
        return repr((told, [survey.params(row["id"]) for row in survey.best()]))


def _live(folder: Path) -> Any:
    from shardfit.report.html import render_main
    from shardfit.report.live.pages import index_sections, run_sections, title_of
    from shardfit.report.live.state import state_of

    state = state_of(folder)
    pages = run_sections(state), index_sections([state], ["a"])
    return [len(render_main(title_of(state), page, badge=state.badge())) > 0 for page in pages]


def _command(folder: Path) -> Any:
    from shardfit.cli.record import read

    return read(folder)


def _watched(folder: Path) -> Any:
    from shardfit.cli.xpcs.config import Config
    from shardfit.cli.xpcs.watch import Ledger

    ledger = Ledger(folder, Config())
    return ledger.rows(), ledger.knows(Path("a.h5"), (100, 200))


def _arrays(content: Any) -> Iterator[Any]:
    """Yield what places correlations; in them NaN marks points that take no part."""
    yield from (content.phi, content.q, content.dt)


def _reader(read: Callable[[Path], Any], **options: Any) -> dict[str, Any]:
    return {"read": read, **options}


READERS: dict[str, dict[str, Any]] = {
    "uvfits": _reader(_uvfits, finite=_both),
    "eht-imaging text": _reader(_ehtim_text, finite=_observed),
    "EHT text tables": _reader(_text, finite=_observed),
    "array files": _reader(_array, finite=lambda stations: [stations.xyz, stations.sefd]),
    "FITS images": _reader(_image, finite=_seen),
    "FITS movies": _reader(
        _movie, finite=lambda movie: [movie.time_h, *(x for one in movie.frames for x in _seen(one))]
    ),
    "XPCS HDF5": _reader(_correlation, finite=_arrays),
    "XPCS NPZ and NPY": _reader(_correlation, finite=_arrays),
    "SEG-Y": _reader(_gathers_or_model, finite=_placed),
    "seismic NPZ": _reader(_gathers_or_model, finite=_placed),
    "seismic NPY and raw": _reader(_gathers_or_model, finite=_placed),
    "TOML": _reader(_toml, named=False),
    "YAML of homodyne": _reader(_yaml, named=False),
    "results": _reader(_result, sealed=True, most=2),
    "checkpoints": _reader(_checkpoint, most=2),
    "posteriors": _reader(_posterior, sealed=True, most=2),
    "run directories": _reader(_run_directory, sealed=True, most=2),
    "ledgers": _reader(_ledger, sealed=True, most=2, beside=("ledger.sqlite-wal", "ledger.sqlite-shm")),
    "live.json and its page": _reader(_live, most=3),
    "command.json": _reader(_command, sealed=True, most=2),
    "ledger of watched files": _reader(_watched, sealed=True, most=2),
}
