"""`shardfit population`: fit a built-in population model, or search it with a swarm, as a configuration file says."""

from shardfit.cli.commands import Command
from shardfit.sciences import Science

EXAMPLES = ("shardfit population init smf.toml", "shardfit population fit smf.toml --out runs/smf")
COMMANDS = (
    Command("fit", "fit a built-in population problem as a file says", "shardfit.cli.population.fit"),
    Command("swarm", "search the parameter box of a problem with a swarm", "shardfit.cli.population.swarm"),
    Command("init", "write a configuration file to start from", "shardfit.cli.population.init"),
)
CONFIG = "shardfit.cli.population.config:Config"  # what `shardfit schema` shows

SCIENCE = Science(
    "population",
    "galaxy and other population models: fits and swarms",
    commands="shardfit.cli.population",
    rates="shardfit.cli.population.rates",
    report="shardfit.domains.population.recipes",
)
