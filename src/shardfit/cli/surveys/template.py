"""The configuration that `shardfit init survey` writes: what every survey has, and a science's own example."""

import re

from shardfit.sciences import get_science

HEAD = """\
# What `shardfit survey run` reads. Look at the survey while it runs with `shardfit serve {out}`.

science = "{science}"          # or problem = "module:function" of your own, see "Your own problem" in docs/surveys.md
out = "{out}"    # run directory: the ledger, which makes the survey resumable

"""
TAIL = """
[design]
kind = "latin"            # grid: every combination; latin, sobol: `points` of them; lines: in random order
                          # (`lines` of them, or all) with every value of the axes `along`; table: a list `table`
points = 200
seed = 0

[solver]                  # a name and its options; what is left out is the science's choice
name = "lbfgs"
# maxiter = 2000          # steps of a point
# patience = 60           # stop when so many evaluations together gain less than
# ptol = 1e-5             # this share of the value
# sweep = "simple"        # axis along which points start where their neighbour ended; false: all from their own start
# polish = 4000           # steps in float64 for points that met no tolerance; 0: none

# [halving]               # give up hopeless points early
# first = 25              # steps before the first cut
# factor = 2              # one in so many goes on
# score = ["data"]        # parts of the objective whose sum ranks points; left out: the value

[run]                     # where; none of it changes the answers
# slots = 64              # fits that share a batch; "measure" tries several; left out: chosen by memory
# devices = 2             # devices that share the slots
# workers = 2             # processes that share the points
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
    return HEAD.format(science=science, out=out) + example + TAIL
