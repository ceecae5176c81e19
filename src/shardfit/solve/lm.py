"""Placeholder until the algorithm lands."""

from shardfit.solve.base import StepSolver


class LM(StepSolver):
    """To be replaced."""

    name = "lm"
    needs = "gram"
