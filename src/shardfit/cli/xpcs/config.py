"""The configuration of XPCS commands: TOML, or the YAML of the package homodyne, both checked key by key."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shardfit.cli.toml import read_toml
from shardfit.cli.xpcs.homodyne_yaml import translated
from shardfit.core.errors import file_not_found_error, suggestion
from shardfit.core.extras import require_extra

MODES = {
    "static": "static",
    "static_isotropic": "static",
    "static_anisotropic": "static",
    "laminar_flow": "laminar_flow",
    "two_component": "two_component",
    "heterodyne": "two_component",
}
SIGMA = "estimate"  # measure the noise


def _key(default: Any, kind: str) -> Any:
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True)
class DataConfig:
    """Section [data]: the file and what is taken of it."""

    file: str | None = _key(None, "text")
    q: float | None = _key(None, "a number")
    dt: float | None = _key(None, "a number")
    gap: float | None = _key(None, "a number")
    frames: tuple[int, int] = _key((1, -1), "a pair of whole numbers")
    angles: tuple[tuple[float, float], ...] = _key((), "a list of pairs")
    keep_all_if_no_angle: bool = _key(True, "true or false")
    q_tolerance: float = _key(0.1, "a number")
    diagonal: str = _key("basic", "text")
    sigma: Any = _key(None, f"a number or '{SIGMA}'")
    outliers: float | None = _key(None, "a number")
    analysis: str | None = _key(None, "text")


@dataclass(frozen=True)
class FitConfig:
    """Section [fit]: how the model is fitted."""

    scaling: str = _key("auto", "text")
    loss: str = _key("linear", "text")
    triangle: str = _key("upper", "text")
    fourier_order: int = _key(2, "a whole number")
    shared_from: int = _key(3, "a whole number")
    shear_weighted: bool = _key(False, "true or false")
    warm_start: bool = _key(False, "true or false")
    even_scales: float = _key(0.0, "a number")
    errors: str | None = _key(None, "text")
    law: str = _key("auto", "text")
    compat: str | None = _key(None, "text")
    starts: int = _key(1, "a whole number")
    maxiter: int | None = _key(None, "a whole number")
    ftol: float | None = _key(None, "a number")


@dataclass(frozen=True)
class Config:
    """A configuration, checked."""

    mode: str = "static"
    convention: str = "compat"
    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    start: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    arrays: bool = True  # write fitted_data.npz, which heat maps are drawn from

    def model(self) -> Any:
        """Return the model of the mode."""
        from shardfit.domains.xpcs import TwoComponent, laminar_flow, static

        makers = {"static": static, "laminar_flow": laminar_flow}
        return TwoComponent() if self.mode == "two_component" else makers[self.mode](self.convention)

    def options(self, data: Any = None) -> Any:
        """Return the options of a fit. Errors are by frames, unless said otherwise or the data have none to show."""
        from shardfit.domains.xpcs import Binned, FitOptions

        names = {f.name for f in fields(FitOptions)} & {f.name for f in fields(FitConfig)}
        shared = {name: getattr(self.fit, name) for name in names}
        binned = isinstance(data, Binned) or self.fit.compat is not None
        shared["errors"] = self.fit.errors or ("points" if binned else "frames")
        return FitOptions(**shared, start=self.start, bounds=self.bounds, fixed=self.fixed)

    def load(self, file: str | Path) -> Any:
        """Return the data of a file: read, selected and cleaned as configured."""
        from shardfit.domains.xpcs import estimate_noise, read, without_outliers

        wanted = self.data
        names = ("q", "dt", "gap", "frames", "q_tolerance", "diagonal", "analysis")
        settings = {name: getattr(wanted, name) for name in names}
        data = read(file, **settings)
        if wanted.angles:
            data = data.near_angles(wanted.angles, wanted.keep_all_if_no_angle)
        if wanted.outliers is not None:
            data = without_outliers(data, wanted.outliers)
        if wanted.sigma is None:
            return data
        return replace(data, sigma=estimate_noise(data) if wanted.sigma == SIGMA else wanted.sigma)


def read_config(path: str | Path | None) -> Config:
    """Return the configuration of a TOML or YAML file, or raise naming what is wrong with it; None: the defaults."""
    if path is None:
        return Config()
    content = (
        _read_yaml(Path(path)) if Path(path).suffix in (".yaml", ".yml") else read_toml(path, "shardfit xpcs init")
    )
    return make_config(content, str(path))


def _read_yaml(path: Path) -> dict[str, Any]:
    with require_extra(f"reading {path}", "xpcs"):
        import yaml
    if not path.is_file():
        raise file_not_found_error(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no sections. Give it keys such as analysis_mode and analyzer_parameters.")
    try:
        content, notes = translated(content)
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: a section is not built as expected ({type(error).__name__}: {error}).") from None
    for note in notes:
        warnings.warn(f"{path}: {note}", UserWarning, stacklevel=2)
    return content


def make_config(content: Mapping[str, Any], where: str) -> Config:
    """Return a checked configuration from plain values."""
    known = {f.name for f in fields(Config)}
    settings: dict[str, Any] = {}
    for key, value in content.items():
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}.{suggestion(key, known)}")
        if key in ("data", "fit"):
            settings[key] = _section(DataConfig if key == "data" else FitConfig, key, value, where)
        elif key in ("start", "bounds", "fixed"):
            settings[key] = _by_parameter(key, value, where)
        else:
            settings[key] = value
    for key, kind in (("seed", int), ("arrays", bool), ("mode", str), ("convention", str)):
        if key in settings and (not isinstance(settings[key], kind) or (kind is int and settings[key] is True)):
            raise ValueError(f"{where}: {key} = {settings[key]!r} must be of type {kind.__name__}.")
    mode = settings.get("mode", "static")
    if mode not in MODES:
        raise ValueError(f"{where}: unknown mode {mode!r}.{suggestion(mode, MODES)}")
    settings["mode"] = MODES[mode]
    return Config(**settings)


def _section(kind: type, name: str, content: Any, where: str) -> Any:
    if not isinstance(content, Mapping):
        raise ValueError(f"{where}: {name} must be a section, [{name}].")
    known = {f.name: f.metadata["kind"] for f in fields(kind)}
    for key, value in content.items():
        if key not in known:
            raise ValueError(f"{where}: [{name}] has no key {key!r}.{suggestion(key, known)}")
        if not CHECKS[known[key]](value):
            raise ValueError(f"{where}: [{name}] {key} = {value!r} must be {known[key]}.")
    return kind(**{key: _tuples(value) for key, value in content.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_pair(value: Any, of: Callable[[Any], bool] = _is_number) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(of, value))


# what a value must be, in words, and how that is tested
CHECKS: dict[str, Callable[[Any], bool]] = {
    "a number": _is_number,
    "a whole number": _is_whole,
    "text": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a pair of whole numbers": lambda value: _is_pair(value, _is_whole),
    "a list of pairs": lambda value: isinstance(value, list | tuple) and all(map(_is_pair, value)),
    f"a number or '{SIGMA}'": lambda value: value == SIGMA or _is_number(value),
}


def _by_parameter(name: str, content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{where}: {name} must be a section of parameters, [{name}].")
    for key, value in content.items():
        good = _is_pair(value, lambda v: v is None or _is_number(v))
        if not (good if name == "bounds" else _is_number(value)):
            shape = "a pair of numbers" if name == "bounds" else "a number"
            raise ValueError(f"{where}: [{name}] {key} = {value!r} must be {shape}.")
    return {str(key): _tuples(value) for key, value in content.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
