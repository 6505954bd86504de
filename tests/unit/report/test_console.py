"""Output in the terminal, at any width, in any encoding, and without colour."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from kernelmate.records import (
    Case,
    Counters,
    Finding,
    FindingCode,
    HardwareProfile,
    Kernel,
    LaunchShape,
    Optimization,
    Speedup,
    Verdict,
)
from kernelmate.report.console import Verbatim, make_console, show, show_lines
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.tables import CheckedKernel, check_line, check_view, verdict_line, verdict_view
from kernelmate.report.versions import best_line, change_words, comparison_view, optimization_view


def printed(*parts: Any, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    show(make_console(stream, width=width), *parts)
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture
def sources(make: SimpleNamespace) -> SourceLines:
    return SourceLines({"softmax.cu": make.source})


def views(
    verdict: Verdict, wrong: Verdict, broken: Verdict, optimization: Optimization, kernel: Kernel, sources: SourceLines
) -> list[list[Any]]:
    return [
        [check_view([CheckedKernel(verdict, ("one register fewer",)), CheckedKernel(broken)], sources)],
        [verdict_view(verdict, sources)],
        [verdict_view(wrong, sources)],
        [verdict_view(broken, sources)],
        [comparison_view([verdict], [wrong], sources)],
        optimization_view(optimization, kernel, sources),
    ]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_but_diffs_is_wider_than_the_terminal(
    width: int,
    verdict: Verdict,
    wrong: Verdict,
    broken: Verdict,
    optimization: Optimization,
    kernel: Kernel,
    sources: SourceLines,
) -> None:
    for parts in views(verdict, wrong, broken, optimization, kernel, sources):
        for line in printed(*parts, width=width).split("\n"):
            assert cell_len(line) <= width or line[:1] in "+- "


def test_an_ascii_terminal_gets_ascii(
    verdict: Verdict, wrong: Verdict, broken: Verdict, optimization: Optimization, kernel: Kernel, sources: SourceLines
) -> None:
    for parts in views(verdict, wrong, broken, optimization, kernel, sources):
        assert printed(*parts, encoding="ascii").isascii()


def test_a_stream_that_is_no_terminal_gets_no_escapes(wrong: Verdict, sources: SourceLines) -> None:
    assert "\x1b" not in printed(verdict_view(wrong, sources))


def test_check_shows_resources_occupancy_and_what_would_lift_it(verdict: Verdict, sources: SourceLines) -> None:
    checked = CheckedKernel(verdict, ("38 registers: 88%",), LaunchShape((4096, 1, 1), (256, 1, 1)), True)
    text = printed(check_view([checked], sources))
    for part in (
        "16,384 B",
        "75%",
        "registers",
        "15.5",
        "the last 50% full",
        "to lift it: 38 registers: 88%",
        "a guess",
    ):
        assert part in text


def test_a_compile_error_stands_with_its_line_and_a_caret(
    broken: Verdict, sources: SourceLines, make: SimpleNamespace
) -> None:
    lines = printed(check_view([CheckedKernel(broken)], sources)).split("\n")
    at = next(index for index, line in enumerate(lines) if line.startswith("softmax.cu:7:41: error"))
    expected = next(line for line in make.source.split("\n") if "i < cols" in line)[40:44]
    assert lines[at + 1][lines[at + 2].index("^") :].startswith(expected)


def test_the_same_message_of_several_kernels_is_shown_once(broken: Verdict, sources: SourceLines) -> None:
    text = printed(check_view([CheckedKernel(broken), CheckedKernel(replace(broken, kernel="other"))], sources))
    assert text.count("softmax.cu:7:41") == 1
    assert "softmax, other" in text


def test_bench_names_each_size_with_its_error(wrong: Verdict, sources: SourceLines) -> None:
    text = printed(verdict_view(wrong, sources), width=120)
    assert "WRONG at 1 of 4 sizes" in text
    row = next(line for line in text.split("\n") if "rows=37 cols=853 " in line)
    assert row.split() == ["rows=37", "cols=853", "contract", "WRONG", "not", "finite", "~3.1", "us"]
    assert "y[0, 852]: want 0.0011, got nan" in text


def test_findings_carry_code_severity_line_and_threads(wrong: Verdict, sources: SourceLines) -> None:
    text = " ".join(printed(verdict_view(wrong, sources)).split())
    assert "softmax.cu:7:55: error shared-race: tile is written" in text
    assert "no barrier between them" in text
    assert "__shared__" not in text


def test_predicted_times_are_marked_everywhere_and_never_called_faster(
    optimization: Optimization, kernel: Kernel, verdict: Verdict, sources: SourceLines
) -> None:
    for parts in (optimization_view(optimization, kernel, sources), [verdict_view(verdict, sources)]):
        text = printed(*parts, width=200)
        assert "faster" not in text.replace('"make it faster"', "")
        for line in text.split("\n"):
            if "12.1 us" in line:
                assert "~12.1 us" in line
    assert "predicted time" in printed(verdict_view(verdict, sources))


def test_other_figures_and_what_to_know_of_them_stand_beside_a_measured_time(
    measured: Verdict, sources: SourceLines
) -> None:
    assert measured.timing is not None
    notes = ("clocks were throttled in 2 of 12 blocks, after repeats (power cap)",)
    timing = replace(measured.timing, cupti_us=10.9, throttled=True, notes=notes)
    text = printed(verdict_view(replace(measured, timing=timing), sources))
    lines = [line.split() for line in text.splitlines()]
    assert any(line[:3] == ["time,", "replay", "period"] and "12.6" in line for line in lines)
    assert any(line[:3] == ["time,", "by", "CUPTI"] and "10.9" in line for line in lines)
    assert "throttled while it was timed" in text
    assert "power cap" in text


def test_measured_times_are_not_marked(measured: Verdict, sources: SourceLines) -> None:
    text = printed(verdict_view(measured, sources))
    assert "~" not in text
    assert "predicted" not in text
    assert "1.42x [1.40, 1.44] faster" in text


def test_optimize_shows_the_reading_the_ranks_the_reasons_and_the_diff(
    optimization: Optimization, kernel: Kernel, sources: SourceLines
) -> None:
    text = printed(*optimization_view(optimization, kernel, sources))
    assert "Memory means shared memory per block." in text
    assert "ready to accept (best)" in text
    assert "3: The barrier costs time.\n   - wrong-at-size" in text
    assert "-    __shared__ float tile[4096];\n+    __shared__ float tile[2048];\n" in text
    assert "no model is set up" in text


def test_without_a_best_candidate_it_says_so(optimization: Optimization, kernel: Kernel, sources: SourceLines) -> None:
    text = printed(*optimization_view(replace(optimization, best=None), kernel, sources))
    assert "No candidate is worth taking (4 tried)." in text
    none = replace(optimization, best=None, candidates=())
    assert "No candidate applies" in printed(*optimization_view(none, kernel, sources))


def test_hostile_text_stays_text(make: SimpleNamespace) -> None:
    hostile = Finding(FindingCode.TRAP, "error", "[bold]x[/] \x1b]0;title\x07 [/link]", "evil\x1b[2J.cu", 1, 1)
    verdict = make.verdict(kernel="k[red]", findings=(hostile,), reasons=("[blink]r\x1b[0m",))
    text = printed(verdict_view(verdict, SourceLines({"evil\x1b[2J.cu": "\x1b[31m code"})))
    assert "\x1b" not in text
    assert "k[red]" in text
    assert "[bold]x[/]" in text


def test_many_findings_are_cut_and_counted(make: SimpleNamespace) -> None:
    findings = tuple(Finding(FindingCode.TRAP, "error", f"finding number {index}") for index in range(50))
    text = printed(verdict_view(make.verdict(findings=findings), SourceLines()))
    assert "finding number 19" in text
    assert "finding number 20" not in text
    assert "and 30 more findings" in text


def test_verbatim_text_is_not_wrapped() -> None:
    line = "// " + "x" * 200
    assert printed(Verbatim(line + "\n")) == line + "\n"


def test_tabs_of_a_diff_survive(optimization: Optimization, kernel: Kernel, sources: SourceLines) -> None:
    assert "\n \tfor (int i" in printed(*optimization_view(optimization, kernel, sources))


def test_the_one_line_forms(verdict: Verdict, broken: Verdict, optimization: Optimization) -> None:
    assert printed(verdict_line(verdict)) == "softmax  clean, right at all 4 sizes\n"
    assert printed(check_line(broken)) == "softmax  does not compile\n"
    assert "recipe:shrink-shared-tile" in printed(best_line(optimization), width=200)
    assert "no candidate worth taking of 4" in printed(best_line(replace(optimization, best=None)))


def test_one_line_stays_one_line(make: SimpleNamespace) -> None:
    stream = io.StringIO()
    show_lines(make_console(stream, width=40), check_line(make.verdict(kernel="k" * 100)))
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (2.0, 1.0, "-50%"),
        (1, 1, "same"),
        (0, 5, "from 0"),
        (None, 1, ""),
        (4, 5, "+25%"),
        (1, 9, "+800%"),
        (19, 600, "31.6 times"),
    ],
)
def test_changes_are_told_in_per_cent(old: float | None, new: float | None, text: str) -> None:
    assert change_words(old, new) == text


def hardware_profile() -> HardwareProfile:
    counters = Counters("hardware", 8192, 32000, 2048, 8000, 0, 1_280_000, 4096, 1024, 17, 0, 12, 900_000)
    return HardwareProfile("ncu 2025.3.1.0", counters, 14.2, 1_048_576, None, 0.25, 0.5, 0.71, 0.33, None)


def test_hardware_counters_stand_beside_the_emulated_ones(verdict: Verdict, sources: SourceLines) -> None:
    shown = printed(verdict_view(replace(verdict, hardware=hardware_profile()), sources))
    (head,) = [line for line in shown.splitlines() if "hardware (ncu 2025.3.1.0)" in line]
    assert head.split()[:4] == ["counted", "per", "launch", "emulated"]
    (conflicts,) = [line for line in shown.splitlines() if "bank conflicts" in line]
    assert conflicts.split()[-2:] == ["0", "17"]
    assert "71%" in shown
    assert "14.2 us" in shown
    assert "DRAM busy" not in shown


def test_by_weights_a_time_stands_with_the_headlines_ratio_and_each_size_with_its_weight(
    verdict: Verdict, sources: SourceLines
) -> None:
    def case_of(case: Case, ratio: float, weight: float) -> Case:
        speedup = Speedup("measured", ratio, (ratio, ratio))
        return replace(case, origin="contract", median_us=10 / ratio, speedup=speedup, weight=weight)

    first, second = verdict.cases[:2]
    mean = Speedup("measured", 1.32, (1.3, 1.34), weighted=True)
    after = replace(verdict, cases=(case_of(first, 1.5, 3), case_of(second, 0.5, 0)), speedup=mean)
    text = printed(comparison_view([verdict], [after], sources), width=140)
    (time,) = [line for line in text.split("\n") if line.strip().startswith("time")]
    assert time.rstrip().endswith("1.50x")
    assert ", 1.50x, weight 3" in text
    assert ", 0.50x, weight 0" in text
    assert "against the baseline: 1.32x [1.30, 1.34] faster by the contract's weights" in text
