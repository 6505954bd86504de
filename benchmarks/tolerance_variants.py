"""Honest and faulty arithmetic for sums, products, softmax, layer normalisation, convolution and counting, in NumPy.

Honest variants compute in float32 in another order, with fused multiply-adds or with several partial sums. Mutants use a
float16 accumulator, operands rounded to TF32, or a float32 counter that adds ones and so stops at 2^24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]
Terms = Sequence[tuple[Array, Array]]
"""Pairs of float32 arrays whose products are summed."""
Total = Callable[[Terms], Array]

ONE = np.float32(1)
TF32_DROPPED_BITS = 13
"""Bits of a float32 significand that TF32 does not have (23 less 10; PTX ISA, alternate floating point data formats)."""
LARGEST_COUNT = 2**24
"""The largest count that float32 reaches in steps of one."""
PARTS = 32
BINS = 4


def in_order(terms: Terms) -> Array:
    """One term after another."""
    sum_: Array = np.float32(0)  # type: ignore[assignment]
    for a, b in terms:
        sum_ = sum_ + a * b
    return sum_


def backwards(terms: Terms) -> Array:
    """The last term first."""
    return in_order(terms[::-1])


def fused(terms: Terms) -> Array:
    """Fused multiply-adds: each product is added before it is rounded, which float64 holds exactly."""
    sum_: Array = np.float32(0)  # type: ignore[assignment]
    for a, b in terms:
        sum_ = (np.asarray(a, np.float64) * b + sum_).astype(np.float32)
    return sum_


def tree(terms: Terms) -> Array:
    """Pairs, pairs of pairs, and so on."""
    waiting: list[tuple[int, Array]] = []
    for a, b in terms:
        level, sum_ = 0, a * b
        while waiting and waiting[-1][0] == level:
            sum_ = waiting.pop()[1] + sum_
            level += 1
        waiting.append((level, sum_))
    return in_order([(sum_, ONE) for _, sum_ in reversed(waiting)])


def split(terms: Terms) -> Array:
    """Several partial sums, each of every so many terms, as the threads of a block make them."""
    return tree([(in_order(terms[part::PARTS]), ONE) for part in range(min(PARTS, len(terms)))])


def float16_accumulator(terms: Terms) -> Array:
    """Mutant: float32 products, added up in float16."""
    sum_: Array = np.float16(0)  # type: ignore[assignment]
    for a, b in terms:
        sum_ = (np.asarray(sum_, np.float32) + a * b).astype(np.float16)
    return np.asarray(sum_, np.float32)


def tf32_products(terms: Terms) -> Array:
    """Mutant: operands rounded to TF32, products added up in float32."""
    return in_order([(to_tf32(a), to_tf32(b)) for a, b in terms])


def to_tf32(array: Array) -> Array:
    """Finite float32 numbers rounded to nearest with ten bits after the leading one, ties away from zero."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    half, mask = np.uint32(1 << (TF32_DROPPED_BITS - 1)), np.uint32(0xFFFFFFFF << TF32_DROPPED_BITS & 0xFFFFFFFF)
    return ((bits + half) & mask).view(np.float32).reshape(np.shape(array))


def _sums(arrays: Arrays, total: Total) -> dict[str, Array]:
    return {"sums": total(_columns(arrays["x"]))}


def _columns(x: Array) -> list[tuple[Array, Array]]:
    return [(column, ONE) for column in np.ascontiguousarray(x.T)]


def _matmul(arrays: Arrays, total: Total) -> dict[str, Array]:
    columns = np.ascontiguousarray(arrays["A"].T)
    return {"C": total([(a[:, None], b[None, :]) for a, b in zip(columns, arrays["B"], strict=True)])}


def _softmax(arrays: Arrays, total: Total) -> dict[str, Array]:
    x = arrays["x"]
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": powers / total(_columns(powers))[:, None]}


def _layernorm(arrays: Arrays, total: Total) -> dict[str, Array]:
    x = arrays["x"]
    count = np.float32(x.shape[1])
    centred = x - (total(_columns(x)) / count)[:, None]
    columns = np.ascontiguousarray(centred.T)
    variance = total([(column, column) for column in columns]) / count
    scaled = centred * (ONE / np.sqrt(variance + np.float32(1e-5)))[:, None]
    return {"y": scaled * arrays["gamma"] + arrays["beta"]}


def _conv2d(arrays: Arrays, total: Total) -> dict[str, Array]:
    x, w = arrays["x"], arrays["w"]
    cin, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    terms: list[tuple[Array, Array]] = [
        (w[:, ci, dy, dx][:, None, None], padded[None, ci, dy : dy + height, dx : dx + width])
        for ci in range(cin)
        for dy in range(3)
        for dx in range(3)
    ]
    return {"y": total(terms) + arrays["b"][:, None, None]}


def _counts(arrays: Arrays, total: Total) -> dict[str, Array]:
    """Counts of parts of the samples, each exact, put together in float32."""
    parts = np.array_split(arrays["samples"], 1024)
    return {"counts": total([(np.bincount(part, minlength=BINS).astype(np.float32), ONE) for part in parts])}


def saturating(terms: Terms) -> Array:
    """Mutant: a counter in float32 that adds ones."""
    return np.minimum(in_order(terms), np.float32(LARGEST_COUNT))


HONEST: tuple[Total, ...] = (in_order, backwards, fused, tree, split)


@dataclass(frozen=True, slots=True)
class Workload:
    """A computation with variants: `kernel` is a file of `benchmarks/large`, or None for `COUNTING`.

    `large` is the size that they are held against carried tolerances at, `base` one that the arithmetic itself is cheap at.
    """

    name: str
    kernel: str | None
    base: Mapping[str, int]
    large: Mapping[str, int]
    run: Callable[[Arrays, Total], dict[str, Array]]
    mutants: tuple[Total, ...]
    honest: tuple[Total, ...] = HONEST


WORKLOADS = (
    Workload("row sums", "row_sum", {"rows": 4, "cols": 4096}, {"rows": 16, "cols": 65536}, _sums, (float16_accumulator,)),
    Workload(
        "matrix product", "matmul", {"m": 64, "n": 64, "k": 64}, {"m": 512, "n": 512, "k": 512}, _matmul,
        (float16_accumulator, tf32_products),
    ),
    Workload("softmax", "softmax", {"rows": 16, "cols": 1024}, {"rows": 64, "cols": 16384}, _softmax, (float16_accumulator,)),
    Workload(
        "layer normalisation", "layernorm", {"rows": 16, "cols": 1024}, {"rows": 64, "cols": 16384}, _layernorm,
        (float16_accumulator,),
    ),
    Workload(
        "convolution", "conv2d", {"cin": 4, "cout": 4, "height": 32, "width": 32},
        {"cin": 16, "cout": 16, "height": 192, "width": 192}, _conv2d, (float16_accumulator, tf32_products),
    ),
    Workload("counts", None, {"n": 786432}, {"n": 50331648}, _counts, (saturating,), (backwards, tree, split)),
)  # fmt: skip

COUNTING = """
// /// kernelmate
// sizes = [{ n = 786432 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "np.bincount(samples, minlength=4).astype(np.float64)"
// [args]
// samples = "in uint8[n] ~ integers(0, 2)"
// counts = "out float32[4]"
// n = "int32"
// ///
__global__ void count(const unsigned char* samples, float* counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[samples[i]], 1.0f);
}
"""
"""Counting in float32, with bins that get 2^24 samples and more at the large size."""
