"""`shardfit population`: fit a built-in population model, or search it with a swarm, as a configuration file says."""

import argparse
import json
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardfit.cli.commands import UsageError
from shardfit.cli.processes import request_devices, writes_files
from shardfit.core.errors import suggestion

TEMPLATE = """\
# What `shardfit population fit` and `swarm` read. Every line may be left out; options given to the command win.

problem = "{problem}"    # {problems}
rows = {rows}    # model rows: halos, or points
seed = 0
precision = "float64"    # or "float32": half the memory, twice the speed, counts right to 2e-4 of the largest

[options]    # of the problem
{options}

[solver]    # a name and its own options; `swarm` takes particles, maxiter, ... of [swarm] instead
{solver}

[swarm]
particles = 100
maxiter = 100
"""
SECTIONS = {"problem": str, "rows": int, "seed": int, "precision": str, "options": dict, "solver": dict, "swarm": dict}


@dataclass(frozen=True)
class Config:
    """A configuration file, checked."""

    problem: str = "smf"
    rows: int | None = None
    seed: int = 0
    precision: str = "float64"
    options: Mapping[str, Any] = field(default_factory=dict)
    solver: Mapping[str, Any] | None = None
    swarm: Mapping[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the commands of population models."""
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        raise UsageError(f"unknown command 'population {chosen}'.{suggestion(chosen, COMMANDS)}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (text, arguments, action) in COMMANDS.items():
        inner = group.add_parser(name, help=text, description=text)
        arguments(inner)
        inner.set_defaults(parser=inner, run=action)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="TOML file, as `shardfit population init` writes it")
    parser.add_argument("--rows", metavar="N", type=_count, help="model rows, e.g. 1e6 (as configured)")
    parser.add_argument("--devices", metavar="N", type=int, help="devices to split the rows over (1)")
    parser.add_argument("--out", metavar="DIR", default="population-out", help="run directory (population-out)")
    parser.add_argument("--seed", metavar="S", type=int, help="seed of data and fit (as configured)")


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="TOML file to write")
    parser.add_argument("--problem", metavar="NAME", default="smf", help="smf, gaussian, colours, ackley (smf)")


def _count(text: str) -> int:
    """Return a number of rows; 1e6 is understood."""
    value = float(text)
    if value != int(value) or value < 2:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 2")
    return int(value)


def read_config(path: str | Path) -> Config:
    """Return the configuration of a file, or raise naming what is wrong with it."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{file}: no such file. `shardfit population init {file}` writes one to start from.")
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} is not valid TOML: {error}.") from None
    for key, value in found.items():
        if key not in SECTIONS:
            raise ValueError(f"{file}: unknown key {key!r}.{suggestion(key, SECTIONS)}")
        if not isinstance(value, SECTIONS[key]):
            raise ValueError(f"{file}: {key} = {value!r} must be of type {SECTIONS[key].__name__}.")
    return Config(**found)


def _fit(args: argparse.Namespace) -> int:
    """Fit as configured; 0 also where the step limit ended the fit, which is usual for noisy objectives."""
    return _study(args, swarm=False)


def _swarm(args: argparse.Namespace) -> int:
    """Search the box with a swarm."""
    return _study(args, swarm=True)


def _study(args: argparse.Namespace, swarm: bool) -> int:
    began = time.perf_counter()
    devices = request_devices(args.devices)

    from shardfit import fit, mesh
    from shardfit.domains.population.recipes import as_study
    from shardfit.report.values import seconds

    config = read_config(args.config)
    changes = {name: getattr(args, name) for name in ("rows", "seed") if getattr(args, name) is not None}
    config = replace(config, **changes)
    study = as_study(config.problem)
    options = _checked_options(config, study)
    if config.seed < 0:
        raise ValueError(f"seed {config.seed}: a seed is zero or positive.")
    problem = study.build(config.rows or study.rows, config.seed, config.precision, **options)
    solver = dict(config.swarm, name="swarm") if swarm else dict(config.solver or study.solver)
    if solver.get("name") == "swarm" and study.box is not None:
        problem = problem.replace(bounds=study.box(options))
    print(f"{study.title}: {_rows(problem)}, solver {solver.get('name', 'lbfgsb')}", flush=True)
    split = mesh(rows=devices) if devices > 1 else None
    result = fit(problem, solver.pop("name", None), mesh=split, run_dir=args.out, seed=config.seed, **solver)
    print(result)
    if not writes_files():
        return 0
    report = _write(Path(args.out), study, problem, result, config, options)
    print(f"report: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return 0


def _rows(problem: Any) -> str:
    counts = problem.objective.n_rows.values()
    return f"{max(counts):,} rows" if counts else "no rows"


def _checked_options(config: Config, study: Any) -> dict[str, Any]:
    for name, value in config.options.items():
        if name not in study.options:
            known = suggestion(name, study.options) if study.options else " It has none."
            raise ValueError(f"[options]: problem {config.problem!r} has no option {name!r}.{known}")
        if not isinstance(value, type(study.options[name])):
            raise ValueError(f"[options]: {name} = {value!r} must be like {study.options[name]!r}.")
    return {**study.options, **config.options}


def _write(out: Path, study: Any, problem: Any, result: Any, config: Config, options: dict) -> Path:
    """Write figures and report into the run directory; return the path of the report."""
    from shardfit.report.run import report_run, save_extra, save_figure

    pictures = []
    for name, (caption, figure) in study.draw(problem, result, config.seed).items():
        save_figure(figure, out, name)
        pictures.append({"picture": name, "caption": caption})
    settings = [("problem", config.problem), ("rows", str(config.rows or study.rows)), ("seed", str(config.seed))]
    settings += [(name, str(value)) for name, value in options.items()]
    sections = [
        {"title": "Answer", "blocks": [*pictures, _truth_table(study, problem, result, options)]},
        {"title": "Settings", "blocks": [{"header": ["setting", "value"], "rows": settings}]},
    ]
    save_extra(out, study.title, f"Built-in population problem {config.problem!r}.", sections)
    return report_run(out)


def _truth_table(study: Any, problem: Any, result: Any, options: dict) -> dict[str, Any]:
    import jax
    import numpy as np

    from shardfit.core.params import label_of
    from shardfit.domains.population.recipes import LAST, settle

    averaged = study.noisy and "x" in result.history
    answer = settle(problem, result) if averaged else result.params
    paths = jax.tree_util.tree_flatten_with_path(answer)[0]
    known = jax.tree.leaves(jax.tree.map(lambda _, true: np.asarray(true), answer, study.truth(options)))
    rows = [
        (label_of(path) or "x", *(np.array2string(np.asarray(a), precision=5, separator=", ") for a in (leaf, true)))
        for (path, leaf), true in zip(paths, known, strict=True)
    ]
    caption = f"Mean of the last {LAST} steps, for a single step is noisy." if averaged else ""
    return {"header": ["parameter", "answer", "truth"], "rows": rows, "caption": caption}


def _init(args: argparse.Namespace) -> int:
    """Write a commented configuration."""
    from shardfit.domains.population.recipes import STUDIES, as_study

    study, path = as_study(args.problem), Path(args.file)
    if path.exists():
        raise ValueError(f"{path} exists. Name another file, or delete it first.")

    def lines(values):
        return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())

    text = TEMPLATE.format(
        problem=args.problem,
        problems=", ".join(STUDIES),
        rows=study.rows,
        options=lines(study.options) or "# none",
        solver=lines(study.solver),
    )
    path.write_text(text, encoding="utf-8")
    print(f"{path}: edit it, then `shardfit population fit {path}`")
    return 0


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "fit": ("fit a built-in population problem as a file says", _run_arguments, _fit),
    "swarm": ("search the parameter box of a problem with a swarm", _run_arguments, _swarm),
    "init": ("write a configuration file to start from", _init_arguments, _init),
}
