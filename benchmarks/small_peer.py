"""The peer's side of the suite `small`."""

from functools import partial

from benchmarks.duel import serve
from benchmarks.small_run import prepare

if __name__ == "__main__":
    serve(partial(prepare, 1))
