"""Display of predictions beside measurements."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from kernelmate.records import (
    CompileOptions,
    Confirmation,
    ConfirmationReport,
    Contract,
    JudgingInputs,
    Objective,
    ObjectiveResult,
    Promise,
    Speedup,
    Timing,
)
from kernelmate.report.confirming import confirmation_line, confirmed_view
from kernelmate.report.console import make_console, show

CONTRACT = Contract("softmax", ({"rows": 8},), ("rows",), ("256",), ())
GIVEN = JudgingInputs("softmax.cu", "/work", "softmax", "cuda", "", CONTRACT, CompileOptions(), "H100 SXM")
TIME = Objective("time", "decrease", "make it faster", "Less time per launch.")


def measured(us: float) -> Timing:
    return Timing("measured", us, (us, us), us, us, 100, 1980, False)


def predicted(us: float) -> Timing:
    return Timing("predicted", us, (us / 1.5, us * 1.5), us, None, None, None, None)


@pytest.fixture
def confirmed(make: SimpleNamespace) -> ConfirmationReport:
    promise = Promise(
        "recipe:block-size", "why", "", CONTRACT, predicted(8.0), Speedup("predicted", 1.25, (0.9, 1.7)),
        ObjectiveResult("time", "predicted", 10.0, 8.0, True), None,
    )  # fmt: skip
    verdict = make.verdict(
        backend="cuda", timing=measured(9.0), speedup=Speedup("measured", 1.33, (1.31, 1.35)), accepted=True,
        objective=ObjectiveResult("time", "measured", 12.0, 9.0, True),
    )  # fmt: skip
    baseline = make.verdict(backend="cuda", timing=measured(30.0))
    return ConfirmationReport(
        GIVEN, TIME, baseline, predicted(10.0), (Confirmation(promise, verdict, "confirmed"),), ("a note",)
    )


def text(confirmed: ConfirmationReport, width: int = 100) -> str:
    stream = io.StringIO()
    show(make_console(stream, color=False, width=width), *confirmed_view(confirmed))
    return stream.getvalue()


def test_a_promise_stands_beside_what_was_found(confirmed) -> None:
    row = next(line for line in text(confirmed).splitlines() if "block-size" in line)
    assert "~1.25x [0.90, 1.70]" in row
    assert "1.33x [1.31, 1.35]" in row
    assert "~1.33x" not in row
    assert "confirmed" in row


def test_each_predicted_time_is_borne_out_or_not_with_its_ratio(confirmed) -> None:
    lines = text(confirmed).splitlines()
    baseline = next(line for line in lines if line.strip().startswith("baseline"))
    first = next(line for line in lines if line.strip().startswith("1 ") and "us" in line)
    assert "3x" in baseline
    assert "outside its error" in baseline
    assert "1.12x" in first
    assert "borne out" in first


def test_notes_are_told_and_eighty_columns_suffice(confirmed) -> None:
    narrow = text(confirmed, 80)
    assert "note: a note" in narrow
    assert all(len(line) <= 80 for line in narrow.splitlines())


def test_nothing_promising_is_said(confirmed) -> None:
    from dataclasses import replace

    assert "nothing was promising; --all" in text(replace(confirmed, confirmations=()))


def test_one_line_for_quiet(confirmed) -> None:
    assert confirmation_line(confirmed.confirmations[0]).plain == "recipe:block-size  confirmed, 1.33x [1.31, 1.35]"
