"""`shardfit seismic`: make shot gathers of a model, invert gathers for a model, migrate them."""

from shardfit.cli.commands import Command
from shardfit.sciences import Science

EXAMPLES = ("shardfit seismic init line.toml", "shardfit seismic invert line.toml --out runs/line")
COMMANDS = (
    Command("init", "write a commented configuration that runs as it is", "shardfit.cli.seismic.init"),
    Command("model", "make shot gathers of a velocity model", "shardfit.cli.seismic.model"),
    Command("invert", "fit a velocity model to shot gathers, with report", "shardfit.cli.seismic.invert"),
    Command("rtm", "migrate shot gathers: an image of the reflectors", "shardfit.cli.seismic.rtm"),
)
CONFIG = "shardfit.cli.seismic.config:Config"  # what `shardfit schema` shows

SCIENCE = Science(
    "seismic",
    "seismic waves: shot gathers, waveform inversion, migration",
    commands="shardfit.cli.seismic",
    rates="shardfit.cli.seismic.rates",
    checks="shardfit.cli.seismic.doctor",
    data={".sgy": "shot gathers", ".segy": "shot gathers", ".npz": "shot gathers or a velocity model"},
)
