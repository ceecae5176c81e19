"""`shardfit xpcs`: fit two-time correlations, look at them, simulate them, check a configuration."""

from shardfit.cli.commands import Command
from shardfit.sciences import Science

EXAMPLES = (
    "shardfit xpcs init c2.toml",
    "shardfit xpcs validate c2.toml",
    "shardfit xpcs fit c2.h5 --config c2.toml --out runs/c2",
)
COMMANDS = (
    Command("fit", "fit correlation files as a configuration says, with report", "shardfit.cli.xpcs.fit"),
    Command("watch", "fit files as they appear in a folder", "shardfit.cli.xpcs.watch"),
    Command("sample", "draw from the posterior of a correlation file's parameters", "shardfit.cli.xpcs.sample"),
    Command("simulate", "write correlations of a known sample", "shardfit.cli.xpcs.simulate"),
    Command("plot", "draw the correlations of a file", "shardfit.cli.xpcs.plot"),
    Command("validate", "check a configuration, and the file that it names", "shardfit.cli.xpcs.validate"),
    Command("init", "write a configuration file to start from", "shardfit.cli.xpcs.init"),
)
CONFIG = "shardfit.cli.xpcs.config:Config"  # what `shardfit schema` shows

SCIENCE = Science(
    "xpcs",
    "two-time correlations: transport coefficients and shear rates",
    commands="shardfit.cli.xpcs",
    rates="shardfit.cli.xpcs.rates",
    report="shardfit.domains.xpcs.plots",
    data={".hdf": "two-time correlations", ".h5": "two-time correlations", ".npz": "two-time correlations"},
)
