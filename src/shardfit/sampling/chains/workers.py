"""Chains on many workers: every group of chains is a task of its own, and its folder is what comes back."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardfit.core.current import at_work
from shardfit.distributed.executors import run_tasks
from shardfit.io.run_dir import RunDir, opened
from shardfit.sampling.chains.chain_groups import Study, nuts
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.chains.placement import Place
from shardfit.sampling.density import sampled
from shardfit.sampling.posterior import Posterior


def sample_parts(
    make: Callable[..., Any],
    arguments: Sequence[Any] = (),
    *,
    run_dir: str | Path,
    executor: Any = None,
    workers: int | None = None,
    resume: str = "auto",
    **options: Any,
) -> Posterior:
    """Sample by NUTS on an executor's workers, one group of chains each, and return the posterior of all of them.

    The draws are those of `sample` with the same options; the same call continues an earlier one.

    Parameters
    ----------
    make, arguments
        make(*arguments) returns the Problem; it is called by every worker, so it must be importable there, and read its
        data itself.
    run_dir
        seen by all workers.
    executor, workers
        anything with concurrent.futures' `submit`; None makes a local pool of this many processes.
    resume
        as for `sample`.
    options
        of `sample`: chains, draws, warmup, width (1 by default), start, seed and so on.

    Example: `sample_parts(make_problem, ("decay.npz",), run_dir="runs/decay", workers=4, chains=4)`.

    """
    options = {"width": 1, "draws": 1000, "chains": 4, "start": "fit", "seed": 0} | options
    choices = tuple(options[name] for name in ("width", "start", "seed"))
    settings = {k: v for k, v in options.items() if k not in ("width", "start", "seed", "progress", "mesh")}
    whole, problem = NUTS(**settings), make(*arguments)
    target = sampled(problem)
    with opened(run_dir) as store, at_work(target):
        study = Study.prepare(target, whole, choices, None, store, resume)
        folder = Path(run_dir).resolve()
        tasks = {i: (make, tuple(arguments), settings, choices, folder, i) for i in range(study.groups)}
        failed = [o for o in run_tasks(run_group, tasks, executor=executor, workers=workers) if o.error is not None]
    if failed:
        error = failed[0].error
        assert error is not None
        error.add_note(f"{len(failed)} of {len(tasks)} groups of chains ended with an error; what others drew is kept.")
        raise error
    return nuts(problem, run_dir=run_dir, **options)


def run_group(make: Callable, arguments: tuple, settings: dict, choices: tuple, folder: Path, number: int) -> None:
    """Draw one group's chains into its folder; what is there already is not drawn again."""
    target = sampled(make(*arguments))
    with at_work(target):
        Study.joined(target, NUTS(**settings), choices, RunDir(folder)).run(None, number, Place())
