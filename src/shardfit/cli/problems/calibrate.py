"""`shardfit calibrate`: parameters from the priors, data simulated at them, posteriors of those: do intervals hold?"""

import argparse
from collections.abc import Sequence

from shardfit.cli import options, record
from shardfit.cli.loading import load_function
from shardfit.cli.outcome import record_output
from shardfit.cli.problems.config import WRITER, read_config

EXAMPLES = ("shardfit calibrate decay.toml -n 200 --out runs/calibration",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, how many data sets, and where ranks and their figure go."""
    options.add_config(parser, WRITER)
    parser.add_argument("-n", type=options.positive, metavar="N", help="simulated data sets (default: `n` of the file)")
    options.add_out(parser, otherwise="`out` of the section, or of the file")
    options.add_seed(parser, otherwise="`seed` of the file")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Calibrate, print the verdict, and draw the ranks."""
    config = read_config(args.config)
    settings = config.section("calibrate")
    if "make" not in settings:
        raise ValueError(f"{config.path}: [calibrate] make = 'module:function' is missing: (params, key) to a Problem.")
    make = load_function(settings.pop("make"), f"{config.path}: [calibrate] make")
    settings |= {"seed": config.seed if args.seed is None else args.seed} | ({} if args.n is None else {"n": args.n})
    folder = config.folder("calibrate", args.out)
    record.begin(args, folder, settings["seed"])
    from shardfit.io.files import write_arrays
    from shardfit.report.rank_figures import calibration_ranks
    from shardfit.report.study import save_figure
    from shardfit.sampling.quality.simulated import calibrate

    calibration = calibrate(make, config.make_problem().x0, **settings)
    print(calibration)
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / "ranks.npz", {"ranks": calibration.ranks, "rhat": calibration.rhat})
    save_figure(calibration_ranks(calibration), folder, "calibration")
    print(f"figure: {folder / 'figures' / 'calibration.png'}")
    each = {test: dict(zip(calibration.names, values, strict=True)) for test, values in calibration.p_values.items()}
    found = {"method": calibration.method, "data_sets": len(calibration.ranks), "failed": calibration.failed}
    record_output(args, success=calibration.passed, p=calibration.p, p_values=each, **found)
    return 0 if calibration.passed else 1
