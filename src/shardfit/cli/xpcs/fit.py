"""`shardfit xpcs fit`: fit correlation files as a configuration says; answers, arrays, figures and a report of each."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardfit.cli import options, record
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.xpcs.batch import converged, fit_or_report, write_summary
from shardfit.cli.xpcs.config import Config, DataSection, FitSection, read_config

EXAMPLES = (
    "shardfit xpcs fit c2.h5",
    "shardfit xpcs fit day1.h5 day2.h5 --mode static --out fits",
    "shardfit xpcs fit c2.npz --q 0.0054 --dt 0.1 --frames 200:1800",
)
STOPPED = 130  # exit code of an interrupted command


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add files, configuration, and what may differ from it."""
    parser.add_argument("file", metavar="FILE", nargs="*", help="correlation file, or several (as configured)")
    add_fit_arguments(parser)
    options.add_resume(parser)
    options.add_json(parser)


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add configuration, folder, and what a fit may take from the command instead."""
    options.add_config_option(parser, "TOML, or YAML of the package homodyne")
    options.add_out(parser, "xpcs-out", "xpcs-out; of several files, one below it for each")
    add_data_arguments(parser)
    options.add_declared(
        parser, FitSection, scaling="NAME", loss="NAME", law="NAME", likelihood="NAME", errors="NAME", starts="N"
    )
    parser.add_argument("--hold", metavar="NAME=VALUE", action="append", default=[], help="hold a parameter")
    parser.add_argument("--start", metavar="NAME=VALUE", action="append", default=[], help="where a parameter begins")
    options.add_devices(parser)
    options.add_seed(parser, otherwise="as configured")
    parser.add_argument("--no-arrays", action="store_true", help="leave out fitted_data.npz and heat maps")


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what selects data, which several commands share."""
    options.add_declared(parser, Config, mode="NAME")
    options.add_declared(parser, DataSection, q="Q", dt="S", gap="L", sigma="X")
    options.add_declared(parser, DataSection, reads=_frames, frames="FIRST:LAST")


def configured(args: argparse.Namespace) -> Config:
    """Return the configuration of a file with the command's own options in it."""
    config = read_config(args.config)
    data = options.given(args, "q", "dt", "gap", "frames", "sigma")
    fit = options.given(args, "scaling", "loss", "starts", "errors", "law", "likelihood")
    top = options.given(args, "mode", "seed")
    config = replace(config, data=replace(config.data, **data), fit=replace(config.fit, **fit), **top)
    for what, field in (("hold", "fixed"), ("start", "start")):
        given = dict(_assignment(f"--{what}", text) for text in getattr(args, what, []))
        config = replace(config, **{field: {**getattr(config, field), **given}})
    held = set(config.fixed)
    return replace(config, start={n: v for n, v in config.start.items() if n not in held})


def run(args: argparse.Namespace) -> int:
    """Fit every file; 0 if all answers may be trusted, 1 if one may not, 130 if interrupted."""
    devices = request_devices(args.devices)
    config = configured(args)
    if args.no_arrays:
        config = replace(config, arrays=False)
    files = [Path(f) for f in args.file or filter(None, [config.data.file])]
    if not files:
        raise ValueError("no file: name one, or set file in section [data] of the configuration.")
    from shardfit import mesh

    split = mesh(rows=devices) if devices > 1 else None
    out, rows = options.directory(args.out), []
    record.begin(args, out, config.seed)
    folders = _folders(files, out)
    for file, folder in zip(files, folders, strict=True):

        def one(file=file, folder=folder):
            return fit_file(file, folder, config, split, args.resume)

        rows.append(one() if len(files) == 1 else fit_or_report(file, one))
        if rows[-1]["status"] == "interrupted":
            return STOPPED
    if len(files) > 1 and writes_files():
        print(f"summary: {write_summary(out, rows, folders)}")
    return 0 if all(map(converged, rows)) else 1


def fit_file(file: Path, out: Path, config: Config, split: Any, resume: str) -> dict[str, Any]:
    """Fit one file into one folder and print the answer; return a row of the summary."""
    began = time.perf_counter()
    from shardfit import LM, RunOptions
    from shardfit.cli.xpcs.outputs import write_outputs
    from shardfit.cli.xpcs.report import write_report
    from shardfit.domains.xpcs import fit_correlation
    from shardfit.report.values import seconds

    data = config.load(file)
    print(f"{file.name}: {len(data.phi)} angles, {data.n_frames} frames, {config.mode}", flush=True)
    limits = {n: value for n in ("maxiter", "ftol") if (value := getattr(config.fit, n)) is not None}
    run_options = RunOptions(LM(**limits) if limits else None, split, config.seed, out, resume)
    fit = fit_correlation(data, config.model(), config.options(data), run_options, config.fit.starts)
    print(fit)
    if writes_files():
        write_outputs(out, fit, config.mode, config.arrays)
        print(f"report: {write_report(out, fit, config)}  ({seconds(time.perf_counter() - began)} in all)", flush=True)
    numbers = {name: f"{value:.8g}" for name, value in fit.params.items()}
    errors = {f"{name}_error": f"{value:.3g}" for name, value in fit.stderr.items()}
    return {
        "file": str(file),
        "status": fit.answer().verdict().word,
        "reduced_chi2": f"{fit.reduced_chi2:.6g}",
        **numbers,
        **errors,
    }


def _folders(files: list[Path], out: Path) -> list[Path]:
    if len(files) == 1:
        return [out]
    names = [file.stem for file in files]
    return [out / (name if names.count(name) == 1 else f"{i + 1:03d}_{name}") for i, name in enumerate(names)]


def _frames(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        return int(first or 1), int(last or -1) if colon else -1
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be FIRST:LAST, such as 1:500") from None


def _assignment(option: str, text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{option} {text}: give NAME=VALUE, such as D_offset=0.")
    return name.strip(), _number(option, value)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number.") from None
