from concurrent.futures import Executor, Future

import shardfit as sf

from . import terms


class Inline(Executor):
    """An executor that runs tasks at once."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def picture(params):
    return params["a"] * terms.T[:4].reshape(2, 2)


def axes():
    return {"pull": sf.weight_axis("penalty", (0.1, 1.0))}


def make(settings, chosen):
    return terms.problem("penalty"), axes(), {"solver": "lbfgs", "maxiter": settings["maxiter"]}
