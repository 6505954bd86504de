"""Conditions in code, with calls of macros and helpers replaced by their text."""

from __future__ import annotations

import pytest

from kernelmate.source.conditions import conditions_of, own_conditions

HEAD = "__global__ void k(const float* x, float* y, int n, int cols) {\n"


def conditions(body: str, before: str = "", defines=()):
    return {one.text: one for one in conditions_of(f"{before}\n{HEAD}{body}\n}}\n", defines)}


def held(text: str, before: str = "", defines=(), **sizes):
    found = conditions(f"  if ({text}) y[0] = 0;", before, defines)[text]
    return found.holds(sizes.get)


@pytest.mark.parametrize(
    ("text", "n", "truth"),
    [("n % 4 == 2", 6, True), ("n % 4 == 2", 7, False), ("n & 3", 4, False), ("!(n & 7) && n >> 3 > 1", 16, True),
     ("n > 1 << 16", 65537, True), ("(size_t)n * 2 >= 0x10", 8, True), ("static_cast<int>(n) != 3", 3, False),
     ("-n / 2 == -3", 7, True), ("n == 1'000", 1000, True), ("n > 256 * 273", 69888, False)],
)  # fmt: skip
def test_a_condition_over_a_size_is_evaluated_as_cpp_does(text: str, n: int, truth: bool) -> None:
    assert held(text, n=n) is truth


def test_an_unknown_part_leaves_what_the_known_part_decides() -> None:
    assert held("x[0] > 0 && n > 3", n=4) is None
    assert held("cols > 3 && n > 3", n=3) is False
    assert held("cols > 3 || n > 3", n=4) is True
    assert held("cols > 3 && n > 3", n=4) is None


def test_constants_macros_and_options_are_known() -> None:
    assert held("n > LIMIT", before="constexpr int LIMIT = 2 * 8;", n=17) is True
    assert held("n > LIMIT", before="#define LIMIT (2 * 8)", n=16) is False
    assert held("n % WIDTH == 5", defines=("-DWIDTH=64",), n=69) is True


def test_a_local_stands_for_its_definition_unless_it_changes() -> None:
    fixed = conditions("  const int tail = n - n / 4 * 4;\n  if (tail == 2) y[0] = 0;")["tail == 2"]
    assert fixed.holds({"n": 6}.get) is True
    changed = conditions("  int tail = n % 4;\n  tail += 1;\n  if (tail == 2) y[0] = 0;")["tail == 2"]
    assert changed.holds({"n": 6}.get) is None


def test_choices_and_cases_are_conditions_too() -> None:
    found = conditions("  y[0] = n > 70000 ? 0 : x[0];\n  switch (cols % 8) { case 3: y[1] = 0; }")
    assert found["n > 70000"].holds({"n": 70001}.get) is True
    assert found["3"].holds({"cols": 11}.get) is True


def test_what_stands_around_a_condition_guards_it() -> None:
    body = "  if (n < 64) return;\n  if (cols > 8) { if (n % 2 == 1) y[0] = 0; } else y[0] = n == 100 ? 1 : 2;"
    found = conditions(body)
    assert found["n % 2 == 1"].reached({"n": 65, "cols": 9}.get) is True
    assert found["n % 2 == 1"].reached({"n": 63, "cols": 9}.get) is False
    assert found["n == 100"].reached({"n": 100, "cols": 9}.get) is False
    assert found["n == 100"].reached({"n": 100, "cols": 8}.get) is True


def test_assumptions_are_told_from_conditions() -> None:
    found = conditions(
        "  __builtin_assume(n % 4 == 0);\n  if (n < 3) __builtin_unreachable();\n  [[assume(cols > 1)]];"
    )
    assert {text for text, one in found.items() if one.assumed} == {"n % 4 == 0", "n < 3", "cols > 1"}
    assert found["n < 3"].holds({"n": 2}.get) is False


def test_an_aligned_pointer_is_an_assumption_about_its_address() -> None:
    (found,) = conditions("  const float* p = (const float*)__builtin_assume_aligned(x, 16);").values()
    assert found.assumed
    assert found.holds({"&x": 4}.get) is False
    assert found.holds({"&x": 32}.get) is True


def test_only_conditions_that_the_baseline_lacks_are_a_candidates_own() -> None:
    baseline = HEAD + "  if (n > 3) y[0] = 0;\n}\n"
    candidate = HEAD + "  if (n > 3) y[0] = 0;\n  if (n > 4) y[1] = 0;\n}\n"
    assert [one.text for one in own_conditions(candidate, baseline)] == ["n > 4"]


@pytest.mark.parametrize(
    "text", ["if (", "}}}", "a ? b", "if (n", "switch (n) {", "case", "#define A", "x = (((((", "(" * 500]
)
def test_broken_text_gives_no_error(text: str) -> None:
    assert isinstance(conditions_of(text), tuple)


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
