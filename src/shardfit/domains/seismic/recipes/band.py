"""One fit of an inversion: its problem and the solver for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.problem import Problem
from shardfit.domains.seismic import conditioning, penalties
from shardfit.domains.seismic.arrays import Response
from shardfit.domains.seismic.bands import low_pass
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.domains.seismic.curvature import hessian_diagonal
from shardfit.domains.seismic.illumination import illumination
from shardfit.domains.seismic.likeness import likeness, require_likeness
from shardfit.domains.seismic.losses import Correlation, SampleLoss, as_loss
from shardfit.domains.seismic.medium import Medium, MediumSimulation, Parameter, bare, speed
from shardfit.domains.seismic.options import MisfitOptions, ModelOptions
from shardfit.domains.seismic.parametrisation import transform_of
from shardfit.domains.seismic.problem import inversion_problem
from shardfit.domains.seismic.recipes.gauss_newton import GaussNewton
from shardfit.domains.seismic.recipes.lbfgs import PreconditionedLBFGS
from shardfit.domains.seismic.recipes.options import PRECONDITIONED, InversionOptions
from shardfit.domains.seismic.recording import Recording
from shardfit.domains.seismic.simulation import Simulation
from shardfit.solve.base import Solver
from shardfit.solve.optax_loop import OptaxLoop
from shardfit.solve.registry import as_solver

FIRST_STEP = 0.02  # share of the velocity, or of another field's size, by which a line search begins to change it
FIRST_RMS = 0.4  # of the largest change of a cell, for the root mean square of the first preconditioned step
PROBE_SHOTS = 8


@dataclass(frozen=True, eq=False)
class Band:
    """What one fit is given: the medium it starts from, the data, the number of its corner, devices."""

    sim: Simulation
    medium: Medium
    recording: Recording
    options: InversionOptions
    number: int = 0
    mesh: Any = None

    @property
    def response(self) -> Response | None:
        """The filter of the band, None for all frequencies."""
        corner = self.options.corners[self.number]
        return None if corner is None else low_pass(self.sim, corner, self.options.band_order)

    @property
    def rate(self) -> float:
        """The learning rate in this band, m/s."""
        return self.options.learning_rate * self.options.decay**self.number

    @property
    def batchsize(self) -> int | None:
        """Shots per step, None for all."""
        return self.options.batchsizes[self.number]

    def compare(self) -> None:
        """Raise where the data cannot be what is modelled; see `InversionOptions.compare`."""
        loss, match = as_loss(self.options.loss), self.options.match
        if not isinstance(loss, SampleLoss | Correlation):
            return
        how = {"response": self.response, "match": match, "waves": self.options.waves}
        found = likeness(self.sim, bare(self.medium), self.recording, **how)
        require_likeness(found, scale_matters=isinstance(loss, SampleLoss) and match is None)

    def problem(self) -> Problem:
        """Return the fit, in coordinates that suit the solver."""
        options, medium, extra = self.options, self.medium, {}
        if options.tikhonov:
            extra["tikhonov"] = penalties.tikhonov(options.tikhonov)
        if options.tv:
            extra["tv"] = penalties.total_variation(options.tv, options.tv_eps)
        misfit = MisfitOptions(options.loss, options.normalise, response=self.response, match=options.match)
        start, model = bare(medium), self._model()
        if isinstance(self.sim, MediumSimulation):
            start = {name: medium[name] for name in options.fitted or ()}
        problem = inversion_problem(self.sim, start, self.recording, misfit, model, options.waves, extra)
        plain = options.first_order or options.solver in PRECONDITIONED
        return problem if plain else _well_scaled(problem, self.sim, options.parameter, self.mesh)

    def _model(self) -> ModelOptions:
        """Return bounds, coordinates and units of what is fitted, and what is known."""
        options, medium, bounds = self.options, self.medium, self.options.bounds
        if not isinstance(self.sim, MediumSimulation):
            if bounds is None and options.bounded:
                bounds = (0.5 * float(np.min(speed(medium))), self.sim.v_max)
            return ModelOptions(bounds, options.parameter)
        fitted, given = options.fitted or (), bounds if isinstance(bounds, Mapping) else {"vp": bounds}
        if not set(given) <= {"vp", *fitted}:
            raise ValueError(f"invert: bounds of {sorted(given)}, but what is fitted is {sorted(fitted)}.")
        given = {name: ends for name, ends in given.items() if ends is not None and name in fitted}
        return ModelOptions(
            given,
            options.parameter,
            {name: self.sim.parameters[name].step for name in fitted},
            {name: x for name, x in medium.items() if name not in fitted},
        )

    def solver(self, problem: Problem) -> Solver:
        """Return the solver of the fit, with the conditioning at its start."""
        options, how = self.options, self.options.conditioning
        # no tolerance suits misfits of any size: the number of steps ends it
        ends = {"maxiter": options.steps[self.number], "gtol": 0.0, "ftol": 0.0}
        if options.solver in PRECONDITIONED:
            how = replace(how, curvature=1.0) if how.curvature is None else how
            # with all shots a line search looks after every step
            limit = np.inf if self.batchsize is None else self.rate
            given = (how, *self._factors(problem, how), len(problem.x0))
            steps = {"limit": limit, "batch": self.batchsize, **ends}
            if options.solver == "gauss-newton":
                return GaussNewton.of(*given, products=options.products, **steps)
            return PreconditionedLBFGS.of(*given, first=FIRST_RMS * self.rate, **steps)
        if not options.first_order:
            return as_solver(options.solver, **ends)
        more = {} if options.solver == "sgd" else {"eps": options.eps}
        return OptaxLoop(
            transform=conditioning.optimiser(options.solver, self.rate, how, *self._factors(problem, how), **more),
            batch=self.batchsize,
            label=f"{options.solver}(learning_rate={self.rate:g}, {how})",
            **ends,
        )

    def _factors(self, problem: Problem, how: Conditioning) -> tuple[np.ndarray, np.ndarray]:
        """Return mask and weights of the gradient; weights are (fields, nz, nx) where they follow from curvature."""
        if not how.idle and problem.space.size != sum(np.size(x) for x in problem.x0.values()):
            raise ValueError(
                "bounds: some cells have equal ends, which takes them out of what is fitted, and conditioning needs "
                "the whole model. Hold cells by conditioning (rows, near), or give these bounds some width."
            )
        mask, energy, curvature = conditioning.mask(self.sim, self.recording.shots, how), None, None
        if how.illumination:
            # an inverse Hessian to begin with needs no detail
            sampling = {"batchsize": self.batchsize or 8, "every": 2 if self.options.first_order else 4}
            energy = illumination(
                self.sim,
                bare(self.medium),
                self.recording.wavelet,
                self.recording.shots,
                **sampling,
                mesh=self.mesh,
                waves=self.options.waves,
            )
            if not self.options.first_order:
                energy = np.minimum(energy, energy[mask > 0].max())  # what is held, the cells of sources, sets no scale
        if how.curvature:
            curvature = self._curvature(problem, mask)
        return mask, conditioning.weights(self.sim, how, energy, curvature)

    def _curvature(self, problem: Problem, mask: np.ndarray) -> np.ndarray:
        """Return the diagonal of the Hessian (fields, nz, nx) with respect to the solver's coordinates."""
        known = {name: x for name, x in self.medium.items() if name not in problem.x0}
        where = {"response": self.response, "movable": mask, "mesh": self.mesh, "waves": self.options.waves}
        found = hessian_diagonal(self.sim, problem.x0, self.recording, known, **where)
        fields = []
        for name, transform in zip(sorted(problem.x0), problem.space.transforms, strict=True):
            z = transform.inverse(jnp.asarray(problem.x0[name]))
            slope = np.asarray(jax.jvp(transform.forward, (z,), (np.ones_like(z),))[1])
            fields.append(found[name] * slope**2)
        return np.stack(fields)


def _well_scaled(problem: Problem, sim: Simulation, parameter: str, mesh: Any) -> Problem:
    """Return the problem in coordinates whose first step along the gradient changes the velocity by FIRST_STEP.

    In m/s that step would be the gradient itself, 1e-6 or less, which float32 cannot even add to a velocity.
    """
    n = problem.objective.n_rows["data"]
    some = np.unique(np.linspace(0, n - 1, PROBE_SHOTS).astype(int))
    objective = problem.objective.take(lambda *_: some).place(mesh)
    gradient, transforms = objective.value_and_grad(problem.x0)[1], {}
    kinds = sim.parameters if isinstance(sim, MediumSimulation) else {"velocity": Parameter(coordinate=parameter)}
    for name, start in problem.x0.items():
        largest, size = float(np.abs(gradient[name]).max()), kinds[name].size
        size = float(np.median(start)) if size is None else size
        unit = (FIRST_STEP * size / largest) ** 0.5 if largest > 0 else 1.0
        # rounded: the same on any number of devices, whose gradients differ by rounding
        transforms[name] = transform_of(kinds[name].coordinate, start, float(f"{unit:.1e}"))
    return problem.replace(transforms=transforms)
