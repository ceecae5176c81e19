"""The peers' side of the suite `lm`."""

from functools import partial

from benchmarks.duel import serve
from benchmarks.lm_run import prepare

if __name__ == "__main__":
    serve(partial(prepare, 1))
