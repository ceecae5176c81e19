"""Valid files of every kind that shardfit reads, small: `python -m benchmarks.reliability.seeds FOLDER`.

One folder for each reader, in it one for each seed. A process of its own makes them: the one that reads them, damaged,
is forked and must not have started JAX.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ROOT
from benchmarks.reliability.small import decay, make_survey

DATA = ROOT / "tests" / "data"
ARRAY = """\
# name x y z SEFD
AA 2225061.164 -5440057.370 -2481681.151 94
AZ -1828796.200 -5054406.800 3427865.200 11900
LM -768713.964 -5988541.798 2063275.947 560
"""
EHTIM_ARRAY = """\
# Site X Y Z SEFDR SEFDL FR_PAR FR_EL FR_OFF DR_RE DR_IM DL_RE DL_IM
AA 2225061.16 -5440057.36 -2481681.15 100.0 400.0 1.0 0.0 0.0 0.0 0.0 0.0 0.0
AZ -1828796.20 -5054406.80 3427865.20 11000.0 11000.0 1.0 1.0 0.0 0.0 0.0 0.0 0.0
"""
EHTIM_HEAD = """\
# SRC: M87
# RA: 12 h 30 m 49.4234 s
# DEC: -12 deg 23 m 28.0439 s
# MJD: 57854
# RF: 227.0707 GHz
# BW: 1.8560 GHz
# PHASECAL: 0
# AMPCAL: 1
# ----------------------------------------------------------------
"""
EHTIM_ROW = "{time} 10.0 {a} {b} 0.0 0.0 1000000000.0 -2000000000.0 {values}\n"
VALUES = "0.5 90.0 0.1 0.0 0.2 180.0 0.0 0.0 0.01 0.02 0.02 0.03"
POPULATION = """\
problem = "smf"
rows = 1000
seed = 0
precision = "float64"
[options]
[swarm]
particles = 9
"""
EXTRA = """\
{"title": "decay", "doubts": ["one"],
 "sections": [{"title": "a", "blocks": [{"text": "b"}, {"header": ["c"], "rows": [["d"]]}]}]}
"""
COLUMNS = {
    "stokes": "Iamp Iphase Qamp Qphase Uamp Uphase Vamp Vphase Isigma Qsigma Usigma Vsigma",
    "hands": "RRamp RRphase LLamp LLphase RLamp RLphase LRamp LRphase RRsig LLsig RLsig LRsig",
}


def main(folder: Path) -> None:
    """Make all seeds."""
    for make in (vlbi, xpcs, seismic, configurations, fits, posteriors, surveys, commands):
        make(folder)


def _new(folder: Path, reader: str, seed: str) -> Path:
    path = folder / reader / seed
    path.mkdir(parents=True)
    return path


def vlbi(folder: Path) -> None:
    """Observations, arrays, images and movies."""
    from shardfit.domains.vlbi import read_uvfits
    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.domains.vlbi.images import blank, ring
    from shardfit.domains.vlbi.movies import Movie, write_movie
    from shardfit.domains.vlbi.text import write_text
    from shardfit.domains.vlbi.uvfits import write_uvfits

    shutil.copy(DATA / "vlbi" / "sim_pol.uvfits", _new(folder, "uvfits", "polarised") / "a.uvfits")
    obs: Any = read_uvfits(DATA / "vlbi" / "sim_pol.uvfits")
    few = obs.select(np.arange(len(obs)) < 60)
    write_uvfits(few, _new(folder, "uvfits", "few") / "a.uvfits")
    write_text(few, _new(folder, "EHT text tables", "few") / "a.csv")
    for name, text in (("plain", ARRAY), ("ehtim", EHTIM_ARRAY)):
        (_new(folder, "array files", name) / "a.txt").write_text(text)
    stations = "".join(f"# {line}\n" for line in EHTIM_ARRAY.splitlines()[1:])
    for name, columns in COLUMNS.items():
        rows = [EHTIM_ROW.format(time=1 + 0.1 * k, a="AA", b="AZ", values=VALUES) for k in range(6)]
        head = f"{EHTIM_HEAD}{stations}# time tint T1 T2 Tau1 Tau2 U V {columns}\n"
        (_new(folder, "eht-imaging text", name) / "a.txt").write_text(head + "".join(rows))
    grid = blank(12, 6e-10, ra_hours=12.5, dec_deg=12.4, freq_hz=2.3e11)
    image = ring(grid, 0.6, 1e-10, 5e-11, asymmetry=0.5, position_angle_rad=1.0)
    write_image(image, _new(folder, "FITS images", "ring") / "a.fits")
    frames = tuple(image.replace(values={"I": s * image.values["I"]}) for s in (1.0, 0.9, 1.1))
    write_movie(Movie(frames, np.array([1.0, 2.0, 3.0])), _new(folder, "FITS movies", "ring") / "a.fits")


def xpcs(folder: Path) -> None:
    """Two-time correlations in every layout."""
    import h5py

    from shardfit.domains.xpcs.data import Correlation
    from shardfit.domains.xpcs.files import read, write

    for layout in ("aps_u_partial", "aps_legacy"):
        shutil.copy(DATA / "xpcs" / f"fixture_{layout}.h5", _new(folder, "XPCS HDF5", layout) / "a.h5")
    lag, age = np.array([0.0, 0.1, 0.2, 0.4]), np.array([0.5, 1.0, 1.5])
    with h5py.File(_new(folder, "XPCS HDF5", "esrf") / "a.h5", "w") as file:
        file.attrs["MagicString"] = "XPCSResultFile_v2.0"
        here = "entry_0000/correlations/full"
        file[f"{here}/twotime/lag"], file[f"{here}/twotime/age"] = lag, age
        file[f"{here}/twotime/ttcf"] = 1 + 0.1 * np.exp(-lag) * np.ones((2, 3, 1))
        file[f"{here}/parameters/q"] = [0.05, 0.1]
    data = read(DATA / "xpcs" / "fixture_aps_u_partial.h5", q=0.0054, dt=0.1)
    assert isinstance(data, Correlation)
    write(_new(folder, "XPCS NPZ and NPY", "npz") / "a.npz", data)
    np.save(_new(folder, "XPCS NPZ and NPY", "npy") / "a.npz", data.c2)


def seismic(folder: Path) -> None:
    """Gathers and models in every kind of file."""
    from shardfit.domains.seismic.files import save_gathers, save_model
    from shardfit.domains.seismic.gathers import Gathers

    draw = np.random.default_rng(0)
    traces = draw.normal(size=(2, 4, 24)).astype(np.float32)
    sources = np.stack([np.zeros(2), 100.0 * np.arange(2)], 1)
    receivers = np.broadcast_to(np.stack([np.zeros(4), 50.0 * np.arange(4)], 1), (2, 4, 2))
    speeds = 1500 + 500 * draw.random((6, 9)).astype(np.float32)
    for kind in ("sgy", "npz", "npy", "bin"):
        title = {"sgy": "SEG-Y", "npz": "seismic NPZ"}.get(kind, "seismic NPY and raw")
        save_gathers(
            _new(folder, title, f"gathers {kind}") / f"gathers.{kind}", Gathers(traces, 0.004, sources, receivers)
        )
        save_model(_new(folder, title, f"model {kind}") / f"model.{kind}", speeds, 10.0)


def configurations(folder: Path) -> None:
    """Files that `init` writes, and one of homodyne."""
    from shardfit.cli.problems.template import text as problem
    from shardfit.cli.seismic.init import text as seismic
    from shardfit.cli.surveys.template import survey_template
    from shardfit.cli.xpcs.init import text as xpcs

    texts = {
        "fit": problem("fit.toml", "model", "fit"),
        "seismic": seismic(),
        "survey": survey_template("vlbi", "runs/survey"),
        "xpcs": xpcs("laminar_flow"),
        "population": POPULATION,
    }
    for kind, text in texts.items():
        (_new(folder, "TOML", kind) / f"{kind}.toml").write_text(text)
    shutil.copy(Path(__file__).parent / "homodyne.yaml", _new(folder, "YAML of homodyne", "static") / "a.yaml")


def fits(folder: Path) -> None:
    """Finished and interrupted fits."""
    import shardfit as sf

    for solver, title in (("lbfgs", "state"), ("lbfgsb", "journal")):
        place = folder / "made" / title
        sf.fit(
            decay(),
            solver,
            run_dir=sf.RunDir(place, seconds=0.0),
            progress=False,
            every=1,
            callback=lambda s: s.step > 3,
        )
        (place / "result.json").unlink()
        (place / "arrays.npz").unlink()
        _keep(place, _new(folder, "checkpoints", title))
        sf.fit(decay(), solver, run_dir=place, progress=False)
        (place / "report.json").write_text(EXTRA)
        _keep(place, _new(folder, "results", title), ("result.json", "arrays.npz"))
        _keep(place, _new(folder, "run directories", title))


def posteriors(folder: Path) -> None:
    """A posterior."""
    import shardfit as sf

    place = folder / "made" / "posterior"
    sf.sample(decay(), chains=2, warmup=50, draws=20, run_dir=place, progress=False)
    _keep(place, _new(folder, "posteriors", "nuts"), ("posterior.json", "draws.npz"))
    _keep(place, _new(folder, "run directories", "posterior"))


def surveys(folder: Path) -> None:
    """A ledger."""
    place = folder / "made" / "survey"
    make_survey(place, 12).close()
    _keep(place, _new(folder, "ledgers", "small"), ("ledger.sqlite",))


def commands(folder: Path) -> None:
    """What a command writes of itself, and what a run says while it works."""
    from shardfit.cli.xpcs.config import Config
    from shardfit.cli.xpcs.watch import LEDGER, Ledger
    from shardfit.io.files import write_json
    from shardfit.io.live import Live

    place = folder / "made" / "state"
    content = {"format": 1, "command": ["fit", "a.toml"], "folder": ".", "options": {}, "config": None, "seed": 0}
    content |= {"files": {}, "environment": {}, "began": "2026-01-01T00:00:00+00:00", "exit": 0, "seconds": 1.5}
    command = _new(folder, "command.json", "fit")
    write_json(command / "command.json", content)
    live = _new(folder, "live.json and its page", "running")
    _keep(place, live, ("config.json", "events.jsonl", "env.json"))
    shutil.copy(command / "command.json", live)
    curves = {"value": (np.arange(9.0), np.exp(-np.arange(9.0)), "evaluations")}
    Live(live, "decay").say(9, 100, left=4.0, numbers={"value": 1.5}, curves=curves)
    _keep(place, _new(folder, "live.json and its page", "ended"))
    watched = _new(folder, "ledger of watched files", "one")
    ledger = Ledger(watched, Config())
    ledger.add(Path("a.h5"), (100, 200), {"file": "a.h5", "status": "converged"})
    for path in watched.iterdir():
        if path.name != LEDGER:
            path.unlink()


def _keep(source: Path, target: Path, names: tuple[str, ...] = ()) -> None:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and path.name != "lock" and (not names or name in names):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
