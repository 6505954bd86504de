"""Triton kernels that gather, scatter and count, with their contracts."""

import numpy as np
import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ n = 3000 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BINS=64", "BLOCK=512"]
# reference = "counts + np.bincount(x, minlength=64)"
# [args]
# x = "in int32[n] ~ integers(0, 64)"
# counts = "inout int32[64]"
# n = "int32"
# ///
@triton.jit
def histogram(x, counts, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), own)


# /// kernelmate
# sizes = [{ tokens = 20, words = 50, width = 100 }, { tokens = 1, words = 1, width = 1 }]
# grid = ["tokens", "cdiv(width, BLOCK)"]
# options = ["BLOCK=64"]
# reference = "table[ids]"
# [args]
# ids = "in int32[tokens] ~ integers(0, words)"
# table = "in float32[words, width]"
# out = "out float32[tokens, width]"
# width = "int32"
# ///
@triton.jit
def embedding(ids, table, out, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + token).to(tl.int64)
    tl.store(out + token * width + i, tl.load(table + row * width + i, mask=i < width), mask=i < width)


def rope_reference(x, cosine, sine):
    half = x.shape[2] // 2
    a, b = x[:, :, :half], x[:, :, half:]
    c, s = cosine[None], sine[None]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=2)


# /// kernelmate
# sizes = [{ heads = 3, T = 10, half = 24 }, { heads = 1, T = 1, half = 1 }]
# require = ["half <= 32"]
# grid = ["T", "heads"]
# options = ["BLOCK=32", "num_warps=1"]
# reference = "scattered.py:rope_reference"
# [args]
# x = "in float32[heads, T, 2 * half]"
# cosine = "in float32[T, half]"
# sine = "in float32[T, half]"
# out = "out float32[heads, T, 2 * half]"
# T = "int32"
# half = "int32"
# ///
@triton.jit
def rope(x, cosine, sine, out, T, half, BLOCK: tl.constexpr):
    t, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    at = (head * T + t) * 2 * half + i
    a, b = tl.load(x + at, mask=i < half), tl.load(x + at + half, mask=i < half)
    c, s = tl.load(cosine + t * half + i, mask=i < half), tl.load(sine + t * half + i, mask=i < half)
    tl.store(out + at, a * c - b * s, mask=i < half)
    tl.store(out + at + half, b * c + a * s, mask=i < half)


# /// kernelmate
# sizes = [{ n = 5000 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=1024"]
# reference = "total + x.sum()"
# [args]
# x = "in float32[n]"
# total = "inout float32[1]"
# n = "int32"
# ///
@triton.jit
def total_by_atomics(x, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


def pooling_reference(x):
    return np.maximum(np.maximum(x[:-2], x[1:-1]), x[2:])


# /// kernelmate
# sizes = [{ n = 1500 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=256", "TAPS=3"]
# reference = "scattered.py:pooling_reference"
# [args]
# x = "in float32[n + 2]"
# y = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def max_pool(x, y, n, BLOCK: tl.constexpr, TAPS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for tap in tl.static_range(TAPS):
        best = tl.maximum(
            best, tl.load(x + i + tap, mask=i < n, other=-float("inf")), propagate_nan=tl.PropagateNan.ALL
        )
    tl.store(y + i, best, mask=i < n)


# /// kernelmate
# sizes = [{ tokens = 30, words = 12, width = 40 }, { tokens = 1, words = 1, width = 1 }]
# grid = ["tokens", "cdiv(width, BLOCK)"]
# options = ["BLOCK=64", "num_warps=1"]
# reference = "scattered.py:embedding_gradient_reference"
# [args]
# ids = "in int32[tokens] ~ integers(0, words)"
# dy = "in float32[tokens, width]"
# dtable = "inout float32[words, width]"
# width = "int32"
# ///
@triton.jit
def embedding_gradient(ids, dy, dtable, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + token)
    tl.atomic_add(dtable + row * width + i, tl.load(dy + token * width + i, mask=i < width, other=0.0), mask=i < width)


def embedding_gradient_reference(ids, dy, dtable):
    out = dtable.copy()
    np.add.at(out, ids, dy)
    return out


# /// kernelmate
# sizes = [{ n = 700 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=256"]
# reference = "np.where(keep > 0, x / 0.9, 0)"
# [args]
# x = "in float32[n]"
# keep = "in int8[n] ~ integers(0, 2)"
# y = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def dropout_by_mask(x, keep, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.load(keep + i, mask=i < n, other=0) > 0
    tl.store(y + i, tl.where(kept, tl.load(x + i, mask=i < n) / 0.9, 0.0), mask=i < n)


# /// kernelmate
# sizes = [{ n = 513 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=128"]
# reference = "scattered.py:unpack_reference"
# [args]
# packed = "in uint8[n]"
# out = "out float32[2 * n]"
# n = "int32"
# ///
@triton.jit
def unpack_int4(packed, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(packed + i, mask=i < n, other=0).to(tl.int32)
    tl.store(out + 2 * i, ((byte & 15) - 8).to(tl.float32), mask=i < n)
    tl.store(out + 2 * i + 1, ((byte >> 4) - 8).to(tl.float32), mask=i < n)


def unpack_reference(packed):
    low, high = packed.astype(np.int32) & 15, packed.astype(np.int32) >> 4
    return (np.stack([low, high], axis=1).reshape(-1) - 8).astype(np.float64)
