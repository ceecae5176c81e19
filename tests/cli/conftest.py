import re

import jax
import pytest

from shardfit.cli.record import Record
from shardfit.report.folders import kind_of, outcome_of, verdict_in

NOT_OF_THE_ANSWER = ("rerun", "report", "demo")  # whose exit code says something else than the folder's answer
CODES = (0, 1)  # of a command that did its work


@pytest.fixture(scope="module", autouse=True)
def devices():
    """Start JAX with the devices that all tests have: a command without --devices would ask for one."""
    return jax.devices()


def badge_of(folder):
    """The word and tone of the badge of a folder's page; None without a page."""
    page = folder / "report.html"
    if not page.is_file():
        return None
    found = re.search(r'<span class="badge (\w+)">([^<]*)</span>', page.read_text())
    return found and (found[2], found[1])


def disagreements(folder, code):
    """What exit code, badge, and success in JSON say of a folder's answer where they do not agree."""
    verdict, told, badge = verdict_in(folder), outcome_of(folder), badge_of(folder)
    said = {"exit code": (code, verdict.exit), "success": (told["success"], verdict.success)}
    said |= {"reasons": (told["reasons"], list(verdict.reasons)), "badge": (told["badge"], verdict.word)}
    said["code of success"] = (verdict.exit == 0, verdict.success)
    if badge is not None:
        said["page"] = (badge, (verdict.word, verdict.tone))
    return {name: pair for name, pair in said.items() if pair[0] != pair[1]}


@pytest.fixture(scope="session", autouse=True)
def every_ending():
    """Hold every command that the tests of the command line run to one verdict: code, badge and JSON agree."""
    finish = Record.finish

    def held(self, code):
        finish(self, code)
        command = self.content["command"]
        if code in CODES and command[0] not in NOT_OF_THE_ANSWER and kind_of(self.folder) is not None:
            assert not (wrong := disagreements(self.folder, code)), f"{' '.join(command)}: {wrong}"

    Record.finish = held
    yield
    Record.finish = finish
