"""The state word of an `mbarrier`: pending arrivals, expected arrivals, and phase parity.

The hardware's layout is undocumented and differs. Here 20 bits hold pending arrivals, 20 bits expected ones, and the
highest bit the parity of the phase.
"""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.types import Array

_BITS = 20
_MOST = (1 << _BITS) - 1


def pending_of(state: Array) -> Array:
    """Returns the pending arrivals of the phase in a state."""
    return (state & np.uint64(_MOST)).astype(np.uint32)


def expected_of(state: Array) -> Array:
    """Returns the number of arrivals that every phase waits for."""
    return (state >> np.uint64(_BITS)) & np.uint64(_MOST)


def parity_of(state: Array) -> Array:
    """Returns 0 for the first phase, 1 for the next, alternating."""
    return state >> np.uint64(63)


def state_of(pending: Array, expected: Array, parity: Array) -> Array:
    """Returns the state word of a barrier."""
    low = pending.astype(np.uint64) & np.uint64(_MOST)
    return np.asarray(
        low | (expected.astype(np.uint64) & np.uint64(_MOST)) << np.uint64(_BITS) | parity << np.uint64(63)
    )


def after(state: Array, arrivals: Array) -> Array:
    """Returns the states after this number of single arrivals."""
    pending = pending_of(state).astype(np.int64)
    expected = np.maximum(expected_of(state).astype(np.int64), 1)
    beyond = arrivals - pending
    more = beyond >= 0
    left = np.where(more, expected - beyond % expected, pending - arrivals)
    turns = np.where(more, 1 + beyond // expected, 0).astype(np.uint64)
    return state_of(left, expected, (parity_of(state) + turns) & np.uint64(1))


def arrive_at(state: Array, counts: Array, *, drop: bool) -> tuple[Array, Array]:
    """Returns the states after arrivals with any count, and where a count exceeded the pending arrivals."""
    counts = counts.astype(np.int64)
    pending = pending_of(state).astype(np.int64) - counts
    expected = expected_of(state).astype(np.int64) - (counts if drop else 0)
    done = pending <= 0
    parity = (parity_of(state) + done) & np.uint64(1)
    return state_of(np.where(done, expected, pending), expected, parity), pending < 0
