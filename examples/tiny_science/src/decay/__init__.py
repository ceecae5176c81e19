"""Half-lives from counts."""

from shardfit.sciences import Science

SCIENCE = Science(
    "decay",
    "half-lives from counts over time",
    commands="decay.commands",
    survey="decay.survey",
    report="decay.report",
    data={".csv": "columns time (s), counts"},
)
