"""How lines of a written kernel are laid out."""

from __future__ import annotations

from benchmarks.pool import SMALL
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.synthesis.kernel_text import KernelText


def test_the_comment_of_a_long_statement_goes_above_it() -> None:
    (kernel,) = find_kernels(text_unit(SMALL))
    statement = "const int value = " + " + ".join(f"operand_{number}" for number in range(7)) + ";"
    text = KernelText(kernel, contract_for(kernel)).definition(
        "void f()", [f"{statement}  // one, two, and what more is to be said"]
    )
    assert text.splitlines() == [
        "void f() {",
        "  // one, two, and what more is to be said",
        f"  {statement}",
        "}",
    ]
