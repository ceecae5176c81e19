"""`shardfit vlbi`: image a uvfits file, look at one, calibrate one, test an image against one, or simulate one."""

from shardfit.cli.commands import Command
from shardfit.sciences import Science

EXAMPLES = (
    "shardfit data get m87 .",
    "shardfit vlbi image m87/SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits --preset m87 --out runs/m87",
    "shardfit vlbi info m87.uvfits",
)
COMMANDS = (
    Command("image", "make an image of a uvfits file, with report", "shardfit.cli.vlbi.image"),
    Command("posterior", "draw images from the posterior of a uvfits file", "shardfit.cli.vlbi.posterior"),
    Command("weights", "choose weights of regularisers by cross-validation", "shardfit.cli.vlbi.weights"),
    Command("movie", "make a movie of a source that changes in a night", "shardfit.cli.vlbi.movie"),
    Command("study", "train choices on known images, then image all days", "shardfit.cli.vlbi.study"),
    Command("errors", "conservative error bars from the Top Set of a survey", "shardfit.cli.vlbi.errors"),
    Command("info", "print what a uvfits file holds", "shardfit.cli.vlbi.info"),
    Command("chi2", "print χ² of an image against a uvfits file", "shardfit.cli.vlbi.chi2"),
    Command("ring", "measure a ring in images", "shardfit.cli.vlbi.ring"),
    Command("model", "fit a simple shape to a uvfits file", "shardfit.cli.vlbi.model"),
    Command("selfcal", "calibrate the stations of a uvfits file to an image", "shardfit.cli.vlbi.selfcal"),
    Command("netcal", "calibrate stations that share a site, from the source's flux", "shardfit.cli.vlbi.netcal"),
    Command("simulate", "write data of a known image seen by an array", "shardfit.cli.vlbi.simulate"),
)

SCIENCE = Science(
    "vlbi",
    "radio interferometry: images, χ², simulation",
    commands="shardfit.cli.vlbi",
    rates="shardfit.cli.vlbi.rates",
    survey="shardfit.domains.vlbi.recipes.survey_config",
    checks="shardfit.cli.vlbi.doctor",
    data={".uvfits": "visibilities", ".fits": "images"},
)
