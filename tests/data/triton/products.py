"""Triton kernels of products of matrices and windows, with their contracts."""

import numpy as np
import triton
import triton.language as tl


def linear_reference(x, w, bias):
    return np.maximum(x @ w.T + bias, 0)


# /// kernelmate
# sizes = [{ M = 40, N = 50, K = 64 }, { M = 3, N = 5, K = 17 }]
# grid = ["cdiv(M, BLOCK_M)", "cdiv(N, BLOCK_N)"]
# options = ["BLOCK_M=32", "BLOCK_N=32", "BLOCK_K=32"]
# reference = "products.py:linear_reference"
# [args]
# x = "in bfloat16[M, K]"
# w = "in bfloat16[N, K]"
# bias = "in float32[N]"
# y = "out float32[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def linear_relu(x, w, bias, y, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        left = tl.load(x + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(w + j[None, :] * K + k[:, None], mask=(j[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(left, right, acc)
    acc += tl.load(bias + j, mask=j < N, other=0.0)[None, :]
    acc = tl.where(acc < 0, 0.0, acc)
    tl.store(y + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


# /// kernelmate
# sizes = [{ B = 3, M = 20, N = 24, K = 40 }, { B = 1, M = 1, N = 1, K = 1 }]
# grid = ["cdiv(M, BLOCK)", "cdiv(N, BLOCK)", "B"]
# options = ["BLOCK=16", "BLOCK_K=16", "num_warps=2"]
# reference = "a @ b"
# [args]
# a = "in float32[B, M, K]"
# b = "in float32[B, K, N]"
# c = "out float32[B, M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def batched_matmul(a, b, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(2)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x = tl.load(
            a + batch * M * K + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0
        )
        y = tl.load(
            b + batch * K * N + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0
        )
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(c + batch * M * N + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


def grouped_reference(x, w, ends, groups):
    y, first = np.zeros((x.shape[0], w.shape[2]), x.dtype), 0
    for group in range(groups):
        y[first : ends[group]] = x[first : ends[group]] @ w[group]
        first = ends[group]
    return y


def grouped_inputs(rows, groups, K, N, seed):
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.integers(0, rows + 1, groups - 1)) if groups > 1 else np.zeros(0)
    x, w = rng.standard_normal((rows, K)), rng.standard_normal((groups, K, N))
    ends = np.concatenate([inner, [rows]]).astype(np.int32)
    return {"x": x.astype(np.float16), "w": w.astype(np.float16), "ends": ends}


# /// kernelmate
# sizes = [{ rows = 70, groups = 3, K = 32, N = 20 }, { rows = 1, groups = 1, K = 1, N = 1 }]
# require = ["groups > 0"]
# grid = ["groups", "cdiv(N, BLOCK_N)"]
# options = ["BLOCK_M=16", "BLOCK_N=32", "BLOCK_K=32", "num_warps=2"]
# inputs = "products.py:grouped_inputs"
# reference = "products.py:grouped_reference"
# [args]
# x = "in float16[rows, K]"
# w = "in float16[groups, K, N]"
# ends = "in int32[groups]"
# y = "out float32[rows, N]"
# K = "int32"
# N = "int32"
# ///
@triton.jit
def grouped_matmul(x, w, ends, y, K, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    group = tl.program_id(0)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    start = tl.load(ends + group - 1, mask=group > 0, other=0)
    end = tl.load(ends + group)
    for top in range(start, end, BLOCK_M):
        i = top + tl.arange(0, BLOCK_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for first in range(0, K, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            a = tl.load(x + i[:, None] * K + k[None, :], mask=(i[:, None] < end) & (k[None, :] < K), other=0.0)
            b = tl.load(
                w + group * K * N + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0
            )
            acc = tl.dot(a, b, acc)
        tl.store(y + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < end) & (j[None, :] < N))


# /// kernelmate
# sizes = [{ channels = 5, n = 150 }, { channels = 1, n = 1 }]
# grid = ["cdiv(n, BLOCK)", "channels"]
# options = ["TAPS=4", "BLOCK=64"]
# reference = "products.py:causal_convolution_reference"
# [args]
# x = "in float32[channels, n]"
# w = "in float32[channels, 4]"
# y = "out float32[channels, n]"
# n = "int32"
# ///
@triton.jit
def causal_convolution(x, w, y, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        at = i - (TAPS - 1) + tap
        v = tl.load(x + channel * n + at, mask=(at >= 0) & (at < n), other=0.0)
        acc += v * tl.load(w + channel * TAPS + tap)
    tl.store(y + channel * n + i, acc, mask=i < n)


def causal_convolution_reference(x, w):
    padded = np.pad(x, ((0, 0), (3, 0)))
    return sum(padded[:, tap : tap + x.shape[1]] * w[:, tap : tap + 1] for tap in range(4))


# /// kernelmate
# sizes = [{ rows = 20, columns = 34 }, { rows = 2, columns = 2 }]
# require = ["rows % 2 == 0", "columns % 2 == 0"]
# grid = ["rows // 2", "cdiv(columns // 2, BLOCK)"]
# options = ["BLOCK=32", "num_warps=1"]
# reference = "x.reshape(rows // 2, 2, columns // 2, 2).mean(axis=(1, 3))"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows // 2, columns // 2]"
# columns = "int32"
# ///
@triton.jit
def average_pool(x, y, columns, BLOCK: tl.constexpr):
    row, half = tl.program_id(0), columns // 2
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for down in tl.static_range(2):
        for across in tl.static_range(2):
            acc += tl.load(x + (2 * row + down) * columns + 2 * j + across, mask=j < half, other=0.0)
    tl.store(y + row * half + j, acc * 0.25, mask=j < half)


# /// kernelmate
# sizes = [{ M = 40, N = 48, K = 72 }, { M = 3, N = 8, K = 16 }]
# require = ["N % 8 == 0", "K % 8 == 0"]
# grid = ["cdiv(M, BLOCK)", "cdiv(N, BLOCK)"]
# options = ["BLOCK=32"]
# reference = "a.astype(np.float32) @ b"
# [args]
# a = "in float16[M, K]"
# b = "in float16[K, N]"
# c = "out float32[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def described_matmul(a, b, c, M, N, K, BLOCK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BLOCK, BLOCK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    result = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    i, j = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(left.load([i, k]), right.load([k, j]), acc)
    result.store([i, j], acc)
