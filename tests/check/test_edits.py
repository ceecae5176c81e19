"""A run that was begun is refused after every edit that makes it another computation, and goes on after any other."""

import pytest

from shardfit.check.identity import of_value
from tests.check.edits import OTHER, SAME, script


def identity_of(source: str, edit: str = "", **more):
    """Return the identity of a script's function, run in a script of its own."""
    with script(source, edit, **more) as main:
        return of_value("model", main.model)


@pytest.mark.parametrize("name", OTHER)
def test_another_computation_is_another_run(name):
    before, edit = OTHER[name]
    one, other = identity_of(before), identity_of(before, edit)
    assert one.unidentified or other.unidentified or one.facts != other.facts
    for text in one.unidentified:
        assert text.startswith("the model uses ") and ", a " in text, text  # it is named


@pytest.mark.parametrize("name", SAME)
def test_the_same_computation_is_the_same_run(name):
    before, edit = SAME[name]
    one, other = identity_of(before), identity_of(before, edit, lines=7)
    assert one == other
    assert not one.unidentified


def test_few_ways_cannot_be_followed():
    """What is refused for good can be counted on one's fingers."""
    refused = {name for name, (before, *_) in OTHER.items() if identity_of(before).unidentified}
    assert refused == {
        "globals by a made name",
        "eval",
        "eval under another name",
        "exec",
        "generator of numbers",
    }
