"""eht-imaging's side of the survey suite: serial fits with other weights; runs in an environment of its own."""

import contextlib
import json
import sys
import time

import numpy as np

from benchmarks.vlbi_ehtim import SYSTEM, ehtim


class Reached(Exception):
    """The objective is low enough."""


def _fit(imager, target: float) -> float:
    """Minimise until the objective is below the target; return the lowest that was seen."""
    objective, lowest = imager.objfunc, np.inf

    def watched(x):
        nonlocal lowest
        value = float(objective(x))
        lowest = min(lowest, value)
        if value <= target:
            raise Reached
        return value

    imager.objfunc = watched
    with contextlib.suppress(Reached):
        imager.make_image(pol="I", show_updates=False)
    return lowest


def main() -> None:
    """Fit every point that was asked for; say seconds and the objective reached."""
    asked = json.loads(sys.stdin.read())
    answers, sys.stdout = sys.stdout, sys.stderr
    eh = ehtim(asked["nufft_tolerance"])
    obs = eh.obsdata.load_uvfits(asked["files"][0])
    prior = np.load(asked["prior"])
    start = eh.image.Image(prior, asked["pixel_rad"], obs.ra, obs.dec, rf=obs.rf)
    wall, cpu, values = time.perf_counter(), time.process_time(), {}
    for point in asked["points"]:
        imager = eh.imager.Imager(
            obs,
            start,
            prior_im=start,
            flux=0.6,
            data_term=asked["data"],
            reg_term={**point, "flux": 1e4},
            systematic_noise=asked["tolerance"],
            ttype=asked["transform"],
            maxit=asked["iterations"],
            stop=1e-30,
            **SYSTEM,
        )
        name = "/".join(f"{point[key]:g}" for key in asked["names"])
        values[name] = _fit(imager, asked.get("targets", {}).get(name, -np.inf))
    found = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "values": values}
    print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
