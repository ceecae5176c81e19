"""The configuration that `shardfit init survey` writes: what every survey has, and a science's own example."""

import re

from shardfit.cli.surveys.config import Config
from shardfit.options.writing import template
from shardfit.sciences import get_science

HEAD = """\
# What `shardfit survey run` reads: all there is, as comments what need not be said. Look at the survey while it runs
# with `shardfit serve {out}`.

"""
DATA = re.compile(r'^data = ".*?"', re.MULTILINE)


def survey_template(science: str, out: str, data: str | None = None) -> str:
    """Return a configuration for a science; data: replaces that of its example."""
    example = get_science(science, "survey").module("survey").EXAMPLE
    if data is not None:
        if not DATA.search(example):
            raise ValueError(f"--data {data}: the example of science {science!r} reads no data.")
        value = data.replace("\\", "\\\\").replace('"', '\\"')
        example = DATA.sub(lambda _: f'data = "{value}"', example, count=1)
    values = {"science": science, "out": out, "design": {"kind": "latin", "points": 200, "seed": 0}}
    values["solver"] = {"name": "lbfgs"}
    return HEAD.format(out=out) + template(Config, values, without=("axes",)) + "\n" + example
