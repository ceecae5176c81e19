"""Several q or runs in one fit: some parameters are shared, others each group of bins has for itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_static

from shardfit.core.errors import suggestion
from shardfit.domains.xpcs.data import Correlation, diagonal_of
from shardfit.domains.xpcs.forward import Geometry
from shardfit.domains.xpcs.models import Model
from shardfit.domains.xpcs.rates import Parameter


@register_static
@dataclass(frozen=True)
class Grouped(Model):
    """One model for all groups of bins.

    groups: the name of every bin's group, in the order of the data. own: parameters that every group has for itself,
    called name@group; the others are shared. `together` makes data and groups.

    Example: `Grouped(laminar_flow(), groups, own=("D0", "alpha", "D_offset"))` shares the flow and its direction.
    """

    model: Model
    groups: tuple[str, ...]
    own: tuple[str, ...]

    def __post_init__(self):
        for name in self.own:
            if name not in self.model.names:
                raise ValueError(f"own: the model has no parameter {name!r}.{suggestion(name, self.model.names)}")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the groups, in the order in which they come."""
        return tuple(dict.fromkeys(self.groups))

    @cached_property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name: those that are shared, then those of every group."""
        table = {name: p for name, p in self.model.table.items() if name not in self.own}
        return table | {f"{name}@{g}": self.model.table[name] for g in self.labels for name in self.own}

    @property
    def shear(self) -> Any:
        """The shear rate of the model, if it has one."""
        return getattr(self.model, "shear", None)

    def spread(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of the model as those of all groups."""
        return {name: params[name.partition("@")[0]] for name in self.table}

    def _places(self, label: str) -> np.ndarray:
        names = [f"{n}@{label}" if n in self.own else n for n in self.model.names]
        return np.array([self.names.index(name) for name in names])

    def of_bin(self, k: int, values: Any) -> tuple[Model, Any, np.ndarray]:
        """Return model, values and their places among all for one bin."""
        places = self._places(self.groups[k])
        return self.model, values[places], places

    def _of(self, values: Any, geometry: Geometry) -> list[tuple[np.ndarray, np.ndarray, Any, Geometry]]:
        """Return of every group its bins, where its parameters are among all, their values, and its geometry."""
        if len(self.groups) != geometry.phi.shape[0]:
            raise ValueError(f"Grouped: {len(self.groups)} groups were named for {geometry.phi.shape[0]} bins.")
        found = []
        for label in self.labels:
            bins, places = np.flatnonzero(np.array(self.groups) == label), self._places(label)
            q = geometry.q if jnp.ndim(geometry.q) == 0 else geometry.q[bins]
            here = replace(geometry, phi=geometry.phi[bins], q=q)
            found.append((bins, places, jnp.stack([values[i] for i in places]), here))
        return found

    def curve(self, values: Any, geometry: Geometry, pairs: Any) -> jax.Array:
        """Return f of all bins."""
        parts = self._of(values, geometry)
        order = np.argsort(np.concatenate([bins for bins, *_ in parts]))
        return jnp.concatenate([self.model.curve(own, here, pairs) for _, _, own, here in parts])[order]

    def sums(self, values: jax.Array, geometry: Geometry, pairs: Any, y: jax.Array, weight: jax.Array) -> Any:
        """Return the sums of every group."""
        return [
            self.model.sums(own, here, pairs, y[bins], weight if weight.ndim == 1 else weight[bins])
            for bins, _, own, here in self._of(values, geometry)
        ]

    def grams(self, sums: Any, values: jax.Array, geometry: Geometry) -> jax.Array:
        """Return the Gram matrices of all bins; a group's do not depend on the parameters of others."""
        size = 3 + len(self.names)
        whole = jnp.zeros((len(self.groups), size, size))
        for (bins, places, own, here), part in zip(self._of(values, geometry), sums, strict=True):
            at = np.r_[0:3, 3 + places]
            whole = whole.at[np.ix_(bins, at, at)].set(self.model.grams(part, own, here))
        return whole

    def rates(self, values: Any, t: jax.Array) -> dict[str, jax.Array]:
        """Return the rates of every group, as name@group."""
        everywhere = Geometry(t, jnp.zeros(len(self.groups)), jnp.ones(()), 1.0, 1.0)
        found = zip(self.labels, self._of(values, everywhere), strict=True)
        return {
            f"{name}@{label}": rate
            for label, (_, _, own, _) in found
            for name, rate in getattr(self.model, "rates")(own, t).items()  # noqa: B009
        }


def together(datasets: Mapping[str, Correlation]) -> tuple[Correlation, tuple[str, ...]]:
    """Return data of several q or runs as one, and the group of every bin; shorter runs are filled with missing points.

    The frame time and the gap must be the same.

    Example: `data, groups = together({"q1": read(path, q=0.004), "q2": read(path, q=0.008)})`.
    """
    each: Sequence[Correlation] = list(datasets.values())
    if len(each) < 1 or any(type(data) is not Correlation for data in each):
        raise ValueError("together: give two-time maps by name, such as {'early': data1, 'late': data2}.")
    if any("@" in label for label in datasets):
        raise ValueError("together: names of groups cannot hold '@'.")
    for name in ("dt", "gap"):
        values = [getattr(data, name) for data in each]
        if any(value != values[0] for value in values):
            raise ValueError(f"together: {name} differs ({values}). Data of one fit must have the same.")
    nt = max(data.n_frames for data in each)
    c2 = [np.pad(d.c2, [(0, 0), *[(0, nt - d.n_frames)] * 2], constant_values=np.nan) for d in each]
    sigma = _sigma([data.sigma for data in each], [len(data.phi) for data in each])
    phi, q = (np.concatenate([getattr(data, name) for data in each]) for name in ("phi", "q"))
    notes = tuple(dict.fromkeys(note for data in each for note in data.notes))
    source = " + ".join(dict.fromkeys(filter(None, (data.source for data in each))))
    groups = tuple(label for label, data in datasets.items() for _ in data.phi)
    diagonal = np.concatenate(
        [np.pad(diagonal_of(d), [(0, 0), (0, nt - d.n_frames)], constant_values=np.nan) for d in each]
    )
    rest = (sigma, each[0].gap, source, notes, diagonal)
    return Correlation(np.concatenate(c2), phi, q, each[0].dt, *rest), groups


def _sigma(sigmas: list, counts: list[int]) -> Any:
    if all(sigma is None for sigma in sigmas):
        return None
    if any(sigma is None or np.ndim(sigma) > 1 for sigma in sigmas):
        raise ValueError("together: every data set needs its noise as one number, or one per bin (estimate_noise).")
    return np.concatenate([np.broadcast_to(sigma, count) for sigma, count in zip(sigmas, counts, strict=True)])
