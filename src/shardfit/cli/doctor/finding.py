"""What a check of `shardfit doctor` finds."""

from dataclasses import dataclass

GOOD, NOTE, BAD = "good", "note", "bad"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was looked at, its state, what was seen, and what to do where something is wrong."""

    name: str
    state: str
    text: str
    remedy: str = ""
