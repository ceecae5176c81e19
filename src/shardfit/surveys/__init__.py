"""Surveys: thousands of fits of one objective with different leaves, batched, crash-safe, ranked."""

from shardfit.surveys.axes import Axis, Span, Start, seed_axis, solver_axis, start_axis, weight_axis
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import Design, grid, latin, lines, sobol, table
from shardfit.surveys.fits import Fits
from shardfit.surveys.halving import Halving
from shardfit.surveys.many import fit_many
from shardfit.surveys.parts import survey_parts
from shardfit.surveys.picture import Picture
from shardfit.surveys.ranking import below, marginals, pareto
from shardfit.surveys.reading import Survey
from shardfit.surveys.run import survey

__all__ = [
    "Axis",
    "Design",
    "Fits",
    "Halving",
    "Picture",
    "Span",
    "Start",
    "Survey",
    "SurveyControl",
    "below",
    "fit_many",
    "grid",
    "latin",
    "lines",
    "marginals",
    "pareto",
    "seed_axis",
    "solver_axis",
    "sobol",
    "start_axis",
    "survey",
    "survey_parts",
    "table",
    "weight_axis",
]
