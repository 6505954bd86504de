"""Triton kernels of matrices, with their contracts."""

import numpy as np
import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ M = 96, N = 80, K = 64 }, { M = 33, N = 17, K = 40 }, { M = 1, N = 1, K = 1 }]
# grid = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
# options = ["BLOCK_M=32", "BLOCK_N=32", "BLOCK_K=32", "GROUP=4", "num_stages=2"]
# reference = "a @ b"
# [args]
# a = "in float16[M, K]"
# b = "in float16[K, N]"
# c = "out float16[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# stride_am = "int32 = K"
# stride_ak = "int32 = 1"
# stride_bk = "int32 = N"
# stride_bn = "int32 = 1"
# ///
@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    group = pid // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    row = group * GROUP + (pid % (GROUP * across)) % height
    column = (pid % (GROUP * across)) // height
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(a_tile, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        y = tl.load(b_tile, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16), mask=inside)


# /// kernelmate
# sizes = [{ M = 40, N = 48, K = 64 }, { M = 5, N = 3, K = 33 }]
# grid = ["cdiv(M, BLOCK)", "cdiv(N, BLOCK)"]
# options = ["BLOCK=32", "BLOCK_K=32"]
# reference = "(a.astype(np.int32) @ b.astype(np.int32)) * scale"
# [args]
# a = "in int8[M, K]"
# b = "in int8[K, N]"
# scale = "float32 = 0.01"
# c = "out float32[M, N]"
# M = "int32"
# N = "int32"
# K = "int32"
# ///
@triton.jit
def quantised_matmul(a, b, scale, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0)
        y = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0)
        acc += tl.dot(x, y)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float32) * scale, mask=inside)


# /// kernelmate
# sizes = [{ M = 50, K = 200 }, { M = 1, K = 1 }]
# grid = ["cdiv(M, BLOCK_M)"]
# options = ["BLOCK_M=16", "BLOCK_K=64"]
# reference = "a @ x"
# [args]
# a = "in float32[M, K]"
# x = "in float32[K]"
# y = "out float32[M]"
# M = "int32"
# K = "int32"
# ///
@triton.jit
def matvec(a, x, y, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        inside = (rows[:, None] < M) & (k[None, :] < K)
        tile = tl.load(a + rows[:, None] * K + k[None, :], mask=inside, other=0.0)
        acc += tl.sum(tile * tl.load(x + k, mask=k < K, other=0.0)[None, :], axis=1)
    tl.store(y + rows, acc, mask=rows < M)


# /// kernelmate
# sizes = [{ rows = 50, columns = 70 }, { rows = 1, columns = 1 }]
# grid = ["cdiv(rows, BLOCK)", "cdiv(columns, BLOCK)"]
# options = ["BLOCK=32"]
# reference = "x.T"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[columns, rows]"
# rows = "int32"
# columns = "int32"
# ///
@triton.jit
def transpose(x, y, rows, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns))
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(tile), mask=(j[:, None] < columns) & (i[None, :] < rows))


def attention_reference(q, k, v, scale):
    s = np.einsum("hid,hjd->hij", q, k) * scale
    s = np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,hjd->hid", e / e.sum(-1, keepdims=True), v)


# /// kernelmate
# sizes = [{ H = 2, T = 70 }, { H = 1, T = 1 }]
# grid = ["cdiv(T, BLOCK_M)", "H"]
# options = ["D=32", "BLOCK_M=32", "BLOCK_N=32", "num_stages=2"]
# reference = "matrices.py:attention_reference"
# accumulate = "float16"
# [args]
# q = "in float16[H, T, 32]"
# k = "in float16[H, T, 32]"
# v = "in float16[H, T, 32]"
# out = "out float16[H, T, 32]"
# T = "int32"
# scale = "float32 = 0.25"
# ///
@triton.jit
def flash_attention(q, k, v, out, T, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * T * D
    rows, d = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    query = tl.load(q + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < T, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for first in range(0, (block + 1) * BLOCK_M, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        key = tl.load(k + base + keys[None, :] * D + d[:, None], mask=keys[None, :] < T, other=0.0)
        s = tl.dot(query, key) * scale
        s = tl.where((rows[:, None] >= keys[None, :]) & (keys[None, :] < T), s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        factor = tl.exp(top - new)
        value = tl.load(v + base + keys[:, None] * D + d[None, :], mask=keys[:, None] < T, other=0.0)
        acc = tl.dot(p.to(tl.float16), value, acc * factor[:, None])
        total = total * factor + tl.sum(p, axis=1)
        top = new
    result = (acc / total[:, None]).to(tl.float16)
    tl.store(out + base + rows[:, None] * D + d[None, :], result, mask=rows[:, None] < T)
