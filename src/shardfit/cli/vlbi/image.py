"""`shardfit vlbi image`: from a uvfits file, or several of different frequencies, to an image and its report."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli import record
from shardfit.cli.current import Current
from shardfit.cli.processes import request_devices, writes_files
from shardfit.cli.vlbi import preparation
from shardfit.cli.vlbi.files import read_observation
from shardfit.core.success import Verdict
from shardfit.domains.vlbi.imaging_options import ImagingOptions

EXAMPLES = (
    "shardfit data get m87 .",
    "shardfit vlbi image m87/SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits --preset m87",
    "shardfit vlbi image m87/*.uvfits --preset m87 --out both-bands      # both bands as one",
    "shardfit vlbi image 3c279.uvfits --pol --npix 96",
    "shardfit vlbi image calibrated.uvfits --products vis                # complex visibilities in place of closures",
)
STOPPED = 130  # exit code of an interrupted command
FIELDS = {
    **preparation.IMAGE_FIELDS,
    **preparation.FITTED,
    "stop": "stop",
    "operator": "operator",
    "transform": "transform",
}


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the preset and what may differ from it."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="uvfits files of one band, or with --spectral-index")
    shared.add_out(parser, "vlbi-out")
    preparation.add_image(parser, "iterations of every fit (100)", "fits from the blurred image in every round (3)")
    preparation.add_products(parser)
    parser.add_argument("--solver", metavar="NAME", default="lbfgs", help="lbfgs, lbfgsb, lbfgs-bt, adam, … (lbfgs)")
    shared.add_declared(parser, ImagingOptions, operator="NAME", transform="NAME")
    shared.add_declared(parser, ImagingOptions, "1e-6; m87 1e-4", stop="T")
    shared.add_devices(parser)
    shared.add_processes(parser)
    parser.add_argument("--errors", action="store_true", help="also map standard deviations, regularisers as prior")
    parser.add_argument("--pol", action="store_true", help="then fit polarisation, if the file has it")
    parser.add_argument(
        "--pol-mode",
        metavar="MODE",
        help="with --pol: IP Stokes I and linear polarisation together, IPV circular too, P with Stokes I kept (IP)",
    )
    parser.add_argument(
        "--spectral-index",
        action="store_true",
        help="fit one image and its spectral index to all files, or to the IFs of one",
    )
    parser.add_argument(
        "--fluxes", metavar="JY,JY", help="compact flux of each file, with --spectral-index (estimated)"
    )
    shared.add_seed(parser, 0, of="the parity check and of --errors")
    shared.add_resume(parser)
    shared.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Make the image; 0 if it can be trusted, 1 if it is doubtful, 130 if it was interrupted."""
    began = time.perf_counter()
    _require_files(args)
    out = shared.directory(args.out)
    devices = request_devices(args.devices)

    from shardfit import RunOptions, mesh
    from shardfit.report.values import seconds

    options = preparation.given(args, FIELDS)
    split = mesh(rows=devices) if devices > 1 else None
    how = RunOptions(args.solver, split, args.seed, out, args.resume)
    made = (_spectral if args.spectral_index else _total)(args, how, options)
    if made is None:
        return STOPPED
    report, verdict = made
    print(f"image: {out / 'image.fits'}\nreport: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return verdict.exit


def _require_files(args: argparse.Namespace) -> None:
    """Raise for options that do not go together."""
    if args.pol_mode is not None and not args.pol:
        raise ValueError("--pol-mode goes with --pol.")
    if not args.spectral_index:
        if args.fluxes is not None:
            raise ValueError("--fluxes goes with --spectral-index. Give --flux for one file.")
        return
    wrong = {"--pol": args.pol, "--errors": args.errors, "--flux": args.flux is not None}
    wrong["--preset"] = args.preset == "m87"
    for name, given in wrong.items():
        if given:
            more = " Give --fluxes, one number for each file." if name == "--flux" else " Leave one of them out."
            raise ValueError(f"{name} does not go with --spectral-index.{more}")


def _spectral(args: argparse.Namespace, how: Any, options: dict[str, Any]) -> tuple[Path, Verdict] | None:
    """Fit several frequencies; return the report's path and the verdict, None if interrupted."""
    out = Path(args.out)
    from shardfit import Status
    from shardfit.cli.vlbi.spectral import fit_spectrum, write_spectrum

    record.begin(args, out)
    spectrum = fit_spectrum(args.file, args.fluxes, how, {"preset": args.preset, **options})
    if spectrum.result.status is Status.INTERRUPTED:
        return _interrupted("the spectral fit")
    if args.fluxes is None:
        print(
            f"  compact fluxes estimated as {', '.join(f'{f:.3f}' for f in spectrum.fluxes)} Jy; give --fluxes if known"
        )
    print(f"  spectral index {spectrum.mean_alpha:.3f} of the source as a whole")
    _tell(spectrum.doubts)
    report = write_spectrum(out, spectrum, args.file) if writes_files() else out
    return report, spectrum.result.verdict()


def _total(args: argparse.Namespace, how: Any, options: dict[str, Any]) -> tuple[Path, Verdict] | None:
    """Make a Stokes I image, and what is asked for beside it; return what `_spectral` does."""
    out = Path(args.out)
    from shardfit import Status
    from shardfit.cli.vlbi.image_report import answer_of, write_run
    from shardfit.cli.vlbi.polarised import fit_polarisation
    from shardfit.domains.vlbi.recipes import image
    from shardfit.domains.vlbi.recipes.polarised import polarised_mode, require_stokes

    mode = polarised_mode(args.pol_mode or "IP")
    obs = [read_observation(file) for file in args.file]
    for file, one in zip(args.file, obs, strict=True):
        several = f", {one.band}: each row at its own" if len(one.frequencies) > 1 else ""
        print(f"{Path(file).name}: {one.source or 'unnamed source'}, {len(one):,} visibilities{several}", flush=True)
        if args.pol:
            require_stokes(one, mode)
    name = ", ".join(Path(file).name for file in args.file)
    record.begin(args, out)
    with Current(out, name, writes_files()) as current:
        imaging = image(obs, preset=args.preset, run=how, on_fit=_progress(current), **options)
    if imaging.result.status is Status.INTERRUPTED:
        return _interrupted(f"fit {len(imaging.fits)}")
    estimated = args.flux is None and imaging.options.flux is None
    if estimated:
        sure = imaging.flux_uncertainty
        error = "" if sure is None else f" ± {sure * imaging.flux:.3f}"
        print(f"  compact flux estimated as {imaging.flux:.3f}{error} Jy; give --flux if it is known")
    _tell_weights(imaging)
    errors, refused = _errors(imaging, how) if args.errors else (None, ())
    polarised = None
    if args.pol:
        short = {field: options[field] for field in ("restarts", "maxiter", "stop", "operator") if field in options}
        # the first stage may be older than this one, which then has nothing to resume
        how = replace(how, resume="never" if args.resume == "never" else "auto")
        polarised = fit_polarisation(imaging, how, {"mode": mode, **short})
        if polarised.result.status is Status.INTERRUPTED:
            return _interrupted("the fit of polarisation")
    imaging = replace(imaging, doubts=imaging.doubts + refused)
    verdict = answer_of(imaging, polarised).verdict()
    if not writes_files():
        return out, verdict
    report, table = write_run(out, imaging, name, estimated, errors, polarised)
    for product, (count, values) in table.items():
        told = "  ".join(f"{kind} {value}" for kind, value in values.items())
        print(f"  χ² {product:<8} {count:>5} measurements  {told}")
    _tell(imaging.doubts + (() if polarised is None else polarised.doubts))
    return report, verdict


def _tell_weights(imaging: Any) -> None:
    """Say what became of the weights that followed the data."""
    if not imaging.options.follow:
        return
    from shardfit.domains.vlbi.recipes import ImagingOptions

    name, usual = next(iter(ImagingOptions().regularisers.items()))
    factor = imaging.options.regularisers[name] / usual
    print(f"  regularisers at {factor:.3g} of their usual weights explain the data best")
    if isinstance(imaging.options.tolerance, Mapping):
        sizes = ", ".join(f"{station} {100 * size:.0f} %" for station, size in imaging.options.tolerance.items())
        print(f"  amplitudes are fitted with the gain errors they show: {sizes}")


def _tell(doubts: Sequence[str]) -> None:
    for doubt in doubts:
        print(f"  doubtful: {doubt}")


def _interrupted(where: str) -> None:
    print(f"interrupted in {where}; run the same command again to continue")


def _errors(imaging: Any, how: Any) -> tuple[Any, tuple[str, ...]]:
    """Return error bars, or None and why there are none."""
    from shardfit.domains.vlbi.recipes import errors_under_regularisers
    from shardfit.domains.vlbi.recipes.quality import Unexplained
    from shardfit.stats.laplace import NoMinimum

    print("  error bars under the regularisers as prior: fitting on to the minimum, then its curvature", flush=True)
    try:
        errors = errors_under_regularisers(imaging, seed=how.seed, mesh=how.mesh)
    except (Unexplained, NoMinimum) as reason:
        return None, (str(reason),)
    known = f" known to {100 * errors.uncertainty:.1f} %," if errors.uncertainty else ""
    print(f"  standard deviations{known} hold if the regularisers describe the sky")
    return errors, ()


def _progress(current: Current) -> Callable[[Any, int, int], None]:
    """Return a callback that tells of every fit, on the page and in a line, with the time left if others take as long.

    Compilation falls on the first fit of a round, so it is rather less.
    """
    from shardfit.io.progress import duration
    from shardfit.report.values import seconds

    began, values = time.perf_counter(), []

    def draw(one: Any) -> Any:
        from shardfit.domains.vlbi import plots

        return plots.sky(one.image, title=one.label)

    def show(one: Any, number: int, total: int) -> None:
        left = (total - number) * (time.perf_counter() - began) / number
        note = f"  at most {duration(left)} left" if number < total else ""
        text = f"  {number:>2}/{total} {one.label:<19} objective {one.value:10.4f}  {one.steps:4d} steps"
        print(f"{text}  {seconds(one.seconds):>7}{note}", flush=True)
        values.append((number, one.value))
        numbers = {"objective": one.value, **{f"χ² {product}": value for product, value in one.chi2.items()}}
        curves = {"objective at the end of every fit": (*zip(*values, strict=True), "fits")}
        current.publish(number, total, numbers, curves, partial(draw, one))

    return show
