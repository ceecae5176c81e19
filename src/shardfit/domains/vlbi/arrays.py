"""Annotations of arrays, in one place: without the package that has them, this says what to install."""

from shardfit.core.extras import require_extra

with require_extra("shardfit.domains.vlbi", "vlbi"):
    from jaxtyping import Array, Complex, Float, Inexact

__all__ = ["Array", "Complex", "Float", "Inexact"]
