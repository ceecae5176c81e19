"""`shardfit vlbi`: image a uvfits file, look at one, test an image against one, or simulate one."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.processes import request_devices
from shardfit.cli.registry import UsageError
from shardfit.core.errors import suggestion

SUBTITLE = (
    "Image of maximum entropy and small total variation that fits closure phases, closure amplitudes and, loosely, "
    "amplitudes; restarted from the image blurred to the nominal resolution."
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the commands of interferometry."""
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        raise UsageError(f"unknown command 'vlbi {chosen}'.{suggestion(chosen, COMMANDS)}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (text, arguments, action) in COMMANDS.items():
        inner = group.add_parser(name, help=text, description=text)
        arguments(inner)
        inner.set_defaults(parser=inner, run=action)


def _image_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("--out", metavar="DIR", default="vlbi-out", help="run directory to write (vlbi-out)")
    parser.add_argument("--npix", metavar="N", type=int, default=64, help="pixels a side (64)")
    parser.add_argument("--fov", metavar="UAS", type=float, default=128.0, help="field of view in µas (128)")
    parser.add_argument("--flux", metavar="JY", type=float, help="flux of the compact source in Jy (estimated)")
    parser.add_argument("--prior", metavar="UAS", type=float, default=40.0, help="FWHM of the prior in µas (40)")
    parser.add_argument(
        "--systematic", metavar="F", type=float, default=0.02, help="fraction of |V| added to all errors (0.02)"
    )
    parser.add_argument("--solver", metavar="NAME", default="lbfgs", help="lbfgs, lbfgsb, lbfgs-bt, adam, … (lbfgs)")
    parser.add_argument("--maxiter", metavar="N", type=int, default=100, help="iterations of every fit (100)")
    parser.add_argument("--restarts", metavar="N", type=int, default=3, help="fits from the blurred image (3)")
    parser.add_argument("--devices", metavar="N", type=int, help="devices to split the data over (1)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of the parity check (0)")


def _info_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="uvfits file")


def _chi2_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="uvfits file")
    parser.add_argument("image", metavar="IMAGE", help="FITS image in Jy/pixel")
    parser.add_argument("--flux", metavar="JY", type=float, help="flux of the compact source in Jy (the image's)")
    parser.add_argument(
        "--systematic", metavar="F", type=float, default=0.02, help="fraction of |V| added to all errors (0.02)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _simulate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", required=True, help="uvfits file to write")
    parser.add_argument("--truth", metavar="IMAGE", help="FITS file for the image behind the data")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of noise and gains (0)")


def _image(args: argparse.Namespace) -> int:
    """Make the image; 0 also where the step limit ended a fit, which is usual for this schedule."""
    began = time.perf_counter()
    devices = request_devices(args.devices)

    from shardfit import mesh
    from shardfit.domains.vlbi import recipes
    from shardfit.report.values import seconds

    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: a seed is zero or positive.")
    out = Path(args.out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out}: a file of this name exists. Name a directory.")
    obs = _read(args.file)
    print(f"{Path(args.file).name}: {obs.source or 'unnamed source'}, {len(obs):,} visibilities", flush=True)
    found = recipes.image(
        obs,
        npix=args.npix,
        fov_uas=args.fov,
        flux=args.flux,
        prior_fwhm_uas=args.prior,
        systematic=args.systematic,
        restarts=args.restarts,
        maxiter=args.maxiter,
        solver=args.solver,
        mesh=mesh(rows=devices) if devices > 1 else None,
        seed=args.seed,
    )
    if args.flux is None:
        print(f"  compact flux estimated as {found.flux:.3f} Jy; give --flux if it is known")
    for k, one in enumerate(found.rounds):
        name = "first fit" if k == 0 else f"restart {k}"
        print(f"  {name:<10} objective {one.value:10.4f}  {one.steps:4d} steps  {seconds(one.seconds)}")
    print("  χ² per measurement: " + ", ".join(f"{name} {value:.3f}" for name, value in found.chi2.items()))
    report = _write(out, found, Path(args.file).name, args.flux is None)
    print(f"image: {out / 'image.fits'}\nreport: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return 0


def _read(file: str) -> Any:
    from shardfit.domains.vlbi.uvfits import read_uvfits

    return read_uvfits(file, channels="average")


def _write(out: Path, found: Any, file: str, estimated: bool) -> Path:
    """Write image, result, figures and report; return the path of the report."""
    from dataclasses import replace

    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.io.files import write_atomic
    from shardfit.io.results import save_result
    from shardfit.io.run_dir import environment
    from shardfit.report.run import report_run, save_extra

    out.mkdir(parents=True, exist_ok=True)
    write_image(found.image, out / "image.fits", overwrite=True)
    derived = {f"χ² of {name}": value for name, value in found.chi2.items()}
    derived |= {"flux of the image (Jy)": found.image.flux, "compact flux of the data (Jy)": found.flux}
    save_result(replace(found.result, derived=derived), out)
    text = json.dumps(environment(), indent=1)
    write_atomic(out / "env.json", lambda file: file.write(text.encode()))
    pictures = _figures(out, found)
    blocks = [
        {"title": "Image", "blocks": [*pictures[:1], _chi2_table(found)]},
        {"title": "Data and image", "blocks": pictures[1:]},
        {"title": "Fits", "blocks": [_rounds_table(found)]},
        {"title": "Options", "blocks": [_options_table(found, file, estimated)]},
    ]
    save_extra(out, f"{found.data.source or 'Image'} from {file}", SUBTITLE, blocks)
    return report_run(out)


def _figures(out: Path, found: Any) -> list[dict[str, str]]:
    from shardfit.domains.vlbi import plots
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.report.run import save_figure

    options, data, image = found.options, found.data, found.image
    beam = data.nominal_resolution
    resolution = f"{beam / UAS:.1f} µas"
    made = {
        "image": (
            f"The image. The circle is the nominal resolution, {resolution}.",
            lambda: plots.sky(image, beam_rad=beam),
        ),
        "amplitudes": (
            "Amplitudes of the prepared data and of the image; residuals are in units of the errors without the "
            "stations' amplitude tolerance, which the fit allows for.",
            lambda: plots.amplitudes(data, image),
        ),
        "closure_phases": (
            "Closure phases of the data and of the image.",
            lambda: plots.closure_phases(data, image, uv_min=options.cp_uv_min, count=options.count),
        ),
        "uv_coverage": ("Baselines of the prepared data, both orientations.", lambda: plots.uv_coverage(data)),
        "convergence": (
            "Objective above its lowest; it rises at each restart because the image is blurred.",
            lambda: plots.convergence([r.history for r in found.rounds]),
        ),
    }
    for name, (_, draw) in made.items():
        save_figure(draw(), out, name)
    return [{"picture": name, "caption": caption} for name, (caption, _) in made.items()]


def _chi2_table(found: Any) -> dict[str, Any]:
    from shardfit.domains.vlbi.recipes import measurements

    products = measurements(found.data, found.options).products
    rows = [(name, str(products[name].n), f"{value:.3f}") for name, value in found.chi2.items()]
    caption = "About 1 where the image explains the data within their errors."
    return {"header": ["data product", "measurements", "χ² per measurement"], "rows": rows, "caption": caption}


def _rounds_table(found: Any) -> dict[str, Any]:
    from shardfit.report.values import seconds

    names = list(found.chi2)
    rows = []
    for k, one in enumerate(found.rounds):
        values = [f"{one.chi2[name]:.3f}" for name in names]
        label = "first fit" if k == 0 else f"restart {k}"
        rows.append((label, f"{one.value:.4f}", str(one.steps), one.message, seconds(one.seconds), *values))
    header = ["fit", "objective", "steps", "end", "time", *(f"χ² {name}" for name in names)]
    return {"header": header, "rows": rows}


def _options_table(found: Any, file: str, estimated: bool) -> dict[str, Any]:
    from dataclasses import fields

    rows = [("file", file), ("compact flux", f"{found.flux:.4f} Jy" + ", estimated from the data" * estimated)]
    for option in fields(found.options):
        value = getattr(found.options, option.name)
        if option.name == "flux":
            continue
        if hasattr(value, "items"):
            value = ", ".join(f"{name} {weight:.4g}" for name, weight in value.items())
        rows.append((option.name, str(value)))
    return {"header": ["option", "value"], "rows": rows}


def _info(args: argparse.Namespace) -> int:
    """Print what a file holds."""
    import numpy as np

    from shardfit.domains.vlbi.closures import quadrangles, triangles
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.operations import average_scans
    from shardfit.domains.vlbi.recipes import ZERO_BASELINE, compact_flux

    obs = _read(args.file)
    averaged = average_scans(obs)
    distance = obs.uv_distance
    zero = averaged.uv_distance < ZERO_BASELINE
    used = obs.drop_unused_stations().stations.names
    lines = {
        "source": obs.source or "–",
        "position": f"{obs.ra_hours:.6f} h, {obs.dec_deg:+.6f}°",
        "date": f"MJD {obs.mjd}, {obs.time.min():.3f} to {obs.time.max():.3f} h UTC",
        "frequency": f"{obs.freq_hz / 1e9:.3f} GHz, bandwidth {obs.bandwidth_hz / 1e9:.3f} GHz",
        "stations": ", ".join(used),
        "polarisation": ", ".join(obs.vis),
        "visibilities": f"{len(obs):,}, {len(averaged):,} scan averages",
        "closures": f"{len(triangles(averaged))} phases, {len(quadrangles(averaged))} amplitudes (minimal sets)",
        "baselines": f"{distance.min() / 1e9:.4f} to {distance.max() / 1e9:.3f} Gλ",
        "resolution": f"{obs.nominal_resolution / UAS:.2f} µas (nominal)",
        "SNR": f"{np.median(obs.snr):.1f} (median), {np.median(averaged.snr):.1f} of scan averages",
        "flux": f"{compact_flux(obs):.3f} Jy compact (rough estimate)",
    }
    if zero.any():
        lines["flux"] += f", {np.median(np.abs(averaged.vis['I'][zero])):.3f} Jy on the shortest baselines"
    for name, text in lines.items():
        print(f"{name:<13} {text}")
    return 0


def _chi2(args: argparse.Namespace) -> int:
    """Print χ² of an image, with the data prepared as for imaging."""
    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.recipes import EHT2017_TOLERANCE, ZERO_BASELINE, chi2, prepare

    obs, image = _read(args.file), read_image(args.image)
    flux = image.flux if args.flux is None else args.flux
    ready = prepare(obs, flux, systematic=args.systematic)
    products = ("amp", "cphase", "logcamp")
    found = chi2(ready, image, products, cp_uv_min=ZERO_BASELINE, systematic=EHT2017_TOLERANCE)
    if args.json:
        print(json.dumps({"file": args.file, "image": args.image, "flux_jy": flux, "chi2": found}))
    else:
        for name, value in found.items():
            print(f"{name:<10} {value:.4f}")
    return 0


def _simulate(args: argparse.Namespace) -> int:
    """Write data of a ring seen by the 2017 array, with thermal noise, gain errors and random phases."""
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: a seed is zero or positive.")

    from shardfit.domains.vlbi.fits_image import write_image
    from shardfit.domains.vlbi.recipes import simulated_ring
    from shardfit.domains.vlbi.uvfits import write_uvfits

    obs, truth = simulated_ring(seed=args.seed)
    write_uvfits(obs, args.out, overwrite=True)
    print(f"{args.out}: {len(obs)} visibilities of a ring, {truth.flux:g} Jy, seed {args.seed}")
    if args.truth:
        write_image(truth, args.truth, overwrite=True)
        print(f"{args.truth}: the image behind them")
    return 0


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "image": ("make an image of a uvfits file, with report", _image_arguments, _image),
    "info": ("print what a uvfits file holds", _info_arguments, _info),
    "chi2": ("print χ² of an image against a uvfits file", _chi2_arguments, _chi2),
    "simulate": ("write data of a ring seen by the 2017 array", _simulate_arguments, _simulate),
}
