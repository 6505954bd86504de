"""The mix of SASS instructions against an H100's counters: `python -m benchmarks.instruction_mix [FAMILY ...]`. Needs no GPU.

Of 134 variants of 14 kernels: how many have a mix, and how far the instructions of threads, of warps, and of four pipes of
the H100's SM are off ncu's. The hardware's figures are in `benchmarks/data`, by `benchmarks.variant_counters`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.variant_set import run_arguments, variants
from kernelmate.backends.base import Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.records import Counters, InstructionMix

MEASURED = Path(__file__).resolve().parent / "data" / "counters_h100.json"
PIPES: Mapping[str, frozenset[str]] = {
    "alu_instructions": frozenset(
        {"IADD3", "ISETP", "LOP3", "SHF", "LEA", "MOV", "SEL", "FSEL", "FSETP", "FMNMX", "PLOP3", "P2R", "PRMT", "CS2R",
         "VIMNMX", "VIADDMNMX", "IMNMX", "IABS", "DSETP"}
    ),
    "fma_instructions": frozenset({"FADD", "FMUL", "FFMA", "IMAD", "VIADD"}),
    "xu_instructions": frozenset({"MUFU", "I2F", "F2I", "FCHK"}),
    "uniform_instructions": frozenset({"UIADD3", "UIMAD", "UISETP", "ULEA", "USHF", "ULOP3", "USEL"}),
}  # fmt: skip
"""Which opcodes a pipe of an H100 executes: those of these kernels, found by fitting ncu's figures of the pipes."""


def emulated(families: list[str]) -> dict[str, Counters]:
    """The counters of every variant."""
    target, found = find_target("H100 SXM"), {}
    for variant in variants(families or None):
        run = Run(variant.shape, run_arguments(variant.arguments()), count=True, check=False, executed=True)
        counters = EmulatorBackend().load(variant.compile(target), target).run(run).counters
        assert counters is not None, "a counted launch has counters"
        found[variant.name] = counters
    return found


def figures(mix: InstructionMix) -> dict[str, int]:
    """Returns the counts of a mix that hardware counters give: instructions of threads, of warps, and of each pipe."""
    return {
        "thread_instructions": mix.threads,
        "warp_instructions": mix.warps,
        **{pipe: sum(one.warps for one in mix.opcodes if one.opcode in opcodes) for pipe, opcodes in PIPES.items()},
    }


def off(ours: float, theirs: float, all_of_theirs: float) -> float:
    """Returns the error of a count as a share of the hardware's count, or of all its instructions if it counted none."""
    return abs(ours - theirs) / (theirs or all_of_theirs)


def main(families: list[str]) -> int:
    """Print each variant, then the table; 1 where a mix is off by over 2 %, or under half have one."""
    document: dict[str, Any] = json.loads(MEASURED.read_text())
    print(f"measured on {document['device']}, {document['date']}; emulated on {describe()}")
    hardware = {one["name"]: one["warm"] for one in document["variants"]}
    errors: dict[str, list[float]] = {}
    counted = emulated(families)
    for name, counters in counted.items():
        mix = counters.instruction_mix
        if mix is None:
            print(f"{name:<46} not given: {counters.instruction_mix_unknown}")
            continue
        cells = []
        for figure, ours in figures(mix).items():
            error = off(ours, hardware[name][figure], hardware[name]["warp_instructions"])
            errors.setdefault(figure, []).append(error)
            cells.append(f"{figure.split('_')[0]} {error:.2%}")
        print(f"{name:<46} {mix.warps:>12,} by warp, off by: {'  '.join(cells)}")
    given = len(errors.get("warp_instructions", []))
    print(f"\na mix is given for {given} of {len(counted)} variants")
    print(f"{'counted by':<22} {'equal':>6} {'within 1 %':>11} {'largest error':>14}")
    for figure, found in errors.items():
        equal, near = sum(error == 0 for error in found), sum(error <= 0.01 for error in found)
        print(f"{figure:<22} {equal:>6} {near:>11} {max(found):>14.3%}")
    worst = max((max(found) for found in errors.values()), default=0.0)
    return 0 if worst <= 0.02 and 2 * given >= len(counted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
