"""Where sources and receivers are: positions (z, x) or (z, y, x) in cells become grid cells and weights, on the host.

A whole-number position is one cell of weight 1. A fractional one is spread over 8 cells along its axis by a
Kaiser-windowed sinc; cells above a free surface fold back with a minus sign. Shots with fewer points than others are
padded with weight 0, and so are points that need fewer cells; the compiled engine skips both.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.domains.seismic.simulation import Simulation

HALF_WIDTH, SHAPE = 4, 4.14  # of the Kaiser window, in cells; the shape is for sources of any direction


class Points(NamedTuple):
    """Points of every shot. cells: (shots, points, k) index into the flattened padded grid; weights: the same shape."""

    cells: Any
    weights: Any


class Shots(NamedTuple):
    """Sources and receivers; every leaf has the shots as leading axis, so this is a set of rows."""

    sources: Points
    receivers: Points


def acquisition(sim: Simulation, sources: Any, receivers: Any) -> Shots:
    """Return the shots of a survey.

    sources: (shots, 2), or (shots, n, 2) for several at once; receivers: (n, 2) used by every shot, or (shots, n, 2).
    Either may be a list with one (n, 2) array per shot. Positions are (z, x) in cells, whole or fractional, inside the
    model; in three dimensions (z, y, x).

    Example: `acquisition(sim, [(2, 10), (2, 50)], [(3, x) for x in range(100)])`.
    """
    sources = _per_shot(sim, "sources", sources)
    if isinstance(sources, np.ndarray) and sources.ndim == 2:
        sources = sources[:, None]
    receivers = _per_shot(sim, "receivers", receivers)
    if isinstance(receivers, np.ndarray) and receivers.ndim == 2:
        receivers = np.broadcast_to(receivers, (len(sources), *receivers.shape))
    if len(sources) != len(receivers):
        raise ValueError(f"{len(sources)} shots have sources, {len(receivers)} receivers. Give each shot both.")
    return Shots(_points(sim, "sources", sources), _points(sim, "receivers", receivers))


def select(shots: Shots, index: Any) -> Shots:
    """Return some of the shots. index: a slice, mask or list of shot numbers."""
    return jax.tree.map(lambda leaf: leaf[index], shots)


def _per_shot(sim: Simulation, name: str, given: Any) -> np.ndarray | list[np.ndarray]:
    if not isinstance(given, list | tuple) and getattr(given, "dtype", np.dtype(object)).kind not in "fiu":
        raise TypeError(f"{name}: give a list or an array of positions {_form(sim)}, real numbers.")
    if not len(given):
        raise ValueError(f"{name}: there are none. Give at least one position {_form(sim)}.")
    try:
        found = np.asarray(given, float)
    except ValueError:  # shots with different numbers of points
        none = np.zeros((0, len(sim.shape)))
        found = [np.asarray(one, float) if len(one) else none for one in given]
    pieces = [found] if isinstance(found, np.ndarray) else found
    if any(piece.ndim not in (2, 3) or piece.shape[-1] != len(sim.shape) for piece in pieces):
        raise ValueError(f"{name}: positions are {_form(sim)}; got shape {pieces[0].shape}.")
    return found


def _form(sim: Simulation) -> str:
    return f"({', '.join(sim.axes)})"


def _points(sim: Simulation, name: str, positions: Any) -> Points:
    for shot, points in enumerate(positions):
        if not len(points):
            raise ValueError(f"{name}: shot {shot} has none. Leave that shot out, or give it one.")
        _check_range(sim, name, shot, points)
        _check_surface(sim, name, shot, points)
    # axes along which some point lies between cells: a line of receivers half a cell deep needs 8 cells, not 64
    fractional = np.any([(np.asarray(points) % 1 != 0).any(0) for points in positions], axis=0)
    most, taps = max(len(points) for points in positions), (2 * HALF_WIDTH) ** int(fractional.sum())
    cells = np.zeros((len(positions), most, taps), np.int32)
    weights = np.zeros((len(positions), most, taps))
    for shot, points in enumerate(positions):
        cells[shot, : len(points)], weights[shot, : len(points)] = _spread(sim, points, fractional)
    return Points(cells, weights)


def _check_range(sim: Simulation, name: str, shot: int, points: np.ndarray) -> None:
    for axis, n in enumerate(sim.shape):
        bad = ~((points[:, axis] >= 0) & (points[:, axis] <= n - 1))
        if bad.any():
            index = int(np.argmax(bad))
            raise ValueError(
                f"{name}: shot {shot}, index {index}, axis {sim.axes[axis]}: {points[index, axis]:g} is outside the "
                f"model, which has cells 0 to {n - 1}. Positions are {_form(sim)} in cells, not metres."
            )


def _check_surface(sim: Simulation, name: str, shot: int, points: np.ndarray) -> None:
    on = np.asarray(points)[:, 0] == 0
    if sim.still_surface and sim.free_surface and on.any():
        what = "sends nothing" if name == "sources" else "records zeros only"
        raise ValueError(
            f"{name}: shot {shot}, index {int(np.argmax(on))} is on the free surface, row 0, where the pressure is "
            f"zero: it {what}. Put it below, half a cell or more."
        )


def _spread(sim: Simulation, points: np.ndarray, fractional: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cells and weights (n, k) of points (n, axes)."""
    cells, weights = np.zeros((len(points), 1), np.int64), np.ones((len(points), 1))
    for axis, (n, (low, _)) in enumerate(zip(sim.padded, sim.pairs, strict=True)):
        places, along = _taps(points[:, axis], bool(fractional[axis]))
        if axis == 0 and sim.free_surface:
            places, along = np.abs(places), np.where(places < 0, -along, along)
        places = places + low
        # the field is zero beyond the last cells, so nothing is lost there
        along = np.where((places >= 0) & (places < n), along, 0.0)
        cells = (cells[:, :, None] * n + places.clip(0, n - 1)[:, None, :]).reshape(len(points), -1)
        weights = (weights[:, :, None] * along[:, None, :]).reshape(len(points), -1)
    return cells, weights


def _taps(position: np.ndarray, fractional: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return cells and weights along one axis, (n, 8) or (n, 1)."""
    if not fractional:
        return position.astype(np.int64)[:, None], np.ones((len(position), 1))
    cells = np.floor(position).astype(np.int64)[:, None] + np.arange(1 - HALF_WIDTH, HALF_WIDTH + 1)
    d = position[:, None] - cells
    window = np.i0(SHAPE * np.sqrt(1 - (d / HALF_WIDTH) ** 2)) / np.i0(SHAPE)
    weights = np.where(position[:, None] % 1 == 0, d == 0, np.sinc(d) * window)
    return cells, weights
