"""The counts of `benchmarks/wrong_candidates.py`."""

from __future__ import annotations

import pytest

from benchmarks.wrong_candidates import Became, Judged, summary


def judged(kind: str, became: Became, *, ran: bool = True) -> Judged:
    return Judged(kind, "some", became, ran, "")


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ([judged("wrong", "rejected")], True),
        ([judged("wrong", "accepted")], False),
        ([*[judged("wrong", "rejected")] * 24, judged("wrong", "accepted")], True),
        ([judged("wrong", "no verdict")], False),
        ([judged("honest", "accepted")], True),
        ([judged("honest", "rejected")], False),
        ([judged("honest", "no verdict")], False),
        ([judged("honest", "not tried", ran=False)], True),
    ],
)
def test_what_is_as_it_must_be(rows: list[Judged], *, good: bool) -> None:
    assert summary(rows, "emulator")[1] is good


def test_candidates_that_did_not_run_on_the_backend_are_named() -> None:
    text, good = summary([judged("wrong", "rejected", ran=False), judged("wrong", "rejected")], "cuda")
    assert good
    assert "wrong: 2, ran on cuda: 1, 2 rejected\n  some: did not run there" in text
