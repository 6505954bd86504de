"""Differences between the SASS of two versions."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.compiler.code_diff import compare_code, normal_form
from kernelmate.compiler.disassembly import class_of, mix_of
from kernelmate.records import Listing, Live, SassInstruction

CODE = (
    "S2R R2, SR_TID.X",
    "ULDC.64 UR8, c[0x0][0x210]",
    "ISETP.GE.AND P0, PT, R2, UR7, PT",
    "@P0 BRA .L_x_1",
    "LDG.E R4, desc[UR8][R2.64]",
    "FMUL R6, R4, R4",
    "FFMA R7, R6, R4, R6",
    "STG.E desc[UR8][R2.64], R7",
    "EXIT",
)


def instruction(text: str, address: int = 0) -> SassInstruction:
    opcode = next(word for word in text.split() if not word.startswith("@"))
    return SassInstruction(address, text, opcode, class_of(opcode), "k", (), None, (), None, Live(4, 0, 0))


def listing(code: tuple[str, ...], symbol: str = "k") -> Listing:
    sass = tuple(instruction(text, 16 * index) for index, text in enumerate(code))
    mix = mix_of(one.opcode for one in sass)
    return Listing("k", None, ("k.cu",), symbol, "sm_90", "NVRTC", "sha256:0", 8, 0, 16 * len(sass), mix, (), sass)


def same(one: str, other: str) -> bool:
    return normal_form(instruction(one), "k") == normal_form(instruction(other), "k")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FADD R1, R2, R3", "FADD R40, R7, R9"),
        ("FADD R1, R2.reuse, R3", "FADD R1, R2, R3"),
        ("FADD R2, R2, R3", "FADD R1, R2, R3"),
        ("@!P0 BRA .L_x_2", "@!P3 BRA .L_x_17"),
        ("LDG.E R4, desc[UR8][R4.64+0x10]", "LDG.E R9, desc[UR4][R2.64+0x10]"),
        ("BSSY B0, .L_x_0", "BSSY B3, .L_x_9"),
        ("MOV R8, 0x180", "MOV R6, 0x270"),
        ("FMUL R3, R5, R5", "FMUL R0, R2, R2"),
    ],
)
def test_names_make_no_difference(one, other) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FADD R1, R2, R3", "FADD R1, R2, -R3"),
        ("FADD R1, R2, 1", "FADD R1, R2, 2"),
        ("FADD R1, R2, R3", "FADD.FTZ R1, R2, R3"),
        ("FMUL R3, R5, R5", "FMUL R0, R2, R4"),
        ("LDG.E R4, desc[UR8][R4.64]", "LDG.E.64 R4, desc[UR8][R4.64]"),
        ("LDC R1, c[0x0][0x210]", "LDC R1, c[0x0][0x218]"),
        ("@P0 EXIT", "@!P0 EXIT"),
        ("FADD R1, R2, RZ", "FADD R1, R2, R3"),
        ("IADD3 R1, R2, UR4, RZ", "IADD3 R1, R2, R4, RZ"),
    ],
)
def test_what_is_computed_does(one, other) -> None:
    assert not same(one, other)


def test_calls_within_kernels_of_other_names_are_the_same() -> None:
    calls = [instruction(f"CALL.REL.NOINC ${name}$_Z3fooi") for name in ("_Z3oldPf", "_Z3newPf")]
    assert normal_form(calls[0], "_Z3oldPf") == normal_form(calls[1], "_Z3newPf")


@given(st.permutations(range(12)))
def test_registers_renamed_throughout_leave_nothing_to_show(order) -> None:
    renamed = tuple(re.sub(r"\bR(\d+)\b", lambda it: f"R{order[int(it[1])]}", text) for text in CODE)
    assert compare_code(listing(CODE), listing(renamed)).same


def test_an_instruction_that_came_is_all_that_is_shown() -> None:
    new = (*CODE[:6], "FADD R6, R6, 1.5", *CODE[6:])
    diff = compare_code(listing(CODE), listing(new))
    assert [(change.op, change.old, change.new) for change in diff.changes if change.op != "equal"] == [
        ("insert", (6, 6), (6, 7))
    ]
    assert ("fp32", 2, 3) in diff.mix


@given(st.lists(st.sampled_from(CODE), max_size=30), st.lists(st.sampled_from(CODE), max_size=30))
def test_stretches_make_up_both_versions(old, new) -> None:
    diff = compare_code(listing(tuple(old)), listing(tuple(new)))
    for side, whole in (("old", old), ("new", new)):
        spans = [getattr(change, side) for change in diff.changes]
        assert [index for first, last in spans for index in range(first, last)] == list(range(len(whole)))
    for change in diff.changes:
        if change.op == "equal":
            pairs = zip(diff.old.sass[slice(*change.old)], diff.new.sass[slice(*change.new)], strict=True)
            assert all(normal_form(a, "k") == normal_form(b, "k") for a, b in pairs)


def test_long_code_is_compared_between_what_stands_once_in_both() -> None:
    draw = random.Random(7)
    old = [f"IADD3 R1, R2, {draw.choice((3, 5, 7))}, RZ" for _ in range(6000)]
    for index in range(0, 6000, 50):
        old[index] = f"IADD3 R1, R2, {1000 + index}, RZ"
    new = list(old)
    new[3210] = "FADD R1, R2, 1"
    del new[100]
    diff = compare_code(listing(tuple(old)), listing(tuple(new)))
    changed = [change for change in diff.changes if change.op != "equal"]
    assert sum(change.old[1] - change.old[0] for change in changed) == 2
    assert sum(change.new[1] - change.new[0] for change in changed) == 1


def test_long_code_that_repeats_itself_is_compared_in_step() -> None:
    old = [f"FFMA R1, R2, {index % 7}.5, R3" for index in range(5000)]
    new = [text.replace("1.5", "1.75") for text in old]
    new[2000:2000] = ["FADD R1, R2, 9"] * 5
    diff = compare_code(listing(tuple(old)), listing(tuple(new)))
    changed = [change for change in diff.changes if change.op != "equal"]
    touched = sum(text.count("1.5") for text in old)
    gone, come = (
        sum(getattr(change, side)[1] - getattr(change, side)[0] for change in changed) for side in ("old", "new")
    )
    assert come - gone == 5
    assert touched <= gone <= touched + 16
