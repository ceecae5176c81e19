"""The configuration of XPCS commands: TOML, or the YAML of the package homodyne."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from shardfit.cli.xpcs.homodyne_yaml import translated
from shardfit.core.errors import file_not_found_error
from shardfit.core.extras import require_extra
from shardfit.domains.xpcs.options import FitOptions, Selection
from shardfit.options.common import seed_option
from shardfit.options.declared import Options, like, option, section
from shardfit.options.reading import read_options
from shardfit.options.rules import Place

MODES = {
    "static": "static",
    "laminar_flow": "laminar_flow",
    "two_component": "two_component",
    "static_isotropic": "static",
    "static_anisotropic": "static",
    "heterodyne": "two_component",
}
WRITER = "shardfit xpcs init"


@dataclass(frozen=True)
class DataSection(Selection):
    """Section [data]: the file and what is taken of it."""

    file: str | None = option(None, "correlation file, where the command names none", example="run7.hdf")
    angles: tuple[tuple[float, float], ...] = option(
        (), "keep azimuths in these ranges, degrees", example=[[-10, 10], [85, 95]]
    )
    keep_all_if_no_angle: bool = option(True, "keep all angles where none is in these ranges, or refuse")
    sigma: float | Literal["estimate"] | None = option(
        None,
        "noise of c2, or 'estimate': measured\n0.01 is assumed if left out, and χ² is not calibrated",
        above=0,
        example=0.01,
    )
    outliers: float | None = option(
        None, "leave out points so many σ from the median of their lag", above=0, example=6.0
    )


@dataclass(frozen=True)
class FitSection(FitOptions):
    """Section [fit]: how the model is fitted, and how far the search goes."""

    starts: int = option(1, "different starts that are searched from", least=1)
    maxiter: int | None = option(None, "most steps", least=1, example=200)
    ftol: float | None = option(None, "relative change of χ² at which a search ends", least=0, example=1e-14)
    start: Mapping[str, float] = like(FitOptions, "start", file=False)
    bounds: Mapping[str, tuple[float | None, float | None]] = like(FitOptions, "bounds", file=False)
    fixed: Mapping[str, float] = like(FitOptions, "fixed", file=False)


@dataclass(frozen=True)
class Config(Options):
    """A configuration."""

    mode: str = option("static", "what the sample does", choices=MODES)
    convention: str = option(
        "compat", "of shear: 'compat', the numbers of the package homodyne, or 'theory'", choices=("compat", "theory")
    )
    seed: int = seed_option()
    arrays: bool = option(True, "keep data and fit in nlsq/fitted_data.npz, which heat maps are drawn from")
    data: DataSection = section(DataSection)
    fit: FitSection = section(FitSection)
    start: Mapping[str, float] = like(FitOptions, "start")
    bounds: Mapping[str, tuple[float | None, float | None]] = like(FitOptions, "bounds")
    fixed: Mapping[str, float] = like(FitOptions, "fixed")

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "mode", MODES[self.mode])

    def model(self) -> Any:
        """Return the model of the mode."""
        from shardfit.domains.xpcs import TwoComponent, laminar_flow, static

        makers = {"static": static, "laminar_flow": laminar_flow}
        return TwoComponent() if self.mode == "two_component" else makers[self.mode](self.convention)

    def options(self, data: Any = None) -> Any:
        """Return the options of a fit. Errors of points are by frames, unless said otherwise or there are none."""
        from shardfit.domains.xpcs import Binned
        from shardfit.domains.xpcs.problem import takes_speckle

        options = self.fit.part(FitOptions, start=self.start, bounds=self.bounds, fixed=self.fixed)
        if data is None or isinstance(data, Binned) or options.compat is not None:
            return options
        if options.errors == "auto" and not takes_speckle(data, options):
            return replace(options, errors="frames")
        return options

    def load(self, file: str | Path) -> Any:
        """Return the data of a file: read, selected and cleaned as configured."""
        from shardfit.domains.xpcs import estimate_noise, read, without_outliers

        wanted = self.data
        data = read(file, wanted.part(Selection))
        if wanted.angles:
            data = data.near_angles(wanted.angles, wanted.keep_all_if_no_angle)
        if wanted.outliers is not None:
            data = without_outliers(data, wanted.outliers)
        if wanted.sigma is None:
            return data
        return replace(data, sigma=estimate_noise(data) if wanted.sigma == "estimate" else wanted.sigma)


def read_config(path: str | Path | None) -> Config:
    """Return the configuration of a TOML or YAML file, or raise naming what is wrong with it; None: the defaults."""
    if path is None:
        return Config()
    if Path(path).suffix in (".yaml", ".yml"):
        return Config.filled(_read_yaml(Path(path)), Place(str(path)))
    return read_options(Config, path, WRITER)


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
