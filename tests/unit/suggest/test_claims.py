"""Claims of recipes' reasons about figures, checked against verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kernelmate.records import Candidate, Claim, Verdict
from kernelmate.suggest.claims import borne_out
from kernelmate.suggest.codec.applicable import candidates
from kernelmate.suggest.codec.fingerprint import questions
from kernelmate.suggest.recipes import ALL


@pytest.fixture
def told(ask, verdict: Callable[..., Verdict]) -> Callable[..., str]:
    """`told(why, claims, before, after)`: the reason as it is left, with figures of the two verdicts."""

    def run(why: str, claims: tuple[Claim, ...], before: dict[str, object], after: dict[str, object]) -> str:
        request = ask("__global__ void k(float* x) { x[0] = 1.0f; }")
        candidate = Candidate("recipe:a", why, request.kernel, request.contract, claims=claims)
        return borne_out(candidate, verdict(**before), verdict(**after)).why

    return run


LOCAL = Claim(r" and so kept in local memory", "local_bytes", "present")
LESS = Claim(r"(\w+) takes fewer registers", "registers", instead=r"\1 is shorter")
FULLER = Claim(r", occupancy \d+%", "occupancy", "rises")


def test_local_memory_is_named_only_where_there_is_some(told) -> None:
    why = "It is indexed and so kept in local memory."
    assert told(why, (LOCAL,), {"local_bytes": 0}, {}) == "It is indexed."
    assert told(why, (LOCAL,), {"local_bytes": 64}, {"local_bytes": 64}) == why


def test_what_does_not_fall_or_rise_is_told_otherwise(told) -> None:
    why = "The loop takes fewer registers, occupancy 75%."
    assert told(why, (LESS, FULLER), {"registers": 40}, {"registers": 38, "occupancy": 0.75}) == why
    assert told(why, (LESS, FULLER), {"registers": 40}, {"registers": 40}) == "The loop is shorter."


def test_figures_that_are_not_known_bear_any_claim(told) -> None:
    assert (
        told("The loop takes fewer registers.", (LESS,), {"resources": None}, {}) == "The loop takes fewer registers."
    )
    sectors = Claim(", fewer sectors", "global_bytes")
    assert told("Far, fewer sectors.", (sectors,), {}, {"counters": None}) == "Far, fewer sectors."


@pytest.mark.parametrize(
    ("figure", "field"),
    [
        ("bank_conflicts", "bank_conflicts"),
        ("load_requests", "global_load_requests"),
        ("atomic_requests", "global_atomic_requests"),
        ("global_bytes", "global_load_sectors"),
    ],
)
def test_counts_of_the_launch_are_looked_at(told, counters, figure: str, field: str) -> None:
    claims = (Claim(", less", figure),)  # type: ignore[arg-type]
    more, less = counters(**{field: 900}), counters(**{field: 800})
    assert told("A, less.", claims, {"counters": more}, {"counters": less}) == "A, less."
    assert told("A, less.", claims, {"counters": less}, {"counters": less}) == "A."


def test_words_of_every_claim_are_words_of_a_reason() -> None:
    reasons: dict[str, list[str]] = {}
    for question in questions():
        for name, found in candidates(question):
            reasons.setdefault(name, []).extend(one.why for one in found)
    claims = [(recipe.name, claim) for recipe in ALL for claim in recipe.claims if claim.figure != "occupancy"]
    assert len(claims) > 20
    for name, claim in claims:
        assert any(re.search(claim.words, why) for why in reasons[name]), (name, claim.words)
