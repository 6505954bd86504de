"""Parses SASS instructions: registers written and read, and predicates.

Operands are as `nvdisasm` prints them; opcodes are listed in CUDA Binary Utilities, "Instruction Set Reference".
Operand semantics are undocumented; they were derived from code with known PTX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmate.records import SassInstruction

_PARTS = re.compile(r"(?:@(?P<guard>!?U?P(?:\d+|T))\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)\s*(?P<rest>.*)$")
_REGISTER = re.compile(r"(?<![\w.])(UR|R|UP|P)(\d+)(?!\w)")
_RESULT = re.compile(r"(UR|R)(\d+)(?:\.reuse)?$")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T)$")
_ZERO = re.compile(r"U?RZ$")

_NO_RESULT = re.compile(
    r"(?:ST[GSL]?|STSM|RED|REDG|REDAS|BRA|BRX|JMP|BSSY|BSYNC|BREAK|CALL|RET|EXIT|BAR|MEMBAR|SYNCS|DEPBAR|LDGDEPBAR|LDGSTS"
    r"|WARPSYNC|NANOSLEEP|ERRBAR|CCTL\w*|NOP|YIELD|BPT|KILL|FENCE|UTMA\w*|UBLK\w*|WARPGROUP\w*|PREEXIT|ACQBULK|UCGABAR\w*)$"
)
"""Opcodes that write no register."""
_TESTS = re.compile(r"(?:U?[IFDH]SETP2?|FCHK|U?PLOP3)$")
"""Opcodes whose results are only predicates."""
_ONE_PREDICATE = re.compile(r"(?:VOTEU?|MATCH|ATOM\w*|SHFL|R2UR|U?FLO|LDS?|LDG)$")
_WIDE_RESULT = re.compile(r"(?:D(?:ADD|MUL|FMA|MNMX)|IMAD\.WIDE|UIMAD\.WIDE|CS2R|I2F\.F64|F2F\.F64)")
_MATRIX = re.compile(r"(?:[HIDQB]G?MMA|LDSM|LDT|UTC)")


@dataclass(frozen=True, slots=True)
class SassOp:
    """One instruction.

    Attributes:
        name: the opcode without modifiers, which are in `modifiers`.
        guard: its predicate as written (`!P0`), or None.
        results: registers that it writes, `R4`, `UP0`; several for wide results. Never RZ or PT.
        outputs: result operands as written, including PT and RZ.
        inputs: other operands as written, without `.reuse`.
        reads: registers in inputs and guard, both of a pair for 64-bit reads.
    """

    address: int
    opcode: str
    name: str
    modifiers: tuple[str, ...]
    guard: str | None
    results: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    reads: tuple[str, ...]
    labels: tuple[str, ...]
    function: str
    ptx_line: int | None

    @property
    def partial(self) -> bool:
        """True if the operation may leave its results unchanged."""
        return self.guard not in {None, "PT", "UPT"}


def taken_apart(instruction: SassInstruction) -> SassOp:
    """Splits an instruction into its parts.

    Raises:
        ValueError: the text is not an instruction.
    """
    match = _PARTS.match(instruction.text)
    if match is None:
        raise ValueError(f"cannot read the SASS instruction {instruction.text!r}")
    opcode = match["opcode"]
    name, *modifiers = opcode.split(".")
    operands = [part.strip().replace(".reuse", "") for part in _split(match["rest"])]
    count = _outputs(name, operands)
    outputs, inputs = operands[:count], operands[count:]
    guard = match["guard"]
    reads = _read(name, modifiers, inputs)
    if guard is not None:
        reads += _registers(guard)
    return SassOp(
        instruction.address, opcode, name, tuple(modifiers), guard, tuple(_written(name, opcode, outputs)), tuple(outputs),
        tuple(inputs), tuple(dict.fromkeys(reads)), instruction.labels, instruction.function, instruction.ptx_line,
    )  # fmt: skip


def _split(text: str) -> list[str]:
    return [part for part in re.split(r",\s*(?![^\[\]]*\])", text.strip()) if part]


def _outputs(name: str, operands: list[str]) -> int:
    """Number of leading operands that are results."""
    if _NO_RESULT.match(name) or not operands:
        return 0
    if _TESTS.match(name):
        return 1 if name == "FCHK" else 2
    count = 0
    while count < len(operands) and _PREDICATE.match(operands[count]):
        count += 1
    if count < len(operands) and (_RESULT.match(operands[count]) or _ZERO.match(operands[count])):
        count += 1
    most = count + (1 if _ONE_PREDICATE.match(name) else 2)
    while count < min(most, len(operands)) and re.fullmatch(r"U?P(?:\d+|T)", operands[count]):
        count += 1
    return count


def _written(name: str, opcode: str, outputs: list[str]) -> list[str]:
    written = []
    for text in outputs:
        match = _RESULT.match(text)
        if match:
            first = int(match[2])
            written += [f"{match[1]}{number}" for number in range(first, first + _width(name, opcode))]
        elif re.fullmatch(r"U?P\d+", text):
            written.append(text)
    if name == "R2P":
        written += [f"P{number}" for number in range(7)]
    return written


def _width(name: str, opcode: str) -> int:
    """Returns the registers that a result takes; an upper bound if unknown."""
    parts = opcode.split(".")
    if _MATRIX.match(name) or "128" in parts or "256" in parts:
        return 8 if "256" in parts else 4
    if "64" in parts or (_WIDE_RESULT.match(opcode) and "32" not in parts):
        return 2
    if name in {"I2F", "F2F", "F2I", "I2I", "FRND", "I2FP", "F2FP", "DSETP"}:
        return 2 if {"F64", "S64", "U64"} & set(parts[1:]) else 1
    return 1


def _read(name: str, modifiers: list[str], inputs: list[str]) -> list[str]:
    """Returns the registers in the inputs, both of a pair that holds 64 bits."""
    reads: list[str] = []
    for index, text in enumerate(inputs):
        wide = ({"64", "U64", "S64"} & set(modifiers) and name != "SHF") or (
            index == 2 and name in {"IMAD", "UIMAD"} and {"WIDE", "HI"} & set(modifiers)
        )
        for register in _registers(text):
            reads += pair(register) if wide and register[0] != "P" and register[:2] != "UP" else (register,)
    if "PR" in inputs:
        mask = int(inputs[-1], 0) if inputs[-1].startswith("0x") else 0x7F
        reads += [f"P{index}" for index in range(7) if mask >> index & 1]
    return reads


def _registers(text: str) -> list[str]:
    return [f"{bank}{number}" for bank, number in _REGISTER.findall(text)]


def pair(register: str) -> tuple[str, str]:
    """Returns a register and the one that holds the upper half of the 64-bit value."""
    bank = register.rstrip("0123456789")
    return register, f"{bank}{int(register[len(bank) :]) + 1}"
