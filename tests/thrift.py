"""A test process that spends less on itself: on garbage that is none, and on what JAX makes anew for every program."""

import gc

PROGRAMS = 200  # that share a context: what they leave in it goes when it goes


def collect_rarely() -> None:
    """Look for garbage seldom, and never among what imports hold: a profile of two files has 7 % of the time there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def share_contexts() -> None:
    """Let programs share MLIR's context when they are lowered; making one takes as long as lowering a small program."""
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)
    if make is None:  # a version of JAX that does without
        return
    shared = [make(), 0]

    def context():
        if shared[1] == PROGRAMS:
            shared[:] = make(), 0
        shared[1] += 1
        return shared[0]

    mlir.make_ir_context = context
