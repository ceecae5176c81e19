"""The configuration of a survey: which science, which axes, which points, which solver."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from shardfit.core.errors import suggestion

# a science's function from its own section and the axes to what `survey` needs: problem, axes, picture
SCIENCES = {"vlbi": "shardfit.domains.vlbi.recipes.survey_config:make"}
DESIGNS = ("grid", "latin", "sobol", "table")
SAVED = "survey.toml"

TEMPLATE = """\
# What `shardfit survey run` reads. Look at the survey while it runs with `shardfit serve {out}`.

science = "vlbi"          # or problem = "module:function" of your own, see docs/surveys.md
out = "{out}"    # run directory: the ledger, which makes the survey resumable

[vlbi]                    # any option of `shardfit vlbi image` by its Python name
data = "{data}"             # a uvfits file, or ring, crescent, disk, double: simulated data of a known image
flux = 0.6                # compact flux, Jy
npix = 64
fov_uas = 128.0

[axes]                    # every value of every axis: a list, or {{ low = ..., high = ..., log = true }} for a range
prior_fwhm_uas = [40, 50, 60]
systematic = [0.0, 0.01, 0.02, 0.05]
simple = [0, 1, 10, 100, 1000]
tv = [0, 1, 10, 100, 1000]
tv2 = [0, 1, 10, 100, 1000]
l1 = [0, 1, 10, 100, 1000]

[design]
kind = "latin"            # grid: every combination (7,500 here); latin, sobol: `points` of them; table: a list `table`
points = 200
seed = 0

[solver]                  # a name and its options
name = "lbfgs"
maxiter = 100
ftol = 1e-6

# [halving]               # give up hopeless points early
# first = 25              # steps before the first cut
# factor = 2              # one in so many goes on
# score = ["data.cphase", "data.logcamp"]

[run]                     # where; none of it changes what is found
# slots = 64              # fits that share a batch; "measure" tries several; left out: chosen by memory
# devices = 2             # devices that share the slots
# workers = 2             # processes that share the points
"""


@dataclass(frozen=True)
class Config:
    """A configuration file, checked; path: where it was read from."""

    out: str
    axes: Mapping[str, Any]
    science: str | None = None
    problem: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    design: Mapping[str, Any] = field(default_factory=dict)
    solver: Mapping[str, Any] = field(default_factory=dict)
    halving: Mapping[str, Any] | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    path: str = ""


KNOWN = {
    "design": {"kind", "points", "seed", "table"},
    "run": {"slots", "devices", "rows", "workers", "limit"},
    "halving": {"first", "factor", "score"},
}


def read_config(path: str | Path) -> Config:
    """Read a configuration; raise with the place and the remedy if it is wrong."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} does not exist. `shardfit init survey {path}` writes one to start from."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from None
    return checked(content, str(path))


def checked(content: Mapping[str, Any], path: str) -> Config:
    """Return a configuration from its content."""
    content = dict(content)
    science, problem = content.get("science"), content.get("problem")
    if (science is None) == (problem is None):
        raise ValueError(f"{path}: give either science ({', '.join(SCIENCES)}) or problem = 'module:function'.")
    if science is not None and science not in SCIENCES:
        raise ValueError(f"{path}: unknown science {science!r}.{suggestion(str(science), SCIENCES)}")
    settings = content.pop(science or "settings", {})
    known = {f.name for f in fields(Config)} - {"settings", "path"}
    for name in content:
        if name not in known:
            raise ValueError(f"{path}: unknown entry {name!r}.{suggestion(name, known | {science or 'settings'})}")
    for section, names in KNOWN.items():
        for name in content.get(section, {}):
            if name not in names:
                raise ValueError(f"{path}: [{section}] has an unknown entry {name!r}.{suggestion(name, names)}")
    for name in ("out", "axes"):
        if name not in content:
            raise ValueError(f"{path}: {name} is missing. `shardfit init survey` writes an example.")
    kind = content.get("design", {}).get("kind", "grid")
    if kind not in DESIGNS:
        raise ValueError(f"{path}: [design] kind {kind!r} is unknown.{suggestion(str(kind), DESIGNS)}")
    return Config(settings=settings, path=path, **content)


def make(text: str, path: str, slots: int | str | None = None) -> tuple[Any, Any, dict[str, Any]]:
    """Return problem, axes and options of `survey` from a configuration as JSON; workers call it too."""
    from shardfit.surveys.axes import Span
    from shardfit.surveys.halving import Halving

    config = checked(json.loads(text), path)
    axes = {name: Span(**v) if isinstance(v, Mapping) else tuple(v) for name, v in config.axes.items()}
    ready = _maker(config)(dict(config.settings), axes)
    solver = {"name": "lbfgs", "maxiter": 100, **config.solver}
    options: dict[str, Any] = {"design": _design(ready.axes, config.design)}
    options |= {"picture": ready.picture, "seed": config.seed, "slots": slots}
    options |= {"solver": solver.pop("name"), **solver}
    if config.halving is not None:
        told = {**config.halving, "score": tuple(config.halving.get("score", ()))}
        options["halving"] = Halving(**told)
    return ready.problem, ready.axes, options


def _design(axes: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
    from shardfit.surveys.designs import grid, latin, sobol, table

    kind = asked.get("kind", "grid")
    if kind == "grid":
        return grid(axes)
    if kind == "table":
        return table(axes, asked.get("table", ()))
    return {"latin": latin, "sobol": sobol}[kind](axes, int(asked.get("points", 100)), int(asked.get("seed", 0)))


def _maker(config: Config) -> Any:
    address = config.problem or SCIENCES[str(config.science)]
    module, _, name = address.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{config.path}: problem = {address!r} cannot be loaded ({error}). Write 'module:function', with the "
            "module on PYTHONPATH or in the present folder."
        ) from None
