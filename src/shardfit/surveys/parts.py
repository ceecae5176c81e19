"""A survey on many workers: points are dealt to parts, and each part writes a ledger of its own.

Workers may be processes of this machine or of others that see the same folder. No two of them ever write to one file;
the caller gathers what they have finished into the survey's ledger, while they run and whenever someone looks.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

from shardfit.distributed.executors import Outcome, end_with_parent, run_tasks
from shardfit.io.lock import only_writer
from shardfit.io.run_dir import require_resume
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.ledger import PARTS, Ledger, require_begun
from shardfit.surveys.prepared import Prepared, left_out_of
from shardfit.surveys.progress import SurveyProgress
from shardfit.surveys.reading import Survey
from shardfit.surveys.run import polish_points, run_points
from shardfit.surveys.sweep import lines_of

GATHER_SECONDS = 5.0


def survey_parts(
    make: Callable[..., tuple],
    arguments: Sequence[Any] = (),
    *,
    run_dir: str | Path,
    parts: int,
    executor: Any = None,
    workers: int | None = None,
    retry: bool = False,
    more: int | None = None,
    resume: str = "auto",
    progress: bool | None = None,
) -> Survey:
    """Run a survey in parts on an executor's workers, and return the table of all of them.

    The same call continues an earlier one, with any number of parts, as does `survey`.

    Parameters
    ----------
    make, arguments
        make(*arguments) returns (problem, axes, options), what `survey` takes; it is called by every worker, so it must
        be importable there, and read its data itself. Of a `control` among the options, workers use the slots.
    run_dir
        seen by all workers.
    parts
        at least one for each worker; more of them share the work more evenly.
    executor, workers
        anything with concurrent.futures' `submit`; None makes a local pool of this many processes.
    retry
        run failed points again.
    more, resume
        see `SurveyControl`; more is done by the caller's process, as is polishing.
    progress
        whether a line shows how far it is; None shows it on a terminal.

    Example: `survey_parts(make_m87, ("data/m87.uvfits",), run_dir="runs/m87", parts=8, workers=2)`.

    """
    if parts < 1:
        raise ValueError(f"survey_parts: parts={parts} must be at least 1.")
    require_resume(resume)
    problem, axes, options = make(*arguments)
    left_out = left_out_of(run_dir) if resume != "never" else {}
    prepared, slots = _prepared(problem, axes, options, left_out)
    require_begun(run_dir, resume)
    with only_writer(run_dir), Ledger.begin(run_dir, prepared.heading, resume) as ledger:
        ledger.gather()
        ledger.drop_parts()
        tried = ledger.attempts() if retry else {}
        numbers = prepared.missing(ledger, tried)
        # names that were never used before: a worker of a run that was killed may still be writing to its own
        run, local = secrets.token_hex(4), executor is None
        tasks = {}
        lines = lines_of(numbers, prepared.parents)
        for i in range(min(parts, len(lines))):
            dealt = [n for line in lines[i::parts] for n in line]
            again = {n: tried[n] for n in dealt if n in tried}
            begun = _starts(prepared, ledger, dealt)
            where = Path(run_dir).resolve(), f"{run}-{i}"
            tasks[i] = (make, tuple(arguments), *where, dealt, again, begun, local, left_out_of(run_dir))
        outcomes = _run(tasks, ledger, SurveyProgress(problem.name, ledger, progress), executor, workers)
        _require_all(outcomes)
        ledger.drop_parts()
        polish_points(prepared, ledger, SurveyControl(slots, more=more))
    return Survey(run_dir)


def _starts(prepared: Prepared, ledger: Ledger, numbers: Sequence[int]) -> dict[int, Any]:
    """Return where points begin whose parents have ended before, by parent: workers see their own ledger only."""
    above = {parent for n in numbers if (parent := prepared.parents[n]) is not None} - set(numbers)
    return {parent: prepared.start_from(ledger.record(parent)) for parent in sorted(above)}


def run_part(
    make: Callable[..., tuple],
    arguments: tuple,
    run_dir: Path,
    name: str,
    numbers: list[int],
    tried: Mapping[int, int],
    starts: Mapping[int, Any],
    local: bool,
    left_out: Mapping[str, Sequence[Any]],
) -> None:
    """Run some points of a survey into a ledger of their own; those that it holds already are left out."""
    if local:
        end_with_parent()
    problem, axes, options = make(*arguments)
    prepared, slots = _prepared(problem, axes, options, left_out)
    folder = run_dir / PARTS
    with (
        only_writer(folder, f"{name}.lock"),
        Ledger.create(folder, prepared.heading, f"{name}.sqlite", shared=True) as part,
    ):
        there = set(part.ids())
        points = [prepared.point(i, tried) for i in numbers if i not in there]
        run_points(prepared, part, points, slots, starts=starts)


def _prepared(problem: Any, axes: Any, options: Mapping[str, Any], left_out: Mapping) -> tuple[Prepared, Any]:
    """Return a survey that can run, and its slots."""
    options = dict(options)
    control: SurveyControl = options.pop("control", None) or SurveyControl()
    if options.get("halving") is not None:
        raise ValueError("survey_parts: halving ranks all points together, which parts cannot do. Use `survey`.")
    return Prepared.make(problem, axes, left_out=left_out, **options), control.slots


def _run(tasks: Mapping, ledger: Ledger, show: SurveyProgress, executor: Any, workers: int | None) -> list[Outcome]:
    """Run parts to their end, and gather what they have finished from time to time."""
    with closing(show), ThreadPoolExecutor(1) as aside:
        running = aside.submit(lambda: list(run_tasks(run_part, tasks, executor=executor, workers=workers)))
        ended = False
        while not ended:
            ended = bool(wait([running], GATHER_SECONDS).done)
            ledger.gather()
            show.look(ledger)
    return running.result()


def _require_all(outcomes: Sequence[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        error = failed[0].error
        assert error is not None
        error.add_note(f"{len(failed)} of {len(outcomes)} parts ended with an error; what they finished is kept.")
        raise error
