"""Decodes barriers, exits and traps; branches are resolved once labels are known."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import Barrier, ClusterBarrier, Exit, Operation, Trap, WarpBarrier
from kernelmate.backends.emulator.program import Immediate, Instruction


@decodes("bar", "barrier")
def decode_barrier(instruction: Instruction) -> Operation:
    """Barriers of a block, a warp or a cluster."""
    parts = [part for part in instruction.parts[1:] if part not in {"cta", "aligned"}]
    operands = instruction.operands
    aligned = instruction.name == "bar" or instruction.has("aligned")
    if parts[:1] == ["cluster"] and instruction.name == "barrier":
        return _cluster_barrier(instruction, parts[1:])
    if parts[:2] == ["warp", "sync"]:
        return WarpBarrier(operands[0] if operands else Immediate(0xFFFFFFFF))
    if parts == ["sync"] or parts == ["arrive"]:
        number = operands[0] if operands else Immediate(0)
        return Barrier(parts[0], number, operands[1] if len(operands) > 1 else None, aligned=aligned)
    if parts and parts[0] == "red" and parts[1] in {"popc", "and", "or"}:
        result, number, *count, source = operands
        return Barrier(parts[1], number, count[0] if count else None, result, source, aligned)
    raise Unsupported(instruction.opcode)


def _cluster_barrier(instruction: Instruction, parts: list[str]) -> Operation:
    aligned = instruction.has("aligned")
    if parts in (["arrive"], ["arrive", "release"], ["arrive", "relaxed"]):
        return ClusterBarrier(False, relaxed="relaxed" in parts, aligned=aligned)
    if parts in (["wait"], ["wait", "acquire"]):
        return ClusterBarrier(True, aligned=aligned)
    raise Unsupported(instruction.opcode)


@decodes("exit", "ret")
def decode_exit(instruction: Instruction) -> Operation:
    """Ends the thread; the `ret` of a function was replaced by a branch earlier."""
    del instruction
    return Exit()


@decodes("trap", "brkpt")
def decode_trap(instruction: Instruction) -> Operation:
    """Ends the launch with the finding `trap`."""
    return Trap(f"the kernel executed {instruction.name}")
