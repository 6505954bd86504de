"""Compensated sums are recognised in their code."""

from __future__ import annotations

import pytest

from kernelmate.checks.guards.compensated import compensates

KAHAN = """
    sub.f32 %f10, %f9, %f34;
    add.f32 %f36, %f35, %f10;
    sub.f32 %f11, %f36, %f35;
    sub.f32 %f34, %f11, %f10;
"""
NEUMAIER = """
    add.rn.f64 %fd3, %fd1, %fd2;
    sub.rn.f64 %fd4, %fd1, %fd3;
    add.rn.f64 %fd5, %fd4, %fd2;
"""


@pytest.mark.parametrize(
    ("ptx", "is_one"),
    [
        (KAHAN, True),
        (NEUMAIER, True),
        (KAHAN.replace("sub.f32 %f34, %f11, %f10;", "sub.f32 %f34, %f11, %f9;"), False),
        (KAHAN.replace("sub.f32 %f11, %f36, %f35;", "sub.f32 %f11, %f9, %f35;"), False),
        (NEUMAIER.replace("sub.rn.f64", "sub.rn.f32"), False),
        ("add.f32 %f1, %f2, %f2;\nsub.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f3, %f2;", False),
    ],
)
def test_only_what_carries_the_lost_part_is_one(ptx: str, *, is_one: bool) -> None:
    assert compensates(ptx) is is_one
