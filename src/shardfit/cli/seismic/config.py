"""The configuration of seismic commands."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shardfit.domains.seismic.elastic import RECEIVERS, SOURCES
from shardfit.domains.seismic.engines import ENGINES
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import WaveOptions
from shardfit.domains.seismic.recipes import InversionOptions, MigrationOptions
from shardfit.options.common import seed_option
from shardfit.options.declared import Options, like, option, section
from shardfit.options.reading import read_options

Pair = tuple[float, float]
Triple = tuple[float, float, float]
Bounds = tuple[float | str, float | str]
MADE = ("layers", "lens", "faulted")
STARTS = ("smoothed", "linear", "file")
WAVES = ("acoustic", "elastic", "vti", "viscoacoustic")


@dataclass(frozen=True)
class ModelSection(Options):
    """[model]: the true model, a built-in one or one of files."""

    name: str | None = option(None, "a built-in one", choices=(*MADE, "marmousi"), example="layers")
    file: str | None = option(None, "or one of a file: .npz, .sgy, .npy, .bin", example="vp.npz")
    shape: tuple[int, int] | tuple[int, int, int] | None = option(
        None, "[nz, nx] cells, or [nz, ny, nx]; marmousi and files know theirs, raw binary needs it", least=1
    )
    dh: float | Pair | Triple | None = option(None, "spacing, or one for each axis", unit="m", above=0)
    seed: int = seed_option("the faulted section")
    dtype: str = option("<f4", "numbers of a raw binary file")
    download: bool = option(False, "get marmousi from its publisher where it is not here")
    vp_over_vs: float = option(1.8, "of elastic waves: gives vs, which is zero in water", above=1)
    vs: str | None = option(None, "of elastic waves: vs from a file", example="vs.npz")
    rho: float | str = option(2000.0, "of elastic waves: density in kg/m³, or a file")
    epsilon: float | str = option(0.1, "of VTI waves: Thomsen's parameter, a number or a file; zero in water")
    delta: float | str = option(0.05, "of VTI waves, likewise")
    q: float | str = option(50.0, "of viscoacoustic waves: quality factor, a number or a file; none in water")


@dataclass(frozen=True)
class StartSection(Options):
    """[start]: where the inversion begins."""

    kind: str = option("smoothed", "the true model smoothed, linear in depth, or a file", choices=STARTS)
    metres: float = option(300.0, "standard deviation of the smoothing", unit="m", above=0)
    top: float = option(1600.0, "of a linear one: speed at the top", unit="m/s", above=0)
    bottom: float = option(4000.0, "of a linear one: speed at the bottom", unit="m/s", above=0)
    file: str | None = option(None, "model to begin with", example="start.npz")
    vs: str | None = option(None, "of elastic waves: vs from a file", example="vs-start.npz")
    epsilon: float | str | None = option(
        None, "of VTI waves: in place of what follows from [model], a number or a file", example=0.0
    )
    delta: float | str | None = option(None, "of VTI waves, likewise", example=0.0)
    q: float | str | None = option(None, "of viscoacoustic waves, likewise", example=50.0)
    dtype: str = option("<f4", "numbers of a raw binary file")
    water: float | None = option(1500.0, "cells of this speed from the top down are kept; 0: none", unit="m/s", least=0)


@dataclass(frozen=True)
class SurveySection(Options):
    """[survey]: time axis, wavelet and positions along the surface; of gathers that know theirs only the wavelet."""

    dt: float | None = option(None, "time between samples", unit="s", above=0, example=0.0025)
    nt: int | None = option(None, "samples", least=1, example=880)
    f_peak: float = option(5.0, "peak frequency of the Ricker wavelet", unit="Hz", above=0)
    delay: float | None = option(None, "time of its peak", unit="s", least=0, example=0.3)
    source_depth: float | None = option(None, "below the surface", unit="m", least=0, example=25.0)
    source_step: float | None = option(None, "from source to source", unit="m", above=0, example=200.0)
    receiver_depth: float | None = option(None, "below the surface", unit="m", least=0, example=50.0)
    receiver_step: float | None = option(None, "from receiver to receiver", unit="m", above=0, example=25.0)


@dataclass(frozen=True)
class DataSection(Options):
    """[data]: recorded gathers; without a file they are made from the true model."""

    file: str | None = option(None, "gathers: .sgy, .segy, .npz, .npy, .bin", example="seismic-model/gathers.npz")
    shape: tuple[int, int, int] | None = option(
        None, "(shots, receivers, samples) of a raw binary file", least=1, example=[20, 100, 880]
    )
    dtype: str = option("<f4", "numbers of a raw binary file")
    by: int = option(9, "byte of SEG-Y headers that numbers the shots", least=1)
    origin: Pair | Triple | None = option(None, "position of the model's first cell", unit="m", example=[0.0, 0.0])
    noise: float = option(0.0, "of made data, as a share of their rms", least=0)


@dataclass(frozen=True)
class SimulationSection(Options):
    """[simulation]: the scheme."""

    order: int = option(4, "of the differences in space: 2, 4, 6, 8", least=2)
    widths: int | tuple[int, int, int, int] | tuple[int, int, int, int, int, int] = option(
        20, "absorbing cells, or [top, bottom, left, right]", least=0
    )
    free_surface: bool = option(False, "waves are reflected at the top")
    v_max: float | None = option(
        None, "fastest speed ever tried; the time step must be stable for it", unit="m/s", above=0, example=4600.0
    )
    engine: str = option("auto", "native (compiled, CPU) where possible, else jax", choices=ENGINES)
    waves: str = option("acoustic", "kind of waves; vti: layered rock, viscoacoustic: attenuation", choices=WAVES)
    source: str = option("explosive", "of elastic waves", choices=SOURCES)
    receiver: str = option("pressure", "of elastic waves", choices=RECEIVERS)
    f_ref: float | None = option(
        None, "of viscoacoustic waves: where speeds are those of the model", unit="Hz", above=0, example=5.0
    )
    band: Pair | None = option(
        None, "of viscoacoustic waves: frequencies between which q holds", unit="Hz", above=0, example=[1.0, 20.0]
    )
    mechanisms: int = option(3, "of viscoacoustic waves: relaxation mechanisms", least=1)


@dataclass(frozen=True)
class InversionSection(InversionOptions):
    """[inversion]: all options of `InversionOptions`; the engine is that of [simulation]."""

    bounds: Bounds | Mapping[str, Bounds] | None = like(InversionOptions, "bounds")
    engine: str | Native = like(InversionOptions, "engine", file=False)


@dataclass(frozen=True)
class MigrationSection(MigrationOptions, WaveOptions):
    """[rtm]: options of a migration, and how its waves are computed."""

    engine: str | Native = like(WaveOptions, "engine", file=False)


@dataclass(frozen=True)
class Config(Options):
    """A configuration. folder: where it lies; names of files are relative to it."""

    seed: int = seed_option("noise and of the draw of shots")
    show_every: int = option(10, "epochs between pictures", least=1)
    film: bool = option(False, "an animation of one shot; drawing it takes a while")
    model: ModelSection = section(ModelSection, "the true model: data are made from it, answers compared with it")
    start: StartSection = section(StartSection, "where the inversion begins")
    survey: SurveySection = section(SurveySection, "of gathers that know their positions only f_peak and delay count")
    data: DataSection = section(DataSection, "recorded gathers; without a file they are made")
    simulation: SimulationSection = section(SimulationSection, "how waves are computed")
    inversion: InversionSection = section(InversionSection, "of `invert`")
    rtm: MigrationSection = section(MigrationSection, "of `rtm`")
    folder: Path = Path()

    def path(self, name: str) -> Path:
        """Return the place of a file that the configuration names."""
        return self.folder / Path(name).expanduser()


def read_config(path: str | Path) -> Config:
    """Return the configuration of a file, or raise naming what is wrong with it."""
    return replace(read_options(Config, path, "shardfit seismic init"), folder=Path(path).resolve().parent)
