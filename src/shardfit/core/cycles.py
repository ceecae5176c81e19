"""Digests of things that refer to each other, in circles too: a class and its methods, functions that call each other.

A digest says what a thing is made of, however it was reached and in whatever order it was read: two things have one
digest if nothing that can be reached from them tells them apart.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any


class Node:
    """Something that is being read. ordered: whether the order of its parts tells it apart."""

    __slots__ = ("digest", "index", "key", "label", "lowest", "ordered", "parts")

    def __init__(self, key: int, index: int):
        self.key, self.index, self.lowest = key, index, index
        self.parts: tuple[Part, ...] = ()
        self.label, self.ordered, self.digest = "", True, b""

    def joined(self, digests: dict["Node", bytes]) -> bytes:
        """Return the digest of label and parts; digests: those of nodes in the same circle."""
        parts = ((part.digest or digests[part]) if isinstance(part, Node) else part for part in self.parts)
        return joined(self.label, *(parts if self.ordered else sorted(parts)))


Part = bytes | Node  # a digest, or what has none yet


class Nodes:
    """What was read, by its address."""

    def __init__(self):
        self.known: dict[int, tuple[Any, Part]] = {}  # with the thing, so that its address is not used again
        self.open: list[Node] = []  # above what is being read, or in a circle with it
        self.count = 0

    def add(self, thing: Any, read: Callable[[], tuple[str, Iterable[Part], bool]]) -> Part:
        """Return the digest of a thing, or its node while a circle through it is open.

        read: returns a label, parts, and whether their order matters.
        """
        if id(thing) in self.known:
            return self.known[id(thing)][1]
        self.count += 1
        node = Node(id(thing), self.count)
        self.known[id(thing)] = thing, node
        self.open.append(node)
        node.label, parts, node.ordered = read()
        node.parts = tuple(parts)
        node.lowest = min([node.index, *(part.lowest for part in node.parts if isinstance(part, Node))])
        if node.lowest < node.index:
            return node
        start = self.open.index(node)
        members, self.open[start:] = self.open[start:], []
        _close(members)
        for member in members:
            self.known[member.key] = self.known[member.key][0], member.digest
        return node.digest


def _close(members: list[Node]) -> None:
    """Give digests to things that can all be reached from each other, or to one alone.

    They begin by their labels and are told apart by those of their parts until no further ones are. A digest is then
    all that can be reached from a thing, and what it is among that.
    """
    if len(members) == 1 and members[0] not in members[0].parts:
        members[0].digest = members[0].joined({})
        return
    now = {member: joined(member.label) for member in members}
    while True:
        finer = {member: member.joined(now) for member in members}
        if len(set(finer.values())) == len(set(now.values())):
            break
        now = finer
    whole = joined("circle", *sorted({now[member] + finer[member] for member in members}))
    for member in members:
        member.digest = joined("in a circle", now[member], whole)


def joined(label: str, *parts: bytes | str) -> bytes:
    """Return the digest of a label and digests or texts."""
    total = hashlib.sha256(label.encode())
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.digest()
