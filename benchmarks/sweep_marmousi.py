"""SWEEP's data-parallel inversion of Marmousi with its settings, by our command, pictures and report included.

As published: 2,500 samples of 2 ms, 5 Hz, order 8, 20 absorbing cells, a source every two cells, a receiver in every
cell at the sea floor, Adam with 25 m/s, 8 shots a step, 101 steps, no mask and no bands. Other than published: cells of
30 m in place of 25 m, for that is the spacing of the public copy of the model, a window of 12 km of its 17, with less
water, so the sea floor is at 180 m; the start is smoothed by a Gaussian of 300 m. devices: three steps of eight shots
on 1, 2 and 4 virtual devices, the largest relative difference of a loss.
"""

from benchmarks.marmousi import ends, inverted

PEERS = ()
SETTINGS = {"precision": "float32", "threads": "both cores", "devices": "one; 1, 2 and 4 virtual ones in `devices`"}
DEVICES = (1, 2, 4)
CONFIG = "sweep_marmousi.toml"


def run(quick: bool) -> dict[str, dict]:
    """Return the inversion and the comparison of devices; --quick takes two steps, on one and two devices."""
    rows, seconds = inverted(CONFIG, *(["--epochs", "2", "--max-shots", "8"] if quick else []))
    cases = {"inversion": {**seconds, "steps": len(rows) - 1, **ends(rows)}}
    short = ("--epochs", "1" if quick else "3", "--max-shots", "8", "--show-every", "1000")
    runs = [inverted(CONFIG, *short, "--devices", str(n))[0] for n in DEVICES[: 2 if quick else None]]
    losses = [[float(row["loss"]) for row in rows] for rows in runs]
    apart = max(abs(one / other - 1) for one, *others in zip(*losses, strict=True) for other in others)
    return cases | {"devices": {"steps": len(losses[0]) - 1, "difference": apart}}
