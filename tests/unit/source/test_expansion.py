"""Calls of macros and helpers are replaced by what they stand for."""

from __future__ import annotations

import pytest

from kernelmate.source.conditions import conditions_of

HEAD = "__global__ void k(const float* x, float* y, int n, int cols) {\n"


def assumed(body: str, before: str):
    found = conditions_of(f"{before}\n{HEAD}{body}\n}}\n")
    return {one.text: one for one in found if one.assumed}


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("#define EVEN(v) __builtin_assume((v) % 2 == 0)", "EVEN(cols)"),
        ("#define EVEN(v) do { if ((v) % 2) __builtin_unreachable(); } while (0)", "EVEN(cols)"),
        ("#define HOLDS(c) __builtin_assume(c)\n#define EVEN(v) HOLDS((v) % 2 == 0)", "EVEN(cols + 2)"),
        ("__device__ void promise(bool holds) { __builtin_assume(holds); }", "promise(cols % 2 == 0)"),
        ("__device__ void even(int v, int by = 2) { if (v % by != 0) __builtin_unreachable(); }", "even(cols, 2)"),
        ("template <class T> __device__ void even(const T v) { __builtin_assume(v % 2 == 0); }", "even(cols)"),
    ],
)  # fmt: skip
def test_what_a_call_tells_the_compiler_is_evaluated(before: str, call: str) -> None:
    (found,) = assumed(f"  {call};\n  y[0] = 1;", before).values()
    assert found.holds({"cols": 6}.get) is True
    assert found.holds({"cols": 7}.get) is False


def test_a_helper_of_alignment_is_about_the_pointers_of_its_call() -> None:
    helper = "template <class T> __device__ T* wide(T* p) { return (T*)__builtin_assume_aligned(p, 16); }"
    (found,) = assumed("  y[0] = wide(x + 4)[0];", helper).values()
    assert found.holds({"&x": 8}.get) is False
    assert found.holds({"&x": 32}.get) is True


def test_a_call_under_a_condition_is_guarded_by_it() -> None:
    helper = "__device__ void promise(bool holds) { __builtin_assume(holds); }"
    (found,) = assumed("  if (n > 8) promise(cols % 2 == 0);", helper).values()
    assert found.reached({"n": 9}.get) is True
    assert found.reached({"n": 8}.get) is False


def test_a_helper_that_nothing_calls_keeps_its_own_condition() -> None:
    helper = "__device__ void promise(bool holds) { __builtin_assume(holds); }"
    assert set(assumed("  y[0] = 1;", helper)) == {"holds"}


def test_macros_that_grow_without_end_leave_the_text_as_it_is() -> None:
    doubled = "#define A(v) B(v) B(v) B(v) B(v)\n#define B(v) A(v) A(v) A(v) A(v)"
    assert conditions_of(f"{doubled}\n{HEAD}  A(cols % 2 == 0);\n  if (n > 3) y[0] = 1;\n}}\n")
