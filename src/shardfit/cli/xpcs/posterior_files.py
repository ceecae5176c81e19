"""What is said of a posterior and left in its folder, under names that scripts of the field read: cmc/*."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.cli.xpcs.outputs import write_json
from shardfit.domains.xpcs.problem import converted, straight
from shardfit.domains.xpcs.recipes.answer import RIDGE
from shardfit.domains.xpcs.recipes.priors import chosen_priors
from shardfit.io.files import write_atomic
from shardfit.sampling.quality import diagnostics

FOLDER, SCHEMA = "cmc", 1
FAR = 3.0  # standard deviations that are worth a word
RIDGES = (("D0", "D_offset"), ("gamma_dot_t0", "gamma_dot_t_offset"))


def equal_draws(posterior: Any) -> dict[str, np.ndarray]:
    """Return draws (chains, draws) by parameter; weighted ones are drawn again so that all count alike."""
    draws = {name: np.asarray(values) for name, values in posterior.draws.items()}
    if posterior.weights is None:
        return draws
    total = np.cumsum(posterior.weights.ravel())
    ticks = (np.arange(posterior.size) + 0.5) / posterior.size
    chosen = np.minimum(np.searchsorted(total / total[-1], ticks), posterior.size - 1)
    chosen = np.random.default_rng(posterior.seed).permutation(chosen)
    return {n: v.reshape(posterior.size, *v.shape[2:])[chosen].reshape(v.shape) for n, v in draws.items()}


def judged(fit: Any, posterior: Any, priors: Any) -> dict[str, Any]:
    """Return the diagnostics of a posterior: status, measures by parameter, and warnings."""
    model, draws = fit.setup.model, equal_draws(posterior)
    shown = draws | converted(model, straight(model), draws)
    answer = fit.params | converted(model, straight(model), fit.params)
    known, verdict, warnings = chosen_priors(priors, fit), posterior.verdict(), []
    held = {*fit.setup.options.fixed}
    parameters = {}
    for name, values in shown.items():
        if name in held or values.ndim > 2:
            continue
        mean, sd = float(values.mean()), float(values.std(ddof=1))
        entry = known.get(name)
        width = getattr(entry, "sd", None) or _flat_width(fit, name)
        away = abs(mean - answer[name]) / np.hypot(sd, fit.stderr.get(name, sd)) if sd else 0.0
        parameters[name] = {"mean": mean, "std": sd, "fit_z_score": float(away)}
        parameters[name]["contraction"] = None if width is None else 1 - sd / float(width)
        if away > FAR:
            warnings.append(f"{name}: posterior and fit differ by {away:.1f} standard deviations.")
        centre = getattr(entry, "mean", None)
        if centre is not None and entry is not None and abs(answer[name] - centre) > FAR * entry.sd:
            distance = abs(answer[name] - centre) / entry.sd
            warnings.append(f"{name}: the prior lies {distance:.1f} sd from the fit; centre it on what is known.")
    for one, other in RIDGES:
        if one in draws and other in draws and not {one, other} & held:
            rho = float(np.corrcoef(draws[one].ravel(), draws[other].ravel())[0, 1])
            if abs(rho) > RIDGE:
                warnings.append(
                    f"{one} and {other} are on a ridge (correlation {rho:.4f}): sample curved(model, data)."
                )
    return {
        "status": verdict.status,
        "verdict": str(verdict),
        "warnings": [*warnings, *verdict.advice],
        "parameters": parameters,
        **_of_chains(posterior, {name: shown[name] for name in parameters}),
    }


def _flat_width(fit: Any, name: str) -> float | None:
    """Return the standard deviation of a flat prior within the bounds of a parameter."""
    low, high = (fit.setup.problem.bounds or {}).get(name) or (None, None)
    return None if low is None or high is None else float(high - low) / np.sqrt(12.0)


def _of_chains(posterior: Any, draws: dict[str, np.ndarray]) -> dict[str, Any]:
    stats, diverging = posterior.stats, np.asarray(posterior.stats.get("diverging", ()), bool)
    measures = {"r_hat": diagnostics.rhat, "ess_bulk": diagnostics.ess_bulk, "ess_tail": diagnostics.ess_tail}
    if posterior.weights is not None:  # no chain made these draws
        effective = diagnostics.ess_weights(posterior.weights)
        measures = {"r_hat": lambda _: np.nan, "ess_bulk": lambda _: effective, "ess_tail": lambda _: effective}
    return {
        "method": posterior.method,
        "n_chains": posterior.chains,
        "n_samples": posterior.z.shape[1],
        **{name: {n: float(measure(v)) for n, v in draws.items()} for name, measure in measures.items()},
        "divergences": int(diverging.sum()),
        "divergence_rate": float(diverging.mean()) if diverging.size else 0.0,
        "bfmi": diagnostics.bfmi(stats["energy"]).tolist() if "energy" in stats else None,
        "accept_rate": float(np.mean(stats["accept"])) if "accept" in stats else None,
        "max_tree_depth": int(np.max(stats["depth"])) if "depth" in stats else None,
        "pareto_k": posterior.extra.get("pareto_k"),
        "gradients": posterior.evaluations,
        "seconds": dict(posterior.timings),
        "note": posterior.note,
    }


def write_posterior(out: Path, fit: Any, posterior: Any, report: dict[str, Any], mode: str) -> Path:
    """Write means, diagnostics, draws and the fitted correlations below a folder."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    head = {"timestamp": datetime.now(UTC).isoformat(timespec="seconds"), "analysis_mode": mode}
    moments = {n: {"mean": p["mean"], "std": p["std"]} for n, p in report["parameters"].items()}
    write_json(folder / "parameters.json", {**head, "parameters": moments, "note": posterior.note})
    write_json(folder / "analysis_results_cmc.json", {**head, **report, "n_points": fit.setup.n_points})
    write_json(folder / "diagnostics.json", report)
    shards = posterior.extra.get("shards") or {}
    columns = {name: np.asarray(column).tolist() for name, column in shards.items()}
    write_json(folder / "shard_diagnostics.json", {"n_shards": len(next(iter(columns.values()), [])), **columns})
    draws = {n: v for n, v in equal_draws(posterior).items() if v.ndim == 2}
    draws |= {n: v for n, v in converted(fit.setup.model, straight(fit.setup.model), draws).items() if n not in draws}
    names = list(draws)
    content: dict[str, Any] = {
        "schema_version": SCHEMA,
        "posterior_samples": np.stack(list(draws.values()), axis=-1),
        "param_names": np.array(names),
        **{c: np.array([report[c].get(n, np.nan) for n in names]) for c in ("r_hat", "ess_bulk", "ess_tail")},
        "divergences": report["divergences"],
        "analysis_mode": mode,
        "n_phi": len(fit.contrast),
        "n_chains": posterior.chains,
        "n_samples": posterior.z.shape[1],
    }
    write_atomic(folder / "samples.npz", lambda file: np.savez(file, **content))
    scaling = np.stack([fit.contrast, fit.offset], axis=1)
    fitted: dict[str, Any] = {"phi_angles": fit.setup.data.phi, "per_angle_scaling": scaling, "t1": fit.setup.data.t}
    mean = replace(fit, params=fit.params | {n: p["mean"] for n, p in moments.items() if n in fit.params})
    fitted |= {"c2_exp": fit.setup.data.c2, "c2_theoretical_scaled": mean.fitted(), "q": fit.setup.data.q[:1]}
    write_atomic(folder / "fitted_data.npz", lambda file: np.savez(file, **fitted))
    return folder
