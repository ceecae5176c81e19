"""A survey by somebody who means harm: every name and text tries to become markup, SQL or a formula."""

from pathlib import Path

import numpy as np

from shardfit.core.status import Status
from shardfit.surveys.heading import Heading
from shardfit.surveys.ledger import Ledger
from shardfit.surveys.point import SurveyPoint

IMAGE = '"><img src=x onerror=alert(1)>'
DROP = '"; DROP TABLE points; --'
SCRIPT = "</script><script>alert(2)</script><!--"
FORMULA = "=HYPERLINK(A1)"
VECTOR = "<svg onload=alert(3)>"


def write_hostile(folder: Path, count: int = 12) -> Path:
    axes = {IMAGE: IMAGE, DROP: "'", "__proto__": "", "text": ""}
    heading = Heading(f"<b>{SCRIPT}", count, axes, (SCRIPT, "constructor"), {"p": (1,)}, "float32", "", (4, 4))
    with Ledger.create(folder, heading) as ledger:
        for i in range(count):
            values = {IMAGE: i % 3, DROP: float(i), "__proto__": i, "text": (FORMULA, SCRIPT)[i % 2]}
            failed = i == count - 1
            ledger.write(
                [
                    SurveyPoint(
                        id=i,
                        axes=values,
                        status=Status.FAILED.name if failed else Status.CONVERGED_VALUE.name,
                        value=float("nan") if failed else float(i),
                        parts={SCRIPT: float(i), "constructor": 1.0 / (i + 1)},
                        steps=1,
                        evaluations=1,
                        seconds=0.1,
                        reason=VECTOR if failed else "",
                        params=b"\0" * 4,
                        picture=np.full((4, 4), i, np.float32),
                    )
                ]
            )
    return folder
