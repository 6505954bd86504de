"""Relative costs of source lines."""

from __future__ import annotations

from kernelmate.records import LineCounters

ISSUED_PER_CLOCK = 4 * 32
"""Thread instructions that the four schedulers of an SM start in a clock."""


def line_cost(line: LineCounters) -> float:
    """Clocks that one SM would need for the line, its parts one after the other: a weight to sort by, not a time.

    Instructions go through the schedulers, 128-byte lines of global memory and passes over the shared banks one per clock.
    """
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts
    memory = line.l1_lines + line.global_atomic_sectors + passes
    return line.thread_instructions / ISSUED_PER_CLOCK + memory
