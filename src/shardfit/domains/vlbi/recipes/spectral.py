"""Spectral images: one image for several frequencies, with a map of how its brightness changes with frequency.

I(ν) = I exp(α l + β l²) with l = ln(ν/ν_ref). Closure quantities know no flux, and amplitudes are only as good as their
calibration: the mean of α rests on the fluxes of the channels, its structure on the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi.images import Image, visibilities
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.problem import channel_chi2, image_maps, imaging_problem, with_start
from shardfit.domains.vlbi.recipes.fitting import fit_again, series_of
from shardfit.domains.vlbi.recipes.imaging import PRESETS, image
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import compact_flux, parts_of, prepare
from shardfit.domains.vlbi.recipes.quality import chi2_doubts, flux_doubts, with_doubts
from shardfit.domains.vlbi.recipes.rounds import prior_image
from shardfit.domains.vlbi.tables import DataSet, data_set
from shardfit.run_options import RunOptions

MAPS = ("alpha", "beta")
CLOSE = 0.2  # ln of a ratio of frequencies below which estimated fluxes, 5 % off or more, say little about α
REACH = 2.5  # synchrotron sources lie between -2 and 2.5; how far a pixel may be from the index of the whole
FAINT = 0.05  # of the peak: fainter pixels say nothing about their index
LEAST_SNR = 3.0  # of amplitudes that tell an index
MODEL_ERROR = 0.05  # relative, of an image without a spectrum: brighter data count no more
POSITION = 1e-3  # degrees: pointings further apart are of different sources
# those of `image`, its flux term replaced; data and spectral maps: chosen on simulated sources, see docs/vlbi.md
DATA = {"amp": 2.0, "cphase": 10.0, "logcamp": 10.0}
REGULARISATION = {"simple": 100.0, "tv": 1.0, "tv2": 1.0, "flux_mf": 1e4}
SMOOTHING = {"l2": 30.0, "tv": 30.0}
MAXITER = 1000
ELSEWHERE = {"flux": "fluxes=", "taper_uas": "data without taper", "precal": "calibrated data", "rounds": "restarts="}


@dataclass(frozen=True, eq=False)
class SpectralResult:
    """A spectral image.

    image: at the reference frequency; alpha, beta: (ny, nx), beta None for order 1, both at their prior where nothing
    shines (`mask`); chi2: χ² per measurement by product, (n_channels,); fluxes: Jy of every channel, as fitted to;
    result: of the best fit, with its doubts; data: prepared, one per channel; options, problem: as used;
    doubts: reasons not to believe it, in words.
    """

    image: Image
    alpha: np.ndarray
    beta: np.ndarray | None
    chi2: Mapping[str, np.ndarray]
    fluxes: tuple[float, ...]
    result: Result
    data: tuple[Observation, ...]
    options: ImagingOptions
    problem: Problem
    doubts: tuple[str, ...] = ()

    @property
    def mean_alpha(self) -> float:
        """Index of the source as a whole, from the lowest to the highest frequency: α weighted with the flux there."""
        low, high = (f([one.freq_hz for one in self.data]) for f in (min, max))
        return float(np.log(self.at(high).flux / self.at(low).flux) / np.log(high / low))

    @property
    def mask(self) -> np.ndarray:
        """Pixels bright enough for their index to mean something, (ny, nx): more than 5 % of the peak."""
        return self.image.values["I"] > FAINT * self.image.values["I"].max()

    def at(self, freq_hz: float) -> Image:
        """Return the image at another frequency."""
        log_ratio = np.log(freq_hz / self.image.freq_hz)
        growth = self.alpha * log_ratio + (0.0 if self.beta is None else self.beta * log_ratio**2)
        return self.image.replace(values={"I": self.image.values["I"] * np.exp(growth)}, freq_hz=freq_hz)


def spectral_image(
    observations: Observation | Sequence[Observation],
    *,
    order: int = 1,
    preset: str = "default",
    ref_hz: float | None = None,
    fluxes: Sequence[float] | None = None,
    reach: float = REACH,
    run: RunOptions | None = None,
    **options: Any,
) -> SpectralResult:
    """Make one image of observations at several frequencies, with maps of the spectral index.

    observations: one per band, whose rows may be of several frequencies in turn, or one of several frequencies alone.
    Stations keep their gains over the band of one receiver: then the flux is given for the reference frequency, and
    how amplitudes change over the band tells the index. order: 1 fits α, 2 also β, which needs three frequencies.
    preset: 'default' or 'eht'. ref_hz: frequency of the image, None for the geometric mean. fluxes: Jy of the compact
    source in every observation, None to estimate each (`compact_flux`), which is refused for observations close in
    frequency. The spectrum of the fluxes is start and prior of the maps; reach: how far α and β of a pixel may be from
    it. options: fields of `ImagingOptions` but flux, taper_uas, precal and rounds; the others as for `image`.

    Example: `spectral_image([obs_230, obs_345], fluxes=(0.6, 0.5)).mean_alpha`.
    """
    given = parts_of(observations)
    channels = [part for one in given for part in one.by_frequency()]
    _check(given, channels, order, fluxes, options)
    chosen = _options(given, channels, order, preset, options)
    series = series_of(run or RunOptions(), chosen, "fits/")
    bands = _bands(given, channels, chosen, fluxes, ref_hz)
    spectrum = _spectrum(given, bands, order, chosen)
    first = prior_image(bands.ready[0], float(np.exp(spectrum[0])), chosen).replace(freq_hz=bands.reference)
    slopes: dict[str, float] = dict(zip(MAPS[:order], spectrum[1:].tolist(), strict=True))

    def blurred(problem: Problem, result: Result) -> Problem:
        maps = image_maps(problem, result.params)
        wide = first.replace(values={"I": maps["I"]}).blur(chosen.blur * bands.beam)
        return with_start(problem, {**maps, "I": wide.values["I"]})

    problem = _problem(bands, first, slopes, reach, chosen)
    problem, result, steps = fit_again(series, problem, blurred, chosen.restarts)
    return _judged(bands, first, chosen, problem, result, steps)


@dataclass(frozen=True, eq=False)
class _Bands:
    """Data of all channels: prepared, their products, fluxes in Jy; alone: whether of one observation only."""

    ready: tuple[Observation, ...]
    measured: tuple[DataSet, ...]
    fluxes: tuple[float, ...]
    reference: float
    alone: bool

    @property
    def beam(self) -> float:
        """The finest resolution, rad."""
        return min(one.nominal_resolution for one in self.ready)


def _options(
    given: Sequence[Observation],
    channels: Sequence[Observation],
    order: int,
    preset: str,
    options: Mapping[str, Any],
) -> ImagingOptions:
    """Return the options of a preset, changed by those given; the field is that of the finest resolution."""
    if preset == "m87":
        raise ValueError("spectral_image: preset 'm87' has rounds of self-calibration. Use 'eht' on calibrated data.")
    smooth = {f"{kind}_{name}": weight for name in MAPS[:order] for kind, weight in SMOOTHING.items()}
    alone = len(given) == 1
    penalties = {("flux" if alone and name == "flux_mf" else name): w for name, w in REGULARISATION.items()}
    defaults = {"data": DATA, "regularisers": penalties | smooth, "maxiter": MAXITER}
    finest = min(channels, key=lambda one: one.nominal_resolution)
    return options_from(preset, PRESETS, {**defaults, **options}).sized(finest)


def _bands(
    given: Sequence[Observation],
    channels: Sequence[Observation],
    options: ImagingOptions,
    fluxes: Sequence[float] | None,
    ref_hz: float | None,
) -> _Bands:
    """Return the data of every channel, prepared, with their products at the reference frequency."""
    known = _fluxes(given, channels, fluxes)
    reference = float(np.exp(np.mean([np.log(one.freq_hz) for one in channels]))) if ref_hz is None else float(ref_hz)
    ready = [prepare(one, flux, **options.preparation) for one, flux in zip(channels, known, strict=True)]
    about = {"count": options.count, "cp_uv_min": options.cp_uv_min, "systematic": options.tolerance}
    about |= {"snrcut": options.snr_cut, "ref_hz": reference}
    measured = [data_set(one, options.data, **about) for one in ready]
    return _Bands(tuple(ready), tuple(measured), known, reference, len(given) == 1)


def _spectrum(given: Sequence[Observation], bands: _Bands, order: int, options: ImagingOptions) -> np.ndarray:
    """Return ln flux at the reference frequency, α and, for order 2, β of the source as a whole."""
    spectrum = np.polyfit([one.log_ratio for one in bands.measured], np.log(bands.fluxes), order)[::-1]
    if bands.alone:
        spectrum[1] = _slope(given[0], bands.fluxes[0], options)
    return spectrum


def _problem(
    bands: _Bands, first: Image, slopes: Mapping[str, float], reach: float, options: ImagingOptions
) -> Problem:
    flat = {name: np.full(first.shape, slope) for name, slope in slopes.items()}
    return imaging_problem(
        bands.measured,
        first.grid,
        {"I": first.values["I"], **flat},
        data_weights=options.data,
        reg_weights=options.regularisers,
        flux=first.flux,
        beam=bands.beam,
        spectral=tuple(slopes),
        mf_flux=bands.fluxes,
        limits={name: (slope - reach, slope + reach) for name, slope in slopes.items()},
        epsilon_tv=options.epsilon_tv,
        operator=options.operator,
        transform=options.transform,
        name=f"{first.source or 'image'}, spectral",
    )


def _judged(
    bands: _Bands, first: Image, options: ImagingOptions, problem: Problem, result: Result, steps: list[str]
) -> SpectralResult:
    """Return the image and its maps, with what speaks against them; steps: doubts about those of the fit."""
    maps = image_maps(problem, result.params)
    chi2 = channel_chi2(problem, result.params)
    found, known = first.replace(values={"I": maps["I"]}), bands.fluxes
    if bands.alone:  # only that of the reference frequency was fitted to
        known = tuple(_flux_at(found, maps, one) for one in bands.measured)
    doubts = _doubts(chi2, bands.measured, found, maps, known, options.tolerance) + steps
    doubts += flux_doubts(found.flux, first.flux) if bands.alone else []
    return SpectralResult(
        image=found,
        alpha=maps["alpha"],
        beta=maps.get("beta"),
        chi2=chi2,
        fluxes=known,
        result=with_doubts(result, doubts),
        data=bands.ready,
        options=options,
        problem=problem,
        doubts=tuple(doubts),
    )


def _doubts(
    chi2: Mapping, measured: Sequence[DataSet], image: Image, maps: Mapping, fluxes: Sequence, tolerance: Any
) -> list[str]:
    """Return what is odd about every channel."""
    found = []
    for k, one in enumerate(measured):
        here = {name: float(v[k]) for name, v in chi2.items()}
        found += chi2_doubts(here, one, f" of channel {k + 1}", tolerance=tolerance)
        found += flux_doubts(_flux_at(image, maps, one), fluxes[k])
    return found


def _flux_at(image: Image, maps: Mapping, data: DataSet) -> float:
    """Return the flux of the image at the frequency of some data, Jy."""
    growth = sum(maps[name] * data.log_ratio ** (i + 1) for i, name in enumerate(MAPS) if name in maps)
    return float((image.values["I"] * np.exp(growth)).sum())


def _slope(obs: Observation, flux: float, options: ImagingOptions) -> float:
    """Return the mean spectral index within an observation, from amplitudes of one baseline and time over the band.

    What the longer baselines of higher frequencies resolve is taken from an image without a spectrum.
    """
    names = ("npix", "fov_uas", "prior_fwhm_uas", "data", "maxiter", "stop", *options.preparation)
    plain = image(obs, flux=flux, restarts=0, **{name: getattr(options, name) for name in names})
    seen = plain.data
    model = np.abs(visibilities(plain.image, seen.u, seen.v)["I"])
    good = (seen.snr > LEAST_SNR) & (model > FAINT * flux)
    keys = np.stack([seen.time, seen.ant1, seen.ant2])[:, good]
    _, group = np.unique(keys, axis=1, return_inverse=True)
    weight = 1 / (seen.snr[good] ** -2 + MODEL_ERROR**2)
    rise, growth = np.log(seen.hz[good]), np.log(np.abs(seen.vis["I"][good]) / model[good])
    for values in (rise, growth):  # gains of stations, the same over the band, drop out
        values -= (np.bincount(group.ravel(), weight * values) / np.bincount(group.ravel(), weight))[group.ravel()]
    if not (weight * rise**2).sum() > 0:
        raise ValueError("spectral_image: no baseline has data at two frequencies. Give one observation per frequency.")
    return float((weight * rise * growth).sum() / (weight * rise**2).sum())


def _fluxes(
    given: Sequence[Observation], channels: Sequence[Observation], fluxes: Sequence[float] | None
) -> tuple[float, ...]:
    """Return the flux of every channel, Jy: one for all of a single observation, else along a power law."""
    if len(given) == len(channels):
        return tuple(compact_flux(one) for one in channels) if fluxes is None else tuple(map(float, fluxes))
    if len(given) == 1:
        flux = np.median([compact_flux(one) for one in channels]) if fluxes is None else fluxes[0]
        return (float(flux),) * len(channels)
    whole = [np.median([compact_flux(part) for part in one.by_frequency()]) for one in given]
    law = np.polyfit(np.log([one.freq_hz for one in given]), np.log(whole if fluxes is None else fluxes), 1)
    return tuple(float(np.exp(np.polyval(law, np.log(one.freq_hz)))) for one in channels)


def _check(
    given: Sequence[Observation],
    channels: Sequence[Observation],
    order: int,
    fluxes: Any,
    options: Mapping[str, Any],
) -> None:
    for name, instead in ELSEWHERE.items():
        if name in options:
            raise TypeError(f"spectral_image has no option {name!r}. Give {instead} instead.")
    if order not in (1, 2):
        raise ValueError(f"spectral_image: order={order!r} must be 1 (α) or 2 (α and β).")
    frequencies = sorted({one.freq_hz for one in channels})
    if len(frequencies) <= order:
        raise ValueError(
            f"spectral_image: order {order} needs {order + 1} frequencies, the observations have "
            f"{', '.join(f'{hz / 1e9:.6g} GHz' for hz in frequencies) or 'none'}. Add observations"
            + (", or use order=1." if order == 2 and len(frequencies) == 2 else ".")
        )
    places = np.array([(15 * one.ra_hours, one.dec_deg) for one in channels])
    if np.ptp(places, axis=0).max() > POSITION:
        raise ValueError("spectral_image: the observations point at different positions. Give those of one source.")
    if fluxes is None and len(given) > 1 and np.log(frequencies[-1] / frequencies[0]) < CLOSE:
        raise ValueError(
            f"spectral_image: {frequencies[0] / 1e9:.6g} and {frequencies[-1] / 1e9:.6g} GHz are too close for "
            "estimated fluxes to tell a spectral index. Give fluxes=, the flux of each observation in Jy."
        )
    if fluxes is not None and len(fluxes) != len(given):
        raise ValueError(f"spectral_image: {len(fluxes)} fluxes for {len(given)} observations. Give one for each.")
    if fluxes is not None and not (np.isfinite(fluxes).all() and min(fluxes) > 0):
        raise ValueError(f"spectral_image: fluxes={tuple(fluxes)} must be positive, in Jy.")
