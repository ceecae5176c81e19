"""Population fits against diffopt 2.0.0, one process and one thread each, both in float32 as the peer's users have it.

lossgrad-*: loss and gradient of the stellar mass function (variant B) for n halos. adam-1e4: 100 steps of Adam, the
loss after the last. kde-*: loss and gradient of a comparison at 20 kernels and 20 Fourier positions in 2-D, the same
places on both sides. swarm: 100 particles, 100 steps on the 4-D Ackley function, whole calls.
"""

from benchmarks.duel import duel

PEERS = ("diffopt",)
SETTINGS = {"precision": "float32", "threads": "one each"}
SIDES = ("benchmarks.population_ours", "benchmarks.population_diffopt")
# repeats of one round: long enough to time, short enough to alternate
CASES = {
    "lossgrad-1e4": (10_000, 50),
    "lossgrad-1e6": (1_000_000, 2),
    "lossgrad-1e7": (10_000_000, 1),
    "adam-1e4": (10_000, 1),
    "kde-1e4": (10_000, 20),
    "kde-1e5": (100_000, 5),
    "kde-1e6": (1_000_000, 1),
    "swarm": (100, 1),
}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick leaves out the large ones."""
    chosen = [case for case, (n, _) in CASES.items() if not quick or n <= 100_000]
    return {case: _case(case) for case in chosen}


def _case(case: str) -> dict:
    n, repeats = CASES[case]
    arguments = {"kind": case.partition("-")[0], "n": n, "repeats": repeats}
    return measured(arguments, 2 if case == "swarm" else 5)


def measured(arguments: dict, rounds: int) -> dict:
    """Return the figures of one case: seconds of one repeat, losses and peak memory of both sides."""
    figures, repeats = duel("diffopt", SIDES, arguments, rounds), arguments["repeats"]
    ours, peer = figures.pop("said_ours"), figures.pop("said_peer")
    for name in ("ours", "peer", "cpu_ours", "cpu_peer"):
        figures[name] /= repeats
    if "plain" in ours:
        figures |= {"cpu_plain": ours["plain"], "over_plain": figures["cpu_ours"] / ours["plain"]}
        figures["quality_plain"] = ours["plain_loss"]
    return figures | {
        "quality_ours": ours["loss"],
        "quality_peer": peer["loss"],
        "peak_ours": 1024 * ours["peak"],
        "peak_peer": 1024 * peer["peak"],
    }
