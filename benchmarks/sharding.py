"""One imaging objective on 1, 2, 4 and 8 devices: the same value and gradient, and what an evaluation costs.

The three kinds of eht-imaging's sharding: visibilities by the exact product, by the NUFFT, and eight channels with a
spectral index, at about the sizes of its tables. Devices are virtual ones of this CPU, with one thread each: they show
that nothing changes, not how much faster it gets. difference: of the value, relative; of the gradient, relative to its
norm; largest over device counts. cpu-N, wall-N: seconds of one value and gradient.
"""

import tempfile
from pathlib import Path

from benchmarks.peers import run_ours
from benchmarks.vlbi import EVEN, SKIES, simulated

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "one for each virtual device"}
DEVICES = (1, 2, 4, 8)
CASES = {
    "direct": {"sky": SKIES["vis"], "operator": "auto"},
    "closures": {"sky": SKIES["closures"], "operator": "auto"},
    "nufft": {"sky": EVEN, "operator": "nufft"},
    "frequency": {"sky": SKIES["channels"], "operator": "auto"},
}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every kind; --quick takes the first, on 1 and 2 devices."""
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for case, given in list(CASES.items())[: 1 if quick else None]:
            sky = simulated(given["sky"], Path(folder) / case)
            asked = {**sky, "operator": given["operator"], "devices": DEVICES[: 2 if quick else None]}
            cases[case] = run_ours("benchmarks.sharding_run", asked)
    return cases
