"""What to change when it does not fit: smaller chunks, more row shards, or both. Every suggestion has been compiled."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardfit.core.work import inner_programs
from shardfit.planning.peak import Footprint, Layout, footprint
from shardfit.planning.shapes import count_shards, local_rows, placed_shapes
from shardfit.planning.units import bytes_text

HEADROOM = 0.9  # suggestions aim below the limit, because predictions err by some percent
TRIES = 4
NEGLIGIBLE = 0.01  # a term that moves less than this share of all bytes keeps its chunk


@dataclass(frozen=True)
class Advice:
    """A text, and what it suggests: chunk by term, number of row shards."""

    text: str
    chunk: dict[str, int] | None = None
    shards: int | None = None


def advise(layout: Layout, now: Footprint, available: int, platform: str) -> Advice:
    """Return what would make it fit into the available bytes per device."""
    if now.whole <= HEADROOM * available:
        return Advice("It fits.")
    if now.whole <= available:
        spare = bytes_text(available - now.whole)
        return Advice(f"It fits with only {spare} to spare, which is within the error of a prediction.")
    goal = HEADROOM * available
    least = now.fixed + now.programs
    if least > goal:
        return Advice(
            "Nothing helps: parameters, shared arguments, constants, programs and solver state take "
            f"{bytes_text(least)} on every device, whatever the chunk or mesh. Use devices with more memory, float32, "
            "or a smaller model."
        )
    chunk = _find_chunk(layout, now, goal) if now.rows + now.fixed + now.programs < goal else None
    shards = _find_shards(layout, now, goal)
    if chunk or shards:
        options = [_chunk_text(*chunk)] if chunk else []
        options += [_shards_text(*shards, available, platform)] if shards else []
        return Advice(_sentence("; or ".join(options)), chunk and chunk[0], shards and shards[0])
    return _both(layout, now, goal, available, platform)


def _both(layout: Layout, now: Footprint, goal: float, available: int, platform: str) -> Advice:
    """Give half of what is free to temporaries, then split the rows until the other half holds them."""
    room = (goal - (now.fixed + now.programs)) / 2
    chunk = _find_chunk(layout, replace(now, rows=0), (now.fixed + now.programs) + room, rows_count=False)
    if chunk:
        shards = _find_shards(layout.with_chunks(chunk[0]), chunk[1], goal)
        if shards:
            text = f"{_chunk_text(chunk[0], None)}, and {_shards_text(*shards, available, platform)}"
            return Advice(_sentence(text), chunk[0], shards[0])
    return Advice(
        "No chunk and no number of row shards was found that fits: a single row or a penalty needs too much by itself. "
        "Use devices with more memory, float32, or rows that are smaller pieces of the data."
    )


def _find_chunk(layout, now, goal, rows_count=True) -> tuple[dict[str, int], Footprint] | None:
    """Return the largest chunks tried that fit, each term's own cut into equally many blocks."""
    shards = count_shards(layout.mesh)
    present = {
        name: min(term.chunk or term.n_rows, local_rows(term, shards))
        for name, term in layout.row_terms().items()
        if name in _heavy_terms(layout)
    }
    limit = max(present.values(), default=1)
    if limit == 1:
        return None

    def attempt(blocks):
        chunks = {name: max(1, _round_down(size // blocks)) for name, size in present.items()}
        held = footprint(layout.with_chunks(chunks))
        total = held.whole if rows_count else held.whole - held.rows
        return (chunks, held) if total <= goal else None

    # temporaries shrink about as the block does
    blocks = max(2, math.ceil(now.temporaries / max(1.0, goal - now.rows - (now.fixed + now.programs))))
    for _ in range(TRIES):
        blocks = min(blocks, limit)
        best = attempt(blocks)
        if best:
            return (blocks > 2 and attempt(blocks // 2)) or best
        if blocks == limit:
            return None
        blocks *= 8
    return None


def _find_shards(layout, now, goal) -> tuple[int, Footprint] | None:
    """Return the smallest number of row shards tried that fits."""
    present = count_shards(layout.mesh)
    limit = max((term.n_rows for term in layout.row_terms().values()), default=0)
    room = goal - (now.fixed + now.programs)
    guesses = {math.ceil(present * (now.rows + now.temporaries) / room)}
    if room > now.temporaries:  # chunked: temporaries stay as they are
        guesses.add(math.ceil(present * now.rows / (room - now.temporaries)))
    candidates = sorted(max(g, present + 1) for g in guesses)
    candidates += [candidates[-1] * 2, candidates[-1] * 4]
    for shards in dict.fromkeys(candidates):
        if shards <= limit:
            held = footprint(replace(layout, mesh=shards))
            if held.whole <= goal:
                return shards, held
    return None


def _heavy_terms(layout: Layout) -> set[str]:
    """Return the terms whose intermediate arrays matter, judged from the traced functions."""
    moved = {}
    z = layout.shapes()[1]
    shapes = placed_shapes(layout.objective, count_shards(layout.mesh))
    for name, term in shapes.items():
        if name in layout.row_terms():
            moved[name] = _bytes_moved(layout, term, z)
    return {name for name, size in moved.items() if size >= NEGLIGIBLE * sum(moved.values())}


def _bytes_moved(layout: Layout, term: Any, z: Any) -> float:
    def contributions(term, z):
        return term.contributions(layout.space.unpack(z), term.rows, jax.random.key(0))

    return _bytes_made(jax.make_jaxpr(contributions)(term, z).jaxpr)


def _round_down(n: int) -> int:
    """Return n cut to two significant digits: 78125 -> 78000."""
    unit = 10 ** max(0, len(str(n)) - 2)
    return n // unit * unit


def _chunk_text(chunks: dict[str, int], held: Footprint | None) -> str:
    named = ", ".join(f"chunk={size} in term {name!r}" for name, size in chunks.items())
    return f"use {named}" + (f" ({bytes_text(held.whole)} per device)" if held else "")


def _shards_text(shards: int, held: Footprint, available: int, platform: str) -> str:
    shared = "; devices of one CPU share its memory, so these must be on more hosts" if platform == "cpu" else ""
    return (
        f"split the rows over {shards} devices with {bytes_text(available)} each "
        f"({bytes_text(held.whole)} per device{shared})"
    )


def _sentence(text: str) -> str:
    return f"To make it fit, {text}."


def _bytes_made(program: Any) -> int:
    """Return the bytes of all arrays that a program makes, those of a loop's body once."""
    total = 0
    for step in program.eqns:
        total += sum(_bytes_made(inner) for inner in inner_programs(step))
        avals: list[Any] = [v.aval for v in step.outvars]
        total += sum(aval.size * aval.dtype.itemsize for aval in avals if hasattr(aval, "dtype"))
    return total
