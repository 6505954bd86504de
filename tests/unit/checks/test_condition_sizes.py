"""Sizes that a candidate's own conditions ask for, and all sizes of a verdict."""

from __future__ import annotations

import pytest

from kernelmate.checks.alignment import MOST_OF_EVERY, MOST_SHIFTS, every_shift, shift_text, shifted_together, shifts_of
from kernelmate.checks.condition_sizes import MOST_DIRECTED, directed_sizes
from kernelmate.checks.size_plan import tried_sizes
from kernelmate.checks.sizes import covering_sizes, own_sizes
from kernelmate.records import Argument, Contract
from kernelmate.source.conditions import conditions_of

ROWS = ({"rows": 64, "cols": 512}, {"rows": 37, "cols": 853}, {"rows": 1, "cols": 1})
NUMBERS = ({"n": 4096}, {"n": 1021}, {"n": 1})


def contract(sizes, require=(), align=None):
    names = tuple(sizes[0])
    arguments = tuple(Argument(name, "in", "float32", names, align=align) for name in ("x", "b"))
    grid = "rows" if "rows" in names else "cdiv(n, block)"
    return Contract("k", sizes, (grid,), ("128",), arguments, require=require)


def directed(text, sizes, **more):
    made = contract(sizes, **more)
    tried = (*sizes, *own_sizes(made, sizes))
    body = f"__global__ void k(float* y, int n, int cols) {{ if ({text}) y[0] = 0; }}"
    return directed_sizes(made, tried, conditions_of(body))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("n > 70000", {70001, 70000}), ("n > 1 << 16", {65537, 65536}), ("n == 37 * 41", {1517, 1516, 1518}),
     ("n > 5000 && n < 5100", {5001}), ("blockIdx.x == 300", {38401})],
)  # fmt: skip
def test_a_condition_that_no_size_meets_gets_sizes_that_do_and_those_beside_it(text, wanted) -> None:
    assert {size["n"] for size in directed(text, NUMBERS).sizes} >= wanted


def test_remainders_in_two_dimensions_at_once_are_met() -> None:
    sizes = directed("gridDim.x % 8 == 3 && cols % 4 == 2", ROWS).sizes
    assert any(size["rows"] % 8 == 3 and size["cols"] % 4 == 2 for size in sizes)


def test_a_number_in_a_condition_over_a_loops_variable_is_reached() -> None:
    body = "__global__ void k(float* y, int cols) { for (int c = 0; c < cols; ++c) if (c == 900) y[c] = 0; }"
    sizes = directed_sizes(contract(ROWS), ROWS, conditions_of(body)).sizes
    assert any(size["cols"] > 900 for size in sizes)


def test_a_size_that_is_too_large_is_said_and_not_tried() -> None:
    found = directed("n > 100000000", NUMBERS)
    assert found.sizes == ()
    assert "100000001" in found.beyond[0]
    assert "not tried" in found.beyond[0]


def test_what_require_excludes_is_not_asked_for() -> None:
    found = directed("n % 4 == 2", ({"n": 4096},), require=("n % 4 == 0",))
    assert all(size["n"] % 4 == 0 for size in found.sizes)


def test_conditions_ask_for_a_bounded_number_of_sizes() -> None:
    text = " || ".join(f"n == {1000 + 7 * number}" for number in range(40))
    assert len(directed(text, NUMBERS).sizes) <= MOST_DIRECTED


def test_covering_sizes_have_every_remainder_modulo_four_in_each_dimension() -> None:
    made = contract(ROWS)
    tried = (*ROWS, *own_sizes(made, ROWS))
    for seed in range(20):
        sizes = (*tried, *covering_sizes(made, tried, seed).sizes)
        for name in ("rows", "cols"):
            assert {size[name] % 4 for size in sizes if size[name] > 1} == {0, 1, 2, 3}


def test_covering_sizes_follow_the_seed_and_nothing_else() -> None:
    made = contract(ROWS)
    assert covering_sizes(made, ROWS, 7) == covering_sizes(made, ROWS, 7)
    assert len({str(covering_sizes(made, ROWS, seed)) for seed in range(5)}) > 1


def test_base_pointers_are_moved_one_by_one_and_by_several_steps() -> None:
    shifts = shifts_of(contract(NUMBERS))
    assert {(("x", 4),), (("x", 8),), (("b", 4),), (("b", 8),), (("x", 12),)} <= set(shifts)
    assert any(len(shift) == 2 and len({count for _, count in shift}) == 2 for shift in shifts)
    assert len(shifts) <= MOST_SHIFTS


def test_a_promised_alignment_is_kept() -> None:
    assert shifts_of(contract(NUMBERS, align=16)) == ()
    assert shifted_together(contract(NUMBERS, align=16)) == (("x", 16), ("b", 16))
    assert all(count % 8 == 0 for shift in shifts_of(contract(NUMBERS, align=8)) for _, count in shift)


def test_a_shift_is_told_by_its_bytes() -> None:
    assert shift_text((("x", 8),)) == "x moved by 8 bytes"
    assert shift_text((("x", 4), ("b", 4), ("y", 1))) == "x and b moved by 4 bytes, y moved by 1 byte"


def test_pointers_are_moved_at_a_round_size_and_where_conditions_go_another_way() -> None:
    conditions = conditions_of("__global__ void k(float* y, int n) { if (n % 512 == 0) y[0] = 0; }")
    sizes, _ = tried_sizes(contract(NUMBERS), NUMBERS, 7, conditions)
    moved = [one.size["n"] for one in sizes if one.shifts]
    assert moved[0] % 512 == 0 or moved[1] % 512 == 0
    assert any(n % 16 == 0 and n < 512 for n in moved)


def test_a_kernel_that_looks_at_low_bits_is_tried_at_every_place_of_each_array() -> None:
    shifts = set(every_shift(contract(NUMBERS)))
    assert {(("x", step),) for step in (4, 8, 12)} | {(("b", step),) for step in (4, 8, 12)} <= shifts
    assert {(("x", step), ("b", step)) for step in (4, 8, 12)} <= shifts
    assert set(shifts_of(contract(NUMBERS))) <= shifts
    assert len(shifts) <= MOST_OF_EVERY
    assert every_shift(contract(NUMBERS, align=16)) == ()
