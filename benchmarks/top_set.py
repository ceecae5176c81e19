"""The study of the 2019 M87 papers: choices trained on known images, the Top Set, the ring of every day.

What `shardfit vlbi study` does with the files in SHARDFIT_DATA/eht, four days and two bands. SHARDFIT_BENCH_SHARE: of
the grid of 7,500 choices (1). A run that was killed goes on, see m87_survey.py; with SHARDFIT_BENCH_KEEP its folder
stays, and a later run with a larger share goes on from there.
training: choices, and how many bring all known images back. known-*, day-*: counts and mean rings. study: diameters.
"""

import argparse
import os
from pathlib import Path

from benchmarks.m87_survey import Stopwatch, kept_folder
from benchmarks.vlbi import M87

PEERS = ()
SETTINGS = {"precision": "float32, float64 where that met no tolerance", "threads": "all of one process"}
QUICK, DAYS = 0.004, 4
RING = ("diameter", "diameter_sd", "any", "any_sd", "around", "thin", "width", "pa_deg", "pa_sd_deg", "asymmetry")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures; --quick: 30 choices."""
    from shardfit.cli.surveys.top import limits_of
    from shardfit.cli.vlbi.study import add_arguments, plan
    from shardfit.cli.vlbi.study_parts import days_of, run_parts
    from shardfit.cli.vlbi.study_report import numbers, write_study
    from shardfit.cli.vlbi.study_result import evaluate

    share = QUICK if quick else float(os.environ.get("SHARDFIT_BENCH_SHARE", "1"))
    found = files()
    days = days_of([str(file) for file in (found[-1:] if quick else found)])
    if not quick and len(days) < DAYS:
        raise RuntimeError(
            f"the suite top_set needs {DAYS} days of M87: SHARDFIT_DATA names the folder that holds eht/."
        )
    parser = argparse.ArgumentParser()
    add_arguments(parser, [])
    with kept_folder("top_set", quick) as folder:
        args = parser.parse_args(
            [*(file for day in days for file in day.files), "--flux", "0.6", "--share", f"{share}"]
        )
        parts, watch = plan(folder, days, args), Stopwatch.of(folder)
        told = run_parts(parts, share, None, watch)
        found = evaluate(parts, limits_of(args.below), told)
        watch.keep()
        print(f"report: {write_study(folder, found, vars(args))}", flush=True)
        if os.environ.get("SHARDFIT_BENCH_KEEP"):
            (folder / "unfinished").touch()
        return figures(numbers(found), {"ours": watch.wall, "cpu_ours": watch.cpu})


def files() -> list[Path]:
    """Return the uvfits files of M87."""
    folder = Path(os.environ.get("SHARDFIT_DATA", "")) / "eht"
    return sorted((folder if folder.is_dir() else M87.parent).glob("*M87*.uvfits"))


def figures(told: dict, seconds: dict) -> dict[str, dict]:
    """Return a study's numbers by case."""
    ((trained, training),) = told["trainings"].items()
    points = sum(one["points"] for one in told["surveys"].values())
    converged = sum(one["points"] * one["converged"] for one in told["surveys"].values()) / points
    counts = {"share": told["share"], "days": len(told["days"]), "points": points, "converged": converged}
    diameters = {}
    for name in ("diameter", "diameter_thin", "diameter_calibrated"):
        value = told[name] or (None, None)
        diameters |= {name: value[0], f"{name}_sd": value[1]}
    cases = {"study": counts | diameters | seconds}
    cases["training"] = {"on": trained, "choices": training["choices"], "passed": training["passed"]}
    for name, one in training["truths"].items():
        cases[f"known-{name}"] = {"least": one["least"], "passed": one["passed"], **_shown(one)}
    for name, one in told["days"].items():
        cases[f"day-{name}"] = {"fit": one["fit"], **_shown(one)}
    return cases


def _shown(one: dict) -> dict:
    counts = {name: one.get(name, 0) for name in ("images", "ring", "filled", "uneven", "none")}
    return counts | {name: one.get(name) for name in RING}
