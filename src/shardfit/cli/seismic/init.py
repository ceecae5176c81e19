"""`shardfit seismic init`: a commented configuration that runs as it is."""

import argparse
from collections.abc import Sequence

from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_new_file, write_new

EXAMPLES = ("shardfit seismic init line.toml",)
TEMPLATE = """\
# What `shardfit seismic model`, `invert` and `rtm` read. Every key may be left out unless it says otherwise; options
# given to a command win. Names of files are relative to this one. Lengths are metres, times seconds, speeds m/s.

seed = 0             # of noise and of the draw of shots
show_every = 10      # epochs between pictures
film = true          # an animation of one shot

[model]              # the true model: data are made from it, and the answer is compared with it
name = "faulted"     # layers, lens, faulted, marmousi; or file = "vp.npz" (.sgy, .npy, .bin)
shape = [80, 200]    # [nz, nx] cells, or [nz, ny, nx]; marmousi and files know theirs, raw binary needs it
dh = 25.0            # spacing, or [dz, dx]
seed = 0             # of the faulted section
# vp_over_vs = 1.8   # of elastic waves: vs, zero in water; or vs = "vs.npz"
# rho = 2000.0       # of elastic waves: density in kg/m³, or a file
# epsilon = 0.1      # of VTI waves: Thomsen's parameters, numbers or files; zero in water
# delta = 0.05
# q = 50.0           # of viscoacoustic waves: quality factor, a number or a file

[start]
kind = "smoothed"    # the true model smoothed; "linear" in depth (top, bottom); "file"
metres = 250.0       # standard deviation of the smoothing
water = 1500.0       # cells of this speed from the top down are kept

[survey]             # a line along the surface; with gathers from SEG-Y or NPZ only f_peak and delay are used
dt = 0.0025
nt = 880
f_peak = 5.0         # of the Ricker wavelet, Hz
delay = 0.3          # time of its peak
source_depth = 25.0
source_step = 200.0
receiver_depth = 50.0
receiver_step = 25.0

[data]
# file = "seismic-model/gathers.npz"  # recorded gathers: .sgy, .segy, .npz, .npy, .bin; without it they are made
noise = 0.0          # of made data, as a share of their rms

[simulation]
order = 4            # of the differences in space: 2, 4, 6, 8
widths = 20          # absorbing cells, or [top, bottom, left, right]
free_surface = false
# v_max = 4600.0     # fastest speed ever tried; the time step must be stable for it
engine = "auto"      # "native" (compiled, CPU) where possible, else "jax"
# waves = "elastic"  # "acoustic", "vti" (layered rock), "viscoacoustic" (attenuation)
# source = "explosive"   # of elastic waves: force_x, force_z
# receiver = "pressure"  # of elastic waves: velocity_x, velocity_z

[inversion]          # any option of InversionOptions
epochs = 40          # steps, of every band; or one number for each, [40, 80]
batchsize = 8        # shots per step, or "all"; or one for each band
learning_rate = 25.0 # m/s per step
bands = [4.0, "all"] # from low frequencies to high: corners in Hz
# solver = "adam"    # sgd, rmsprop, plbfgs (preconditioned L-BFGS), gauss-newton; on all shots also lbfgsb, lbfgs
# fitted = ["vp", "vs"]  # of elastic waves; ["vp", "epsilon"] of VTI, ["vp", "q"] of viscoacoustic ones
# loss = "l2"        # l1, huber, student-t, correlation, envelope, nim, w2

[inversion.conditioning]
rows = 6             # the gradient is zero in the water
smoothing = 1.0      # of the gradient, cells
"""


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file."""
    add_new_file(parser)


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    path = write_new(args.file, TEMPLATE, args.force)
    record_output(args, files=[path])
    print(f"{path}: now `shardfit seismic invert {path}`")
    return 0
