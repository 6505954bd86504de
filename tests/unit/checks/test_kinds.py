"""Bytes of arrays of every kind."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.case_launches import KEPT_POISON_BYTES, poisoned_array, still_poisoned
from kernelmate.checks.precision import same_bits

KINDS = [np.bool_, np.int8, np.uint16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float32,
         np.float64, np.complex64, np.complex128]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", [0, 1])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4)])
def test_elements_with_one_other_byte_are_poisoned_no_more(kind, poison, shape) -> None:
    array = poisoned_array(np.zeros(shape, kind), poison).copy()
    assert still_poisoned(array, poison).shape == shape
    assert still_poisoned(array, poison).all()
    assert not still_poisoned(array, 1 - poison).any()
    if array.size > 1:
        array.reshape(-1)[1:2].view(np.uint8)[-1] ^= 1
        assert np.flatnonzero(~still_poisoned(array, poison)).tolist() == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_compared_and_not_values(kind) -> None:
    array = np.arange(12).astype(kind).reshape(3, 4)
    assert same_bits(array, array.copy())
    assert same_bits(array.T, array.copy().T)
    other = array.copy()
    other.reshape(-1)[7:8].view(np.uint8)[0] ^= 1
    assert not same_bits(array, other)


def test_zeros_of_both_signs_differ_and_equal_nans_do_not() -> None:
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert same_bits(np.array([np.nan]), np.array([np.nan]))
    assert not same_bits(np.zeros(2, np.float32), np.zeros(2, np.int32))


def test_poisons_are_shared_and_nobody_can_write_to_them() -> None:
    small, large = np.zeros(5, np.float32), np.zeros(KEPT_POISON_BYTES // 4 + 1, np.float32)
    assert np.shares_memory(poisoned_array(small, 0), poisoned_array(small, 0))
    assert not np.shares_memory(poisoned_array(small, 0), poisoned_array(small, 1))
    assert not np.shares_memory(poisoned_array(large, 0), poisoned_array(large, 0))
    with pytest.raises(ValueError, match="read-only"):
        poisoned_array(small, 0)[0] = 1.0
