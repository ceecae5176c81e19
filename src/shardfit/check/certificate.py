"""Parity certificate: proof, at run time and on the user's own model, that value and gradient are right.

Before a fit, at its start, and after it, at its answer, every term is compared on a probe of its rows: whole against
the same rows in two blocks, derivatives against finite differences, on a mesh split against unsplit, and in float32
against float64. A mismatch raises, naming the term and the cause. `docs/certificate.md` says what each comparison sees.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from shardfit.check import verdict
from shardfit.check.block_walks import (
    apart_by_term,
    as_a_fit,
    equations_call,
    equations_walk,
    gradients_of_terms,
    key_of,
    soon,
    walk,
    walk_call,
)
from shardfit.check.comparisons import EPS, Comparison, combine, compare
from shardfit.check.evaluations import evaluate_terms, lines_are_rows, pulled_back
from shardfit.check.grain import grain
from shardfit.check.mixing import depends_on_blocks
from shardfit.check.probe import Probe, Setting, beside, choose_rows, choose_setting, completed
from shardfit.core import reduce
from shardfit.core.ahead import Ahead
from shardfit.core.current import as_they_are, at_work
from shardfit.core.errors import NonFiniteError
from shardfit.core.functions import shared_problem
from shardfit.core.mesh import n_shards
from shardfit.core.precision import PRECISIONS, arithmetic
from shardfit.core.problem import Problem
from shardfit.core.recent import present
from shardfit.core.terms import StatisticTerm

log = logging.getLogger(__name__)

STEPS, OTHER_STEPS = (1e-4, 1e-6, 1e-8), (1e-2, 1e-3, 1e-5)  # for smooth and kinked models; for noisy ones
WIDE_STEPS = (3e-2, 1e-2, 3e-3)  # for models that compute in 32 or 16 bits
SETTINGS = 104729  # with the seed, what points and directions are drawn from
NUDGES = (1e-3, -1e-3, 1e-6)  # relative distances from the given point, tried until the objective is finite
OUTWARD = 0.02  # share of the way from start to answer by which the second point lies beyond the answer


@dataclass(frozen=True)
class Certificate:
    """What was probed, and the largest relative differences by term; None where a comparison did not apply.

    points: where, 'x0' and after the fit 'answer'. undecided: rows whose finite differences did not settle, so that
    they say nothing. flat: whether the gradient is exactly zero at x0 and around it.
    """

    shards: int
    probe_rows: dict[str, int]
    blocks: dict[str, float]
    finite_difference: dict[str, float]
    sharded: dict[str, float] | None = None
    precision: dict[str, float] | None = None
    walk: dict[str, float] | None = None
    gram: dict[str, float] | None = None
    gram_walk: dict[str, float] | None = None
    undecided: dict[str, int] = field(default_factory=dict)
    points: tuple[str, ...] = ("x0",)
    flat: bool = False

    def to_dict(self) -> dict:
        """Return plain numbers and a line of text, as stored in a Result."""
        return {**asdict(self), "points": list(self.points), "summary": str(self)}

    @property
    def note(self) -> str:
        """What a user should know though nothing is wrong, or ''."""
        if not self.flat:
            return ""
        return (
            "The gradient is exactly zero at x0 and around it: the value does not follow the parameters there (a step "
            "function, a rounding or comparison, a saturated function, or parameters that are not used)."
        )

    def __str__(self):
        rows = ", ".join(f"{n} rows of {name!r}" for name, n in self.probe_rows.items()) or "no rows"
        text = f"{rows} probed at {' and '.join(self.points)}; "
        text += f"gradient agrees with finite differences to {_worst(self.finite_difference):.0e}"
        if self.probe_rows:
            text += f", blocks with the whole to {_worst(self.blocks):.0e}"
        if self.sharded is not None:
            text += f", {self.shards} shards with one to {_worst(self.sharded):.0e}"
        return text


@dataclass
class _Memory:
    """What is known of one problem, by (mesh, seed, gram): its certificate, and that of the last answer."""

    probes: dict[tuple, Probe] = field(default_factory=dict)  # by number of shards and seed
    starts: dict[tuple, Certificate | None] = field(default_factory=dict)
    answers: dict[tuple, tuple[bytes, Certificate | None]] = field(default_factory=dict)
    equations: set[int] = field(default_factory=set)  # numbers of shards with which the normal equations were walked


# A Problem is immutable, so what was certified of one stays certified: fitting it again costs nothing.
_memories: WeakKeyDictionary[Problem, dict[tuple, _Memory]] = WeakKeyDictionary()


def _memory_of(problem: Problem) -> _Memory:
    """Return what is known of a problem with its functions as they are now."""
    return _memories.setdefault(problem, {}).setdefault(present.key, _Memory())


def certify(problem: Problem, *, mesh: Any = None, seed: int = 0, gram: bool = False) -> Certificate:
    """Check value and gradient of every term at x0; gram: check the normal equations too.

    Raises ParityError naming the term that fails, and NonFiniteError where a term cannot be evaluated. A problem that
    was certified with the same mesh and seed is not evaluated again.
    """
    problem = shared_problem(problem)
    with as_they_are(problem):
        return _certified(problem, (mesh, seed, gram))


def compile_ahead(problem: Problem, *, mesh: Any = None, seed: int = 0, gram: bool = False) -> Ahead:
    """Begin to compile what `certify` will call, in other threads; what is known already needs nothing."""
    problem, ahead = shared_problem(problem), Ahead()
    with as_they_are(problem):
        if _memory_of(problem).starts.get((mesh, seed, gram)) is None:
            shards, rng = n_shards(mesh), np.random.default_rng([seed, SETTINGS])
            probe = _probe_of(problem, shards, seed)
            given, nudge = next(_candidates(problem, problem.z0(), "x0"))
            setting = choose_setting(probe.objective, problem.space, given, problem.box, (nudge, STEPS), rng)
            with arithmetic("float64"):
                ahead.compile(evaluate_terms, *_evaluation(problem, probe, setting, seed, gram, 0))
            walks = [walk_call(problem, setting, shards, seed)]
            walks += [equations_call(problem, setting.points[1], setting.scale, shards)] if gram else []
            with at_work(problem):
                for evaluate, (as_run, smaller), *at in filter(None, walks):
                    ahead.compile(as_a_fit, evaluate, as_run, *at)
                    ahead.compile(soon, evaluate, smaller, *at)
    return ahead


def _certified(problem: Problem, call: tuple) -> Certificate:
    memory = _memory_of(problem)
    certificate = memory.starts.get(call)
    if certificate is None:
        certificate = memory.starts[call] = _certificate_at(problem, call, problem.z0(), "x0")
    assert certificate is not None, "a start that is not finite raises"
    return certificate


def certify_answer(problem: Problem, start: Certificate, z: Any, *, mesh: Any = None, seed: int = 0) -> Certificate:
    """Check the same at the answer z (n,) of a fit, a little beyond it; return the worse of both certificates.

    Where the objective is not finite around the answer, there is nothing to compare and the first one is returned.
    """
    problem = shared_problem(problem)
    with as_they_are(problem):
        return _answer_certified(problem, (mesh, seed, start.gram is not None), start, np.asarray(z))


def _answer_certified(problem: Problem, call: tuple, start: Certificate, z: np.ndarray) -> Certificate:
    memory = _memory_of(problem)
    at, certificate = memory.answers.get(call, (b"", None))
    if at != z.tobytes():
        certificate = _certificate_at(problem, call, z, "answer")
        memory.answers[call] = z.tobytes(), certificate
    return start if certificate is None else _worse(start, certificate)


def certify_equations(problem: Problem, params: Any, *, mesh: Any = None) -> None:
    """Check the normal equations of error bars beside params, in blocks as they have them; raise ParityError.

    Those of a problem that was certified with them are not evaluated again.
    """
    problem = shared_problem(problem)
    with as_they_are(problem):
        _certify_equations(problem, params, n_shards(mesh))


def _certify_equations(problem: Problem, params: Any, shards: int) -> None:
    memory = _memory_of(problem)
    z = np.asarray(problem.space.host_z(params), np.float64)
    if shards in memory.equations or not z.size:
        return
    # at an answer little may be left of a value but its rounding
    near = beside(problem.space, z, problem.box, NUDGES[0], np.random.default_rng(0))
    verdict.judge_walk(
        equations_walk(problem, *near, shards), verdict.EQUATIONS, problem.precision, partial(_grain, problem)
    )
    memory.equations.add(shards)


def _certificate_at(problem: Problem, call: tuple, z: np.ndarray, where: str) -> Certificate | None:
    mesh, seed, gram = call
    memory, shards = _memory_of(problem), n_shards(mesh)
    probe = _probe_of(problem, shards, seed)
    try:
        examined = _examine(problem, probe, z, where, seed, gram)
    except NonFiniteError:
        probe = completed(problem, probe)
        if probe is None:
            raise
        memory.probes[shards, seed] = probe
        examined = _examine(problem, probe, z, where, seed, gram)
    if examined is None:
        return None
    setting, comparisons = examined
    terms, rounding = dict(probe.objective.items()), partial(_grain, problem)
    rows = {name: index for name, index in probe.index.items() if lines_are_rows(terms[name])}
    mixes = lambda name, how: depends_on_blocks(terms[name], problem.x0, name, how)  # noqa: E731 (one use, two names)
    verdict.judge(comparisons, rows, where, mixes, rounding)
    # layout and precision do not depend on the point; at an answer little is left of a value but its rounding
    layouts = _layouts(problem, probe, setting, comparisons, mesh, seed) if where == "x0" else (None, None)
    walked = walk(problem, setting, shards, seed) if where == "x0" else None
    gram_walk = equations_walk(problem, setting.points[1], setting.scale, shards) if gram and where == "x0" else None
    certificate = Certificate(
        shards=shards,
        probe_rows={name: len(np.unique(index)) for name, index in probe.index.items()},
        blocks={n: max(c.block_rows, c.block_gradient) for n, c in comparisons.items() if n in probe.index},
        finite_difference={name: c.derivative_error for name, c in comparisons.items()},
        sharded=layouts[0],
        precision=layouts[1],
        walk=walked,
        gram={name: c.gram for name, c in comparisons.items()} if gram else None,
        gram_walk=gram_walk,
        undecided={name: n for name, c in comparisons.items() if (n := int(c.undecided.sum()))},
        points=(where,),
        flat=where == "x0" and not any(np.any(c.gradients) for c in comparisons.values()),
    )
    verdict.judge_layouts(certificate, problem.precision, rounding)
    if gram:
        memory.equations.add(shards)
    log.debug("parity certificate: %s", certificate)
    return certificate


def _probe_of(problem: Problem, shards: int, seed: int) -> Probe:
    memory = _memory_of(problem)
    probe = memory.probes.get((shards, seed))
    if probe is None:
        probe = memory.probes[shards, seed] = choose_rows(problem.objective, shards, seed)
    return probe


def _grain(problem: Problem, name: str) -> float:
    """Return the rounding of the coarsest numbers in a term's program."""
    return grain(dict(problem.objective.items())[name], problem.x0)


def _examine(problem, probe: Probe, z, where, seed, gram) -> tuple[Setting, dict[str, Comparison]] | None:
    """Return the comparisons near z, None where the objective is not finite around an answer.

    A row that is wrong or undecided is looked at again in other directions. What seems wrong in a program that rounds
    to less than 64 bits is looked at with steps that stand out of that rounding.
    """
    rng = np.random.default_rng([seed, SETTINGS])

    def look(given, how, coarse: Mapping[str, float] = MappingProxyType({})):
        setting = choose_setting(probe.objective, problem.space, given, problem.box, how, rng)
        return setting, _comparisons(problem, probe, setting, seed, gram, int(where != "x0"), coarse)

    def settled(comparisons, steps, coarse: Mapping[str, float] = MappingProxyType({})):
        looks = [comparisons]
        while _doubtful(looks):
            looks.append(look(given, (nudge, steps), coarse)[1])
        return {name: combine([one[name] for one in looks if one[name].finite]) for name in comparisons}

    for given, nudge in _candidates(problem, z, where):
        setting, comparisons = look(given, (nudge, STEPS))
        if where == "x0":
            _require_finite("at x0", comparisons, 0, probe)
        if all(c.finite for c in comparisons.values()):
            break
    else:
        if where == "x0":
            _require_finite("near x0", comparisons, 1, probe)
        return None
    found = settled(comparisons, OTHER_STEPS)
    coarse = {name: _grain(problem, name) for name, one in found.items() if one.suspicion.any()}
    coarse = {name: rounding for name, rounding in coarse.items() if rounding > EPS}
    if coarse:
        again = settled(look(given, (nudge, WIDE_STEPS), coarse)[1], WIDE_STEPS, coarse)
        found |= {name: again[name] for name in coarse}
    return setting, found


def _doubtful(looks: list[dict[str, Comparison]]) -> bool:
    """Return whether to look again: a second time for rows that are undecided, a third for what seems wrong."""
    suspicious = any(c.suspicion.any() for one in looks for c in one.values())
    undecided = any(c.undecided.any() for c in looks[0].values())
    return len(looks) < 3 if suspicious else len(looks) < 2 and undecided


def _candidates(problem, z, where):
    """Yield points and distances from them to look at, until the objective is finite there."""
    z = np.asarray(z, np.float64)
    if where == "answer":
        beyond = z + OUTWARD * (z - np.asarray(problem.z0(), np.float64))
        # past the answer a model may be undefined; the answer itself is then the second choice
        yield beyond if problem.box is None else np.clip(beyond, *problem.box), NUDGES[0]
    yield from ((z, nudge) for nudge in NUDGES)


def _comparisons(problem, probe, setting, seed, gram, first, coarse) -> dict[str, Comparison]:
    with arithmetic("float64"):
        call = _evaluation(problem, probe, setting, seed, gram, first)
        evaluated, (_, exact, *_, key) = jax.device_get(evaluate_terms(*call)), call

        def pull_back(i, cotangents):
            term = exact.terms[i]
            return pulled_back(problem.space, term, setting.points[1], reduce.term_key(term, key, i), cotangents)

        return {
            name: compare(
                evaluated[name],
                setting,
                i,
                partial(pull_back, i),
                coarse.get(name, EPS),
                by_row=lines_are_rows(exact.terms[i]),
            )
            for i, name in enumerate(exact.names)
        }


def _evaluation(problem, probe, setting, seed, gram, first) -> tuple:
    """Return the arguments of `evaluate_terms`, in 64 bits."""
    exact, key = probe.objective.with_precision("float64"), key_of(probe.objective, seed)
    return gram, exact, problem.space, setting, first, key


def _layouts(problem, probe: Probe, setting: Setting, comparisons, mesh, seed):
    """Return the differences between shards and one device, and between float32 and float64, by term."""
    precision, scale = problem.precision, setting.scale
    if mesh is None and precision == "float64":
        return None, None
    near = setting.points[1]
    if probe.shared is probe.objective:
        exact = {n: f.values[1] for n, f in comparisons.items()}, {n: f.gradients[1] for n, f in comparisons.items()}
    else:
        with arithmetic("float64"):
            exact = gradients_of_terms(
                probe.shared.with_precision("float64"), problem.space, near, key_of(problem.objective, seed)
            )
    with arithmetic(precision):
        near, key = np.asarray(near, PRECISIONS[precision]), key_of(problem.objective, seed)
        shared = probe.shared.with_precision(precision)
        single = exact if precision == "float64" else gradients_of_terms(shared, problem.space, near, key)
        split = None
        if n_shards(mesh) > 1:
            split = apart_by_term(gradients_of_terms(shared.place(mesh), problem.space, near, key), single, scale)
        return split, None if precision == "float64" else apart_by_term(single, exact, scale)


def _require_finite(where: str, comparisons: dict[str, Comparison], point: int, probe: Probe) -> None:
    terms = dict(probe.objective.items())
    for name, comparison in comparisons.items():
        term, value = terms[name], float(comparison.values[point])
        if not np.isfinite(value):
            empty = " If its loss takes a logarithm or ratio of totals, leave out bins that are empty or were not seen."
            raise NonFiniteError(
                f"term {name!r} is {value} {where}. Start where the model is defined, or bound the parameters."
                f"{empty if isinstance(term, StatisticTerm) and not term.linear else ''}"
            )
        if not np.isfinite(comparison.gradients[point]).all():
            raise NonFiniteError(
                f"term {name!r} is finite {where} but its gradient is not. A square root, absolute value, power or "
                "division at zero inside the model is the usual cause: keep its argument away from zero."
            )


def _worst(figures: dict[str, float]) -> float:
    return max(figures.values(), default=0.0)


def _worse(one: Certificate, other: Certificate) -> Certificate:
    """Return a certificate with the larger difference of two, term by term."""

    def larger(name):
        a, b = getattr(one, name), getattr(other, name)
        return None if a is None else {term: max(a.get(term, 0), b.get(term, 0)) for term in {**a, **b}}

    figures = ("blocks", "finite_difference", "gram", "undecided")
    return replace(one, points=one.points + other.points, **{name: larger(name) for name in figures})
