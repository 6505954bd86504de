"""Several calls of a reference at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from kernelmate.checks import evaluations as module
from kernelmate.checks.evaluations import BATCH_S, Expected, ObservedReference, evaluations
from kernelmate.checks.precision import Arrays
from kernelmate.checks.reference_messages import Call
from kernelmate.records import Size


class Doubling:
    """A reference that takes several calls at once, and says how many it got."""

    def __init__(self) -> None:
        self.together: list[int] = []
        self.each_s = 0.0

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[np.generic] | None = None) -> Expected:
        return self.several([(arrays, working)], size)[0]

    def seconds(self, size: Size) -> float:
        return self.each_s

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        self.together.append(len(calls))
        return [{"y": 2 * arrays["x"].astype(working or np.float64)} for arrays, working in calls]


def calls_of(count: int, elements: int = 2) -> Iterator[Call]:
    return (({"x": np.full(elements, float(number))}, None) for number in range(count))


@pytest.mark.parametrize("batching", [True, False])
def test_answers_come_in_the_order_of_the_calls(batching: bool) -> None:
    doubling = Doubling()
    reference = doubling if batching else lambda arrays, size, working=None: doubling(arrays, size, working)
    answers = [float(answer["y"][0]) for answer in evaluations(reference, calls_of(50), {"n": 2})]
    assert answers == [2.0 * number for number in range(50)]
    assert (len(doubling.together) < 10) is batching


def test_no_call_is_no_answer() -> None:
    assert list(evaluations(Doubling(), calls_of(0), {"n": 2})) == []


def test_large_arrays_are_not_held_for_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 4 * 8 * 1000)
    doubling = Doubling()
    assert len(list(evaluations(doubling, calls_of(20, 1000), {"n": 1000}))) == 20
    assert max(doubling.together) <= 5


@pytest.mark.parametrize(("each_s", "batches"), [(0.0, 1), (BATCH_S / 3, 3), (BATCH_S * 2, 9)])
def test_each_batch_is_told_as_progress_and_lasts_no_longer_than_it_may(each_s: float, batches: int) -> None:
    told: list[None] = []
    doubling = Doubling()
    doubling.each_s = each_s
    list(evaluations(ObservedReference(doubling, lambda: told.append(None)), calls_of(9), {"n": 2}))
    assert len(told) == len(doubling.together) == batches
