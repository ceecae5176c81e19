"""`shardfit xpcs init`: a commented configuration to start from."""

import argparse
from collections.abc import Sequence

from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_new_file, write_new

EXAMPLES = ("shardfit xpcs init c2.toml",)
TEMPLATE = """\
# What `shardfit xpcs fit` reads. Every line may be left out; options on the command line take precedence.

mode = "{mode}"    # static, laminar_flow, two_component
convention = "compat"    # of shear: "compat", the numbers of the package homodyne, or "theory"
seed = 0
arrays = true    # keep data and fit in nlsq/fitted_data.npz, which heat maps are drawn from

[data]
# file = "run7.hdf"
q = 0.0054    # 1/Å; the nearest in the file is taken
q_tolerance = 0.1    # APS legacy: bins within this fraction of it
dt = 0.1    # s between frames; leave it out where the file says it
{gap}frames = [1, -1]    # first and last, counted from 1; -1: to the end
# angles = [[-10, 10], [85, 95]]    # keep azimuths in these ranges, in degrees
keep_all_if_no_angle = true    # or refuse
diagonal = "basic"    # or interpolation, median, mean, trimmed, keep
sigma = "estimate"    # noise of c2: a number, or measured from the data
# outliers = 6.0    # leave out points so many σ from the median of their lag
# analysis = "full"    # ESRF: which analysis of the file

[fit]
scaling = "auto"    # auto: one contrast and offset; individual, fourier, constant, constant_averaged
fourier_order = 2    # of scaling fourier
shared_from = 3    # auto: one contrast and offset for all from this number of angles
loss = "linear"    # or soft_l1, huber, cauchy, arctan
errors = "frames"    # standard errors from the scatter of frames, or of single points: "points"
law = "auto"    # of rates: constant, power, full (with offset), or the simplest that holds; see [start]
triangle = "upper"    # or both: every pair counts twice, errors are too small by √2
shear_weighted = false    # angles along the flow count more
warm_start = false    # begin with contrast and offset held
even_scales = 0.0    # penalty on contrasts and offsets that differ between angles
starts = 1    # different starts that are searched from
# maxiter = 200    # most steps
# ftol = 1e-14    # relative change of χ² at which a search ends
# compat = "grid"    # fit what the package homodyne fits to small data: soft_l1, scales of every angle

[start]    # where parameters begin; what is left out is found from the data. A rate named here keeps its full law
# D0 = 1e4

[bounds]
# D0 = [100, 1e5]

[fixed]    # parameters to hold
# D_offset = 0.0
"""


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file and the mode."""
    add_new_file(parser)
    parser.add_argument("--mode", metavar="NAME", default="static", help="static, laminar_flow, two_component (static)")


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    from shardfit.cli.xpcs.config import make_config

    mode = make_config({"mode": args.mode}, "--mode").mode
    gap = "gap = 2e6    # Å between the plates\n" if mode == "laminar_flow" else ""
    path = write_new(args.file, TEMPLATE.format(mode=mode, gap=gap), args.force)
    record_output(args, files=[path])
    print(f"{path}: edit it, then `shardfit xpcs fit FILE --config {path}`")
    return 0
