"""Reads whose values nothing uses."""

from __future__ import annotations

import pytest

from .test_dependence import module


@pytest.mark.parametrize(
    ("body", "unused"),
    [
        ("y[i] = x[i];", 0),
        ("y[i] = atomicExch(&y[i + n], x[i]);", 0),
        ("atomicExch(&y[i], x[i]);", 1),
        ("atomicAdd(&y[i], x[i]);", 0),
        ("const volatile float* v = x; v[i]; y[i] = 1.0f;", 1),
        ("volatile float peek = x[i]; y[i] = 1.0f;", 1),
        ("volatile float peek = x[i]; y[i] = peek;", 0),
        ('float t = x[i]; asm volatile("" :: "f"(t)); y[i] = 1.0f;', 1),
        ("if (x[i] > 0) y[i] = 1.0f;", 0),
        ("y[(int)x[i]] = 1.0f;", 0),
    ],
)
def test_reads_that_nothing_uses_are_told_apart(body: str, unused: int) -> None:
    assert len(module(body).decoded.unused) == unused
