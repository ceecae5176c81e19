"""Options that mean the same wherever they appear."""

from typing import Any

from shardfit.options.declared import option

RESUME = ("auto", "must", "never")
PRECISIONS = ("float64", "float32")


def seed_option(of: str = "all random numbers") -> Any:
    """Return the seed. of: what it is the seed of."""
    return option(0, f"seed of {of}", least=0)


def resume_option() -> Any:
    """Return what to do with an earlier run in the same folder."""
    return option(
        "auto",
        "'auto' continues an earlier call if there is one, 'must' fails if there is none, 'never' starts over",
        choices=RESUME,
    )


def precision_option(doc: str = "of the computation", default: str = "float64") -> Any:
    """Return the choice of 32 or 64 bits."""
    return option(default, doc, choices=PRECISIONS)
