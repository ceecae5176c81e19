"""Array annotations hold: losses, filters, source fits, conditioning and a whole problem run with them checked."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import jaxtyping, numpy as np
import tests.domains.vlbi.shapes
names = ("bands", "conditioning", "illumination", "losses", "metrics", "penalties", "problem", "propagate", "recording",
         "signature")
with jaxtyping.install_import_hook([f"shardfit.domains.seismic.{name}" for name in names],
                                   "tests.domains.vlbi.shapes.checked"):
    from shardfit.domains.seismic import losses, low_pass, model_error, total_variation
    from tests.domains.seismic.lens import problem_of, survey

sim, start, truth, wavelet, shots, data = survey(2, 60)
for loss in losses.NAMED:
    losses.as_loss(loss)(data, 0.5 * data, np.ones((2, 20, 1)))
for options in ({"match": "filter", "response": low_pass(sim, 30.0)}, {"match": "scalar", "normalise": "trace"}):
    problem = problem_of(sim, start, wavelet, shots, data, penalties={"tv": total_variation(1e-3)}, **options)
    problem.objective.value(problem.x0)
for wrong in (data[0], data.astype(int)):
    try:
        losses.as_loss("l2")(wrong, wrong)
    except TypeError as error:
        assert "SampleLoss.__call__" in str(error), error
    else:
        raise AssertionError("a wrong array passed")
"""


def test_annotations_hold():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
