"""Whether draws can be trusted: a word, the reasons, and what to do about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core import success
from shardfit.core.success import DOUBTFUL, listed
from shardfit.sampling.quality import diagnostics
from shardfit.sampling.quality.psis import LARGEST_K
from shardfit.sampling.shards.shard_table import ShardTable
from shardfit.sampling.summary import summarize

LARGEST_RHAT = 1.01
FEWEST_EFFECTIVE = 400
SMALLEST_BFMI = 0.3
STAYED = 0.99  # share of a chain's draws in one mode, of a chain that does not leave it
LEAST_MISSED, RARELY = 0.01, 0.05  # Laplace's weight of a mode that counts, and the share of it that must be visited
VIRIAL_ERRORS, LEAST_VIRIAL = 4.0, 0.02  # Monte Carlo errors, and difference from one, that a virial may not exceed
LARGEST_OUTSIDE = 0.05  # share of the density where no draw is
CONVERGED, DIVERGENCES, NOT_CONVERGED = "converged", "divergences", "not_converged"
STATUSES = (CONVERGED, DOUBTFUL, DIVERGENCES, NOT_CONVERGED)  # the last that applies is given
ADVICE = {
    "rhat": "Draw more, or warm up longer; chains that stay apart mean several modes or a start far away.",
    "ess": "Draw more; if that would take too long, find coordinates in which the parameters are less correlated.",
    "few": "Draw more for finer quantiles.",
    "modes": "Weigh the modes by their evidence, give a prior that tells them apart, or order what may be exchanged.",
    "divergences": "Raise target_accept (0.9, 0.99), or use other coordinates: the draws miss a narrow region.",
    "virial": "The draws miss part of the density: sample with 'nuts', or use other coordinates, and draw more.",
    "bfmi": "Chains cross the energies slowly: use other coordinates, or a prior that bounds heavy tails.",
    "depth": "Trees end at their largest depth, which costs time only: raise max_depth, or rescale.",
    "disagreement": "The model does not hold for all rows, or their errors are too small: look at these rows.",
    "skewness": "Use fewer shards, or coordinates in which the posterior is closer to a Gaussian; and correct=True.",
    "pareto_k": "The proposal misses part of the posterior: use fewer shards, or sample all data at once.",
}


Finding = tuple[str | None, str, str]  # status it calls for, None for a caution; what was found; kind of advice


@dataclass(frozen=True)
class Verdict(success.Verdict):
    """Whether draws can be trusted: the verdict of any answer, and advice.

    Its word is 'converged', 'doubtful' (what chains cannot know speaks against them), 'divergences' or 'not converged'.
    """

    advice: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The word, as a name."""
        return self.word.replace(" ", "_")

    @property
    def cautions(self) -> tuple[str, ...]:
        """What does not decide."""
        return self.notes

    def __str__(self):
        said = [self.word, *self.reasons, *self.notes]
        return " ".join(["; ".join(said) + ".", *self.advice])


def judge(
    z: np.ndarray,
    stats: Mapping[str, np.ndarray],
    weights: np.ndarray | None = None,
    extra: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> Verdict:
    """Judge draws z (chains, draws, n) with their statistics; extra may bring pareto_k, max_depth, `shards` (columns
    of a ShardTable), `independent`: draws that no chain made, of which R-hat would say nothing, and `doubts`: texts of
    who knows the data.

    Converged: every R-hat at most 1.01, at least 400 effective draws in bulk and tails, no divergence. Coordinates are
    judged, not parameters: all of them are free, so one that never moved counts against the chains. A virial, where the
    sampler has one, must be one to its error.
    """
    extra = extra or {}
    names = tuple(labels) or tuple(f"z[{i}]" for i in range(z.shape[2]))
    found = [*_numbers(z, names), *_mixing(z, weights, names, bool(extra.get("independent")))]
    found += [(DOUBTFUL, text.removesuffix("."), "doubts") for text in extra.get("doubts", ())]
    found = [*_modes(extra), *found, *_importance(extra), *_transitions(stats, extra), *_shards(extra)]
    status = max((s for s, _, _ in found if s is not None), key=STATUSES.index, default=CONVERGED)
    return Verdict(
        status.replace("_", " "),
        {CONVERGED: "good", NOT_CONVERGED: "bad"}.get(status, "warn"),
        tuple(text for s, text, _ in found if s is not None),
        tuple(text for s, text, _ in found if s is None),
        advice=tuple(dict.fromkeys(ADVICE[kind] for _, _, kind in found if kind in ADVICE)),
    )


def _numbers(z: np.ndarray, names: tuple[str, ...]) -> list[Finding]:
    odd = np.ravel(~np.isfinite(z).all(axis=(0, 1)))
    told = listed([name for name, here in zip(names, odd, strict=True) if here])
    return [(NOT_CONVERGED, f"not a number: {told}", "numbers")] if odd.any() else []


def _mixing(z: np.ndarray, weights: np.ndarray | None, names: tuple[str, ...], independent: bool) -> list[Finding]:
    if z.shape[1] < diagnostics.FEWEST_DRAWS:
        return [(NOT_CONVERGED, f"{z.shape[1]} draws per chain are too few to judge", "ess")]
    found: list[Finding] = []
    table = summarize(names, ("",) * len(names), z, weights, independent)
    ratio = np.where(np.isnan(table["rhat"]), np.inf, table["rhat"])
    effective = np.nan_to_num(np.minimum(table["ess_bulk"], table["ess_tail"]), nan=0.0)
    if not independent and ratio.max(initial=0) > LARGEST_RHAT:
        found.append((NOT_CONVERGED, f"R-hat {_worst(ratio, names, np.argmax, '.3f')}", "rhat"))
    if effective.min(initial=np.inf) < FEWEST_EFFECTIVE:
        text = f"effective draws {_worst(effective, names, np.argmin, '.0f')}"
        # few draws that no chain made are coarse, not wrong
        found.append((None, text, "few") if independent and weights is None else (NOT_CONVERGED, text, "ess"))
    return found


def _worst(values: np.ndarray, names: tuple[str, ...], pick: Any, form: str) -> str:
    at = int(pick(values))
    return f"{values[at]:{form}} of {names[at]}"


def _modes(extra: Mapping[str, Any]) -> list[Finding]:
    """Modes that were found before sampling: chains that stay in theirs weigh them by where they began."""
    if extra.get("mode_share") is None:
        return []
    weight, share = np.asarray(extra["mode_weight"]), np.asarray(extra["mode_share"])
    told = f"weights by Laplace {', '.join(f'{w:.2g}' for w in weight)}"
    found: list[Finding] = []
    if len(np.unique(share.argmax(1))) > 1 and np.mean(share.max(1) > STAYED) > 0.5:
        found.append(
            (NOT_CONVERGED, f"the posterior has {len(weight)} modes and chains stay in theirs ({told})", "modes")
        )
    missed = (weight > LEAST_MISSED) & (share.mean(0) < RARELY * weight)
    if missed.any():
        numbers = ", ".join(str(i + 1) for i in np.flatnonzero(missed))
        found.append((NOT_CONVERGED, f"chains hardly visit mode {numbers} of {len(weight)} ({told})", "modes"))
    return found


def _importance(extra: Mapping[str, Any]) -> list[Finding]:
    k = float(np.max(extra["pareto_k"])) if extra.get("pareto_k") is not None else -np.inf
    return [(NOT_CONVERGED, f"Pareto k {k:.2f} of the importance weights", "pareto_k")] if k > LARGEST_K else []


def _transitions(stats: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> list[Finding]:
    found: list[Finding] = []
    diverging = np.asarray(stats.get("diverging", ()), bool)
    if diverging.any():
        share = f"{diverging.sum()} of {diverging.size} transitions diverged ({100 * diverging.mean():.2g} %)"
        found.append((DIVERGENCES, share, "divergences"))
    found += _virial(extra)
    if "energy" in stats and stats["energy"].shape[1] >= diagnostics.FEWEST_DRAWS:
        with np.errstate(divide="ignore", invalid="ignore"):
            least = float(np.min(diagnostics.bfmi(stats["energy"])))
        if least < SMALLEST_BFMI:
            found.append((None, f"BFMI {least:.2f}", "bfmi"))
    if "depth" in stats and extra.get("max_depth") is not None:
        saturated = float(np.mean(stats["depth"] >= int(extra["max_depth"])))
        if saturated > 0.01:
            found.append((None, f"{100 * saturated:.0f} % of the trees ended at depth {extra['max_depth']}", "depth"))
    return found


def _virial(extra: Mapping[str, Any]) -> list[Finding]:
    """A law that holds for every density that vanishes at its ends, and mass where no draw is."""
    outside = float(extra.get("outside", 0.0))
    if outside > LARGEST_OUTSIDE:
        return [(NOT_CONVERGED, f"about {100 * outside:.0f} % of the density lie where no chain has been", "virial")]
    if extra.get("virial") is None:
        return []
    virial, error = float(extra["virial"]), float(extra["virial_error"])
    if abs(virial - 1) <= max(LEAST_VIRIAL, VIRIAL_ERRORS * error):
        return []
    return [(NOT_CONVERGED, f"virial {virial:.3g} ± {error:.2g}, which is 1 for draws from the density", "virial")]


def _shards(extra: Mapping[str, Any]) -> list[Finding]:
    if extra.get("shards") is None:
        return []
    # weights by the density of all rows put right whatever the shards have got wrong, and tell when they cannot
    corrected = extra.get("pareto_k") is not None
    status = {"divergences": DIVERGENCES, "disagreement": None}
    found = ShardTable(extra["shards"]).complaints()
    return [(None if corrected else status.get(kind, NOT_CONVERGED), text, kind) for kind, text in found.items()]
