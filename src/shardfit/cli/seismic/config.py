"""The configuration of seismic commands: a TOML file, checked key by key before anything is made of it."""

import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from shardfit.core.errors import suggestion
from shardfit.options.reading import read_toml

Pair = tuple[float, float]
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class ModelSection:
    """[model]: the true model. name: a built-in one, or file: read from there.

    Of elastic waves also vs, a file, or else vp / vp_over_vs and zero in water; rho, one number or a file. Of VTI waves
    epsilon and delta, zero in water, of viscoacoustic ones q, which water has not: numbers or files.
    """

    name: str | None = None
    file: str | None = None
    shape: tuple[int, int] | tuple[int, int, int] | None = None
    dh: float | Pair | Triple | None = None
    seed: int = 0
    dtype: str = "<f4"
    download: bool = False
    vp_over_vs: float = 1.8
    vs: str | None = None
    rho: float | str = 2000.0
    epsilon: float | str = 0.1
    delta: float | str = 0.05
    q: float | str = 50.0


@dataclass(frozen=True)
class StartSection:
    """[start]: where the inversion begins. vs, epsilon, delta, q: in place of what follows from [model]."""

    kind: str = "smoothed"
    metres: float = 300.0
    top: float = 1600.0
    bottom: float = 4000.0
    file: str | None = None
    vs: str | None = None
    epsilon: float | str | None = None
    delta: float | str | None = None
    q: float | str | None = None
    dtype: str = "<f4"
    water: float | None = 1500.0


@dataclass(frozen=True)
class SurveySection:
    """[survey]: time axis, wavelet and positions; positions in metres."""

    dt: float | None = None
    nt: int | None = None
    f_peak: float = 5.0
    delay: float | None = None
    source_depth: float | None = None
    source_step: float | None = None
    receiver_depth: float | None = None
    receiver_step: float | None = None


@dataclass(frozen=True)
class DataSection:
    """[data]: recorded gathers; without a file they are made from the true model."""

    file: str | None = None
    shape: tuple[int, int, int] | None = None
    dtype: str = "<f4"
    by: int = 9
    origin: Pair | Triple | None = None
    noise: float = 0.0


@dataclass(frozen=True)
class SimulationSection:
    """[simulation]: the scheme."""

    order: int = 4
    widths: int | tuple[int, int, int, int] | tuple[int, int, int, int, int, int] = 20
    free_surface: bool = False
    v_max: float | None = None
    engine: str = "auto"
    waves: str = "acoustic"
    source: str = "explosive"
    receiver: str = "pressure"
    f_ref: float | None = None
    band: Pair | None = None
    mechanisms: int = 3


@dataclass(frozen=True)
class Config:
    """A configuration file, checked. folder: where it lies; names of files are relative to it."""

    model: ModelSection = field(default_factory=ModelSection)
    start: StartSection = field(default_factory=StartSection)
    survey: SurveySection = field(default_factory=SurveySection)
    data: DataSection = field(default_factory=DataSection)
    simulation: SimulationSection = field(default_factory=SimulationSection)
    inversion: Mapping[str, Any] = field(default_factory=dict)
    rtm: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    show_every: int = 10
    film: bool = True
    folder: Path = Path()

    def path(self, name: str) -> Path:
        """Return the place of a file that the configuration names."""
        return self.folder / Path(name).expanduser()


def read_config(path: str | Path) -> Config:
    """Return the configuration of a file, or raise naming what is wrong with it."""
    content = read_toml(path, "shardfit seismic init")
    return replace(_filled(Config, content, str(path)), folder=Path(path).resolve().parent)


def checked_table(given: Any, known: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a table whose keys are known, and whose numbers, texts and switches are like their defaults."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a table.")
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}.{suggestion(key, known)}")
        like = known[key]
        fits = True
        if isinstance(like, bool | str):
            fits = isinstance(value, type(like))
        elif isinstance(like, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif isinstance(like, tuple):
            fits = isinstance(value, list)
        if not fits:
            kind = "a list" if isinstance(like, tuple) else f"like {like!r}"
            raise ValueError(f"{where}: {key} = {value!r} must be {kind}.")
    return dict(given)


def _filled(kind: type, found: Mapping[str, Any], where: str) -> Any:
    """Return a section with the values of a table."""
    known = {f.name: f.type for f in fields(kind) if f.name != "folder"}
    values = {}
    for key, value in found.items():
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}.{suggestion(key, known)}")
        values[key] = _value(known[key], value, f"{where}: {key}")
    return kind(**values)


def _value(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, type) and kind.__module__ == __name__:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table.")
        return _filled(kind, value, where.replace(": ", ": [") + "]")
    options = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for option in options:
        fits, made = _as(option, value)
        if fits:
            return made
    names = " or ".join(_name(option) for option in options if option is not types.NoneType)
    raise ValueError(f"{where} = {value!r} must be {names}.")


def _as(kind: Any, value: Any) -> tuple[bool, Any]:
    """Return whether a value is of this kind, and the value as such."""
    parts = get_args(kind)
    if kind == Mapping[str, Any]:
        return isinstance(value, dict), value
    if parts:
        pairs = [_as(part, v) for part, v in zip(parts, value, strict=False)] if isinstance(value, list) else []
        return len(pairs) == len(parts) == len(value) and all(f for f, _ in pairs), tuple(v for _, v in pairs)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool), value
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, kind), value


def _name(kind: Any) -> str:
    parts = get_args(kind)
    if kind == Mapping[str, Any]:
        return "a table"
    if parts:
        return f"[{', '.join(_name(part) for part in parts)}]"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[kind]
