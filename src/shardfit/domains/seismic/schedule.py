"""Binomial checkpointing: go back through T steps with a fixed number of stored states.

The order of work is planned on the host (Griewank and Walther's splitting, which computes the fewest steps anew) as a
list of small actions, and one loop carries it out.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import comb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ADVANCE, STORE, RESTORE, REVERSE = range(4)


@lru_cache
def plan(steps: int, slots: int) -> np.ndarray:
    """Return the actions (n, 2): (ADVANCE, by steps), (STORE, slot), (RESTORE, slot), (REVERSE, step).

    The state at rest is in no slot but known; slots hold later ones.
    """
    return np.array(list(_walk(0, steps, slots, 0)), np.int32)


def _walk(begin: int, end: int, free: int, slot: int) -> Iterator[tuple[int, int]]:
    """Reverse the steps begin to end. The current state is that at `begin`, which slot - 1 holds."""
    while end - begin > 1:
        middle = begin + (_split(end - begin, free) if free else end - begin - 1)
        yield ADVANCE, middle - begin
        if free:
            yield STORE, slot
            yield from _walk(middle, end, free - 1, slot + 1)
        else:
            yield REVERSE, middle
        yield RESTORE, slot - 1
        end = middle
    yield REVERSE, begin


def _split(steps: int, free: int) -> int:
    """Return how far to advance before storing, with free slots left."""
    repeats = 1
    while comb(free + repeats, free) < steps:
        repeats += 1
    return max(1, min(steps - 1, steps - comb(free + repeats - 1, free - 1), comb(free + repeats - 1, free)))


def walk_back(advance: Callable, reverse: Callable, start: Any, result: Any, *, steps: int, slots: int) -> Any:
    """Return `result` after reverse(state, n, result) for n from the last step to the first, with few states kept.

    advance(state, n) → the state after step n; start: the state before step 0.
    """

    def go_on(carry, by):
        state, at, *rest = carry
        return lax.fori_loop(at, at + by, lambda n, s: advance(s, n), state), at + by, *rest

    def store(carry, slot):
        state, at, kept, places, result = carry
        kept = jax.tree.map(lambda all_, one: all_.at[slot].set(one), kept, state)
        return state, at, kept, places.at[slot].set(at), result

    def restore(carry, slot):
        _, _, kept, places, result = carry
        state = jax.tree.map(lambda all_, rest: jnp.where(slot < 0, rest, all_[slot]), kept, start)
        return state, jnp.where(slot < 0, 0, places[slot]), kept, places, result

    def go_back(carry, n):
        *rest, result = carry
        return *rest, reverse(rest[0], n, result)

    def body(carry, action):
        return lax.switch(action[0], (go_on, store, restore, go_back), carry, action[1]), None

    kept = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), start)
    begin = (start, jnp.int32(0), kept, jnp.zeros(slots, jnp.int32), result)
    return lax.scan(body, begin, jnp.asarray(plan(steps, slots)))[0][-1]
