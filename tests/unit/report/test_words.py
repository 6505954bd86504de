"""Wording of figures and of verdicts."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.records import (
    Alternative,
    Finding,
    FindingCode,
    LaunchShape,
    ObjectiveResult,
    Occupancy,
    Speedup,
    Timing,
    Verdict,
)
from kernelmate.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1024, "1,024 B"),
        (65535, "65,535 B"),
        (65536, "64.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 30, "5.0 GiB"),
    ],
)
def test_bytes_are_exact_where_every_byte_counts(value: int, text: str) -> None:
    assert words.byte_words(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.14, "12.1 us"),
        (0.85, "850 ns"),
        (3400, "3.4 ms"),
        (2.5e6, "2.5 s"),
        (0, "0 us"),
        (math.nan, "unknown"),
        (None, "unknown"),
    ],
)
def test_times_have_a_unit(value: float | None, text: str) -> None:
    assert words.time_words(value) == text


def test_a_predicted_time_never_reads_like_a_measured_one() -> None:
    predicted = Timing("predicted", 12.1, (6.05, 24.2), None, None, None, None, None)
    measured = dataclasses.replace(predicted, kind="measured", ci95_us=(12.0, 12.2))
    assert words.timing_words(predicted) == "~12.1 us [6.05, 24.2] predicted"
    assert words.timing_words(measured) == "12.1 us [12, 12.2]"


@given(st.floats(0.01, 100), st.floats(1.0, 3.0))
def test_nothing_predicted_is_called_faster_or_slower(median: float, spread: float) -> None:
    text = words.speedup_words(Speedup("predicted", median, (median / spread, median * spread)))
    assert text.startswith("~")
    assert "predicted" in text
    assert "faster" not in text
    assert "slower" not in text


@pytest.mark.parametrize(
    ("interval", "word"), [((1.4, 1.44), "faster"), ((0.9, 1.2), "undecided"), ((0.5, 0.8), "slower")]
)
def test_a_measured_speedup_is_called_what_its_interval_allows(interval: tuple[float, float], word: str) -> None:
    text = words.speedup_words(Speedup("measured", sum(interval) / 2, interval))
    assert [one for one in ("faster", "slower", "undecided") if one in text] == [word]


def test_an_objective_shows_its_basis() -> None:
    assert words.objective_words(ObjectiveResult("shared_bytes", "counted", 16384, 8192, True)) == "16,384 B -> 8,192 B"
    assert (
        words.objective_words(ObjectiveResult("time", "predicted", 12.1, 8.4, True)) == "~12.1 us -> ~8.4 us predicted"
    )


@pytest.mark.parametrize(
    ("waves", "text"),
    [
        (15.5, "15.5 waves, the last 50% full"),
        (3.0, "3 waves, no tail"),
        (0.25, "0.25 waves: 25% of the block slots are used"),
    ],
)
def test_waves_say_how_full_the_last_one_is(waves: float, text: str) -> None:
    assert words.wave_words(Occupancy(0.5, "shared", 2, waves)) == text


def test_a_launch_names_sides_only_where_there_are_several() -> None:
    assert words.launch_words(LaunchShape((4096, 1, 1), (256, 1, 1))) == "4,096 blocks of 256 threads"
    shape = LaunchShape((8, 4, 1), (32, 8, 1), 1024)
    assert words.launch_words(shape) == "32 blocks (8 x 4) of 256 threads (32 x 8), 1,024 B dynamic shared"


def test_the_standing_of_each_kind_of_verdict(
    verdict: Verdict, wrong: Verdict, broken: Verdict, make: SimpleNamespace
) -> None:
    met = ObjectiveResult("time", "predicted", 12.1, 8.4, True)
    assert words.standing(verdict, candidate=False)[0] == "clean"
    assert words.standing(wrong, candidate=False)[0] == "not good"
    assert words.standing(wrong)[0] == "rejected"
    assert words.standing(broken)[0] == "does not compile"
    assert words.standing(make.verdict(objective=met))[0] == "ready to accept"
    assert words.standing(make.verdict(objective=met, accepted=None))[0] == "promising"
    assert words.standing(make.verdict(objective=met, accepted=False))[0] == "rejected"
    assert words.standing(make.verdict(accepted=None))[0] == "not settled"
    within_its_error = ObjectiveResult("time", "predicted", 12.1, 11.9, None)
    assert words.standing(make.verdict(objective=within_its_error, accepted=None))[0] == "undecided"


def test_a_version_that_time_ran_out_for_is_called_neither_right_nor_wrong(make: SimpleNamespace) -> None:
    late = make.verdict(
        correct=None,
        accepted=False,
        cases=(),
        findings=(Finding(FindingCode.TIME_LIMIT, "error", "No verdict within 1 s."),),
    )
    for candidate in (True, False):
        assert words.standing(late, candidate=candidate) == ("not judged", "doubt")
    assert words.correctness_words(late) == ("not known", "doubt")


def test_reasons_that_a_finding_or_diagnostic_says_are_not_said_twice(
    wrong: Verdict, broken: Verdict, verdict: Verdict
) -> None:
    assert words.further_reasons(wrong) == ()
    assert words.further_reasons(broken) == ()
    assert words.further_reasons(verdict) == ("no race seen in 4 schedules and 5 sizes",)


def test_correctness_names_how_many_sizes(verdict: Verdict, wrong: Verdict, make: SimpleNamespace) -> None:
    assert words.correctness_words(verdict) == ("right at all 4 sizes", "good")
    assert words.correctness_words(wrong) == ("WRONG at 1 of 4 sizes", "bad")
    assert words.correctness_words(make.verdict(correct=None))[1] == "doubt"
    assert words.correctness_words(make.verdict(correct=None, cases=()))[0] == "not run"


def test_a_size_at_which_the_baseline_is_wrong_too_is_not_called_wrong_alone(make: SimpleNamespace) -> None:
    case = make.case({"n": 1}, correct=False, baseline_correct=False)
    assert words.case_words(case) == ("wrong, baseline too", "doubt")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("\udcff", "\\udcff"),
        ("x\ty\n", "x\ty\n"),
        ("größe", "größe"),
    ],
)
def test_text_cannot_steer_a_terminal(text: str, shown: str) -> None:
    assert words.printable(text) == shown


@given(st.text(alphabet=st.characters(codec=None)))
def test_no_control_character_is_left(text: str) -> None:
    shown = words.printable(text)
    assert not any(ord(char) < 32 and char not in "\n\t" for char in shown)
    assert "\x1b" not in shown
    assert words.one_line(text).count("\n") == 0
    shown.encode("utf-8")


def test_figures_by_weights_say_so() -> None:
    measured = Speedup("measured", 1.42, (1.4, 1.44), weighted=True)
    assert words.speedup_words(measured) == "1.42x [1.40, 1.44] faster by the contract's weights"
    predicted = Speedup("predicted", 1.42, (1.1, 2.0), weighted=True)
    assert words.speedup_words(predicted).endswith("predicted by the contract's weights, confirm on a GPU")
    result = ObjectiveResult("time", "measured", 12.1, 8.4, True, weighted=True)
    assert words.objective_words(result) == "12.1 us -> 8.4 us by weights"


def test_trade_offs_stand_after_the_reasons(verdict: Verdict) -> None:
    traded = dataclasses.replace(verdict, reasons=("it is faster",), trade_offs=("slower at n=1",))
    assert words.further_reasons(traded) == ("it is faster", "trade-off: slower at n=1")
    assert words.distinguishing_reasons(traded) == ("it is faster", "trade-off: slower at n=1")


def test_a_library_beside_the_kernel_is_one_line_with_both_times_and_its_precision() -> None:
    times = [Timing("measured", us, (us, us), None, None, 100, None, False) for us in (24.1, 18.2)]
    one = Alternative(
        "torch", "softmax, from ref.py:f", "TF32 off", True, 0.1, *times, Speedup("measured", 1.32, (1.30, 1.34))
    )
    said = "1.32x [1.30, 1.34] faster: it takes 24.1 us, the kernel 18.2 us (softmax, from ref.py:f; TF32 off)"
    assert words.alternative_words(one) == said
    untimed = Alternative("compile", "softmax, from ref.py:f", "", why="it did not end within 180 s")
    assert words.alternative_words(untimed) == "not timed: it did not end within 180 s (softmax, from ref.py:f)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.972, "0.97"), (1.4249, "1.42"), (9.994, "9.99"), (9.996, "10.0"), (27.96, "28.0"), (99.96, "100"), (819.6, "820")]
)  # fmt: skip
def test_a_ratio_has_three_significant_digits_and_at_most_two_decimals(value: float, text: str) -> None:
    assert words.times_words(value) == text
    assert words.ratio_words(Speedup("predicted", value, (value, value))) == f"~{text}x"
