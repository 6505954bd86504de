"""Each SASS operation against Python's integers, on random and adversarial values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmate.backends.emulator.sass.code import taken_apart
from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.sass.operands import ConstantBank
from kernelmate.backends.emulator.sass.walk import step
from kernelmate.records import SassInstruction

ALL = 0xFFFFFFFF
WORDS = st.one_of(
    st.integers(0, ALL), st.sampled_from([0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, ALL - 1, ALL])
)


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def table(lut: int, a: int, b: int, c: int) -> int:
    return sum((lut >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))


def instruction(text: str) -> SassInstruction:
    return SassInstruction(0, text, "", "", "k", (), None, (), None, None)


def done(text: str, constants: dict[int, int] | None = None, **registers: int | bool) -> dict[str, int]:
    """Returns the contents of registers after one instruction."""
    values = {
        name: np.full((1, 32), value, bool if name.lstrip("U").startswith("P") else np.uint32)
        for name, value in registers.items()
    }
    step(taken_apart(instruction(text)), ConstantBank(constants or {}))(values, None)
    return {name: int(np.broadcast_to(value, (1, 32))[0, 7]) for name, value in values.items()}


Expected = Callable[[int, int, int, bool], dict[str, int]]
OPERATIONS: dict[str, Expected] = {
    "IADD3 R9, R1, R2, R3": lambda a, b, c, p: {"R9": (a + b + c) & ALL},
    "IADD3 R9, -R1, R2, -0x10": lambda a, b, c, p: {"R9": (b - a - 16) & ALL},
    "IADD3 R9, P6, R1, R2, RZ": lambda a, b, c, p: {"R9": (a + b) & ALL, "P6": a + b > ALL},
    "IADD3 R9, P6, R1, -R2, RZ": lambda a, b, c, p: {"R9": (a - b) & ALL, "P6": a >= b},
    "IADD3.X R9, R1, R2, RZ, P0, !PT": lambda a, b, c, p: {"R9": (a + b + p) & ALL},
    "IADD3.X R9, R1, ~R2, RZ, P0, !PT": lambda a, b, c, p: {"R9": (a + (b ^ ALL) + p) & ALL},
    "IADD3 R9, PT, PT, R1, 0x7f, -R2": lambda a, b, c, p: {"R9": (a + 127 - b) & ALL},
    "VIADD R9, R1, -UR4": lambda a, b, c, p: {"R9": (a - 5) & ALL},
    "IADD.64 R8, R2, R6": lambda a, b, c, p: {"R8": ((c << 32 | b) + (7 << 32 | 6)) & ALL,
                                              "R9": ((c << 32 | b) + (7 << 32 | 6)) >> 32 & ALL},
    "IMAD R9, R1, R2, R3": lambda a, b, c, p: {"R9": (a * b + c) & ALL},
    "IMAD R9, R1, -0x3, -R3": lambda a, b, c, p: {"R9": (a * -3 - c) & ALL},
    "IMAD.MOV.U32 R9, RZ, RZ, R3.reuse": lambda a, b, c, p: {"R9": c},
    "IMAD.X R9, RZ, RZ, R3, P0": lambda a, b, c, p: {"R9": (c + p) & ALL},
    "IMAD.WIDE R8, R1, R2, R6": lambda a, b, c, p: {
        "R8": (signed(a) * signed(b) + (7 << 32 | 6)) & ALL, "R9": (signed(a) * signed(b) + (7 << 32 | 6)) >> 32 & ALL},
    "IMAD.WIDE.U32 R8, R1, R2, RZ": lambda a, b, c, p: {"R8": a * b & ALL, "R9": a * b >> 32},
    "IMAD.WIDE.U32 R8, P6, R1, R2, R6": lambda a, b, c, p: {
        "R8": (a * b + (7 << 32 | 6)) & ALL, "R9": (a * b + (7 << 32 | 6)) >> 32 & ALL,
        "P6": a * b + (7 << 32 | 6) >= 1 << 64},
    "IMAD.WIDE.U32.X R8, R1, R2, R6, P0": lambda a, b, c, p: {
        "R8": (a * b + (7 << 32 | 6) + p) & ALL, "R9": (a * b + (7 << 32 | 6) + p) >> 32 & ALL},
    "IADD.64 R8, -R2, R6": lambda a, b, c, p: {"R8": ((7 << 32 | 6) - (c << 32 | b)) & ALL,
                                               "R9": ((7 << 32 | 6) - (c << 32 | b)) >> 32 & ALL},
    "ISETP.GE.U64.AND P6, PT, R2, R6, PT": lambda a, b, c, p: {"P6": (c << 32 | b) >= (7 << 32 | 6)},
    "ISETP.LT.S64.AND P6, PT, R2, -0x1, PT": lambda a, b, c, p: {"P6": (signed(c) << 32 | b) < -1},
    "IMAD.HI R9, R1, 0x55555556, RZ": lambda a, b, c, p: {"R9": signed(a) * 0x55555556 >> 32 & ALL},
    "IMAD.HI.U32 R9, R1, R2, R6": lambda a, b, c, p: {"R9": (a * b + (7 << 32 | 6)) >> 32 & ALL},
    "LEA R9, P6, R1, R2, 0x2": lambda a, b, c, p: {"R9": ((a << 2 & ALL) + b) & ALL, "P6": (a << 2 & ALL) + b > ALL},
    "LEA.HI R9, R1, R2, RZ, 0x19": lambda a, b, c, p: {"R9": ((a >> 7) + b) & ALL},
    "LEA.HI R9, R1, R2, R3, 0x19": lambda a, b, c, p: {"R9": (((c << 32 | a) << 25 >> 32 & ALL) + b) & ALL},
    "LEA.HI.X R9, R1, R2, R3, 0x2, P0": lambda a, b, c, p: {"R9": (((c << 32 | a) << 2 >> 32 & ALL) + b + p) & ALL},
    "LEA.HI.X.SX32 R9, R1, R2, 0x1, P0": lambda a, b, c, p: {"R9": ((signed(a) << 1 >> 32) + b + p) & ALL},
    "LOP3.LUT R9, R1, R2, R3, 0xe8, !PT": lambda a, b, c, p: {"R9": table(0xE8, a, b, c)},
    "LOP3.LUT P6, RZ, R1, 0x1f, RZ, 0xc0, !PT": lambda a, b, c, p: {"P6": a & 31 != 0},
    "LOP3.LUT P6, R9, R1, R2, RZ, 0x3c, !PT": lambda a, b, c, p: {"R9": a ^ b, "P6": a != b},
    "PLOP3.LUT P6, PT, PT, PT, PT, 0x80, 0x0": lambda a, b, c, p: {"P6": True},
    "PLOP3.LUT P6, PT, PT, PT, PT, 0x8, 0x0": lambda a, b, c, p: {"P6": False},
    "PLOP3.LUT P6, P5, P0, !P1, PT, 0xe0, 0x2a": lambda a, b, c, p: {"P6": p, "P5": not p},
    "SHF.R.S32.HI R9, RZ, 0x1f, R3": lambda a, b, c, p: {"R9": ALL if c >> 31 else 0},
    "SHF.R.U32.HI R9, RZ, R1, R3": lambda a, b, c, p: {"R9": c >> min(a, 32)},
    "SHF.L.U32 R9, R1, R2, RZ": lambda a, b, c, p: {"R9": a << min(b, 32) & ALL},
    "SHF.L.U64.HI R9, R1, 0x2, R3": lambda a, b, c, p: {"R9": (c << 32 | a) << 2 >> 32 & ALL},
    "SHF.R.U64 R9, R1, 0x3, R3": lambda a, b, c, p: {"R9": (c << 32 | a) >> 3 & ALL},
    "ISETP.GE.AND P6, PT, R1, R2, P0": lambda a, b, c, p: {"P6": signed(a) >= signed(b) and p},
    "ISETP.LT.U32.OR P6, P5, R1, R2, P0": lambda a, b, c, p: {"P6": a < b or p, "P5": a >= b or p},
    "ISETP.GT.AND.EX P6, PT, R1, R2, PT, P0": lambda a, b, c, p: {
        "P6": signed(a) > signed(b) or (a == b and p)},
    "ISETP.GE.U32.AND.EX P6, PT, R1, R2, PT, P0": lambda a, b, c, p: {"P6": a > b or (a == b and p)},
    "ISETP.NE.AND.EX P6, PT, R1, R2, PT, P0": lambda a, b, c, p: {"P6": a != b or p},
    "ISETP.EQ.XOR P6, PT, R1, R2, !P0": lambda a, b, c, p: {"P6": (a == b) != (not p)},
    "SEL R9, R1, 0xfffffff0, !P0": lambda a, b, c, p: {"R9": 0xFFFFFFF0 if p else a},
    "IMNMX R9, R1, R2, !PT": lambda a, b, c, p: {"R9": max(signed(a), signed(b)) & ALL},
    "VIMNMX.U32 R9, R1, R2, PT": lambda a, b, c, p: {"R9": min(a, b)},
    "VIADDMNMX.U32 R9, R1, -R2, 0xffffffe0, !PT": lambda a, b, c, p: {"R9": max((a - b) & ALL, 0xFFFFFFE0)},
    "IABS R9, R1": lambda a, b, c, p: {"R9": abs(signed(a)) & ALL},
    "PRMT R9, R1, 0x7610, R2": lambda a, b, c, p: {"R9": (b & 0xFFFF0000) | (a & 0xFFFF)},
    "PRMT R9, R1, 0x888a, RZ": lambda a, b, c, p: {
        "R9": (0xFF if a >> 23 & 1 else 0) | (0xFFFFFF00 if a >> 7 & 1 else 0)},
    "P2R R9, PR, R1, 0x1": lambda a, b, c, p: {"R9": (a & ALL - 1) | p},
    "HFMA2.MMA R9, -RZ, RZ, 0, 5.9604644775390625e-08": lambda a, b, c, p: {"R9": 1},
    "HFMA2 R9, -RZ, RZ, 0.96630859375, -0.0022525787353515625": lambda a, b, c, p: {"R9": 0x3BBB989D},
    "UIADD3 UR9, UR4, 0x1, URZ": lambda a, b, c, p: {"UR9": 6},
    "@P0 MOV R1, R2": lambda a, b, c, p: {"R1": b if p else a},
    "LDC.64 R8, c[0x0][0x210]": lambda a, b, c, p: {"R8": 40, "R9": 41},
    "ULDC UR9, c[0x0][0x214]": lambda a, b, c, p: {"UR9": 41},
    "LDC R9, c[0x0][RZ]": lambda a, b, c, p: {"R9": 256},
    "ISETP.GE.AND P6, PT, R1, c[0x0][0x210], PT": lambda a, b, c, p: {"P6": signed(a) >= 40},
}  # fmt: skip
BANK = {0x210: 40, 0x214: 41, 0x0: 256}


@pytest.mark.parametrize("text", OPERATIONS)
@settings(deadline=None, max_examples=60)
@given(a=WORDS, b=WORDS, c=WORDS, p=st.booleans())
def test_operations_compute_what_integers_say(text: str, a: int, b: int, c: int, p: bool) -> None:
    after = done(text, BANK, R1=a, R2=b, R3=c, R6=6, R7=7, UR4=5, P0=p, P1=not p)
    assert {name: after[name] for name in OPERATIONS[text](a, b, c, p)} == OPERATIONS[text](a, b, c, p)


@settings(deadline=None, max_examples=60)
@given(value=WORDS, divisor=st.one_of(st.integers(1, ALL), st.sampled_from([1, 2, 3, 0x7FFFFFFF, 0x80000000, ALL])))
def test_the_steps_of_an_unsigned_division_give_its_remainder(value: int, divisor: int) -> None:
    """As ptxas writes `value % divisor`: an estimate of the reciprocal, one step of Newton's, and two corrections."""
    values = {"R0": np.full((1, 1), value, np.uint32), "UR12": np.full((1, 1), divisor, np.uint32)}
    for text in (
        "I2F.U32.RP R5, UR12", "MUFU.RCP R5, R5", "IADD3 R2, R5, 0xffffffe, RZ", "F2I.FTZ.U32.TRUNC.NTZ R3, R2",
        "IMAD.MOV.U32 R2, RZ, RZ, RZ", "IMAD.MOV R9, RZ, RZ, -R3", "IMAD R9, R9, UR12, RZ",
        "IMAD.HI.U32 R7, R3, R9, R2", "IMAD.HI.U32 R6, R7, R0, RZ", "IMAD.MOV R13, RZ, RZ, -R6",
        "IMAD R6, R13, UR12, R0.reuse", "ISETP.GE.U32.AND P0, PT, R6, UR12, PT", "@P0 VIADD R6, R6, -UR12",
        "ISETP.GE.U32.AND P0, PT, R6, UR12, PT", "@P0 IADD3 R6, R6, -UR12, RZ",
    ):  # fmt: skip
        step(taken_apart(instruction(text)), ConstantBank({}))(values, None)
    assert int(values["R6"][0, 0]) == value % divisor


@pytest.mark.parametrize(
    "text",
    [
        "LDG.E R9, desc[UR4][R2.64]", "FADD R9, R1, R2", "LDS R9, [R1]", "SHFL.BFLY PT, R9, R1, 0x10, 0x1f",
        "LDC R9, c[0x3][0x0]", "LDC R9, c[0x0][0x28]", "S2R R9, SR_CLOCKLO", "IADD3 R9, P6, R1, R2, RZ, P0, !PT",
        "MUFU.EX2 R9, R1", "HFMA2 R9, R1, R2, R3", "LOP3.LUT P6, R9, R1, R2, RZ, 0xc0, P0", "IMAD.WIDE R8, P6, R1, R2, RZ",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(Unknown):
        step(taken_apart(instruction(text)), ConstantBank({}))


def test_operands_are_told_apart() -> None:
    op = taken_apart(instruction("@!P0 IADD3.X R9, P1, R2, UR4, RZ, P3, !PT"))
    assert (op.guard, op.results, op.partial) == ("!P0", ("R9", "P1"), True)
    assert set(op.reads) == {"R2", "UR4", "P3", "P0"}
    wide = taken_apart(instruction("LDG.E.128 R4, desc[UR6][R2.64+0x10]"))
    assert wide.results == ("R4", "R5", "R6", "R7")
    assert taken_apart(instruction("STG.E desc[UR6][R2.64], R9")).results == ()
    assert taken_apart(instruction("FCHK P0, R0, R3")).results == ("P0",)
    assert set(taken_apart(instruction("IMAD.WIDE R2, R0, 0x4, R6")).reads) == {"R0", "R6", "R7"}
