"""Few versions are chosen for many sizes, and a rule over the sizes that makes the same choices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelmate.records import DispatchRule
from kernelmate.session.tuning import NEAR, dispatch_rule, few_versions


def rows(*values: int, cols: int = 8) -> list[dict[str, int]]:
    return [{"rows": value, "cols": cols} for value in values]


def test_the_kernel_itself_stays_where_nothing_is_gained() -> None:
    assert few_versions([(10.0, 20.0), (9.9, 19.9)]) == (0, 0)


def test_a_version_that_covers_all_sizes_is_taken_alone() -> None:
    times = [(10.0, 20.0, 40.0), (5.0, 20.0, 21.0), (5.1, 10.1, 20.4), (9.0, 10.0, 30.0)]
    assert few_versions(times) == (2, 2, 2)


def test_each_size_gets_the_version_that_is_fast_there() -> None:
    assert few_versions([(4.0, 9.0), (8.0, 3.0)]) == (0, 1)


def test_a_size_without_any_time_gets_none() -> None:
    assert few_versions([(None, 2.0), (None, 1.0)]) == (None, 1)


@given(
    st.integers(1, 4).flatmap(
        lambda sizes: st.lists(
            st.lists(st.one_of(st.none(), st.floats(0.5, 1e6)), min_size=sizes, max_size=sizes), min_size=1, max_size=5
        )
    )
)
def test_every_choice_is_near_the_fastest(times: list[list[float | None]]) -> None:
    for size, chosen in enumerate(few_versions(times)):
        known = [one[size] for one in times if one[size] is not None]
        if chosen is None:
            assert not known
        else:
            time = times[chosen][size]
            assert time is not None
            assert time <= (1 + NEAR) * min(one for one in known if one is not None)


def test_a_crossover_along_one_size_becomes_a_bound() -> None:
    assert dispatch_rule(rows(1, 8, 64, 512), (2, 2, 0, 0)) == DispatchRule("rows", (2, 0), (64,))


def test_a_choice_that_changes_twice_has_three_intervals() -> None:
    assert dispatch_rule(rows(1, 8, 64), (1, 0, 1)) == DispatchRule("rows", (1, 0, 1), (8, 64))


def test_a_product_separates_what_no_size_alone_does() -> None:
    sizes = [{"rows": r, "cols": c} for r, c in ((1, 1), (64, 1), (1, 64), (64, 64))]
    assert dispatch_rule(sizes, (0, 0, 0, 1)) == DispatchRule("rows * cols", (0, 1), (4096,))


def test_no_measure_separates_choices_that_cross() -> None:
    sizes = [{"rows": r, "cols": c} for r, c in ((1, 1), (2, 1), (1, 2), (2, 2))]
    assert dispatch_rule(sizes, (0, 1, 0, 1)) == DispatchRule("rows", (0, 1), (2,))
    assert dispatch_rule(sizes, (0, 1, 1, 0)) is not None  # rows * cols: 1, 2, 4
    assert dispatch_rule(sizes, (0, 0, 1, 0)) is None


def test_one_version_for_all_sizes_is_a_rule_without_bounds() -> None:
    assert dispatch_rule(rows(1, 8), (3, 3)) == DispatchRule("rows", (3,), ())
    assert dispatch_rule(rows(1, 8), (None, None)) is None
