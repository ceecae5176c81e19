"""What a simulation fixes before any velocity is known: grid, time axis, scheme and edges, checked when it is made."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.core import Tracer

from shardfit.domains.seismic.stencil import ORDERS, spectral_bound

EDGES = ("top", "bottom", "left", "right")
AXES = ("z", "x")
CELLS_PER_WAVELENGTH = 6  # at the peak frequency; with fewer, dispersion shows


@dataclass(frozen=True)
class Simulation:
    """Grid, time axis and scheme of a 2-D acoustic simulation, (1/v²) u_tt = u_zz + u_xx + s in SI units.

    shape: (nz, nx) cells, row 0 at the top. dh: spacing in metres, one number or (dz, dx). dt: seconds; nt: samples,
    at times n dt. v_max: upper bound of the velocity in m/s for everything that will be tried; the time step is checked
    against it and the absorbing profile is made from it. f_peak: peak frequency in Hz. order: 2, 4, 6 or 8, in space.
    widths: absorbing cells added outside the model, one number or (top, bottom, left, right). free_surface: pressure is
    zero on row 0, which then has no absorbing cells above. scaling: a source adds (v dt)² w ('physical') or w ('raw').

    Example: `Simulation((100, 300), dh=10.0, dt=1e-3, nt=1000, v_max=4500.0, f_peak=10.0)`.
    """

    shape: tuple[int, int]
    dh: Any
    dt: float
    nt: int
    v_max: float
    f_peak: float
    order: int = 4
    widths: Any = 20
    free_surface: bool = False
    scaling: str = "physical"

    def __post_init__(self):
        dh = self.dh if isinstance(self.dh, tuple | list) else (self.dh, self.dh)
        widths = self.widths
        if not isinstance(widths, tuple | list):
            widths = (0 if self.free_surface else widths, widths, widths, widths)
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        object.__setattr__(self, "dh", tuple(map(float, dh)))
        object.__setattr__(self, "widths", tuple(map(int, widths)))
        self._check()
        check_time_step(self)

    def _check(self):
        if self.order not in ORDERS:
            raise ValueError(f"Simulation: order={self.order!r} is not known. Use one of {ORDERS}.")
        if len(self.shape) != 2 or len(self.dh) != 2 or len(self.widths) != 4:
            raise ValueError("Simulation: give shape (nz, nx), dh or (dz, dx), and one width or four (one per edge).")
        for name, value in (("dt", self.dt), ("nt", self.nt), ("v_max", self.v_max), ("f_peak", self.f_peak)):
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"Simulation: {name}={value!r} must be a positive number.")
        if not all(h > 0 and math.isfinite(h) for h in self.dh):
            raise ValueError(f"Simulation: dh={self.dh} must be positive.")
        for axis, n in zip(AXES, self.shape, strict=True):
            if n <= 2 * self.order:
                raise ValueError(f"Simulation: {n} cells along {axis}; order {self.order} needs over {2 * self.order}.")
        for edge, width in zip(EDGES, self.widths, strict=True):
            if width < 0:
                raise ValueError(f"Simulation: width {width} of the {edge} edge is negative. Use 0 for no layer.")
        if self.free_surface and self.widths[0]:
            raise ValueError("Simulation: a free surface has no absorbing layer above. Set the top width to 0.")
        if self.scaling not in ("physical", "raw"):
            raise ValueError(f"Simulation: scaling={self.scaling!r} must be 'physical' or 'raw'.")

    @property
    def half(self) -> int:
        """Cells a stencil reaches to each side."""
        return self.order // 2

    @property
    def padded(self) -> tuple[int, int]:
        """Cells of the model and its absorbing layers."""
        top, bottom, left, right = self.widths
        return self.shape[0] + top + bottom, self.shape[1] + left + right


def largest_dt(sim: Simulation) -> float:
    """Return the largest stable time step in seconds."""
    return 2 / (sim.v_max * math.sqrt(spectral_bound(sim.order) * sum(1 / h**2 for h in sim.dh)))


def check_time_step(sim: Simulation) -> None:
    """Raise if the scheme would blow up at the upper velocity bound."""
    limit = largest_dt(sim)
    if sim.dt > limit:
        raise ValueError(
            f"dt={sim.dt:g} s is unstable at v_max={sim.v_max:g} m/s with order {sim.order}: the largest stable dt is "
            f"{math.floor(limit * 1e7) / 1e7:g} s. Use that, or a spacing {sim.dt / limit:.3g} times as large."
        )


def check_velocity(sim: Simulation, velocity: Any) -> None:
    """Raise if a velocity model cannot be simulated, warn if waves would disperse; traced values pass unseen."""
    if tuple(velocity.shape) != sim.shape:
        raise ValueError(f"velocity has shape {tuple(velocity.shape)}, but the simulation is {sim.shape}: (nz, nx).")
    if isinstance(velocity, Tracer):
        return
    values = np.asarray(velocity)
    for bad, what in ((~np.isfinite(values), "not finite"), (values <= 0, "not positive")):
        if bad.any():
            z, x = np.argwhere(bad)[0]
            raise ValueError(f"velocity is {what} at cell ({z}, {x}): {values[z, x]}. Give metres per second.")
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
