"""eht-imaging's side of the imaging suite; runs in an environment of its own."""

import sys
import time
import types
from collections.abc import Callable

import numpy as np

from benchmarks.duel import first_timed, serve

SYSTEM = {"norm_reg": True, "cp_uv_min": 0.1e9, "epsilon_tv": 1e-10, "debias": False, "show_updates": False}


class NFFT:
    """finufft behind the few calls that eht-imaging makes of pynfft, whose C library has no wheel."""

    tolerance = 1e-9  # set to what the other side has

    def __init__(self, shape, n_points, m=12, n=None):
        import finufft

        self.shape, self.n_points = tuple(int(s) for s in shape), n_points
        settings = {"eps": self.tolerance, "nthreads": 1}
        self.forward = finufft.Plan(2, self.shape, isign=-1, **settings)
        self.back = finufft.Plan(1, self.shape, isign=1, **settings)
        self.f_hat, self.f = np.zeros(self.shape, complex), np.zeros(n_points, complex)
        self.x = None

    def precompute(self):
        """Hand over the points."""
        x, y = (np.ascontiguousarray(2 * np.pi * column) for column in np.asarray(self.x).T)
        self.forward.setpts(x, y)
        self.back.setpts(x, y)

    def trafo(self):
        """f = Σ f_hat exp(-2πi k·x)."""
        self.f = self.forward.execute(np.ascontiguousarray(self.f_hat, complex))
        return self.f

    def adjoint(self):
        """f_hat = Σ f exp(+2πi k·x)."""
        self.f_hat = self.back.execute(np.ascontiguousarray(self.f, complex))
        return self.f_hat


def ehtim(tolerance: float):
    """Import the package, its non-uniform transforms answered by finufft to a relative tolerance."""
    NFFT.tolerance = tolerance
    package, module = types.ModuleType("pynfft"), types.ModuleType("pynfft.nfft")
    module.NFFT = NFFT
    sys.modules |= {"pynfft": package, "pynfft.nfft": module}
    import ehtim as eh

    return eh


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed and what it says."""
    began = time.perf_counter(), time.process_time()
    eh = ehtim(asked["nufft_tolerance"])
    observations = [eh.obsdata.load_uvfits(file) for file in asked["files"]]
    imager = _imager(eh, asked, observations)
    if asked["kind"] == "evaluate":
        x = imager._xinit

        def call():
            for _ in range(asked["repeats"]):
                imager.objfunc(x)
                imager.objgrad(x)

        return call, lambda: {"J": float(imager.objfunc(x)), "slope": float(np.linalg.norm(imager.objgrad(x)))}
    restarts = 3 if asked["kind"] == "schedule" else 0
    last = {}

    def image():
        found = _imager(eh, asked, observations)
        found.make_image(pol="I", show_updates=False)
        for _ in range(restarts):
            found.init_next = found.out_last().blur_circ(observations[0].res())
            found.make_image(pol="I", show_updates=False)
        last["J"] = float(found.objfunc(found.tmpout))

    return first_timed(image, began, lambda: last)


def _imager(eh, asked, observations):
    prior = np.load(asked["prior"])
    several = len(observations) > 1
    hertz = asked["reference_hz"] if several else observations[0].rf
    start = eh.image.Image(prior, asked["pixel_rad"], observations[0].ra, observations[0].dec, rf=hertz)
    most = {"optimize": 200, "schedule": 100}.get(asked["kind"], 1)
    if several:
        start.specvec = np.full(prior.size, 0.5)
        SYSTEM.update(mf=True, mf_order=1)
    return eh.imager.Imager(
        observations if several else observations[0],
        start,
        prior_im=start,
        flux=0.6,
        data_term=asked["data"],
        reg_term=asked["regularisers"],
        systematic_noise=asked["tolerance"] or 0.0,
        ttype=asked["transform"],
        maxit=most,
        stop=asked["stop"],
        **SYSTEM,
    )


if __name__ == "__main__":
    serve(prepare)
