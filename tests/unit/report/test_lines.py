from __future__ import annotations

import pytest
from rich.console import Console

from kernelmate.measure.weights import line_cost
from kernelmate.records import LineCounters
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.lines import MOST_LINES, line_table

SOURCE = "__global__ void k() {\n  cheap();\n  dear();\n}"
CHEAP = LineCounters(2, thread_instructions=1280)
DEAR = LineCounters(
    3, thread_instructions=128, global_load_requests=4, global_load_sectors=128, global_bytes_asked=512, l1_lines=128
)


def shown(*lines: LineCounters) -> str:
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(line_table(lines, "k.cu", SourceLines({"k.cu": SOURCE})))
    return captured.get()


def test_the_dearest_line_comes_first_with_its_text() -> None:
    text = shown(CHEAP, DEAR)
    assert text.index("dear();") < text.index("cheap();")


def test_what_no_line_does_has_no_column() -> None:
    text = shown(CHEAP, DEAR)
    assert "sect/rq" in text
    assert "atomics" not in text
    assert "conflict" not in text


def test_uncoalesced_accesses_show_how_little_of_what_is_moved_is_used() -> None:
    row = next(line for line in shown(DEAR).splitlines() if "dear();" in line)
    assert "32.0" in row
    assert "12.5%" in row
    assert "4.1K" in row


def test_many_lines_are_cut_and_the_rest_is_said() -> None:
    lines = [LineCounters(number, thread_instructions=1000 - number) for number in range(1, 20)]
    assert f"{19 - MOST_LINES} more lines" in shown(*lines)


def test_code_of_no_line_is_shown_without_one() -> None:
    assert "100%" in shown(LineCounters(None, thread_instructions=5))


def test_nothing_at_all_is_no_division_by_zero() -> None:
    assert "line" in shown()


@pytest.mark.parametrize(
    "figure", ["thread_instructions", "l1_lines", "shared_load_wavefronts", "global_atomic_sectors"]
)
def test_more_of_anything_costs_more(figure: str) -> None:
    assert line_cost(LineCounters(1, **{figure: 1000})) > line_cost(LineCounters(1))
