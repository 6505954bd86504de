"""A cost in words, which every front end shows."""

from __future__ import annotations

import pytest

from kernelmate.records import Cost


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Cost(), ""),
        (Cost(0, 0), ""),
        (Cost(0, 0, 0.0), ""),
        (Cost(1204, 310), "1,204 tokens read, 310 written"),
        (Cost(1204, 310, 0.0), "1,204 tokens read, 310 written"),
        (Cost(1204, 310, 0.0123), "1,204 tokens read, 310 written, 0.0123 USD"),
        (Cost(12, None, 0.00004), "12 tokens read, 0 written, under 0.0001 USD"),
    ],
)
def test_what_cost_nothing_is_not_mentioned_and_no_price_reads_as_zero(cost: Cost, words: str) -> None:
    assert cost.words == words
