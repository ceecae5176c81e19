"""Surveys: thousands of fits of one objective with different leaves, batched, crash-safe, ranked."""

from shardfit.survey.axes import Axis, Span, Start, seed_axis, start_axis, weight_axis
from shardfit.survey.designs import Design, grid, latin, sobol, table
from shardfit.survey.halving import Halving
from shardfit.survey.parts import survey_parts
from shardfit.survey.picture import Picture
from shardfit.survey.ranking import below, marginals, pareto
from shardfit.survey.run import survey
from shardfit.survey.table import Survey

__all__ = [
    "Axis",
    "Design",
    "Halving",
    "Picture",
    "Span",
    "Start",
    "Survey",
    "below",
    "grid",
    "latin",
    "marginals",
    "pareto",
    "seed_axis",
    "sobol",
    "start_axis",
    "survey",
    "survey_parts",
    "table",
    "weight_axis",
]
