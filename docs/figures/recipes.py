"""What makes the pictures that no page draws itself: commands that a user could type, and the file that they leave."""

from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
M87 = "m87/SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"


@dataclass(frozen=True)
class Recipe:
    """Commands, run one after the other in the same empty folder; {folder} in them stands for it.

    file: what is shown, in that folder; files: written before, by name; needs: what must be there besides the package.
    """

    commands: tuple[str, ...]
    file: str
    files: dict[str, str] = field(default_factory=dict)
    needs: str = ""


def _population(problem: str, figure: str, command: str = "fit") -> Recipe:
    commands = (f"shardfit population init p.toml --problem {problem}", f"shardfit population {command} p.toml --out p")
    return Recipe(commands, f"p/figures/{figure}.png")


QUICK = {
    "population_smf": _population("smf", "mass_function"),
    "population_gaussian": _population("gaussian", "ellipses"),
    "population_colours": _population("colours", "colours"),
    "population_ackley": _population("ackley", "landscape", "swarm"),
    "seismic_rtm": Recipe(
        ("shardfit seismic init fwi.toml", "shardfit seismic rtm fwi.toml --out rtm"), "rtm/image.png"
    ),
}

GRID = f"""\
science = "vlbi"
out = "survey"

[vlbi]
data = "{M87}"
preset = "eht"
flux = 0.6
npix = 64
fov_uas = 128.0

[axes]
prior_fwhm_uas = [40, 50, 60]
systematic = [0.0, 0.01, 0.02, 0.05]
simple = [0, 1, 10, 100, 1000]
tv = [0, 1, 10, 100, 1000]
tv2 = [0, 1, 10, 100, 1000]
l1 = [0, 1, 10, 100, 1000]
"""
_SURVEY = ("shardfit data get m87 .", "shardfit survey run grid.toml")
_CHOSEN = "--by data.cphase data.logcamp --below data.cphase=1.5 data.logcamp=1.5"
_SCREEN = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1600,1000 --virtual-time-budget=30000"

ORBIT = """\
import numpy as np
from benchmarks.problems.vlbi_arrays import eht2022
from shardfit.domains import vlbi

hours = np.linspace(8.5, 14.5, 73)
sky = vlbi.known_image("ring", 64, flux=1.5).replace(ra_hours=17.76, dec_deg=-29.0, freq_hz=229e9, mjd=57850)


def at(hour, radius=21 * vlbi.UAS):
    turn = 2 * np.pi * (hour - 8.5) / 6
    spot = vlbi.gaussian(sky, 0.7, 15 * vlbi.UAS, x_rad=radius * np.sin(turn), y_rad=radius * np.cos(turn))
    return sky.replace(values={"I": sky.values["I"] + spot.values["I"]})


night = {"start_h": 8.5, "stop_h": 14.5, "gains": 0.0, "random_phase": False}
seen = vlbi.observe(vlbi.Movie(tuple(at(hour) for hour in hours), tuple(hours)), eht2022(), **night)
vlbi.write_uvfits(seen, "orbit.uvfits")
"""

LONG = {
    "seismic_marmousi": Recipe(
        (f"shardfit seismic invert {ROOT}/benchmarks/marmousi.toml --out marmousi",),
        "marmousi/figures/models.png",
        needs="the Marmousi model, in the folder that SHARDFIT_DATA names; an hour",
    ),
    "seismic_solvers": Recipe(
        ("python -m benchmarks seismic_solvers",),
        f"{ROOT}/docs/figures/seismic_solvers.png",
        needs="the Marmousi model, in the folder that SHARDFIT_DATA names; an hour",
    ),
    "survey_m87": Recipe(
        (*_SURVEY, f"shardfit survey top survey {_CHOSEN} -n 24 --wall wall.png"),
        "wall.png",
        {"grid.toml": GRID},
        "some hours",
    ),
    "survey_gallery": Recipe(
        (
            *_SURVEY,
            "shardfit report survey",
            f"chromium {_SCREEN} --screenshot=gallery.png file://{{folder}}/survey/report.html",
        ),
        "gallery.png",
        {"grid.toml": GRID},
        "Chromium, and some hours",
    ),
    "vlbi_posterior_m87": Recipe(
        (
            "shardfit data get m87 .",
            f"shardfit vlbi image {M87} --preset m87 --npix 32 --out image",
            f"shardfit vlbi posterior {M87} --flux 0.6 --zero-baseline --systematic 0.02 --gain-error 0.2,LM=1 "
            "--start image/image.fits --draws 60 --ring --out draws",
        ),
        "draws/figures/draws.png",
        needs="some minutes",
    ),
    "vlbi_movie": Recipe(
        (
            "python orbit.py",
            "shardfit vlbi movie orbit.uvfits --frames 24 --products vis --fov 128 --systematic 0.02 --out movie",
        ),
        "movie/figures/movie.png",
        {"orbit.py": ORBIT},
        "some minutes",
    ),
}
