"""Claims in the reasons of recipes and of written kernels, checked against verdicts and code."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kernelmate.records import Candidate, Claim, Kernel, Verdict
from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest.codec.applicable import candidates
from kernelmate.suggest.codec.fingerprint import questions
from kernelmate.suggest.recipes import ALL
from kernelmate.suggest.replacement import changed_values
from kernelmate.suggest.replies import borne_out


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


KEPT = "NaN that the old kernel dropped in a maximum or minimum now reaches the result, as in the reference."
LOST = "NaN that the old kernel passed on through a maximum or minimum is dropped now."


def kernel(statement: str, above: str = "") -> Kernel:
    text = f"{above}__global__ void k(float* y, const float* x, float v) {{\n  float m = y[0];\n  {statement}\n  y[1] = m;\n}}\n"
    return next(one for one in find_kernels(text_unit(text)) if one.name == "k")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m = v > 0.0f ? v : 0.0f;", "m = v < 0.0f ? 0.0f : v;", KEPT),
        ("m = fmaxf(v, 0.0f);", "m = v < 0.0f ? 0.0f : v;", KEPT),
        ("if (x[0] > m) m = x[0];", "if (x[0] > m || isnan(x[0])) m = x[0];", KEPT),
        ("if (x[0] > m) { m = x[0]; y[2] = 1; }", "m = x[0] > m || isnan(x[0]) ? x[0] : m;", KEPT),
        ("m = v; if (m < 0.0f) m = 0.0f;", "m = fmaxf(v, 0.0f);", LOST),
        ("m = fmaxf(v, m);", "m = fmaxf(m, v);", ""),
        ("if (x[0] > m) m = x[0];", "m = fmaxf(m, x[0]);", ""),
        ("m = v < 0.0f ? 0.0f : v;", "m = v >= 0.0f ? v : v < 0.0f ? 0.0f : v;", ""),
        ("m = v > 0.0f ? 1.0f : 2.0f;", "m = v * 2.0f;", ""),
        ("m = max(3, 4) + v;", "m = v < 0.0f ? 0.0f : v;", ""),
    ],
)
def test_a_change_of_what_becomes_of_nan_is_said(old: str, new: str, said: str) -> None:
    assert changed_values(kernel(old), kernel(new), "").strip() == said


def test_helpers_of_the_written_kernel_count() -> None:
    helper = "__device__ float nan_max(float a, float b) {\n  return a > b || isnan(a) ? a : b;\n}\n"
    assert changed_values(kernel("m = fmaxf(m, v);"), kernel("m = nan_max(m, v);", helper), "").strip() == KEPT


@pytest.mark.parametrize(
    ("old", "new", "ptx", "said"),
    [
        ("m = 1.0 / v;", "m = 1.0f / v;", "div.rn.f64", "The double literal 1.0 made the old kernel compute in double; this one computes in float."),
        ("m = 0.5 * v + 2.0;", "m = 0.5f * v;", "add.f64", "The double literals 0.5, 2.0 made the old kernel compute in double; this one computes in float."),
        ("m = pow(v, 2);", "m = v * v;", "mul.f64", "The old kernel computed in double in part; this one computes in float."),
        ("m = 2.0;", "m = 2.0f;", "", ""),
        ("double s = v; m = s;", "double s = v; m = s;", "add.f64", ""),
    ],
)  # fmt: skip
def test_double_arithmetic_that_became_float_is_said(old: str, new: str, ptx: str, said: str) -> None:
    assert changed_values(kernel(old), kernel(new), ptx).strip() == said
