"""The report of a run directory that holds a posterior: the verdict first, then the table, then the chains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.report import chain_figures
from shardfit.report.blocks import Block, Cards, PngBlock, Section, Table, Text
from shardfit.report.html import Badge
from shardfit.report.run import read_environment, with_study, write_page
from shardfit.report.sections import about, compile_hint, timings
from shardfit.report.study import Study, save_figure
from shardfit.report.values import number, seconds
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.diagnostics import FEWEST_DRAWS, bfmi, ess_weights
from shardfit.sampling.quality.judgement import Verdict
from shardfit.sampling.store import load_posterior
from shardfit.sampling.summary import Summary, digits

MOST_LINES = 60
NAMES = {  # of what methods leave in `extra`
    "pareto_k": "Pareto k of the weights",
    "values": "values of the density of all rows",
    "error": "largest Monte Carlo error (of a mean in sd, of an sd, of a correlation)",
    "useful_gradients": "share of gradients in a chain's own tree",
    "max_depth": "largest depth of a tree allowed",
    "lost": "refits without an answer",
    "again": "refits tried again",
}


def report_posterior(run_dir: str | Path, study: Study | None = None) -> Path:
    """Write figures and report.html of a run directory that holds a posterior; return the path of the report.

    study: what to show and keep besides the posterior; None: what was kept.
    """
    folder = Path(run_dir)
    posterior = load_posterior(folder)
    verdict, study = posterior.verdict(), with_study(folder, study)
    pictures = [
        save_figure(figure, folder, name, caption) for name, (caption, figure) in standard_figures(posterior).items()
    ]
    page = sections_of(posterior, verdict, pictures, study.sections, read_environment(folder))
    study = replace(study, subtitle=study.subtitle or _drawn(posterior))
    return write_page(folder, study, f"Posterior of {posterior.problem}", page, Badge(verdict.word, verdict.tone))


def sections_of(
    posterior: Posterior,
    verdict: Verdict,
    pictures: list[PngBlock],
    added: Sequence[Section],
    environment: Mapping[str, Any],
) -> list[Section]:
    """Return the sections of a posterior's page, empty ones left out. added: those of a study, put after the cards."""
    table = posterior.summary()
    sections = [overview(posterior, verdict, table), *added, parameters(table), Section("Figures", pictures)]
    sections += [chains(posterior), method(posterior), timings(posterior.timings, posterior.method), about(environment)]
    return [section for section in sections if section.blocks]


def overview(posterior: Posterior, verdict: Verdict, table: Summary) -> Section:
    """Return cards of the numbers one asks for first, the verdict, and what the posterior assumes."""
    diverging = int(np.sum(posterior.stats.get("diverging", 0)))
    least = np.fmin(table["ess_bulk"], table["ess_tail"])
    total = posterior.timings.get("total")
    cards = [
        (
            "draws",
            number(posterior.size),
            _chains(posterior),
        ),
        ("effective draws", _extreme(least, np.nanmin, ".0f"), "fewest of any number, bulk or tail"),
        (
            "R-hat",
            _extreme(table["rhat"], np.nanmax, ".3f"),
            "no chains to compare" if posterior.independent else "largest of any number",
        ),
        ("divergences", number(diverging), "after warm-up"),
        ("gradients", number(posterior.evaluations), f"method {method_name(posterior)}"),
        ("time", "–" if total is None else seconds(total), compile_hint(posterior.timings)),
    ]
    told: list[Block] = [Text(text[:1].upper() + text[1:]) for text in (str(verdict), posterior.note) if text]
    return Section("", [Cards(cards), *told])


def parameters(table: Summary) -> Section:
    """Return mean, spread, quantiles and diagnostics of every number; of very many, those with the fewest draws."""
    caption = "mcse: Monte Carlo error of the mean. 5 %, 50 %, 95 %: quantiles."
    if len(table) > MOST_LINES:
        caption += f" Of {len(table)} numbers, the {MOST_LINES} with the fewest effective draws."
    return Section("Parameters", [Table(table.header, table.lines(MOST_LINES), caption)])


def chains(posterior: Posterior) -> Section:
    """Return what each chain did: divergences, energies, acceptance, step, depth and gradients."""
    stats = posterior.stats
    columns: dict[str, list[str]] = {}
    if "diverging" in stats:
        columns["divergences"] = [number(int(n)) for n in stats["diverging"].sum(1)]
    if "energy" in stats and posterior.z.shape[1] >= FEWEST_DRAWS:
        columns["BFMI"] = [f"{share:.2f}" for share in bfmi(stats["energy"])]
    for name, title in (("accept", "mean acceptance"), ("step_size", "step size"), ("depth", "mean depth")):
        if name in stats:
            columns[title] = [f"{mean:.3g}" for mean in np.mean(stats[name], axis=1)]
    if "gradients" in stats:
        columns["gradients per draw"] = [f"{mean:.3g}" for mean in stats["gradients"].mean(1)]
    if not columns:
        return Section("Chains", [])
    rows = [(str(i + 1), *cells) for i, cells in enumerate(zip(*columns.values(), strict=True))]
    return Section("Chains", [Table(("chain", *columns), rows)])


def method(posterior: Posterior) -> Section:
    """Return what only this method can tell: single numbers, and tables such as that of the shards."""
    told = {name: value for name, value in posterior.extra.items() if name not in ("independent", "effective")}
    single = [(NAMES.get(n, n.replace("_", " ")), number(v, 3)) for n, v in told.items() if _is_single(v)]
    if posterior.weights is not None:
        share = f"{ess_weights(posterior.weights):.0f} of {posterior.size}"
        single.insert(0, ("independent draws that the weights are worth", share))
    blocks: list[Block] = [Table(("", ""), single)] if single else []
    for name, value in posterior.extra.items():
        if isinstance(value, dict) and value and all(np.ndim(column) == 1 for column in value.values()):
            columns = [[number(cell, 4) for cell in np.asarray(column).tolist()] for column in value.values()]
            if len({len(column) for column in columns}) == 1:
                rows = [(str(i), *cells) for i, cells in enumerate(zip(*columns, strict=True))]
                blocks.append(Table(("number", *map(str, value)), rows, name.replace("_", " ")))
    blocks += _before_correction(posterior)
    return Section(f"Method: {method_name(posterior)}", blocks)


def _before_correction(posterior: Posterior) -> list[Block]:
    """Return how far weights have moved the moments that shards were combined to."""
    mean, covariance = (posterior.extra.get(f"uncorrected_{name}") for name in ("mean", "covariance"))
    if posterior.weights is None or mean is None or covariance is None:
        return []
    z, w = posterior.z.reshape(posterior.size, -1), posterior.weights.ravel() / posterior.weights.sum()
    after = w @ z
    sd, old = np.sqrt(w @ (z - after) ** 2), np.sqrt(np.diag(np.asarray(covariance)))
    labels = posterior.labels or [f"z[{i}]" for i in range(len(after))]
    columns = zip(labels, np.asarray(mean), old, (np.asarray(mean) - after) / sd, old / sd, strict=True)
    rows = [
        (label, digits(m, s), number(s, 2), f"{shift:.2f}", f"{ratio:.2f}") for label, m, s, shift, ratio in columns
    ]
    header = ("coordinate", "mean", "sd", "mean − corrected, in sd", "sd / corrected")
    return [Table(header, rows[:MOST_LINES], "Combined shards before the correction, in the coordinates sampled.")]


def standard_figures(posterior: Posterior) -> dict[str, tuple[str, Any]]:
    """Return name → (caption, Figure) of what any posterior can show."""
    names = chain_figures.chosen(posterior, None)
    if not names or posterior.z.shape[1] < FEWEST_DRAWS:
        return {}
    drawn = {}
    if not posterior.independent:
        caption = "Densities and paths, chain by chain; ticks: divergences."
        drawn["trace"] = (caption, chain_figures.trace(posterior))
    if posterior.chains > 1:
        caption = "Ranks of each chain's draws among all: flat where the chains agree."
        drawn["rank"] = (caption, chain_figures.rank(posterior))
    if len(names) > 1:
        drawn["pair"] = ("Pairs of numbers; divergent draws in red.", chain_figures.pair(posterior))
    drawn["forest"] = ("Median, middle 50 % and 90 %.", chain_figures.forest(posterior))
    if "energy" in posterior.stats:
        drawn["energy"] = ("Energies, and steps between them.", chain_figures.energy(posterior))
    return drawn


def method_name(posterior: Posterior) -> str:
    """Return the method without its options."""
    return posterior.method.partition("(")[0]


def _chains(posterior: Posterior) -> str:
    chains, draws = posterior.z.shape[:2]
    return "independent" if posterior.independent else f"{chains} chains of {draws:,}"


def _drawn(posterior: Posterior) -> str:
    how = "independent draws" if posterior.independent else f"draws in {_chains(posterior)}"
    return f"{posterior.size:,} {how}, by {method_name(posterior)}."


def _extreme(values: np.ndarray, pick: Any, form: str) -> str:
    return "–" if np.isnan(values).all() else f"{pick(values):{form}}"


def _is_single(value: Any) -> bool:
    return isinstance(value, str | int | float) or np.ndim(value) == 0 and not isinstance(value, dict | type(None))
