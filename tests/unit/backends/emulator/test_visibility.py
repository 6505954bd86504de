"""Knowledge that threads obtain of each other through memory: who knows what, and how often it is looked up."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.backends.emulator.happens_before import Order
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.visibility import CTA, Visibility
from kernelmate.records import LaunchShape

BLOCKS, THREADS = 4, 64


@pytest.fixture
def order() -> Order:
    lanes = Lanes(LaunchShape((BLOCKS, 1, 1), (THREADS, 1, 1)), BLOCKS * THREADS, 0)
    lanes.block[:] = lanes.slot
    made = Order(lanes, np.ones(lanes.count, bool), patterns=True)
    made.begin(BLOCKS)
    return made


def met(order: Order, through: np.ndarray) -> tuple[Visibility, int]:
    """All lanes arrive at one place of their block, and those of `through` observe all arrivals; returns an earlier stamp."""
    assert order.visibility is not None
    before = order.now
    order.tick()
    everyone = np.arange(BLOCKS * THREADS)
    order.visibility.strong_access(
        everyone, (everyone // THREADS).tolist(), scope=CTA, reads=True, writes=True, acquires=False, releases=True
    )
    order.visibility.strong_access(
        through, (through // THREADS).tolist(), scope=CTA, reads=True, writes=False, acquires=True, releases=False
    )
    return order.visibility, before


def test_lanes_that_observed_the_same_are_looked_up_once_for_a_block(order) -> None:
    everyone = np.arange(BLOCKS * THREADS)
    visibility, before = met(order, everyone)
    assert [list(places) for _, places in visibility.askers(everyone)] == [
        list(range(block * THREADS, (block + 1) * THREADS)) for block in range(BLOCKS)
    ]
    neighbours = (everyone // THREADS << order.bits) | (everyone + 33) % THREADS
    assert visibility.knows(everyone, neighbours, np.full(len(everyone), before)).all()


def test_a_lane_knows_nothing_of_what_it_has_not_observed(order) -> None:
    everyone = np.arange(BLOCKS * THREADS)
    visibility, before = met(order, np.delete(everyone, [3, 70]))
    neighbours = (everyone // THREADS << order.bits) | (everyone + 33) % THREADS
    known = visibility.knows(everyone, neighbours, np.full(len(everyone), before))
    assert np.flatnonzero(~known).tolist() == [3, 70]
    others = ((everyone // THREADS + 1) % BLOCKS << order.bits) | everyone % THREADS
    assert not visibility.knows(everyone, others, np.full(len(everyone), before)).any()


def test_a_release_publishes_all_of_the_lane_and_nothing_later(order) -> None:
    everyone = np.arange(BLOCKS * THREADS)
    visibility, before = met(order, everyone)
    later = order.tick()
    mates = (everyone // THREADS << order.bits) | (everyone + 1) % THREADS
    assert not visibility.knows(everyone, mates, np.full(len(everyone), later)).any()
    assert visibility.knows(everyone, mates, np.full(len(everyone), before)).all()
