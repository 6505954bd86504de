"""Tables of source lines and of SASS instructions."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from kernelmate.measure.weights import line_cost
from kernelmate.records import Counters, InstructionMix, LineCounters, OpcodeCount
from kernelmate.report.counters import MOST_LINES, MOST_OPCODES, line_table, mix_rows, mix_table
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.tables import counter_table

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


COUNTERS = Counters("emulated", 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, None)
MIX = InstructionMix(
    1000, 20000, (OpcodeCount("FFMA", "fp32", 750, 18000), OpcodeCount("LDG", "global_load", 250, 2000))
)


def mix_shown(item: RenderableType) -> str:
    console = Console(file=StringIO(), width=100)
    console.print(item)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_most_frequent_opcodes_stand_among_the_counters() -> None:
    text = mix_shown(counter_table(replace(COUNTERS, instruction_mix=MIX)))
    assert "FFMA 75%, LDG 25%" in text
    assert "1,000" in text


def test_where_there_is_no_mix_the_reason_stands_there() -> None:
    counters = replace(COUNTERS, instruction_mix_unknown="data decides a branch of the SASS (at 0x80)")
    assert mix_rows(counters) == [("instruction mix", "unknown: data decides a branch of the SASS (at 0x80)")]
    assert "data decides a branch" in mix_shown(counter_table(counters))


def test_hardware_counters_alone_say_nothing_of_a_mix() -> None:
    assert mix_rows(replace(COUNTERS, source="hardware")) == []
    assert mix_rows(None) == []


def test_the_table_says_how_full_the_warps_were() -> None:
    rows = mix_shown(mix_table(MIX)).splitlines()
    ffma = next(row for row in rows if "FFMA" in row)
    assert ffma.split() == ["FFMA", "fp32", "750", "75%", "24"]
    assert next(row for row in rows if "LDG" in row).split()[-1] == "8"


def test_a_long_table_ends_with_the_rest_in_one_row() -> None:
    opcodes = tuple(OpcodeCount(f"OP{index}", "other", 10, 320) for index in range(MOST_OPCODES + 4))
    text = mix_shown(mix_table(InstructionMix(200, 6400, opcodes)))
    assert "4 more" in text
    assert f"OP{MOST_OPCODES}" not in text
