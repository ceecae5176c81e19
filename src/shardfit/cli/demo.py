"""`shardfit demo`: every science once, on built-in data, and one page that leads to all reports."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardfit.cli import options
from shardfit.cli.commands import completes
from shardfit.cli.demo_chapters import CHAPTERS, SETUP, Chapter
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit demo", "shardfit demo --only vlbi --out demo-vlbi")
LIMIT = 900.0  # s, after which a command is given up
RAN = (0, 1)  # exit codes of a command that did its work
MARK = ".shardfit-demo"  # a folder with this file may be written anew
TITLE = "shardfit at work"
SUBTITLE = (
    "Each science once, small, on data that come with the package or are simulated. Below each picture are a link to "
    "its report and the commands, which run as printed in this folder."
)


@dataclass(frozen=True)
class Told:
    """How a chapter went: seconds, exit code of the last command that ran, and what the commands printed."""

    chapter: Chapter
    seconds: float
    code: int
    output: str

    @property
    def failed(self) -> bool:
        """Whether a command did not do its work; one whose answer is doubtful did."""
        return self.code not in RAN


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the folder and a choice of chapters."""
    names = ", ".join(chapter.out for chapter in CHAPTERS)
    options.add_out(parser, "demo-out", what="folder of all runs")
    only = parser.add_argument(
        "--only", metavar="NAME", action="append", help=f"one of: {names}; may be repeated (all)"
    )
    completes(only, [chapter.out for chapter in CHAPTERS])
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the chapters, two at a time where there are two cores; return 0 if all ended well."""
    from shardfit.core.errors import suggestion
    from shardfit.report.values import seconds

    known = {chapter.out: chapter for chapter in CHAPTERS}
    for name in args.only or ():
        if name not in known:
            raise ValueError(f"--only {name}: no such chapter.{suggestion(name, known)}")
    out = _fresh(Path(args.out))
    began = time.perf_counter()
    told = tell_all(out, [chapter for chapter in CHAPTERS if not args.only or chapter.out in args.only])
    page = write_index(out, told)
    bad = [one for one in told if one.failed]
    for one in bad:
        print(f"\n{one.chapter.title}: exit code {one.code}\n{one.output[-2000:]}", file=sys.stderr)
    chapters = [{"name": one.chapter.out, "exit": one.code, "seconds": round(one.seconds, 3)} for one in told]
    record_output(args, out=out, page=page, chapters=chapters)
    print(f"page: {page}  ({seconds(time.perf_counter() - began)} in all)")
    return 1 if bad else 0


def _fresh(out: Path) -> Path:
    """Make the folder, in place of that of an earlier demo."""
    if out.exists():
        if not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists()):
            raise ValueError(f"--out {out}: exists and was not made by `shardfit demo`. Name another folder.")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()
    return out


def tell_all(out: Path, chapters: Sequence[Chapter]) -> list[Told]:
    """Run what all need, then the chapters; the display shows which are under way."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns) as display, ThreadPoolExecutor(min(2, cores)) as pool:
        lines = [display.add_task(chapter.title, start=False, total=1) for chapter in chapters]

        def one(line: Any, chapter: Chapter) -> Told:
            display.start_task(line)
            told = tell(out, chapter)
            words = f"{chapter.title}: failed" if told.failed else chapter.title
            display.update(line, description=words, completed=1)
            if not display.console.is_terminal:
                display.console.print(f"{words}, {told.seconds:.0f} s")
            return told

        prepared = _process(out, SETUP)
        if prepared.returncode:
            raise RuntimeError("the data of the demo could not be copied: " + prepared.stdout)
        return list(pool.map(one, lines, chapters))


def tell(out: Path, chapter: Chapter) -> Told:
    """Run the commands of a chapter one after the other; the first that fails ends it."""
    began = time.perf_counter()
    for name, text in chapter.files.items():
        (out / name).write_text(text, encoding="utf-8")
    done = _process(out, chapter.commands)
    (out / f"{chapter.out}.log").write_text(done.stdout, encoding="utf-8")
    return Told(chapter, time.perf_counter() - began, done.returncode, done.stdout)


def run_in_turn(commands: Sequence[str]) -> int:
    """Run command lines in this process until one fails; return the exit code of the last that ran."""
    from shardfit.cli import main

    code = 0
    for words in commands:
        print(f"$ shardfit {words}", flush=True)
        code = main(shlex.split(words))
        if code not in RAN:
            break
    return code


def _process(out: Path, commands: Sequence[str]) -> Any:
    """Run commands in one process of their own, which starts JAX once for all of them."""
    code = f"import sys; from {__name__} import run_in_turn; sys.exit(run_in_turn(sys.argv[1:]))"
    command = [sys.executable, "-u", "-c", code, *commands]
    try:
        return subprocess.run(
            command, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"stopped after {LIMIT:.0f} s\n")


def write_index(out: Path, told: Sequence[Told]) -> Path:
    """Write index.html, a section for each chapter with its picture, commands and the way to its report."""
    from shardfit.report.blocks import Command, Link, PngBlock, Section, Table, Text
    from shardfit.report.html import Badge, write_report

    sections = []
    for one in told:
        chapter, folder = one.chapter, out / one.chapter.out
        picture = folder / chapter.picture
        shown = picture.is_file()
        blocks: list[Any] = [PngBlock(picture.read_bytes(), chapter.text) if shown else Text(chapter.text)]
        if one.failed:
            blocks.append(Text(f"This ended with exit code {one.code}; {chapter.out}.log says why."))
        rows: list[tuple[Any, ...]] = [("command", Command(f"shardfit {words}")) for words in chapter.commands]
        report = folder / "report.html"
        if report.is_file():
            rows.append(("report", Link(f"{chapter.out}/report.html", f"{chapter.out}/report.html")))
        rows += [("printed", Link(f"{chapter.out}.log", f"{chapter.out}.log")), ("took", f"{one.seconds:.0f} s")]
        blocks.append(Table(["", ""], rows))
        sections.append(Section(chapter.title, blocks))
    failed = sum(one.failed for one in told)
    badge = Badge(f"{failed} failed", "bad") if failed else Badge("all ran", "good")
    return write_report(out / "index.html", TITLE, sections, badge=badge, subtitle=SUBTITLE)
