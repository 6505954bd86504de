"""The mix of SASS instructions as people read it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from kernelmate.records import Counters, InstructionMix, OpcodeCount
from kernelmate.report.mix import MOST_OPCODES, mix_rows, mix_table
from kernelmate.report.tables import counter_table

COUNTERS = Counters("emulated", 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, None)
MIX = InstructionMix(
    1000, 20000, (OpcodeCount("FFMA", "fp32", 750, 18000), OpcodeCount("LDG", "global_load", 250, 2000))
)


def shown(item: RenderableType) -> str:
    console = Console(file=StringIO(), width=100)
    console.print(item)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_most_frequent_opcodes_stand_among_the_counters() -> None:
    text = shown(counter_table(replace(COUNTERS, instruction_mix=MIX)))
    assert "FFMA 75%, LDG 25%" in text
    assert "1,000" in text


def test_where_there_is_no_mix_the_reason_stands_there() -> None:
    counters = replace(COUNTERS, instruction_mix_unknown="data decides a branch of the SASS (at 0x80)")
    assert mix_rows(counters) == [("instruction mix", "unknown: data decides a branch of the SASS (at 0x80)")]
    assert "data decides a branch" in shown(counter_table(counters))


def test_hardware_counters_alone_say_nothing_of_a_mix() -> None:
    assert mix_rows(replace(COUNTERS, source="hardware")) == []
    assert mix_rows(None) == []


def test_the_table_says_how_full_the_warps_were() -> None:
    rows = shown(mix_table(MIX)).splitlines()
    ffma = next(row for row in rows if "FFMA" in row)
    assert ffma.split() == ["FFMA", "fp32", "750", "75%", "24"]
    assert next(row for row in rows if "LDG" in row).split()[-1] == "8"


def test_a_long_table_ends_with_the_rest_in_one_row() -> None:
    opcodes = tuple(OpcodeCount(f"OP{index}", "other", 10, 320) for index in range(MOST_OPCODES + 4))
    text = shown(mix_table(InstructionMix(200, 6400, opcodes)))
    assert "4 more" in text
    assert f"OP{MOST_OPCODES}" not in text
