"""`shardfit decay COUNTS.csv`."""


def add_arguments(parser, argv):
    """Add the data and where to write."""
    parser.add_argument("data", metavar="COUNTS.csv", help="columns time (s) and counts, below a header line")
    parser.add_argument("--out", metavar="DIR", default="decay-out", help="run directory (decay-out)")


def run(args) -> int:
    """Fit, print, report."""
    from decay.counts import read
    from decay.problem import decay_problem
    from shardfit import fit
    from shardfit.report.run import report_run
    from shardfit.report.study import Study

    rows = read(args.data)
    result = fit(decay_problem(rows), run_dir=args.out)
    print(result)
    settings = {name: rows[name].tolist() for name in ("time", "counts")}
    study = Study("Radioactive decay", f"{len(rows['time'])} intervals", science="decay", settings=settings)
    print(f"report: {report_run(args.out, study)}")
    return 0 if result.success else 1
