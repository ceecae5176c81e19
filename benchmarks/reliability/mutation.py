"""Random damage to the content of a file: what disks, copies, editors and strangers do to it."""

import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

EXTREME = (b"0", b"-1", b"1", b"65536", b"2147483647", b"-2147483648", b"4294967296", b"9223372036854775807")
EXTREME += (
    b"1e308",
    b"-1e308",
    b"1e-320",
    b"1e400",
    b"nan",
    b"inf",
    b"-inf",
    b"99999999999999999999999999",
    b"'",
    b"T",
)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = tuple(
    struct.pack(order + kind, value)
    for order in "<>"
    for kind, values in (
        ("i", (0, -1, 1, 2**31 - 1, -(2**31), 2**16)),
        ("q", (0, -1, 2**63 - 1, 2**40)),
        ("d", (float("nan"), float("inf"), -0.0, 1e308, 5e-324)),
        ("f", (float("nan"), float("inf"), 3e38)),
        ("h", (0, -1, 2**15 - 1, -(2**15))),
    )
    for value in values
)
INSERTED = (b"[" * 20_000, b"{" * 20_000, b'{"a":' * 5_000, b"\xff\xfe", b"\0", b"null", b"\n", b'"', b",", b"#")


def mutated(content: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """Return a file with one thing wrong. other: a second file, of which a piece may be put in."""
    if content.startswith(b"PK\x03\x04") and rng.random() < 0.5:
        return _member(content, rng, other)
    # headers and addresses stand in front: there damage does most
    reach = rng.choice((len(content), len(content), 8192, 1024, 128))
    at = rng.randrange(max(1, min(len(content), reach)))
    return rng.choice(KINDS)(content, rng, at, other)


def _member(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Damage one file inside an archive whose own checksums are right, as another program would write it."""
    new = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(new, "w") as changed:
            names = archive.namelist()
            chosen = rng.choice(names)
            for name in names:
                inner = archive.read(name)
                changed.writestr(name, mutated(inner, rng, other) if name == chosen else inner)
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        ValueError,
        OSError,
        EOFError,
        IndexError,
        RuntimeError,
    ):
        return _flip(content, rng, rng.randrange(len(content)), other)  # damaged before
    return new.getvalue()


def _flip(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    n = rng.choice((1, 1, 1, 4, 64))
    return content[:at] + bytes(b ^ (1 << rng.randrange(8)) for b in content[at : at + n]) + content[at + n :]


def _cut(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    return content[: rng.choice((at, rng.randrange(len(content) + 1)))]


def _delete(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    return content[:at] + content[at + rng.choice((1, 1, 4, 64, 2880)) :]


def _insert(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    n = rng.choice((1, 4, 64))
    return content[:at] + rng.choice((*INSERTED, rng.randbytes(n), content[at : at + n])) + content[at:]


def _fill(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    n = rng.choice((1, 4, 512, 4096))
    return content[:at] + bytes([rng.choice((0, 255, 32))]) * len(content[at : at + n]) + content[at + n :]


def _splice(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    if not other:
        return _delete(content, rng, at, other)
    start, n = rng.randrange(len(other)), rng.choice((4, 64, 2880, len(other)))
    return content[:at] + other[start : start + n] + content[at + rng.choice((0, n)) :]


def _word(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    """Put an extreme binary number where one may stand."""
    word = rng.choice(WORDS)
    at -= at % rng.choice((1, len(word)))
    return content[:at] + word + content[at + len(word) :]


def _number(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    """Put an extreme number in place of one that is written out."""
    found = NUMBER.search(content, at) or NUMBER.search(content)
    if found is None:
        return _word(content, rng, at, other)
    new = rng.choice(EXTREME)
    if rng.random() < 0.5:  # columns of a header stay where they are
        new = new[: len(found[0])].rjust(len(found[0]))
    return content[: found.start()] + new + content[found.end() :]


def _line(content: bytes, rng: random.Random, at: int, other: bytes) -> bytes:
    """Take out, repeat or move a line."""
    lines = content.splitlines(keepends=True)
    if len(lines) < 3:
        return _delete(content, rng, at, other)
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.choice(("delete", "repeat", "swap"))
    if kind == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines[i : i + 1] = [] if kind == "delete" else [lines[i]] * 2
    return b"".join(lines)


KINDS: tuple[Callable[[bytes, random.Random, int, bytes], bytes], ...] = (
    *(_flip, _flip, _cut, _delete, _insert, _fill, _splice, _word, _word, _number, _number, _number, _line),
)
