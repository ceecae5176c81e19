"""`shardfit survey`: run many fits at once, look at them while they run, go on after a crash."""

from shardfit.cli.commands import Command

EXAMPLES = (
    "shardfit init survey survey.toml --science vlbi --data m87.uvfits",
    "shardfit survey run survey.toml --out runs/m87",
    "shardfit survey top runs/m87",
    "shardfit serve runs/m87          # the gallery, while it runs",
)
COMMANDS = (
    Command("run", "run a survey as a configuration file says", "shardfit.cli.surveys.run"),
    Command("resume", "continue a survey that was stopped", "shardfit.cli.surveys.resume"),
    Command("retry", "run the failed points of a survey again", "shardfit.cli.surveys.retry"),
    Command("continue", "continue points that did not converge", "shardfit.cli.surveys.more"),
    Command("status", "print the progress of a survey, and what failed", "shardfit.cli.surveys.status"),
    Command("top", "print the best points, or those below limits", "shardfit.cli.surveys.top"),
    Command("tag", "give points tags and notes, or list them", "shardfit.cli.surveys.tag"),
    Command("point", "run one point again, with a report of data and residuals", "shardfit.cli.surveys.point"),
    Command("export", "write the table as CSV, Parquet or netCDF", "shardfit.cli.surveys.export"),
)
