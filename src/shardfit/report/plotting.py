"""What `plot()` of a result, a posterior or a survey draws."""

from typing import Any

from shardfit.core.errors import suggestion


def plot_result(result: Any, name: str | None = None) -> Any:
    """Return a figure of a result: 'convergence' or 'parameters'; None takes the first there is."""
    from shardfit.report.run import standard_figures

    return _chosen(standard_figures(result), name, "this result has neither a history nor error bars to draw.")


def plot_posterior(posterior: Any, name: str | None = None) -> Any:
    """Return a figure of a posterior: 'trace', 'rank', 'pair', 'forest' or 'energy'; None takes the first there is."""
    from shardfit.report.posterior import standard_figures

    return _chosen(standard_figures(posterior), name, "this posterior has too few draws to draw.")


def plot_survey(survey: Any, n: int = 24, **options: Any) -> Any:
    """Return the wall of the n best pictures of a survey, with their mean and standard deviation."""
    from shardfit.report.wall import wall

    return wall(survey, [point["id"] for point in survey.best(n)], **options)


def _chosen(figures: dict[str, tuple[str, Any]], name: str | None, nothing: str) -> Any:
    if not figures:
        raise ValueError(f"plot: {nothing}")
    if name is None:
        return next(iter(figures.values()))[1]
    if name not in figures:
        raise ValueError(f"plot: there is no figure {name!r} here.{suggestion(name, figures)}")
    return figures[name][1]
