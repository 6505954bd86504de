"""Sizes of our own around a contract's."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmate.checks.size_choice import smaller_size
from kernelmate.checks.sizes import MOST_ELEMENTS, MOST_OWN_SIZES, own_sizes, reached_size
from kernelmate.records import Argument, Contract
from kernelmate.source import argument_shapes, launch_shape, size_allowed


def contract(sizes, grid="cdiv(n, 256)", require=(), shape=("n",)):
    arguments = (Argument("x", "in", "float32", shape), Argument("y", "out", "float32", shape))
    return Contract("k", sizes, (grid,), ("256",), arguments, require=require)


def test_one_name_gets_one_a_prime_and_both_sides_of_a_power_of_two() -> None:
    values = {size["n"] for size in own_sizes(contract(({"n": 4096},)), ({"n": 4096},))}
    assert {1, 13, 31, 33, 127, 257} <= values


def test_listed_sizes_are_not_tried_again() -> None:
    listed = ({"n": 127}, {"n": 1})
    assert not [size for size in own_sizes(contract(listed), listed) if size in listed]


def test_each_of_several_names_is_moved_alone_to_one_and_to_none() -> None:
    listed = ({"rows": 64, "cols": 64},)
    sizes = own_sizes(contract(listed, grid="max(rows, 1)", shape=("rows", "cols")), listed)
    alone = [size for size in sizes if len({size["rows"], size["cols"]} & {37}) == 1]
    assert {size["rows"] for size in alone} >= {0, 1}
    assert {size["cols"] for size in alone} >= {0, 1}


def test_a_size_that_launches_nothing_is_left_out() -> None:
    listed = ({"n": 4096},)
    assert all(size["n"] > 0 for size in own_sizes(contract(listed), listed))


def test_what_require_excludes_is_left_out() -> None:
    listed = ({"n": 4096},)
    sizes = own_sizes(contract(listed, require=("n % 4 == 0",)), listed)
    assert all(size["n"] % 4 == 0 for size in sizes)


def test_a_kernel_that_requires_much_has_no_sizes_of_our_own() -> None:
    listed = ({"n": 4096},)
    assert own_sizes(contract(listed, require=("n == 4096",)), listed) == ()


def test_a_contract_without_sizes_has_none_of_our_own() -> None:
    assert own_sizes(contract(({},), grid="4", shape=("16",)), ({},)) == ()


@given(
    st.lists(st.fixed_dictionaries({"a": st.integers(1, 5000), "b": st.integers(1, 5000)}), min_size=1, max_size=3),
    st.sampled_from(["a", "cdiv(b, 8)", "a * b // 7", "max(a, b)"]),
)
@settings(max_examples=60, deadline=None)
def test_all_are_launchable_allowed_small_and_different(listed, grid) -> None:
    made = contract(tuple(listed), grid=grid, require=("a >= b // 9",), shape=("a", "b"))
    sizes = own_sizes(made, tuple(listed))
    assert len(sizes) <= MOST_OWN_SIZES
    assert len({tuple(size.items()) for size in sizes}) == len(sizes)
    for size in sizes:
        assert size not in listed
        assert size_allowed(made, size)
        assert launch_shape(made, size).blocks > 0
        assert sum(x * y for x, y in argument_shapes(made, size).values()) <= MOST_ELEMENTS


def test_names_stand_in_the_contracts_order() -> None:
    listed = ({"rows": 64, "cols": 64},)
    sizes = own_sizes(contract(listed, grid="max(rows, 1)", shape=("rows", "cols")), listed)
    assert {tuple(size) for size in sizes} == {("rows", "cols")}


def test_a_smaller_size_is_one_of_the_name_that_exceeds_the_others_most() -> None:
    rows = contract(({"n": 64, "m": 64},), shape=("n", "m"))
    tried = ({"n": 64, "m": 64}, {"n": 257, "m": 3})
    assert smaller_size(rows, {"n": 3, "m": 4096}, tried) == {"n": 3, "m": 1025}
    assert smaller_size(rows, {"n": 4096, "m": 3}, tried) == {"n": 1025, "m": 3}
    assert smaller_size(rows, {"n": 300, "m": 3}, tried) is None


def test_a_smaller_size_meets_require() -> None:
    eights = contract(({"n": 64},), require=("n % 8 == 0",))
    assert smaller_size(eights, {"n": 4096}, ({"n": 64},)) == {"n": 1040}


def test_integers_reach_a_limit_at_twice_the_limit_with_several_of_them() -> None:
    listed = ({"n": 128, "vocab": 500, "dim": 16},)
    arguments = (
        Argument("table", "in", "float32", ("vocab", "dim")),
        Argument("ids", "in", "int32", ("n",)),
        Argument("y", "out", "float32", ("n", "dim")),
    )
    looked_up = Contract("k", listed, ("n",), ("64",), arguments)
    assert reached_size(looked_up, listed, "vocab", 65536) == {"n": 37, "vocab": 131072, "dim": 3}
    assert reached_size(looked_up, listed, "n", 65536) is None
    assert reached_size(looked_up, listed, "vocab", 1 << 19) is None
    assert reached_size(contract(({"n": 4096},)), ({"n": 4096},), "n", 65536) is None
