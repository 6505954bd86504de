"""Triton kernels that recipes change, with their contracts."""

import numpy as np
import torch
import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ n = 1024 }, { n = 256 }]
# require = ["n % 256 == 0"]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=256"]
# reference = "x_ptr + y_ptr"
# [args]
# x_ptr = "in float32[n]"
# y_ptr = "in float32[n]"
# out_ptr = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Adds two vectors."""
    start = tl.program_id(axis=0) * BLOCK
    offsets = start + tl.arange(0, BLOCK)  # of this program
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(
        y_ptr + offsets,
        mask=mask,
        other=0.0,
    )
    tl.store(out_ptr + offsets, x + y, mask=mask)


# /// kernelmate
# sizes = [{ M = 640, N = 168, K = 32 }, { M = 16, N = 32, K = 16 }]
# require = ["M % 16 == 0", "K % 16 == 0"]
# grid = ["cdiv(M, BM)", "cdiv(N, BN)"]
# options = ["BM=16", "BN=16", "BK=16"]
# reference = "a @ b"
# [args]
# a = "in float16[M, K]"
# b = "in float16[K, N]"
# c = "out float16[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=(rows[:, None] < M) & (depth[None, :] < K - k * BK), other=0.0)
        y = tl.load(pb, mask=(depth[:, None] < K - k * BK) & (columns[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
        pa += BK
        pb += BK * N
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16), mask=inside)


# /// kernelmate
# sizes = [{ M = 170, N = 640, K = 20 }, { M = 3, N = 5, K = 7 }]
# grid = ["cdiv(M, 16) * cdiv(N, 16)"]
# reference = "a @ b"
# [args]
# a = "in float32[M, K]"
# b = "in float32[K, N]"
# c = "out float32[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def product_in_row_order(a, b, c, M, N, K, B: tl.constexpr = 16):
    pid = tl.program_id(0)
    across = tl.cdiv(N, B)
    i, j = pid // across, pid % across
    rows, columns = i * B + tl.arange(0, B), j * B + tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        depth = k + tl.arange(0, B)
        x = tl.load(a + rows[:, None] * K + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        y = tl.load(
            b + depth[:, None] * N + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def softmax_reference(X):
    e = np.exp(X - X.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# /// kernelmate
# sizes = [{ M = 4, N = 300 }, { M = 2, N = 77 }]
# require = ["N > 0"]
# grid = ["M"]
# reference = "kernels.py:softmax_reference"
# [args]
# X = "in float32[M, N]"
# Y = "out float32[M, N]"
# N = "int32"
# ///
@triton.jit
def softmax_in_passes(X, Y, N, BLOCK: tl.constexpr = 128):
    row = tl.program_id(0)
    X += row * N
    Y += row * N
    # The largest element.
    m = -float("inf")
    for first in range(0, N, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < N, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
    # The sum of exponentials.
    s = 0.0
    for first in range(0, N, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < N, other=-float("inf"))
        s += tl.sum(tl.exp(x - m), axis=0)
    for first in range(0, N, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < N)
        tl.store(Y + i, tl.exp(x - m) / s, mask=i < N)


def rms_reference(x, w):
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w


# /// kernelmate
# sizes = [{ rows = 300, columns = 60 }, { rows = 3, columns = 50 }]
# require = ["columns > 0", "columns <= 64"]
# grid = ["rows"]
# options = ["BLOCK=64", "num_warps=1"]
# reference = "kernels.py:rms_reference"
# [args]
# x = "in float32[rows, columns]"
# w = "in float32[columns]"
# y = "out float32[rows, columns]"
# rows = "int32"
# columns = "int32"
# ///
@triton.jit
def rms_norm(x, w, y, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    # Columns of the block.
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v) / columns + 1e-6)
    tl.store(y + row * columns + i, v * scale * tl.load(w + i, mask=inside), mask=inside)


def launch_rms_norm(x, w):
    y = torch.empty_like(x)
    rms_norm[(x.shape[0],)](x, w, y, x.shape[0], x.shape[1], BLOCK=64)
    return y


# /// kernelmate
# sizes = [{ rows = 8, columns = 780 }, { rows = 3, columns = 4 }]
# require = ["columns % 4 == 0", "columns <= 1024"]
# grid = ["rows"]
# options = ["BLOCK=1024"]
# reference = "x * 2"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def double_rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(y + at, tl.load(x + at, mask=inside) * 2, mask=inside)


# /// kernelmate
# sizes = [{ rows = 6, columns = 200 }, { rows = 2, columns = 3 }]
# require = ["columns > 0", "columns <= 256"]
# grid = ["rows"]
# options = ["BLOCK=256"]
# reference = "np.max(x, axis=1)"
# [args]
# x = "in float32[rows, columns] ~ uniform(-2, -1)"
# out = "out float32[rows]"
# columns = "int32"
# ///
@triton.jit
def row_max(x, out, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + i, mask=i < columns)
    tl.store(out + tl.program_id(0), tl.max(v, axis=0))


# /// kernelmate
# sizes = [{ rows = 6, columns = 200 }, { rows = 2, columns = 3 }]
# require = ["columns <= 256"]
# grid = ["rows"]
# options = ["BLOCK=256"]
# reference = "(x.astype(np.float32) ** 2).sum(1)"
# [args]
# x = "in float16[rows, columns]"
# out = "out float32[rows]"
# columns = "int32"
# ///
@triton.jit
def squares_in_half(x, out, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * columns + i, mask=i < columns, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum((v * v).to(tl.float16), axis=0).to(tl.float32))
