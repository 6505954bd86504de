"""Triton kernels that reduce rows, columns and segments, with their contracts."""

import numpy as np
import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ rows = 6, columns = 300 }, { rows = 1, columns = 1 }]
# require = ["columns > 0", "columns <= 512"]
# grid = ["rows"]
# options = ["BLOCK=512"]
# reference = "x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def log_softmax(x, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    v = tl.load(x + at, mask=i < columns, other=-float("inf"))
    v -= tl.max(v, axis=0)
    tl.store(y + at, v - tl.log(tl.sum(tl.exp(v), axis=0)), mask=i < columns)


@triton.jit
def welford_combine(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


# /// kernelmate
# sizes = [{ rows = 7, columns = 200 }, { rows = 1, columns = 1 }]
# require = ["columns > 0", "columns <= 256"]
# grid = ["rows"]
# options = ["BLOCK=256"]
# reference = "x.var(axis=1)"
# [args]
# x = "in float32[rows, columns]"
# out = "out float32[rows]"
# columns = "int32"
# ///
@triton.jit
def row_variance(x, out, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + tl.program_id(0) * columns + i, mask=inside, other=0.0)
    count = inside.to(tl.float32)
    _, m2, total = tl.reduce((v, tl.zeros_like(v), count), 0, welford_combine)
    tl.store(out + tl.program_id(0), m2 / total)


# /// kernelmate
# sizes = [{ rows = 100, columns = 70 }, { rows = 1, columns = 1 }]
# grid = ["cdiv(columns, COLUMNS)"]
# options = ["COLUMNS=32", "ROWS=16"]
# reference = "x.sum(0)"
# [args]
# x = "in float32[rows, columns]"
# out = "out float32[columns]"
# rows = "int32"
# columns = "int32"
# ///
@triton.jit
def column_sum(x, out, rows, columns, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, rows, ROWS):
        i = first + tl.arange(0, ROWS)
        acc += tl.load(
            x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns), other=0.0
        )
    tl.store(out + j, tl.sum(acc, axis=0), mask=j < columns)


def group_norm_reference(x, weight, bias):
    n, channels, pixels = x.shape
    groups = x.reshape(n, channels // 4, 4 * pixels)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * weight[:, None] + bias[:, None]


# /// kernelmate
# sizes = [{ images = 2, channels = 8, pixels = 50 }, { images = 1, channels = 4, pixels = 1 }]
# require = ["channels % 4 == 0", "pixels > 0", "pixels <= 128"]
# grid = ["images * channels // 4"]
# options = ["GROUP=4", "BLOCK=128"]
# reference = "reductions.py:group_norm_reference"
# [args]
# x = "in float32[images, channels, pixels]"
# weight = "in float32[channels]"
# bias = "in float32[channels]"
# y = "out float32[images, channels, pixels]"
# channels = "int32"
# pixels = "int32"
# ///
@triton.jit
def group_norm(x, weight, bias, y, channels, pixels, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    c, p = tl.arange(0, GROUP), tl.arange(0, BLOCK)
    inside = (p < pixels)[None, :] & (c >= 0)[:, None]
    at = (group * GROUP + c)[:, None] * pixels + p[None, :]
    v = tl.load(x + at, mask=inside, other=0.0)
    mean = tl.sum(tl.sum(v, axis=1), axis=0) / (GROUP * pixels)
    difference = tl.where(inside, v - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(tl.sum(difference * difference, axis=1), axis=0) / (GROUP * pixels) + 1e-5)
    channel = (group * GROUP) % channels + c
    w, b = tl.load(weight + channel), tl.load(bias + channel)
    tl.store(y + at, difference * rstd * w[:, None] + b[:, None], mask=inside)


# /// kernelmate
# sizes = [{ rows = 40, columns = 60 }, { rows = 1, columns = 1 }]
# grid = ["cdiv(columns, COLUMNS)"]
# options = ["COLUMNS=32", "ROWS=32"]
# reference = "reductions.py:weight_gradient_reference"
# [args]
# dy = "in float32[rows, columns]"
# normal = "in float32[rows, columns]"
# dweight = "out float32[columns]"
# dbias = "out float32[columns]"
# rows = "int32"
# columns = "int32"
# ///
@triton.jit
def layer_norm_weight_gradient(dy, normal, dweight, dbias, rows, columns, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dw = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, rows, ROWS):
        i = first + tl.arange(0, ROWS)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        at = i[:, None] * columns + j[None, :]
        d = tl.load(dy + at, mask=inside, other=0.0)
        dw += d * tl.load(normal + at, mask=inside, other=0.0)
        db += d
    tl.store(dweight + j, tl.sum(dw, axis=0), mask=j < columns)
    tl.store(dbias + j, tl.sum(db, axis=0), mask=j < columns)


def weight_gradient_reference(dy, normal):
    return (dy * normal).sum(0), dy.sum(0)


def segment_sum_reference(values, starts, rows):
    return np.array([values[starts[i] : starts[i + 1]].sum() for i in range(rows)], values.dtype)


def segment_inputs(rows, n, seed):
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.integers(0, n + 1, rows - 1)) if rows > 1 else np.zeros(0)
    starts = np.concatenate([[0], inner, [n]]).astype(np.int32)
    return {"values": rng.standard_normal(n).astype(np.float32), "starts": starts}


# /// kernelmate
# sizes = [{ rows = 9, n = 200 }, { rows = 1, n = 1 }]
# require = ["rows > 0"]
# grid = ["rows"]
# options = ["BLOCK=64", "num_warps=2"]
# inputs = "reductions.py:segment_inputs"
# reference = "reductions.py:segment_sum_reference"
# [args]
# values = "in float32[n]"
# starts = "in int32[rows + 1]"
# out = "out float32[rows]"
# ///
@triton.jit
def segment_sum(values, starts, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first, end = tl.load(starts + row), tl.load(starts + row + 1)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(first, end, BLOCK):
        i = at + tl.arange(0, BLOCK)
        acc += tl.load(values + i, mask=i < end, other=0.0)
    tl.store(out + row, tl.sum(acc, axis=0))


# /// kernelmate
# sizes = [{ rows = 5, columns = 90 }, { rows = 1, columns = 1 }]
# require = ["columns <= 128"]
# grid = ["rows"]
# options = ["BLOCK=128"]
# reference = "np.cumsum(x[:, ::-1], axis=1)[:, ::-1]"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def reverse_cumsum(x, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    tl.store(y + at, tl.cumsum(tl.load(x + at, mask=i < columns, other=0.0), axis=0, reverse=True), mask=i < columns)
