"""Sections of the page of one run, and of the index of many; the same blocks as those of reports."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from shardfit.io.progress import duration
from shardfit.io.run_dir import RunDir
from shardfit.report.blocks import PNG, Block, Cards, Command, Link, Notice, PngBlock, Section, Table, Text
from shardfit.report.folders import outcome_of
from shardfit.report.live.curves import Curve
from shardfit.report.live.state import KILLED, RUNNING, SILENT, State
from shardfit.report.provenance import command_line, made
from shardfit.report.values import number, pair, seconds

REPORT = "report.html"
MOST_PICTURES, MOST_PICTURE_BYTES, MOST_EVENTS, MOST_PARAMETERS = 12, 4 << 20, 12, 40
LEFT = {"steps": "at most: convergence ends it earlier"}
ORDER = ("current", "image", "model", "models")  # pictures to be seen first
GO_ON = {
    SILENT: "Nothing has been written for a while: the run is in a long step, or was killed. If it was killed, run the "
    "same command again to continue.",
    KILLED: "Its process has ended without recording an end: it was killed, or the machine went down. Run the same "
    "command again to continue.",
}


def run_sections(state: State) -> list[Section]:
    """Return the page of a run: how far, curves, answer so far, pictures, runs inside it, how it was made."""
    now, current = time.time(), state.current
    sections = [Section("", [Cards(_cards(state, current, now)), *_words(state, current, now)])]
    if current is not None:
        curves = [Curve(name, *points) for name, points in current["curves"].items() if _is_curve(points)]
        if curves:
            sections.append(Section("So far", curves))
    sections += [_answer(state), _pictures(state.folder), _inner(state), made(state.command, state.folder)]
    sections.append(_events(state.folder))
    return [section for section in sections if section.blocks]


def index_sections(states: Sequence[State], addresses: Sequence[str]) -> list[Section]:
    """Return the page of a folder of runs: one line for each."""
    if not states:
        return [Section("", [Text("There is no run here yet. Runs appear on this page when they start.")])]
    now, rows = time.time(), []
    for state, address in zip(states, addresses, strict=True):
        kind = "" if state.kind is None else state.kind.name
        age = duration(max(0.0, now - state.updated)) + " ago"
        told = [
            state.badge(now).text,
            *(_unbroken(text) for text in (*_progress(state), age)),
            Command(command_line(state.command)),
        ]
        rows.append([Link(unquote(address).removeprefix("run/").strip("/"), address), kind, *told])
    header = ["run", "kind", "state", "progress", "time", "last word", "command"]
    running = sum(state.badge(now).text == "running" for state in states)
    cards = Cards([("runs", str(len(states)), ""), ("running", str(running), "")])
    return [Section("", [cards]), Section("Runs", [Table(header, rows, stacked=True)])]


def title_of(state: State) -> str:
    """Return what to call a run: the name its problem gives itself, or its folder."""
    return _title(state)


def _title(state: State) -> str:
    return state.folder.resolve().name


def _cards(state: State, current: dict[str, Any] | None, now: float) -> list[tuple[str, str, str]]:
    if current is None:
        outcome, took = _quietly(state), state.command.get("seconds")
        cards = [(name, _text(outcome[name]), "") for name in ("value", "draws", "points", "steps") if name in outcome]
        if isinstance(took, int | float):
            cards.append(("took", seconds(took), ""))
        return cards or _waiting(state, now)
    left, part = current.get("left"), _part(state)
    counted = f"{_text(current.get('done'))} of {_text(current.get('total'))} {current['unit']}"
    cards = [(f"done of {part}" if part else "done", _share(current), counted)]
    if state.badge(now) == RUNNING:
        when = duration(left) if isinstance(left, int | float) else "–"
        cards.append((f"left of {part}" if part else "left", when, LEFT.get(current["unit"], "")))
    return cards + [_number_card(str(name), value) for name, value in current["numbers"].items()]


def _number_card(name: str, value: Any) -> tuple[str, str, str]:
    if name == "seconds" and isinstance(value, int | float):
        return "so far", duration(max(0.0, value)), ""
    return name, _text(value, 3 if "per second" in name else 5), ""


def _waiting(state: State, now: float) -> list[tuple[str, str, str]]:
    """Return a card of a run that has told nothing yet: since when it works."""
    badge = state.badge(now)
    try:
        began = datetime.fromisoformat(str(state.command.get("began"))).timestamp()
    except (ValueError, OverflowError):
        return [("state", badge.text, "")]
    if badge != RUNNING:
        return [("begun", duration(max(0.0, now - began)) + " ago", "")]
    return [("running for", duration(max(0.0, now - began)), "reading data, compiling")]


def _part(state: State) -> str:
    """Return the name of the run inside this one whose last word is shown; empty where it is the run's own."""
    if state.live is not None:
        return ""
    return next((run.folder.name for run in state.runs if run.live is not None and run.live is state.current), "")


def _progress(state: State) -> tuple[str, str]:
    """Return how far a run is and how long it still takes, or what it came to and how long it took."""
    current = state.current
    if current is not None:
        left, part = current.get("left"), _part(state)
        share = f"{_share(current)} of {part}" if part else _share(current)
        still = isinstance(left, int | float) and state.badge() == RUNNING
        return share, f"{duration(float(left))} left" if still and left is not None else ""
    outcome, took = _quietly(state), state.command.get("seconds")
    counts = [f"{_text(outcome[name])} {name}" for name in ("draws", "points") if name in outcome]
    reached = f"value {_text(outcome['value'], 4)}" if "value" in outcome else " ".join(counts)
    return reached, seconds(took) if isinstance(took, int | float) else ""


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _words(state: State, current: dict[str, Any] | None, now: float) -> list[Block]:
    words: list[str] = []
    if state.live is None and current is not None:
        ended = sum(run.kind is not None for run in state.runs)
        at_work = "Now running" if state.badge(now) == RUNNING else "Was running"
        words.append(f"{at_work} {_part(state)}: {current['title']}. {ended} parts have ended.")
    if current is not None:
        words.append(
            f"Started {duration(now - current['began'])} ago, last update {duration(now - current['updated'])} ago."
        )
    words.append(GO_ON.get(state.badge(now), ""))
    failure = state.failure
    shown: list[Block] = [Notice(failure)] if failure else []
    return [*shown, Text(" ".join(filter(None, words)))] if any(words) else shown


def _answer(state: State) -> Section:
    """Return what the run came to: message, parameters and parts."""
    if state.kind is None:
        return Section("Answer", [])
    try:
        outcome = outcome_of(state.folder)
    except (ValueError, OSError, RuntimeError) as error:  # being written at this moment, or damaged
        return Section("Answer", [Text(f"It cannot be read now: {error}")])
    blocks: list[Block] = [Text(_sentence(outcome["message"]))] if outcome.get("message") else []
    parameters, errors, units = (outcome.get(name) or {} for name in ("parameters", "errors", "units"))
    if state.kind.name == "posterior":
        rows = [
            [n, *_with_error(p["mean"], p["sd"]), str(units.get(n, "")), _text(p["rhat"], 4)]
            for n, p in list(parameters.items())[:MOST_PARAMETERS]
        ]
        blocks.append(_filled(["parameter", "mean", "sd", "unit", "R-hat"], rows))
        if len(parameters) > MOST_PARAMETERS:
            blocks.append(Text(f"The first {MOST_PARAMETERS} of {len(parameters)}; the report has more."))
    elif state.kind.name == "fit":
        rows = [[n, *_with_error(v, errors.get(n)), str(units.get(n, ""))] for n, v in parameters.items()]
        blocks.append(_filled(["parameter", "value", "1σ", "unit"], rows))
        if outcome["parts"]:
            blocks.append(Table(["part", "loss"], [[n, _text(v)] for n, v in outcome["parts"].items()]))
    if (state.folder / REPORT).is_file():
        blocks.append(Link("the whole report", REPORT))
    return Section("Answer", blocks)


def _filled(header: list[str], rows: list[list[str]]) -> Table:
    """Return a table without the columns that are empty: a phone has no room for them."""
    kept = [i for i in range(len(header)) if any(row[i] not in ("", "–") for row in rows)]
    return Table([header[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _pictures(folder: Path) -> Section:
    """Return the pictures that the run has drawn so far; links and files that are too large are left out."""
    places = [*sorted((folder / "figures").glob("*.png")), *sorted(folder.glob("*.png"))]
    own = {path.stem: path for path in reversed(places) if path.is_file() and not path.is_symlink()}  # figures/ first
    found = sorted(own.values(), key=places.index)
    found.sort(key=lambda path: (ORDER.index(path.stem) if path.stem in ORDER else len(ORDER), path.name))
    blocks: list[Block] = []
    for path in found[:MOST_PICTURES]:
        content = path.read_bytes() if path.stat().st_size <= MOST_PICTURE_BYTES else b""
        if content.startswith(PNG):
            blocks.append(PngBlock(content, path.stem.replace("_", " ")))
    return Section("Pictures", blocks)


def _inner(state: State) -> Section:
    rows = []
    for run in state.runs:
        if run.kind is None and run.live is None:
            continue  # it has nothing to say of itself
        outcome = _quietly(run)
        name = str(run.folder.relative_to(state.folder))
        rows.append([name, run.badge().text, _text(outcome.get("value", "")), _text(outcome.get("steps", ""))])
    return Section("Parts", [_filled(["run", "state", "value", "steps"], rows)] if rows else [])


def _quietly(run: State) -> dict[str, Any]:
    try:
        return outcome_of(run.folder) if run.kind else {}
    except (ValueError, OSError, RuntimeError):
        return {}


def _events(folder: Path) -> Section:
    events = list(RunDir(folder).events())[-MOST_EVENTS:]
    rows = [
        [
            _clock(event["time"]),
            event["event"],
            ", ".join(f"{name} {_text(value)}" for name, value in event.items() if name not in ("time", "event")),
        ]
        for event in events
        if isinstance(event.get("time"), int | float)
    ]
    return Section("Events", [Table(["time", "event", ""], rows)] if rows else [])


def _clock(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):  # a damaged line may name any time
        return "–"


def _share(current: dict[str, Any] | None) -> str:
    if current is None or not current.get("total") or current.get("done") is None:
        return "–"
    return f"{100 * float(current['done']) / float(current['total']):.0f} %"


def _with_error(value: Any, error: Any) -> tuple[str, str]:
    single = isinstance(value, float) and isinstance(error, float)
    return pair(value, error) if single else (_text(value), "" if error is None else _text(error))


def _sentence(message: Any) -> str:
    text = str(message)
    return text[:1].upper() + text[1:]


def _is_curve(points: Any) -> bool:
    """Whether a file tells a curve: places, values, and what the places count."""
    kinds = (list, list, str)
    return isinstance(points, list) and len(points) == 3 and all(map(isinstance, points, kinds))


def _text(value: Any, digits: int = 6) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        if set(value) == {"shape", "smallest", "largest"}:  # of a long array
            shape = " × ".join(map(_text, value["shape"])) if isinstance(value["shape"], list) else "?"
            return f"{shape} values, {_text(value['smallest'], 4)} … {_text(value['largest'], 4)}"
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return "–" if value is None else number(value, digits)
