"""What a fit leaves in its folder, under names that scripts of the field read: nlsq/*.json, nlsq/fitted_data.npz."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from shardfit.io.files import write_atomic

FOLDER = "nlsq"


def write_outputs(folder: Path, fit: Any, mode: str, arrays: bool = True) -> Path:
    """Write the answer of a fit below a folder."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    scales = _scales(fit)
    physical = {n: {"value": v, "uncertainty": fit.stderr[n]} for n, v in fit.params.items()}
    summary = {
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "analysis_mode": mode,
        "chi_squared": fit.chi2,
        "reduced_chi_squared": fit.reduced_chi2,
        "convergence_status": fit.result.status.name.lower(),
        "parameters": {**scales, **physical},
    }
    write_json(place / "parameters.json", summary)
    write_json(place / "analysis_results_nlsq.json", {**summary, **_analysis(fit)})
    write_json(place / "convergence_metrics.json", _convergence(fit))
    if arrays:
        content: dict[str, Any] = _arrays(fit)
        write_atomic(place / "fitted_data.npz", lambda file: np.savez(file, **content))
    return place


def _scales(fit: Any) -> dict[str, Any]:
    found = {}
    for name in ("contrast", "offset"):
        values, errors = getattr(fit, name), getattr(fit, f"{name}_stderr")
        pairs = [{"value": v, "uncertainty": e} for v, e in zip(values.tolist(), errors.tolist(), strict=True)]
        if np.ptp(values) == 0:
            found[name] = pairs[0]
        else:
            found |= {f"{name}_{k}": pair for k, pair in enumerate(pairs)}
    return found


def _analysis(fit: Any) -> dict[str, Any]:
    names = [f"{s}_{k}" for s in ("contrast", "offset") for k in range(len(fit.contrast))]
    return {
        "n_points": fit.setup.n_points,
        "n_missing": fit.setup.n_missing,
        "degrees_of_freedom": fit.dof,
        "sigma_is_default": fit.setup.data.sigma is None,
        "quality_flag": fit.quality,
        "scaling": fit.setup.options.scaling,
        "loss": fit.setup.options.loss,
        "triangle": fit.setup.options.triangle,
        "phi_angles": fit.setup.data.phi.tolist(),
        "q": fit.setup.data.q.tolist(),
        "chi_squared_per_angle": fit.chi2_of_angle.tolist(),
        "covariance_names": [*names, *fit.params],
        "covariance": fit.covariance.tolist(),
        "residual_variance": fit.variance,
        "degeneracy": fit.degeneracy,
        "likelihood": "points" if fit.setup.maps is None else "speckle",
        "errors": "speckle" if fit.noise is not None else "points" if fit.pieces is None else "frames",
        "independent_pixels": None if fit.noise is None else fit.noise.pixels.tolist(),
        "speckle_sharing": None if fit.noise is None else fit.noise.sharing,
        "independent_pieces": fit.pieces,
        "not_needed": list(fit.unneeded),
        "laws": [] if fit.laws is None else fit.laws.table(),
        "warnings": list(fit.warnings),
        "source": fit.setup.data.source,
    }


def _convergence(fit: Any) -> dict[str, Any]:
    result = fit.answer()
    return {
        "converged": result.success,
        "status": result.status.name.lower(),
        "message": result.message,
        "solver": result.solver,
        "iterations": result.steps,
        "function_evaluations": result.evaluations,
        "final_cost": result.value,
        "seconds": dict(result.timings),
    }


def _arrays(fit: Any) -> dict[str, np.ndarray]:
    from shardfit.domains.xpcs.data import DEFAULT_SIGMA

    data, raw = fit.setup.data, fit.curve()
    scaled = fit.fitted()
    scaling = np.stack([fit.contrast, fit.offset], axis=1)
    sigma = np.asarray(DEFAULT_SIGMA if data.sigma is None else data.sigma)
    if np.ndim(sigma) == 1:
        sigma = sigma.reshape(-1, *[1] * (raw.ndim - 1))
    elif np.ndim(sigma) == 2 and raw.ndim == 3:
        sigma = np.sqrt(0.5 * (sigma[:, :, None] ** 2 + sigma[:, None, :] ** 2))
    binned = {} if raw.ndim == 3 else {"lag": data.lag, "age": data.dt * 0.5 * np.mean(data.first + data.second, 1)}
    return {
        **binned,
        "phi_angles": data.phi,
        "c2_exp": data.c2,
        "c2_theoretical_raw": raw,
        "c2_theoretical_scaled": scaled,
        "per_angle_scaling": scaling,
        "per_angle_scaling_solver": scaling,
        "residuals": data.c2 - scaled,
        "residuals_normalized": (data.c2 - scaled) / sigma,
        "t1": data.t,
        "t2": data.t,
        "q": data.q[:1],
        "chi2_of_angle": fit.chi2_of_angle,
        **{f"rate_{name}": rate for name, rate in fit.rates.items()},
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain JSON, without the checksum of a run's own files: scripts read and edit it."""
    text = json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(path, lambda file: file.write(text.encode()))


def _plain(value: Any) -> Any:
    """Return a value for JSON; what is not a number there becomes null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
