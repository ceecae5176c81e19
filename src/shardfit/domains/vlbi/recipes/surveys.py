"""Surveys of imaging: every choice an imager makes, as an axis.

| axis | what it is |
| --- | --- |
| flux | compact flux, Jy: prior, start, zero baselines and flux constraint |
| prior_fwhm_uas | size of the Gaussian that is prior and start, µas |
| systematic | fraction of abs(V) added to all errors; closure errors follow |
| data | which of several observations of one coverage, by name: synthetic truths for training |
| bootstrap | seed: scans drawn with repetition; seed -1 is the data as they are |
| fold | number of the part of the data that is held out, with folds=; -1: none |
| epsilon_tv | Jy², rounds off the total variation |
| a regulariser, a product | its weight, such as tv, simple, cphase |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.problem import Problem
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, prior, visibilities
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.models import MODELS, model_image
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import add_fractional_noise, rescale_zero_baselines
from shardfit.domains.vlbi.options import Polarisation
from shardfit.domains.vlbi.packing import measured_rows, pack
from shardfit.domains.vlbi.problem import REGULARISERS, imaging_problem, with_data_weights
from shardfit.domains.vlbi.recipes.eht import EHT2017_GAINS, RESOLUTION
from shardfit.domains.vlbi.recipes.errors import ErrorsUnderRegularisers, errors_around
from shardfit.domains.vlbi.recipes.imaging import PRESETS
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import baseline_limit, parts_of, prepare_all, usual_flux
from shardfit.domains.vlbi.recipes.rounds import measurements, prior_image
from shardfit.domains.vlbi.simulation import Gains, draw_gains
from shardfit.domains.vlbi.tables import DataSet, split
from shardfit.domains.vlbi.transforms import lifted
from shardfit.surveys.axes import Axis, Span, Start, apply, weight_axis
from shardfit.surveys.picture import Picture

OBSERVED = "observed"
GAINS = 0.05  # size of gain errors where nothing is known of a station
TOGETHER = 4  # decimals of an hour: rows this close in time share their gains
OWN_AXES = ("flux", "prior_fwhm_uas", "systematic", "data", "bootstrap", "fold", "epsilon_tv")
COUNTED = ("bootstrap", "fold")  # whole numbers, -1 for none
WEIGHTS = (0, 1, 10, 100, 1000)
PAPER_IV: Mapping[str, Sequence[Any]] = {  # the eht-imaging grid of the 2019 M87 papers, without the flux
    "prior_fwhm_uas": (40, 50, 60),
    "systematic": (0.0, 0.01, 0.02, 0.05),
    "simple": WEIGHTS,
    "tv": WEIGHTS,
    "tv2": WEIGHTS,
    "l1": WEIGHTS,
}


# with which every point comes within 1e-4 of its minimum, see docs/measured.md
CONVERGING: Mapping[str, Any] = {"maxiter": 2000, "ftol": 0.0, "gtol": 0.0, "patience": 60, "ptol": 1e-5}
POLISH = 4000  # steps in float64 for points that float32 does not bring to an end
SWEPT = "simple"  # from strong to weak entropy images gain detail: the neighbour is a good start


@dataclass(frozen=True, eq=False)
class ImagingSurvey:
    """What `survey` needs to image one observation in many ways.

    resolution: nominal, rad; measured, weights: data products and their weights where no axis changes them; source:
    what the axes take data and priors from.
    """

    problem: Problem
    axes: Mapping[str, Axis]
    picture: Picture
    prior: Image
    resolution: float
    measured: DataSet
    weights: Mapping[str, float]
    source: "Source"

    @property
    def options(self) -> dict[str, Any]:
        """Options of `survey` with which images converge, and their picture."""
        axis = self.axes.get(SWEPT)
        several = axis is not None and not isinstance(axis.values, Span) and len(axis.values) > 1
        return {"picture": self.picture, "sweep": SWEPT if several else None, "polish": POLISH, **CONVERGING}

    def image(self, picture: np.ndarray) -> Image:
        """Return a picture of the survey as an Image."""
        return self.prior.replace(values={"I": np.asarray(picture, float)})

    def held_out(self, point: Mapping[str, Any], params: Any) -> dict[str, float]:
        """Return χ² per measurement, by product, of the data that a point's fit has not seen; point: has a fold."""
        double = self.problem.replace(precision="float64")
        rows = self.source.rows_at(point, held=True)
        term: Any = dict(double.objective.items())["data"]
        changed = double.objective.with_rows(data={**term.rows, **rows}).only("data")
        totals = changed.totals({"I": np.asarray(params["I"], float)})["data"]
        return {name: float(value) for name, value in totals.items()}

    def observed(self, point: Mapping[str, Any]) -> Observation:
        """Return the data of a point, its values of the axes, with their errors; resampled ones as they were."""
        return self.source.observed(*self.source.at(point))

    def errors(self, point: Mapping[str, Any], params: Any, **options: Any) -> ErrorsUnderRegularisers:
        """Return error bars of a point, its values of the axes, whose fit ended at params; see `errors_around`."""
        double = self.problem.replace(precision="float64")
        there = double.replace(objective=apply(Start(double.objective, double.x0), self.axes, point).objective)
        weights = {name: float(point.get(name, weight)) for name, weight in self.weights.items()}
        image = {"I": np.asarray(params["I"], float)}
        return errors_around(there, image, self.prior, self.measured, weights, **options)


def imaging_survey(
    obs: Observation | Sequence[Observation],
    axes: Mapping[str, Sequence[Any] | Span] = PAPER_IV,
    *,
    preset: str = "default",
    others: Mapping[str, Observation] | None = None,
    folds: np.ndarray | None = None,
    precision: str = "float32",
    **options: Any,
) -> ImagingSurvey:
    """Prepare a survey of images of an observation, or of several of one source and band as one (see `join`).

    axes: values by name, see above; others: further observations at the same times and baselines, named by the axis
    'data' (the observation itself is 'observed'). folds: (n,) the part of every row of the prepared observation, for
    the axis 'fold'. options: fields of `ImagingOptions` that differ from the preset, 'default' or 'eht'; what is no
    axis is taken from there.

    Example: `made = imaging_survey(obs, PAPER_IV, preset="eht", flux=0.6)`, then
    `survey(made.problem, made.axes, run_dir="runs/m87", **made.options)`.
    """
    parts = parts_of(obs)
    chosen = options_from(_single(preset), PRESETS, {"operator": "dense", **options}).sized(*parts)
    extra = {name: 1.0 for name in axes if name in REGULARISERS}
    chosen = replace(chosen, regularisers={**extra, **chosen.regularisers})
    flux = usual_flux(parts, chosen.flux)
    ready = prepare_all(parts, flux, **{**chosen.preparation, "systematic": 0.0})
    observations = {OBSERVED: ready, **(others or {})}
    _check_axes(axes, chosen, observations, folds)
    start = prior_image(ready, flux, chosen)
    source = Source(observations, chosen, start, folds)
    measured = source.measured(OBSERVED, flux, chosen.systematic)
    problem = imaging_problem(
        measured,
        start.grid,
        start.values["I"],
        data_weights=chosen.data,
        reg_weights=chosen.regularisers,
        flux=flux,
        beam=ready.nominal_resolution,
        operator=chosen.operator,
        transform=chosen.transform,
        epsilon_tv=chosen.epsilon_tv,
        precision=precision,
        name=start.source or "image",
    )
    half = 0.5 * start.pixel_rad / UAS
    x, y = start.x / UAS, start.y / UAS
    extent = (x[0] + half, x[-1] - half, y[-1] - half, y[0] + half)
    picture = Picture(start.shape, leaf="I", extent=extent, extent_unit="µas", unit="Jy/pixel")
    made = {name: _axis(name, values, source) for name, values in axes.items()}
    return ImagingSurvey(problem, made, picture, start, ready.nominal_resolution, measured, chosen.data, source)


def training_data(
    obs: Observation | Sequence[Observation],
    names: Sequence[str] = tuple(MODELS),
    *,
    preset: str = "default",
    seed: int = 0,
    gains: float | Mapping[str, float] | None = None,
    **options: Any,
) -> dict[str, tuple[Observation, Image]]:
    """Return {name: (observation, truth)}: known images seen by the array at the times of an observation.

    Thermal noise of the data, gain errors, random phases. gains: size of the errors, of all stations or by name; None:
    the budget of the 2017 stations with preset 'eht', else 5 %. The observations are prepared as imaging_survey's own,
    and are given to it as others={name: observation}. Preset 'eht' has truths of the size of M87's shadow; without a
    preset they are to the array's resolution what those are to that of the EHT.
    """
    parts = parts_of(obs)
    chosen = options_from(_single(preset), PRESETS, options).sized(*parts)
    if gains is None:
        gains = EHT2017_GAINS if preset == "eht" else GAINS
    flux = usual_flux(parts, chosen.flux)
    ready = prepare_all(parts, flux, **{**chosen.preparation, "systematic": 0.0})
    grid = prior_image(ready, flux, chosen)
    scale = ready.nominal_resolution / RESOLUTION if preset == "default" else 1.0
    found = {}
    for name in names:
        truth = model_image(name, grid, flux, scale)
        number = list(MODELS).index(name)  # not its place here: what is seen of one does not depend on the others
        found[name] = (as_seen(ready, truth, seed=[seed, number], gains=gains), truth)
    return found


def as_seen(
    obs: Observation, truth: Image, *, seed: Any = 0, gains: float | Mapping[str, float] = GAINS
) -> Observation:
    """Return the observation as it would be of another sky: same baselines, times and errors, new noise and gains.

    gains: standard deviation of ln|g|, most of it changing from time to time; of all stations, or by name (stations not
    named have 5 %). Bands that were observed together share their gains.
    """
    rng = np.random.default_rng(seed)
    times, at = np.unique(obs.time.round(TOGETHER), return_inverse=True)
    g = draw_gains(rng, Gains(0.6, 0.8, random_phase=True), len(times), len(obs.stations))
    sizes = [gains.get(name, GAINS) if isinstance(gains, Mapping) else gains for name in obs.stations.names]
    g = np.abs(g) ** np.array(sizes) * np.exp(1j * np.angle(g))
    factor = g[at, obs.ant1] * g[at, obs.ant2].conj()
    model = visibilities(truth, obs.u, obs.v)["I"]
    noise = obs.sigma["I"] * (rng.normal(size=len(at)) + 1j * rng.normal(size=len(at)))
    return obs.replace(vis={"I": factor * model + noise}, sigma={"I": obs.sigma["I"]})


class Source:
    """What axes change in the objective, for any combination of their values; each is made once."""

    def __init__(self, observations: Mapping[str, Observation], options: ImagingOptions, start: Image, folds: Any):
        self.observations, self.options, self.start, self.folds = observations, options, start, folds
        self.power = Polarisation(transform=options.transform).intensity(options.regularisers) == "power"
        self.rows = lru_cache(maxsize=None)(self._rows)
        self.prior = lru_cache(maxsize=None)(self._prior)

    def at(self, point: Mapping[str, Any]) -> tuple[str, float, float]:
        """Return which observation a point is of, its flux and systematic error."""
        flux, systematic = point.get("flux", self.start.flux), point.get("systematic", self.options.systematic)
        return str(point.get("data", OBSERVED)), float(flux), float(systematic)

    def observed(self, name: str, flux: float, systematic: float) -> Observation:
        """Return one of the observations with zero baselines of this flux, Jy, and this error added."""
        ready = self.observations[name]
        limit = baseline_limit(ready, self.options.zero_baseline)
        if limit > 0:
            ready = rescale_zero_baselines(ready, flux, uv_max=limit)
        return add_fractional_noise(ready, systematic)

    def measured(self, name: str, flux: float, systematic: float) -> DataSet:
        """Return the data products of one of the observations."""
        return measurements(self.observed(name, flux, systematic), self.options)

    def _rows(self, name: str, flux: float, systematic: float, seed: int, fold: int, held: bool) -> dict:
        # without the operator: it depends on the baselines alone, which are those of the problem
        measured = self.measured(name, flux, systematic)
        if fold >= 0:
            measured = split(measured, self.folds == fold)[held]
        packed = pack(measured, self.start.grid, "separable")
        rows = {product: packed[product] for product in self.options.data}
        if seed < 0:
            return rows
        share, real = np.zeros(len(packed["channel"])), measured_rows(rows)
        share[real] = np.sqrt(np.random.default_rng(seed).multinomial(len(real), np.full(len(real), 1 / len(real))))
        return {product: _weighted(one, share) for product, one in rows.items()}

    def _prior(self, flux: float, fwhm_uas: float) -> np.ndarray:
        return prior(self.start, flux, fwhm_uas * UAS).normalise(flux).values["I"].ravel()

    def rows_at(self, point: Mapping[str, Any], *, held: bool = False) -> dict:
        """Return the rows of the products at a point; held: those of its fold that is held out."""
        seed, fold = int(point.get("bootstrap", -1)), int(point.get("fold", -1))
        return self.rows(*self.at(point), seed, fold, held)

    def data(self, start: Start, value: Any) -> Start:
        """Change the rows to those of this point."""
        new = self.rows_at(start.point)
        old: Any = dict(start.objective.items())["data"]
        return start._replace(objective=start.objective.with_rows(data={**old.rows, **new}))

    def sky(self, start: Start, value: Any) -> Start:
        """Change prior, start and flux to those of this point."""
        at = start.point
        flux, fwhm = (at.get("flux", self.start.flux), at.get("prior_fwhm_uas", self.options.prior_fwhm_uas))
        values = self.prior(float(flux), float(fwhm))
        reg: Any = dict(start.objective.items())["reg"]
        kept, scales, extra = reg.args
        scales = replace(scales, flux=np.asarray(flux, scales.prior.dtype), prior=values.astype(scales.prior.dtype))
        begin = lifted(values, float(flux) / values.size) if self.power else values
        return start._replace(objective=start.objective.with_args(reg=(kept, scales, extra)), params={"I": begin})

    def epsilon(self, start: Start, value: float) -> Start:
        """Change what rounds off the total variation."""
        reg: Any = dict(start.objective.items())["reg"]
        kept, scales, extra = reg.args
        scales = replace(scales, epsilon_tv=np.asarray(value, scales.prior.dtype))
        return start._replace(objective=start.objective.with_args(reg=(kept, scales, extra)))


def _weighted(rows: Mapping[str, np.ndarray], share: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows whose weights are multiplied by one number each."""
    return {k: a * share.reshape(-1, *[1] * (a.ndim - 1)) if k in ("weight", "whiten") else a for k, a in rows.items()}


def _axis(name: str, values: Any, source: Source) -> Axis:
    if name == "flux":
        return Axis(values, lambda start, v: source.sky(source.data(start, v), v), "Jy")
    if name == "prior_fwhm_uas":
        return Axis(values, source.sky, "µas")
    if name in ("systematic", "data", "bootstrap", "fold"):
        return Axis(values, source.data)
    if name == "epsilon_tv":
        return Axis(values, source.epsilon, "Jy²")
    if name in source.options.data:
        return Axis(values, lambda start, v: start._replace(objective=with_data_weights(start.objective, **{name: v})))
    return weight_axis(f"reg.{name}", values)


def _single(preset: str) -> str:
    if preset == "m87":
        raise ValueError("a survey fits once at every point; preset 'm87' has rounds. Use preset 'eht'.")
    return preset


def _check_axes(axes: Mapping[str, Any], options: ImagingOptions, observations: Mapping[str, Any], folds: Any) -> None:
    known = (*OWN_AXES, *options.data, *REGULARISERS)
    for name, values in axes.items():
        if name not in known:
            raise ValueError(f"imaging_survey: unknown axis {name!r}.{suggestion(name, known)}")
        if name == "data":
            for value in values:
                if value not in observations:
                    raise ValueError(
                        f"imaging_survey: no observation is named {value!r}.{suggestion(str(value), observations)}"
                    )
            continue
        if name == "fold" and folds is None:
            raise ValueError("imaging_survey: axis 'fold' needs folds=, the part of every row.")
        lowest = 0.0 if name not in ("flux", "prior_fwhm_uas") else None
        for value in values:
            if not np.isfinite(value) or (value <= 0 if lowest is None else value < 0 and name not in COUNTED):
                raise ValueError(
                    f"imaging_survey: {name}={value!r} must be {'positive' if lowest is None else 'zero or more'}."
                )
