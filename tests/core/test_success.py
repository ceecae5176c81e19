"""The one decision about success: what speaks against an answer, in which word, with which exit code."""

import numpy as np
import pytest

from shardfit.core.status import Status
from shardfit.core.success import chi2_doubt, decide, listed
from tests.core.test_result import make

NAN, INF = np.float64("nan"), np.float64("inf")
IMAGE = np.arange(9.0)


def of(a, image=IMAGE, w=(1.0, 2.0)):
    return {"a": np.float64(a), "image": image, "w": np.array(w)}


@pytest.mark.parametrize(
    ("more", "word", "code", "reason"),
    [
        ({}, "converged", 0, ""),
        ({"stderr": of(0.1)}, "converged", 0, ""),
        ({"status": Status.COMPLETED}, "completed", 0, ""),
        ({"status": Status.COMPLETED, "doubts": ("why.",)}, "doubtful", 1, "why."),
        ({"doubts": ("the flux is odd.",)}, "doubtful", 1, "the flux is odd."),
        ({"value": NAN}, "doubtful", 1, "Not a number: the value."),
        ({"value": -INF}, "doubtful", 1, "Not a number: the value."),
        ({"params": of(NAN)}, "doubtful", 1, "Not a number: a."),
        ({"params": of(1, IMAGE * NAN)}, "doubtful", 1, "Not a number: image."),
        ({"params": of(1, w=(1.0, NAN))}, "doubtful", 1, "Not a number: w."),
        ({"params": {"a": np.complex128(complex(0, NAN))}}, "doubtful", 1, "Not a number: a."),
        ({"stderr": of(NAN)}, "doubtful", 1, "Not a number: the standard error of a."),
        ({"stderr": of(INF, w=(0.1, INF))}, "doubtful", 1, "The data do not determine a, w."),
        ({"at_bound": ("a",)}, "converged at a bound", 0, ""),
        ({"at_bound": ("a",), "stderr": of(NAN)}, "converged at a bound", 0, ""),
        ({"at_bound": ("w[0]",), "stderr": of(INF)}, "doubtful", 1, "The data do not determine a."),
        ({"at_bound": ("a",), "doubts": ("why.",)}, "doubtful", 1, "why."),
        ({"status": Status.MAX_STEPS}, "step limit reached", 1, Status.MAX_STEPS.message),
        ({"status": Status.MAX_STEPS, "at_bound": ("a",)}, "step limit reached", 1, Status.MAX_STEPS.message),
        ({"status": Status.STALLED}, "stalled", 1, Status.STALLED.message),
        ({"status": Status.FAILED}, "failed", 1, Status.FAILED.message),
        ({"status": Status.NONFINITE, "value": NAN}, "non-finite", 1, "Not a number: the value."),
        ({"status": Status.INTERRUPTED}, "interrupted", 130, Status.INTERRUPTED.message),
        ({"status": Status.RUNNING}, "running", 1, "still running"),
    ],
)
def test_a_verdict_says_word_code_and_reason(more, word, code, reason):
    result = make(**more)
    verdict = result.verdict()
    assert (verdict.word, verdict.exit) == (word, code)
    assert verdict.success == bool(verdict) == result.success == (code == 0) == (not reason)
    assert any(reason in told for told in (*verdict.reasons, *(() if reason else ("",))))
    assert all(told.removesuffix(".") in result.message for told in (*verdict.reasons, *verdict.notes))
    assert ("At a bound" in result.message) == ("at_bound" in more)
    assert (verdict.tone == "good") == (word == "converged")


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_word(status):
    plain, doubted = decide(status), decide(status, ["why."])
    assert plain.word and not doubted.success and "why." in doubted.reasons


@pytest.mark.parametrize(
    ("reduced", "dof", "words"),
    [
        (1.0, 1000, ""),
        (1.4, 1000, ""),
        (1.6, 1000, "does not explain"),
        (3.0, 4, ""),  # so few may be off by chance
        (9.0, 4, "does not explain"),
        (0.5, 1000, ""),
        (0.3, 1000, "too large"),
        (0.0, 4, ""),
        (np.nan, 1000, "does not explain"),
        (np.inf, 1000, "does not explain"),
        (5.0, 0, ""),
        (5.0, -3, ""),
    ],
)
def test_chi2_far_from_one_is_a_doubt(reduced, dof, words):
    told = chi2_doubt(reduced * dof, dof)
    assert words in told and bool(told) == bool(words)


def test_long_lists_are_cut():
    assert listed([f"p{i}" for i in range(12)]).endswith("p7 and 4 more") and listed(["a", "b"]) == "a, b"
