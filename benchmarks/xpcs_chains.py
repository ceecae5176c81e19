"""Four chains on one shard of two-time correlations: side by side on one device, and each on a device of its own.

The case of homodyne's decision record on CPUs: laminar flow, about 5,000 points in 23 azimuths, 4 chains; 500 steps of
warm-up and 1,500 draws each, that package's defaults. Our chains move in 7 dimensions, for contrasts and offsets are
integrated out; its chains sample them. vectorised: one device, one batch for all chains. parallel: four virtual
devices, one chain each. Seconds of a whole call that is already compiled, with the fit before it; compile: those of
the call that compiles, beyond these.
"""

from benchmarks.peers import run_ours

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "one for each device", "cores": "two, also for four devices"}
CASES = {"vectorised": 1, "parallel": 4}
WARMUP, DRAWS = 500, 1500


def run(quick: bool) -> dict[str, dict]:
    """Return both ways; --quick takes short chains."""
    length = {"warmup": 50, "draws": 50} if quick else {"warmup": WARMUP, "draws": DRAWS}
    return {case: run_ours("benchmarks.xpcs_chains_run", {"devices": n, **length}) for case, n in CASES.items()}
