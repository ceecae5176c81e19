"""Tasks on MPI's own pool; run as `mpiexec -n 2 python -m mpi4py.futures tasks.py`."""

from mpi4py.futures import MPIPoolExecutor

from shardfit.distributed.executors import run_tasks


def root(x):
    if x < 0:
        raise ValueError(f"no root of {x}")
    return x**0.5


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        found = {o.name: o for o in run_tasks(root, {"four": (4.0,), "nine": (9.0,), "bad": (-1.0,)}, executor=pool)}
    print(found["four"].value, found["nine"].value, found["bad"].error)
