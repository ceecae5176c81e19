"""NIST's certified regressions through fit: parameters, residual sum and standard errors to their digits."""

import numpy as np
import pytest

import shardfit as sf
from benchmarks.problems import nist

QUICK = ["Misra1a", "Thurber", "MGH09", "Rat43"]  # one or two of each difficulty
SLOW = [
    "Bennett5",
    "BoxBOD",
    "Chwirut1",
    "Chwirut2",
    "DanWood",
    "ENSO",
    "Eckerle4",
    "Gauss1",
    "Gauss2",
    "Gauss3",
    "Hahn1",
    "Kirby2",
    "Lanczos1",
    "Lanczos2",
    "Lanczos3",
    "MGH10",
    "MGH17",
    "Misra1b",
    "Misra1c",
    "Misra1d",
    "Nelson",
    "Rat42",
    "Roszman1",
]
SETS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("name", SETS)
def test_certified_values(name):
    case = nist.load()[name]
    for start in case.starts:
        objective = sf.Objective({"data": sf.residual_term(case.residual, dict(case.rows))})
        # Bennett5 from its first start takes more than the default thousand steps
        result = sf.least_squares(sf.Problem(objective, start, name=name), maxiter=5000, certify=False, progress=False)
        digits = -np.log10(np.abs(result.params / case.certified - 1) + 1e-30)
        assert digits.min() >= 6, result.message
        if name != "Lanczos1":  # its residuals are rounding: no errors can be certified
            assert 2 * result.value == pytest.approx(case.rss, rel=1e-6)
            np.testing.assert_allclose(result.stderr, case.sd, rtol=1e-4)
