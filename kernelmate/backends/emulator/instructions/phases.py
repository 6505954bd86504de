"""`mbarrier`: barriers in shared memory, phase by phase."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.memory import SPACES, address_of, space_in
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.phases import pending_of
from kernelmate.backends.emulator.operations import Compute, Operation, PhaseBarrier
from kernelmate.backends.emulator.program import Immediate, Instruction, Operand, Sink

_ACTIONS = {
    "init": "init", "inval": "inval", "arrive": "arrive", "arrive_drop": "drop", "test_wait": "test", "try_wait": "test",
}  # fmt: skip
_ORDERS = frozenset({"relaxed", "acquire", "release", "cta", "cluster", "noComplete", "parity", "b64"})


@decodes("mbarrier")
def decode_phase_barrier(instruction: Instruction) -> Operation:
    """Decodes `mbarrier` without transaction counts (`expect_tx`, `complete_tx`), which bulk copies use."""
    action, operands = instruction.parts[1], list(instruction.operands)
    if action == "pending_count":
        return Compute(((operands[0], "u32"),), ((operands[1], "u64"),), pending_of)
    known = _ORDERS | SPACES
    if action not in _ACTIONS or any(part.partition("__")[0] not in known for part in instruction.parts[2:]):
        raise Unsupported(instruction.opcode)
    kind = _ACTIONS[action]
    result: Operand | None = None
    if kind in {"arrive", "drop", "test"}:
        first = operands.pop(0)
        result = None if isinstance(first, Sink) else first
    address, *rest = operands
    value = rest[0] if rest else Immediate(1)
    return PhaseBarrier(kind, space_in(instruction), address_of(address), value, result, instruction.has("parity"))


def decode_copies_arrive(instruction: Instruction) -> Operation:
    """`cp.async.mbarrier.arrive`."""
    action = "count_copies" if instruction.has("noinc") else "copies"
    return PhaseBarrier(action, space_in(instruction), address_of(instruction.operands[0]), Immediate(1))
