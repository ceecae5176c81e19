"""What `shardfit bench` measures of populations: the stellar mass function of a million halos."""

from shardfit.cli.bench import Case


def cases() -> list[Case]:
    """Value and gradient of ten bins."""
    from shardfit.cli.population.config import Config
    from shardfit.domains.population.recipes import as_study

    study = as_study("smf")
    problem = study.build(**Config(rows=1_000_000).settings())
    return [Case("stellar mass function, 10⁶ halos", problem, "value_and_grad", "halos", 1_000_000)]
