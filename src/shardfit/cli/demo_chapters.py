"""What `shardfit demo` runs: a chapter for each science, made of commands that a user could type in the same folder."""

from dataclasses import dataclass, field

SETUP = ("data get m87 .",)
DATA = "m87/SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"

SECTION = """\
# A faulted section, small enough for a minute. `shardfit seismic init` writes a file with every key explained.
[model]
name = "faulted"
shape = [60, 140]
dh = 25.0

[start]
metres = 250.0

[survey]
dt = 0.0025
nt = 600
f_peak = 5.0
delay = 0.3
source_step = 350.0
receiver_step = 25.0

[inversion]
epochs = 25
batchsize = 5
learning_rate = 30.0
bands = [4.0, "all"]

[inversion.conditioning]
rows = 6
smoothing = 1.0
"""

SURVEY = f"""\
# 48 images of M87 with other weights of the regularisers. `shardfit init survey` explains every key.
science = "vlbi"
out = "survey"

[vlbi]
data = "{DATA}"
preset = "eht"
flux = 0.6
npix = 32
fov_uas = 128.0

[axes]
prior_fwhm_uas = [30, 40, 50]
simple = [30, 100, 300, 1000]
tv = [1, 10]
tv2 = [1, 10]
"""


@dataclass(frozen=True)
class Chapter:
    """One part of the demo.

    out: folder with report.html that the last command writes; picture: a file in it that stands for all; files: written
    before the commands, by name.
    """

    out: str
    title: str
    text: str
    commands: tuple[str, ...]
    picture: str
    files: dict[str, str] = field(default_factory=dict)


CHAPTERS = (
    Chapter(
        out="vlbi",
        title="The black hole in M87",
        text="Visibilities of the Event Horizon Telescope, 11 April 2017, through the released pipeline: 16 fits with "
        "self-calibration between them.",
        commands=(f"vlbi image {DATA} --preset m87 --out vlbi",),
        picture="figures/image.png",
    ),
    Chapter(
        out="seismic",
        title="A faulted section from its echoes",
        text="Full-waveform inversion: the speed of sound in the ground, from a smooth guess, with data of ten shots.",
        commands=("seismic invert fwi.toml --out seismic",),
        picture="figures/models.png",
        files={"fwi.toml": SECTION},
    ),
    Chapter(
        out="xpcs",
        title="How a soft material flows",
        text="Two-time correlations of a sheared sample, simulated: transport coefficients and shear rate with errors.",
        commands=(
            "xpcs simulate xpcs.npz --mode laminar_flow --q 0.0054 --dt 0.1 --gap 2000000 --frames 1:120 "
            "--start D_offset=0 --start gamma_dot_t_offset=0",
            "xpcs init xpcs.toml --mode laminar_flow",
            "xpcs fit xpcs.npz --config xpcs.toml --out xpcs",
        ),
        picture="figures/c2_heatmaps_phi_0_0.png",
    ),
    Chapter(
        out="xpcs-posterior",
        title="And how sure that is",
        text="The posterior of the diffusion in a sample at rest, by NUTS.",
        commands=(
            "xpcs simulate rest.npz --mode static --q 0.0054 --dt 0.1 --frames 1:60 --start D_offset=0",
            "xpcs init rest.toml --mode static",
            "xpcs sample rest.npz --config rest.toml --out xpcs-posterior --draws 500",
            "report xpcs-posterior",
        ),
        picture="figures/pair.png",
    ),
    Chapter(
        out="population",
        title="Galaxies and their halos",
        text="A stellar mass function, summed over halos, fitted by its gradient.",
        commands=("population init smf.toml", "population fit smf.toml --out population"),
        picture="figures/mass_function.png",
    ),
    Chapter(
        out="survey",
        title="48 images at once",
        text="The same M87 data with other weights of the regularisers, in one batch. Browse it with `shardfit serve "
        "survey`.",
        commands=("survey run survey.toml", "survey top survey -n 16 --wall survey/wall.png", "report survey"),
        picture="wall.png",
        files={"survey.toml": SURVEY},
    ),
)
