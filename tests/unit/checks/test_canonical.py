"""Outputs without an order, or compared in part, in the form in which they are compared."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.canonical import canonical
from kernelmate.records import Argument, Contract, Member, Passed


def contract(*args: Argument) -> Contract:
    return Contract("k", ({"n": 4},), ("1",), ("1",), args)


KEYS = Argument("keys", "out", "int32", ("n",), extent=(0, "count"), unordered=True)
COUNT = Argument("count", "out", "int32", ("1",))


def found(one: Contract, **arrays: np.ndarray) -> dict[str, list]:
    return {name: array.tolist() for name, array in canonical(one, {"n": 4}, arrays, {}).items()}


def test_elements_behind_the_count_do_not_matter_and_the_others_have_no_order() -> None:
    one = contract(KEYS, COUNT)
    first = found(one, keys=np.array([3, 1, 7, 9], np.int32), count=np.array([2]))
    other = found(one, keys=np.array([1, 3, -5, 0], np.int32), count=np.array([2]))
    assert first == other == {"keys": [1, 3, 0, 0], "count": [2]}


def test_duplicates_and_another_count_show() -> None:
    one = contract(KEYS, COUNT)
    want = found(one, keys=np.array([3, 1, 1, 0]), count=np.array([3]))
    assert want != found(one, keys=np.array([3, 3, 1, 0]), count=np.array([3]))
    assert want != found(one, keys=np.array([3, 1, 1, 0]), count=np.array([0]))


@pytest.mark.parametrize("count", [-1, 0, 4, 9])
def test_any_count_is_taken(count: int) -> None:
    kept = max(min(count, 4), 0)
    got = found(contract(KEYS, COUNT), keys=np.array([4, 3, 2, 1]), count=np.array([count]))
    assert got["keys"] == sorted([4, 3, 2, 1][:kept]) + [0] * (4 - kept)


def test_rows_stay_together_and_pairs_too() -> None:
    rows = Argument("rows", "out", "float32", ("n", "2"), unordered=True, paired="keys", extent=(0, "count"))
    one = contract(KEYS, rows, COUNT)
    got = found(
        one,
        keys=np.array([9, 2, 5, 0]),
        rows=np.array([[1, 2], [3, np.nan], [5, 6], [7, 8]], np.float32),
        count=np.array([3]),
    )
    assert got["keys"] == [2, 5, 9, 0]
    np.testing.assert_array_equal(got["rows"], [[3, np.nan], [5, 6], [1, 2], [0, 0]])


def test_pairs_are_ordered_by_whole_numbers_before_rounded_ones() -> None:
    values = Argument("values", "out", "float32", ("n",), unordered=True)
    keys = replace(KEYS, extent=None, unordered=True, paired="values")
    one = contract(values, keys)
    exact = found(one, values=np.array([1, 1, 2, 3], np.float32), keys=np.array([4, 3, 2, 1]))
    rounded = found(one, values=np.array([1, 1.0000001, 2, 3], np.float32), keys=np.array([4, 3, 2, 1]))
    assert exact["keys"] == rounded["keys"] == [1, 2, 3, 4]


def test_every_segment_has_its_own_count_and_order() -> None:
    rows = Argument("rows", "out", "bfloat16", ("2", "3"), extent=(1, "lens"), unordered=True)
    lens = Argument("lens", "in", "int32", ("2",))
    arrays = {"rows": np.array([[3, 1, 9], [5, 4, 2]]).astype(ml_dtypes.bfloat16)}
    got = canonical(contract(rows, lens), {"n": 4}, arrays, {"lens": np.array([2, 3])})
    assert got["rows"].astype(float).tolist() == [[1, 3, 0], [2, 4, 5]]


def test_elements_outside_of_the_mask_are_zero() -> None:
    masked = Argument("y", "out", "float32", ("n",), mask="valid")
    valid = Argument("valid", "in", "bool", ("n",))
    got = canonical(contract(masked, valid), {"n": 4}, {"y": np.array([1, np.nan, 3, 4], np.float32)},
                    {"valid": np.array([True, False, True, False])})  # fmt: skip
    assert got["y"].tolist() == [1, 0, 3, 0]


def test_an_extent_may_be_an_expression_over_sizes() -> None:
    one = contract(Argument("y", "out", "int32", ("n",), extent=(0, "n // 2")))
    assert found(one, y=np.array([4, 3, 2, 1]))["y"] == [4, 3, 0, 0]


def test_parts_behind_pointers_are_put_together() -> None:
    one = replace(
        contract(Argument("A", "out", "int32", ("2", "n"))), passing=(Passed("A", "pointers", (Member("A", 0),)),)
    )
    got = canonical(one, {"n": 4}, {"A[0]": np.arange(4), "A[1]": np.arange(4, 8), "A (pointers)": np.zeros(2)}, {})
    assert got["A"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert "A[0]" not in got


def test_outputs_that_are_compared_as_a_whole_pass_unchanged() -> None:
    array = np.arange(4)
    assert canonical(contract(COUNT), {"n": 4}, {"count": array}, {})["count"] is array
