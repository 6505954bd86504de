"""The state word of an `mbarrier`: pending arrivals, expected arrivals, transaction count, and phase parity.

The hardware's layout is undocumented and differs. Here 20 bits hold pending arrivals, 20 bits expected ones, 21 bits the
transaction count in two's complement, and the highest bit the parity of the phase.

PTX ISA, Parallel Synchronization and Communication Instructions: mbarrier, Phase of the mbarrier object and Tracking
asynchronous operations: a phase is complete when no arrivals are pending and the transaction count is zero.
"""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.types import Array

_BITS = 20
_MOST = (1 << _BITS) - 1
_COUNT_SHIFT = 2 * _BITS
_COUNT_BITS = _BITS + 1


def pending_of(state: Array) -> Array:
    """Returns the pending arrivals of the phase in a state."""
    return (state & np.uint64(_MOST)).astype(np.uint32)


def expected_of(state: Array) -> Array:
    """Returns the number of arrivals that every phase waits for."""
    return (state >> np.uint64(_BITS)) & np.uint64(_MOST)


def transactions_of(state: Array) -> Array:
    """Returns the transaction count: the bytes that the phase expects less those that have arrived."""
    spare = np.uint64(64 - _COUNT_SHIFT - _COUNT_BITS)
    return (state << spare).view(np.int64) >> np.int64(64 - _COUNT_BITS)


def parity_of(state: Array) -> Array:
    """Returns 0 for the first phase, 1 for the next, alternating."""
    return state >> np.uint64(63)


def state_of(pending: Array, expected: Array, parity: Array, transactions: Array | None = None) -> Array:
    """Returns the state word of a barrier."""
    low = pending.astype(np.uint64) & np.uint64(_MOST)
    low |= (expected.astype(np.uint64) & np.uint64(_MOST)) << np.uint64(_BITS) | parity << np.uint64(63)
    if transactions is not None:
        count = transactions.astype(np.int64).view(np.uint64) & np.uint64((1 << _COUNT_BITS) - 1)
        low |= count << np.uint64(_COUNT_SHIFT)
    return np.asarray(low)


def after_arrivals(state: Array, arrivals: Array) -> Array:
    """Returns the states after this number of single arrivals, at barriers that expect no bytes."""
    pending = pending_of(state).astype(np.int64)
    expected = np.maximum(expected_of(state).astype(np.int64), 1)
    beyond = arrivals - pending
    more = beyond >= 0
    left = np.where(more, expected - beyond % expected, pending - arrivals)
    turns = np.where(more, 1 + beyond // expected, 0).astype(np.uint64)
    return state_of(left, expected, (parity_of(state) + turns) & np.uint64(1))


def advance(state: Array, counts: Array, transactions: Array, *, drop: bool) -> tuple[Array, Array]:
    """Returns the states after arrivals of any count, and where a count exceeded the pending arrivals.

    Args:
        state: the states before.
        counts: arrivals; 0 for operations that only change the transaction count.
        transactions: added to the transaction count before the arrival: expected bytes, or arrived ones, negative.
        drop: the later phases expect that many fewer arrivals.
    """
    counts = counts.astype(np.int64)
    pending = pending_of(state).astype(np.int64) - counts
    expected = expected_of(state).astype(np.int64) - (counts if drop else 0)
    over = pending < 0
    waited_for = transactions_of(state) + transactions
    done = (pending <= 0) & (waited_for == 0)
    parity = (parity_of(state) + done) & np.uint64(1)
    left = np.where(done, expected, np.maximum(pending, 0))
    return state_of(left, expected, parity, np.where(done, 0, waited_for)), over
