"""What a simulation fixes before any velocity is known: grid, time axis, scheme and edges, checked when it is made."""

import math
import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from jax.core import Tracer

from shardfit.domains.seismic.stencil import ORDERS, spectral_bound

EDGES = {"z": ("top", "bottom"), "y": ("front", "back"), "x": ("left", "right")}
AXES = {2: ("z", "x"), 3: ("z", "y", "x")}
CELLS_PER_WAVELENGTH = 6  # at the peak frequency; with fewer, dispersion shows


@dataclass(frozen=True)
class Simulation:
    """Grid, time axis and scheme of an acoustic simulation, (1/v²) u_tt = u_zz + u_xx + s in SI units, or + u_yy.

    shape: (nz, nx) or (nz, ny, nx) cells, row 0 at the top. dh: spacing in metres, one number or one per axis. dt:
    seconds; nt: samples, at times n dt. v_max: upper bound of the velocity in m/s for everything that will be tried;
    the time step is checked against it and the absorbing profile is made from it. f_peak: peak frequency in Hz. order:
    2, 4, 6 or 8, in space. widths: absorbing cells added outside the model, one number or (top, bottom, left, right),
    in three dimensions (top, bottom, front, back, left, right). free_surface: pressure is zero on row 0, which then has
    no absorbing cells above. scaling: a source adds (v dt)² w ('physical') or w ('raw').

    Example: `Simulation((100, 300), dh=10.0, dt=1e-3, nt=1000, v_max=4500.0, f_peak=10.0)`.
    """

    shape: tuple[int, ...]
    dh: Any
    dt: float
    nt: int
    v_max: float
    f_peak: float
    order: int = 4
    widths: Any = 20
    free_surface: bool = False
    scaling: str = "physical"
    still_surface: ClassVar[bool] = True  # what sources and receivers act on is zero on a free surface

    def __post_init__(self):
        if not isinstance(self.shape, tuple | list):
            raise TypeError(f"Simulation: shape={self.shape!r} must be (nz, nx) or (nz, ny, nx) cells.")
        dh = self.dh if isinstance(self.dh, tuple | list) else (self.dh,) * len(self.shape)
        widths = self.widths
        if not isinstance(widths, tuple | list):
            widths = (0 if self.free_surface else widths, *(widths,) * (2 * len(self.shape) - 1))
        object.__setattr__(self, "shape", _whole("shape", self.shape))
        object.__setattr__(self, "dh", tuple(_number("dh", h) for h in dh))
        object.__setattr__(self, "widths", _whole("widths", widths))
        self._check()
        check_time_step(self)

    def _check(self):
        if self.order not in ORDERS:
            raise ValueError(f"Simulation: order={self.order!r} is not known. Use one of {ORDERS}.")
        n = len(self.shape)
        if n not in AXES or len(self.dh) != n or len(self.widths) != 2 * n:
            raise ValueError(
                "Simulation: give shape (nz, nx) or (nz, ny, nx), one dh or one per axis, one width or one per edge."
            )
        self._check_numbers()
        if not all(h > 0 and math.isfinite(h) for h in self.dh):
            raise ValueError(f"Simulation: dh={self.dh} must be positive.")
        for axis, n in zip(self.axes, self.shape, strict=True):
            if n <= 2 * self.order:
                raise ValueError(f"Simulation: {n} cells along {axis}; order {self.order} needs over {2 * self.order}.")
        for edge, width in zip((edge for axis in self.axes for edge in EDGES[axis]), self.widths, strict=True):
            if width < 0:
                raise ValueError(f"Simulation: width {width} of the {edge} edge is negative. Use 0 for no layer.")
        if self.free_surface and self.widths[0]:
            raise ValueError("Simulation: a free surface has no absorbing layer above. Set the top width to 0.")
        if self.scaling not in ("physical", "raw"):
            raise ValueError(f"Simulation: scaling={self.scaling!r} must be 'physical' or 'raw'.")

    def _check_numbers(self):
        for name, value in (("dt", self.dt), ("nt", self.nt), ("v_max", self.v_max), ("f_peak", self.f_peak)):
            if not (_number(name, value) > 0 and math.isfinite(value)):
                raise ValueError(f"Simulation: {name}={value!r} must be a positive number.")
        if self.nt != int(self.nt):
            raise ValueError(f"Simulation: nt={self.nt!r} must be a whole number of samples.")
        object.__setattr__(self, "nt", int(self.nt))

    @property
    def spectral_bound(self) -> float:
        """Largest eigenvalue of the scheme's second difference along one axis, times the spacing squared."""
        return spectral_bound(self.order)

    @property
    def half(self) -> int:
        """Cells a stencil reaches to each side."""
        return self.order // 2

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes."""
        return AXES[len(self.shape)]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Widths at the near and the far end of each axis."""
        return tuple(zip(self.widths[::2], self.widths[1::2], strict=True))

    @property
    def padded(self) -> tuple[int, ...]:
        """Cells of the model and its absorbing layers."""
        return tuple(n + low + high for n, (low, high) in zip(self.shape, self.pairs, strict=True))


def _number(name: str, value: Any) -> float:
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        return float(value)
    raise TypeError(f"Simulation: {name}={value!r} is {type(value).__name__}, not a number.")


def _whole(name: str, values: Any) -> tuple[int, ...]:
    """Return whole numbers; others would be cut off without a word."""
    for value in values:
        if not _number(name, value).is_integer():
            raise ValueError(f"Simulation: {name}={tuple(values)} must be whole numbers of cells.")
    return tuple(map(int, values))


def largest_dt(sim: Simulation) -> float:
    """Return the largest stable time step in seconds."""
    return 2 / (sim.v_max * math.sqrt(sim.spectral_bound * sum(1 / h**2 for h in sim.dh)))


def check_time_step(sim: Simulation) -> None:
    """Raise if the scheme would blow up at the upper velocity bound."""
    limit = largest_dt(sim)
    if sim.dt > limit:
        raise ValueError(
            f"dt={sim.dt:g} s is unstable at v_max={sim.v_max:g} m/s with order {sim.order}: the largest stable dt is "
            f"{math.floor(limit * 1e7) / 1e7:g} s. Use that, or a spacing {sim.dt / limit:.3g} times as large."
        )


def require_floats(name: str, array: Any) -> None:
    """Raise unless an array has the type of real numbers that waves are computed in; files may have another order."""
    dtype = np.asarray(array).dtype if isinstance(array, list | tuple) else getattr(array, "dtype", np.dtype(object))
    if dtype not in (np.float32, np.float64):
        raise TypeError(
            f"{name} is {dtype}: waves are computed in float32 or float64, the type of the model. Convert it: "
            f"np.asarray({name}, np.float32)."
        )


def require_finite(name: str, array: Any) -> None:
    """Raise for NaN or infinity; traced values pass unseen."""
    if not isinstance(array, Tracer) and not np.isfinite(np.asarray(array)).all():
        raise ValueError(f"{name} holds NaN or infinity. Give finite samples.")


def check_cells(sim: Simulation, shots: Any) -> None:
    """Raise for shots that were made for a larger grid: what they name is not there; traced values pass unseen."""
    for name, points in zip(("sources", "receivers"), shots, strict=True):
        if isinstance(points.cells, Tracer) or not points.cells.size:
            continue
        if int(np.asarray(points.cells).max()) >= math.prod(sim.padded):
            raise ValueError(
                f"{name}: a cell lies outside this simulation's grid {sim.padded}, absorbing layers included: these "
                "shots are of another simulation. Make them with acquisition(sim, ...) for this one."
            )


def check_velocity(sim: Simulation, velocity: Any) -> None:
    """Raise if a velocity model cannot be simulated, warn if waves would disperse; traced values pass unseen."""
    if tuple(velocity.shape) != sim.shape:
        names = ", ".join(f"n{axis}" for axis in sim.axes)
        raise ValueError(f"velocity has shape {tuple(velocity.shape)}, but the simulation is {sim.shape}: ({names}).")
    if isinstance(velocity, Tracer):
        return
    values = np.asarray(velocity)
    for bad, what in ((~np.isfinite(values), "not finite"), (values <= 0, "not positive")):
        if bad.any():
            cell = tuple(map(int, np.argwhere(bad)[0]))
            raise ValueError(f"velocity is {what} at cell {cell}: {values[cell]}. Give metres per second.")
    if values.max() > sim.v_max:
        raise ValueError(
            f"velocity reaches {values.max():g} m/s, above v_max={sim.v_max:g} for which the time step was checked. "
            "Raise v_max, which may need a smaller dt."
        )
    cells = values.min() / sim.f_peak / max(sim.dh)
    if cells < CELLS_PER_WAVELENGTH:
        warnings.warn(
            f"only {cells:.2g} cells per wavelength at {sim.f_peak:g} Hz and {values.min():g} m/s, so waves disperse. "
            f"Use dh below {values.min() / sim.f_peak / CELLS_PER_WAVELENGTH:.3g} m, or a lower frequency.",
            stacklevel=3,
        )
