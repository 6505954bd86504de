"""Arithmetic on the halves and bytes of a register: the instructions, and every SIMD intrinsic of CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def parts(value: int, count: int, *, signed: bool) -> list[int]:
    bits = 32 // count
    found = [value >> bits * index & (1 << bits) - 1 for index in range(count)]
    return [part - (1 << bits) if signed and part >> (bits - 1) else part for part in found]


def together(values: list[int], count: int) -> int:
    bits = 32 // count
    return sum((value & (1 << bits) - 1) << bits * index for index, value in enumerate(values))


def words(rng: np.random.Generator, count: int = 300) -> np.ndarray:
    edges = np.array([0, 0x00FF00FF, 0x80808080, 0x7F7F7F7F, 0x80008000, 0x7FFF7FFF, 0xFFFFFFFF, 0x01010101], np.uint32)
    drawn = rng.integers(0, 2**32, count, dtype=np.uint32)
    return np.where(rng.random(count) < 0.3, rng.choice(edges, count), drawn).astype(np.uint32)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max,
}  # fmt: skip


@pytest.mark.instruction(
    "vadd2", "vadd4", "vsub2", "vsub4", "vabsdiff2", "vabsdiff4", "vmin2", "vmin4", "vmax2", "vmax4"
)
@pytest.mark.parametrize("kinds", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "u32.s32.s32"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_parts_are_taken_by_themselves_saturated_or_summed(
    name: str, count: int, kinds: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b, c = words(rng), words(rng), words(rng)
    sources = [("u32", a), ("u32", b), ("u32", c)]
    last = "add" if name not in {"vadd", "vsub"} else "sat"
    plain, more = lanewise(
        f"{name}{count}.{kinds} %x, %a, %b, %c; {name}{count}.{kinds}.{last} %y, %a, %b, %c;", ["u32", "u32"], sources
    )
    to, left, right = (kind == "s32" for kind in kinds.split("."))
    bits = 32 // count
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to else (0, (1 << bits) - 1)
    for x, y, z, got, other in zip(a.tolist(), b.tolist(), c.tolist(), plain.tolist(), more.tolist(), strict=True):
        results = [
            OPERATIONS[name](p, q)
            for p, q in zip(parts(x, count, signed=left), parts(y, count, signed=right), strict=True)
        ]
        assert got == together(results, count)
        if last == "add":
            assert other == (z + sum(results)) & 0xFFFFFFFF
        else:
            assert other == together([min(max(value, low), high) for value in results], count)


def clamp(value: int, count: int, *, signed: bool) -> int:
    bits = 32 // count
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


ORDERS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip


def intrinsics() -> dict[str, tuple[bool, Callable[[int, int, int], int], bool]]:
    """Name without its count: whether operands are signed, what a part becomes, whether the parts are summed up."""
    found: dict[str, tuple[bool, Callable[[int, int, int], int], bool]] = {
        "vadd": (False, lambda a, b, n: a + b, False), "vsub": (False, lambda a, b, n: a - b, False),
        "vaddss": (True, lambda a, b, n: clamp(a + b, n, signed=True), False),
        "vaddus": (False, lambda a, b, n: clamp(a + b, n, signed=False), False),
        "vsubss": (True, lambda a, b, n: clamp(a - b, n, signed=True), False),
        "vsubus": (False, lambda a, b, n: clamp(a - b, n, signed=False), False),
        "vabsdiffu": (False, lambda a, b, n: abs(a - b), False), "vabsdiffs": (True, lambda a, b, n: abs(a - b), False),
        "vavgu": (False, lambda a, b, n: (a + b + 1) // 2, False),
        "vavgs": (True, lambda a, b, n: (a + b + (a + b >= 0)) >> 1, False),
        "vhaddu": (False, lambda a, b, n: (a + b) // 2, False),
        "vsadu": (False, lambda a, b, n: abs(a - b), True), "vsads": (True, lambda a, b, n: abs(a - b), True),
    }  # fmt: skip
    for sign in "su":
        found[f"vmax{sign}"] = (sign == "s", lambda a, b, n: max(a, b), False)
        found[f"vmin{sign}"] = (sign == "s", lambda a, b, n: min(a, b), False)
    for name, order in ORDERS.items():
        for sign in ("",) if name in {"eq", "ne"} else ("s", "u"):
            found[f"vcmp{name}{sign}"] = (sign == "s", lambda a, b, n, order=order: -order(a, b), False)  # type: ignore[misc]
            found[f"vset{name}{sign}"] = (sign == "s", lambda a, b, n, order=order: int(order(a, b)), False)  # type: ignore[misc]
    return found


UNARY: dict[str, Callable[[int, int], int]] = {
    "vabs": lambda a, n: abs(a), "vabsss": lambda a, n: clamp(abs(a), n, signed=True),
    "vneg": lambda a, n: -a, "vnegss": lambda a, n: clamp(-a, n, signed=True),
}  # fmt: skip


@pytest.mark.parametrize("count", [2, 4])
def test_every_simd_intrinsic_means_what_cuda_says(
    count: int, cuda: Callable[..., Any], run_cuda: Callable[..., Any], rng: np.random.Generator
) -> None:
    binary = intrinsics()
    lines = [f"y[{row} * 128 + t] = __{name}{count}(a[t], b[t]);" for row, name in enumerate(binary)]
    lines += [f"y[{row} * 128 + t] = __{name}{count}(a[t]);" for row, name in enumerate(UNARY, len(binary))]
    text = (
        "__global__ void k(const unsigned* a, const unsigned* b, unsigned* y) { int t = threadIdx.x;"
        + "".join(lines)
        + "}"
    )
    a, b = words(rng, 128), words(rng, 128)
    out = np.zeros((len(lines), 128), np.uint32)
    result = run_cuda(cuda(text), ("a", a), ("b", b), ("y", out), block=(128,))
    assert not result.findings
    found = iter(result.arrays["y"].tolist())
    for name, (signed, function, summed) in binary.items():
        for x, y, got in zip(a.tolist(), b.tolist(), next(found), strict=True):
            pairs = zip(parts(x, count, signed=signed), parts(y, count, signed=signed), strict=True)
            values = [function(p, q, count) for p, q in pairs]
            assert got == (sum(values) if summed else together(values, count)), (name, hex(x), hex(y))
    for name, single in UNARY.items():
        for x, got in zip(a.tolist(), next(found), strict=True):
            values = [single(p, count) for p in parts(x, count, signed=True)]
            assert got == together(values, count), (name, hex(x))
