"""Which points are kept: choices are compared by the name of their axis."""

from dataclasses import replace

import numpy as np
import pytest

from shardfit.core.status import Status
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.point import SurveyPoint
from shardfit.surveys.ranking import points_at, trained
from shardfit.surveys.reading import Survey


def written(folder, axes, points):
    """A survey of pictures that hold the first axis's value."""
    names = tuple(axes)
    heading = Heading("s", len(points), dict.fromkeys(names, ""), ("data.a",), {"m": (1,)}, "float64", "", (1, 1))
    one = SurveyPoint(0, {}, Status.CONVERGED_VALUE.name, 1.0, {"data.a": 1.0}, 1, 1, 1.0, params=np.zeros(1).tobytes())
    with Ledger.create(folder, heading) as ledger:
        ledger.write(
            [
                replace(one, id=i, axes=dict(zip(names, point, strict=True)), picture=np.full((1, 1), float(i)))
                for i, point in enumerate(points)
            ]
        )
    return Survey(folder)


def test_choices_are_compared_by_axis_name(tmp_path):
    training = written(tmp_path / "t", ("data", "tv", "l1"), [("ring", 1.0, 10.0), ("ring", 10.0, 1.0)])
    real = written(tmp_path / "r", ("l1", "tv"), [(1.0, 10.0), (10.0, 1.0), (1.0, 1.0)])
    kept = trained(training, "data", lambda name, picture: float(picture[0, 0] == 0), {"ring": 1.0})
    assert list(kept) == [frozenset({("tv", 1.0), ("l1", 10.0)})]
    assert points_at(real, kept) == [1]


def test_other_axes_are_refused(tmp_path):
    real = written(tmp_path, ("l1", "tv"), [(1.0, 10.0)])
    with pytest.raises(ValueError, match="axes simple, tv, the survey has l1, tv"):
        points_at(real, [frozenset({("tv", 1.0), ("simple", 10.0)})])
