"""Views of a launch's executed SASS instructions by opcode."""

from __future__ import annotations

from rich.table import Table

from kernelmate.records import Counters, InstructionMix
from kernelmate.report.console import table
from kernelmate.report.words import number, percent

MOST_NAMED = 5
MOST_OPCODES = 16


def mix_rows(counters: Counters | None) -> list[tuple[str, str]]:
    """Returns names and values of the most frequent instructions of a launch, or the reason that they are unknown."""
    if counters is None or (counters.instruction_mix is None and counters.instruction_mix_unknown is None):
        return []
    mix = counters.instruction_mix
    if mix is None:
        return [("instruction mix", f"unknown: {counters.instruction_mix_unknown}")]
    most = ", ".join(f"{one.opcode} {percent(one.warps / mix.warps)}" for one in mix.opcodes[:MOST_NAMED])
    return [("warp instructions", number(mix.warps)), ("most of them", most)]


def mix_table(mix: InstructionMix) -> Table:
    """Shows the most executed opcodes, each with the average number of active threads per warp."""
    made = table("opcode", "class", "warp instructions", "share", "active", right=(2, 3, 4))
    for one in mix.opcodes[:MOST_OPCODES]:
        active = f"{one.threads / one.warps:.3g}" if one.warps else ""
        made.add_row(one.opcode, one.kind, number(one.warps), percent(one.warps / mix.warps), active)
    rest = mix.opcodes[MOST_OPCODES:]
    if rest:
        warps = sum(one.warps for one in rest)
        made.add_row(f"{len(rest)} more", "", number(warps), percent(warps / mix.warps), "")
    return made
