"""Relative costs of source lines."""

from __future__ import annotations

from kernelmate.records import LineCounters

ISSUED_PER_CLOCK = 4 * 32
"""Thread instructions that the four schedulers of an SM issue per cycle."""


def line_cost(line: LineCounters) -> float:
    """Returns a sort key of a line: the cycles that one SM would need for its parts one after another.

    The weight is not a duration.

    Instructions count at the schedulers' rate; 128-byte lines of global memory, shared-memory wavefronts, and atomic updates
    that wait for another one at the same address count one cycle each.
    """
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts
    memory = line.l1_lines + line.global_atomic_sectors + passes + line.atomic_repeats
    return line.thread_instructions / ISSUED_PER_CLOCK + memory
