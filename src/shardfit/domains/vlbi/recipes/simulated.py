"""Standard data sets to try things on: a known image seen by an array for a night."""

from typing import Any

from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, blank
from shardfit.domains.vlbi.models import model_image
from shardfit.domains.vlbi.movies import Movie
from shardfit.domains.vlbi.observation import Observation, Stations
from shardfit.domains.vlbi.recipes.fitting import options_of
from shardfit.domains.vlbi.simulation import EHT2017, Gains, Night, simulate

M87_LIKE = {"ra_hours": 12.513729, "dec_deg": 12.391123, "freq_hz": 227.1e9, "mjd": 57854}


def known_image(
    name: str = "ring", npix: int = 64, *, flux: float = 0.6, scale: float = 1.0, freq_hz: float = 227.1e9
) -> Image:
    """Return 'ring', 'crescent', 'disk' or 'double' at the position of M87, of this flux in Jy.

    The field is 128 µas; scale: makes it and all sizes larger, for arrays of lower resolution.
    """
    grid = blank(npix, 128 * scale * UAS, **{**M87_LIKE, "freq_hz": freq_hz}, source=name.upper())
    return model_image(name, grid, flux, scale)


def observe(
    truth: Image | Movie,
    array: Stations = EHT2017,
    *,
    gains: float = 0.05,
    random_phase: bool = True,
    leakage: float = 0.0,
    seed: int = 0,
    noise: bool = True,
    **night: Any,
) -> Observation:
    """Observe an image or a movie for one minute every ten from 0 to 12 h UTC with 2 GHz bandwidth.

    gains: standard deviation of ln|g|, most of it changing from time to time; random_phase: as the troposphere gives;
    leakage: size of polarisation leakage.
    seed, noise: of `simulate`; night: fields of `Night` that differ, such as stop_h, cadence_s.
    """
    errors = Gains(offset=0.6 * gains, scatter=0.8 * gains, random_phase=random_phase, leakage=leakage)
    return simulate(truth, array, options_of(Night, "observe", night), seed=seed, gains=errors, noise=noise)


def simulated_ring(npix: int = 64, *, seed: int = 0) -> tuple[Observation, Image]:
    """Return data of a lopsided ring like M87 as the 2017 array would see it, and the ring itself.

    0.6 Jy, diameter 42 µas, field 128 µas, brightest to the south; thermal noise, gain errors of 5 %, random phases.
    The same seed gives the same data.
    """
    truth = known_image("ring", npix)
    return observe(truth, seed=seed), truth
