"""YAML configurations of the package homodyne, translated to this program's own keys.

What has no meaning here is said; a key that is not known at all is named with the nearest that is.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

ALIASES = {"gamma_dot_0": "gamma_dot_t0", "gamma_dot_offset": "gamma_dot_t_offset", "phi_0": "phi0"}
# where a value goes: dotted key there → section and key here
PLACES = {
    "analyzer_parameters.dt": "data.dt",
    "analyzer_parameters.scattering.wavevector_q": "data.q",
    "analyzer_parameters.geometry.stator_rotor_gap": "data.gap",
    "experimental_data.file_path": "data.file",
    "phi_filtering.fallback_to_all_angles": "data.keep_all_if_no_angle",
    "optimization.nlsq.loss": "fit.loss",
    "optimization.nlsq.max_iterations": "fit.maxiter",
    "optimization.nlsq.anti_degeneracy.per_angle_mode": "fit.scaling",
    "optimization.nlsq.anti_degeneracy.fourier_order": "fit.fourier_order",
    "optimization.nlsq.anti_degeneracy.constant_scaling_threshold": "fit.shared_from",
    "optimization.nlsq.multi_start.n_starts": "fit.starts",
    "optimization.nlsq.multi_start.seed": "seed",
}
# understood, and handled by code below
HANDLED = (
    "analysis_mode",
    "analyzer_parameters.start_frame",
    "analyzer_parameters.end_frame",
    "experimental_data.data_folder_path",
    "experimental_data.data_file_name",
    "phi_filtering.enabled",
    "phi_filtering.target_ranges",
    "initial_parameters.parameter_names",
    "initial_parameters.values",
    "initial_parameters.active_parameters",
    "initial_parameters.fixed_parameters",
    "parameter_space.bounds",
    "optimization.nlsq.multi_start.enable",
)
# settings of that package's own machinery: nothing here corresponds to them
IDLE = (
    "metadata",
    "config_version",
    "analysis_settings",
    *(f"experimental_data.cache_{name}" for name in ("file_path", "filename_template", "compression")),
    *(f"experimental_data.{name}" for name in ("data_type", "exchange_key", "file_format")),
    *(f"experimental_data.phi_angles_{name}" for name in ("file", "path")),
    *(f"phi_filtering.{name}" for name in ("algorithm", "quality_control", "tolerance")),
    "initial_parameters.per_angle_scaling",
    "initial_parameters.units",
    "parameter_space.model",
    "parameter_space.priors",
    "optimization.method",
    "optimization.nlsq.tolerance",
    "optimization.nlsq.ftol",
    "optimization.nlsq.xtol",
    "optimization.nlsq.gtol",
    "optimization.nlsq.memory_fraction",
    "optimization.nlsq.anti_degeneracy",
    "optimization.nlsq.multi_start",
    "optimization.nlsq.cmaes",
    *(f"optimization.nlsq.{name}" for name in ("diagnostics", "hybrid_streaming", "progress", "quality_validation")),
    *(f"optimization.nlsq.{name}" for name in ("goal", "trust_region_scale", "verbose", "workflow", "x_scale_map")),
    "optimization.cmc",
    *(f"optimization.{name}" for name in ("mcmc", "recovery", "sequential", "stratification", "streaming")),
    "noise_estimation",
    "plotting",
    "output",
    "logging",
    "performance",
    "quality_control",
    "validation",
)
# those of them that change an answer there
SAID = (
    "parameter_space.priors",
    *(f"optimization.nlsq.{name}" for name in ("tolerance", "ftol", "xtol", "gtol", "cmaes")),
    "optimization.cmc",
)

ROBUST = (
    "optimization.nlsq.loss {loss!r} acts here on differences in units of the noise. homodyne applies it to bare "
    "differences, where it is all but least squares, and from a million points on not at all: loss 'linear' is that."
)


def translated(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the same settings under this program's keys, and what to tell about keys that were not used."""
    if not _is_homodyne(content):
        return dict(content), []
    found = dict(_flat(content, ""))
    result: dict[str, Any] = {}
    for key, place in PLACES.items():
        if found.get(key) is not None:
            _put(result, place, _number(found[key]))
    notes = [note for key in found if (note := _about(key))]
    if idle := [key for key in SAID if any(name == key or name.startswith(f"{key}.") for name in found)]:
        notes.append(f"{', '.join(idle)}: settings of homodyne that are not used here; see `shardfit xpcs init`.")
    if found.get("optimization.nlsq.loss", "linear") != "linear":
        notes.append(ROBUST.format(loss=found["optimization.nlsq.loss"]))
    _put(result, "mode", _mode(content.get("analysis_mode", "static")))
    frames = [found.get("analyzer_parameters.start_frame", 1), found.get("analyzer_parameters.end_frame", -1)]
    _put(result, "data.frames", frames)
    folder, name = (found.get(f"experimental_data.data_{part}") for part in ("folder_path", "file_name"))
    if name is not None:
        _put(result, "data.file", str(name) if folder is None else f"{str(folder).rstrip('/')}/{name}")
    if found.get("phi_filtering.enabled") and found.get("phi_filtering.target_ranges"):
        ranges = found["phi_filtering.target_ranges"]
        _put(
            result, "data.angles", [[_number(r.get(end)) for end in ("min_angle", "max_angle")] for r in _dicts(ranges)]
        )
    if not found.get("optimization.nlsq.multi_start.enable", False) and "fit" in result:
        result["fit"].pop("starts", None)
    _parameters(found, result)
    return result, notes


def _is_homodyne(content: Mapping[str, Any]) -> bool:
    return any(key in content for key in ("analysis_mode", "analyzer_parameters", "experimental_data", "optimization"))


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values; sections of parameters are values themselves."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        whole = name in HANDLED or name in PLACES or (name in IDLE and not _has_parts(name))
        if isinstance(value, Mapping) and not whole:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _has_parts(name: str) -> bool:
    return any(key.startswith(f"{name}.") for key in (*PLACES, *HANDLED))


def _about(key: str) -> str | None:
    """Return what to say about a key: nothing where it is used, or is known to matter to its own package only."""
    if key in PLACES or key in HANDLED or any(key == idle or key.startswith(f"{idle}.") for idle in IDLE):
        return None
    close = difflib.get_close_matches(key, (*PLACES, *HANDLED, *IDLE), n=1, cutoff=0.5)
    return f"unknown key {key!r} is not used." + (f" Did you mean {close[0]!r}?" if close else "")


def _mode(mode: Any) -> str:
    return str(mode).strip().lower().replace("-", "_").replace(" ", "_")


def _parameters(found: Mapping[str, Any], result: dict[str, Any]) -> None:
    names = found.get("initial_parameters.parameter_names") or []
    values = found.get("initial_parameters.values") or []
    if values and len(names) != len(values):
        raise ValueError(f"initial_parameters: {len(names)} parameter_names for {len(values)} values.")
    start = {_name(n): _number(v) for n, v in zip(names, values, strict=False) if v is not None}
    fixed = {_name(n): _number(v) for n, v in (found.get("initial_parameters.fixed_parameters") or {}).items()}
    active = found.get("initial_parameters.active_parameters")
    if active:
        fixed = {n: v for n, v in start.items() if n not in map(_name, active)} | fixed
    scales = ("contrast", "offset")  # eliminated, or begun from the data
    result["start"] = {n: v for n, v in start.items() if n not in fixed and n not in scales}
    result["fixed"] = {n: v for n, v in fixed.items() if n not in scales}
    bounds = {
        _name(b.get("name", "")): [_number(b.get("min")), _number(b.get("max"))]
        for b in _dicts(found.get("parameter_space.bounds"))
    }
    result["bounds"] = {n: pair for n, pair in bounds.items() if n not in scales and n not in fixed}


def _number(value: Any) -> Any:
    """Return a number that YAML takes for text because it has no decimal point, such as 1e-4; others as they are."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _name(name: Any) -> str:
    return ALIASES.get(str(name), str(name))


def _dicts(entries: Any) -> list[Mapping[str, Any]]:
    """Return a list of mappings; a mapping of names to pairs is understood as well."""
    if isinstance(entries, Mapping):
        return [{"name": name, "min": pair[0], "max": pair[1]} for name, pair in entries.items()]
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"a list of sections is expected, not {entries!r}.")
    return entries


def _put(result: dict[str, Any], place: str, value: Any) -> None:
    section, _, key = place.rpartition(".")
    (result.setdefault(section, {}) if section else result)[key] = value
