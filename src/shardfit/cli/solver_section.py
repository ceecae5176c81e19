"""Sections of files that name a solver: its options stand beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from shardfit.options.declared import OpenOptions, Option, named, taken_by
from shardfit.options.rules import Place


@dataclass(frozen=True)
class SolverSection(OpenOptions):
    """Base of such sections.

    KEY: the option that names the solver; USUAL: its default; FIT: what `fit` itself takes.
    """

    KEY: ClassVar[str] = "name"
    USUAL: ClassVar[str | None] = None
    FIT: ClassVar[tuple[str, ...]] = ("x_scale", "every", "certify")

    @classmethod
    def others(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Return the options of the solver."""
        from shardfit.fitting import fit
        from shardfit.solve.registry import options_by_name

        own = {name: each for name, each in taken_by(fit).items() if name in cls.FIT}
        return {**options_by_name(table.get(cls.KEY, cls.USUAL)), **own}

    @classmethod
    def filled(cls, table: Mapping[str, Any], place: Place) -> Self:
        """Return the options of a table, or raise naming what is wrong with it."""
        from shardfit.solve.registry import as_solver, options_by_name

        made = super().filled(table, place)
        solver = table.get(cls.KEY, cls.USUAL)
        taken = options_by_name(solver)
        with named(place):
            as_solver(solver, **{name: value for name, value in table.items() if name in taken})
        return made
