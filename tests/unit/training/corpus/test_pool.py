"""Assignment of GPUs to the worker processes of a corpus, also after some of them were lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernelmate_training.corpus.pool import least_taken


@given(st.integers(1, 4), st.integers(1, 40), st.lists(st.integers(0, 39), max_size=200))
def test_workers_stay_spread_over_the_gpus_whichever_of_them_are_replaced(gpus: int, workers: int, lost: list[int]) -> None:  # fmt: skip
    devices = tuple(range(gpus))
    taken: list[int | None] = []
    for _ in range(workers):
        taken.append(least_taken(devices, taken))
    for place in lost:
        # As the pool does: out of the list, and a new one at its end.
        gone = taken.pop(place % len(taken))
        taken.append(least_taken(devices, taken))
        assert taken[-1] == gone or Counter(taken)[taken[-1]] <= Counter(taken)[gone] + 1
    counts = [taken.count(device) for device in devices]
    assert max(counts) - min(counts) <= 1


def test_without_a_gpu_none_is_given() -> None:
    assert least_taken((), [None, None]) is None
