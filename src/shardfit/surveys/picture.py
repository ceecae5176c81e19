"""What of the fitted parameters is an image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion


@dataclass(frozen=True, eq=False)
class Picture:
    """Shape (ny, nx), and either the parameter whose values it is, or a function that draws it from the parameters.

    extent: left, right, bottom, top, in `extent_unit`; unit: of the values.

    Example: `Picture((64, 64), leaf="I", unit="Jy/pixel")`.
    """

    shape: tuple[int, int]
    leaf: str | None = None
    draw: Callable[[Any], Any] | None = None
    extent: tuple[float, float, float, float] | None = None
    extent_unit: str = ""
    unit: str = ""

    def described(self, params: Mapping[str, tuple[int, ...]], x0: Any) -> dict[str, Any]:
        """Check against the parameters and return the heading's fields."""
        if (self.leaf is None) == (self.draw is None):
            raise ValueError("Picture: give either leaf, the name of a parameter, or draw, a function of all of them.")
        if self.leaf is not None:
            if self.leaf not in params:
                raise ValueError(f"Picture: no parameter {self.leaf!r}.{suggestion(self.leaf, params)}")
            size = int(np.prod(params[self.leaf]))
        else:
            assert self.draw is not None
            size = np.size(self.draw(x0))
        if size != int(np.prod(self.shape)):
            raise ValueError(f"Picture: shape {self.shape} does not hold the {size} values of the picture.")
        about = {"extent": self.extent, "extent_unit": self.extent_unit, "picture_unit": self.unit}
        return {"picture": self.leaf or "", "shape": tuple(map(int, self.shape)), **about}
