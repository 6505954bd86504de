"""One cause, one finding."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.checks.findings import placed, ranked
from kernelmate.records import Anchor, Finding, FindingCode, Unit


def finding(code, severity="error", line=None, buffer=None):
    return Finding(FindingCode(code), severity, "says", "k.cu", line, None, buffer)


def codes(*findings):
    return [f.code for f in ranked(findings)]


def test_errors_come_first_then_the_order_of_the_list() -> None:
    assert codes(finding("nondeterministic", "warning"), finding("input-mutated"), finding("shared-race", line=3)) == [
        "shared-race",
        "input-mutated",
    ]
    assert codes(finding("global-race", "note"), finding("uninitialised-local", "warning", 4)) == [
        "uninitialised-local",
        "global-race",
    ]


def test_wrong_answers_are_told_once_and_the_first_of_the_list_wins() -> None:
    assert codes(finding("wrong-values"), finding("stale-output"), finding("nan-handling")) == ["stale-output"]


def test_an_error_at_an_access_explains_wrong_answers() -> None:
    assert codes(finding("wrong-values"), finding("out-of-bounds-read", line=7)) == ["out-of-bounds-read"]


def test_the_same_code_is_told_once_for_each_line_and_buffer() -> None:
    found = ranked(
        [finding("out-of-bounds-read", line=7, buffer="x"), finding("out-of-bounds-read", line=7, buffer="x"),
         finding("out-of-bounds-read", line=9, buffer="x")]
    )  # fmt: skip
    assert [f.line for f in found] == [7, 9]


def test_a_missing_barrier_is_one_mistake() -> None:
    race = finding("shared-race", line=5, buffer="tile")
    assert codes(finding("uninitialised-shared", line=8, buffer="tile"), race) == ["shared-race"]
    assert codes(finding("uninitialised-shared", line=8, buffer="other"), race) == [
        "shared-race",
        "uninitialised-shared",
    ]


def test_a_warning_of_a_code_is_dropped_where_it_is_an_error_too() -> None:
    assert [f.severity for f in ranked([finding("global-race", "warning", 3), finding("global-race", "error", 3)])] == [
        "error"
    ]


def test_order_within_tolerance_is_told_beside_other_warnings() -> None:
    assert codes(finding("nondeterministic", "warning"), finding("wrong-at-size", "warning")) == [
        "wrong-at-size",
        "nondeterministic",
    ]


def test_positions_are_the_users_files() -> None:
    unit = Unit("k.py", "text", "python", (Anchor(1, 1, 11, 5),))
    assert (placed(finding("trap", line=3), unit).line, placed(finding("trap"), unit).file) == (13, "k.py")
    race = replace(finding("shared-race", line=3), message="reads s, which thread 3 has written at line 2; in 2 blocks")
    assert placed(race, unit).message == "reads s, which thread 3 has written at line 12; in 2 blocks"


def test_codes_are_unique() -> None:
    assert len(set(FindingCode)) == len(FindingCode)
