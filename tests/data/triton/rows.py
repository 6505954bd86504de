"""Triton kernels of rows, with their contracts."""

import numpy as np
import triton
import triton.language as tl


def softmax_reference(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# /// kernelmate
# sizes = [{ rows = 24, columns = 781 }, { rows = 3, columns = 1 }]
# require = ["columns <= 1024"]
# grid = ["rows"]
# options = ["BLOCK=1024"]
# reference = "rows.py:softmax_reference"
# [args]
# y = "out float32[rows, columns]"
# x = "in float32[rows, columns]"
# stride = "int32 = columns"
# columns = "int32"
# ///
@triton.jit
def softmax(y, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride + offsets, values / tl.sum(values, axis=0), mask=offsets < columns)


def layer_norm_reference(x, weight, bias):
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    return (x - mean) * rstd * weight + bias, mean[:, 0], rstd[:, 0]


# /// kernelmate
# sizes = [{ rows = 9, columns = 500 }, { rows = 2, columns = 33 }]
# require = ["columns > 0"]
# grid = ["rows"]
# options = ["BLOCK=128", "eps=0.00001"]
# reference = "rows.py:layer_norm_reference"
# [args]
# x = "in float32[rows, columns]"
# weight = "in float32[columns]"
# bias = "in float32[columns]"
# y = "out float32[rows, columns]"
# mean = "out float32[rows]"
# rstd = "out float32[rows]"
# columns = "int32"
# ///
@triton.jit
def layer_norm(x, weight, bias, y, mean, rstd, columns, eps: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    y += row * columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < columns, other=0.0)
    average = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        difference = tl.where(i < columns, tl.load(x + i, mask=i < columns, other=0.0) - average, 0.0)
        squares += difference * difference
    inverse = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(mean + row, average)
    tl.store(rstd + row, inverse)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < columns
        w, b = tl.load(weight + i, mask=inside), tl.load(bias + i, mask=inside)
        tl.store(y + i, (tl.load(x + i, mask=inside) - average) * inverse * w + b, mask=inside)


def layer_norm_backward_reference(dy, x, weight):
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    normal, scaled = (x - mean) * rstd, dy * weight
    c1 = (normal * scaled).mean(1, keepdims=True)
    return (scaled - (normal * c1 + scaled.mean(1, keepdims=True))) * rstd


# /// kernelmate
# sizes = [{ rows = 6, columns = 300 }, { rows = 2, columns = 5 }]
# require = ["columns > 0", "columns <= 512"]
# grid = ["rows"]
# options = ["BLOCK=512"]
# reference = "rows.py:layer_norm_backward_reference"
# [args]
# dy = "in float32[rows, columns]"
# x = "in float32[rows, columns]"
# weight = "in float32[columns]"
# dx = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def layer_norm_backward(dy, x, weight, dx, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i < columns
    at = tl.program_id(0) * columns + i
    value = tl.load(x + at, mask=inside, other=0.0)
    mean = tl.sum(value, axis=0) / columns
    difference = tl.where(inside, value - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(difference * difference, axis=0) / columns + 1e-5)
    normal = difference * rstd
    scaled = tl.load(dy + at, mask=inside, other=0.0) * tl.load(weight + i, mask=inside, other=0.0)
    c1 = tl.sum(normal * scaled, axis=0) / columns
    c2 = tl.sum(scaled, axis=0) / columns
    tl.store(dx + at, (scaled - (normal * c1 + c2)) * rstd, mask=inside)


# /// kernelmate
# sizes = [{ rows = 5, columns = 700 }, { rows = 1, columns = 1 }]
# require = ["columns > 0"]
# grid = ["rows"]
# reference = "x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w"
# [args]
# x = "in float32[rows, columns]"
# w = "in float32[columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def rms_norm(x, w, y, columns, BLOCK: tl.constexpr = 256):
    row = tl.program_id(0).to(tl.int64) * columns
    squares = 0.0
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        v = tl.load(x + row + i, mask=i < columns, other=0.0)
        squares += tl.sum(v * v, axis=0)
    scale = tl.rsqrt(squares / columns + 1e-6)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        v = tl.load(x + row + i, mask=i < columns)
        tl.store(y + row + i, v * scale * tl.load(w + i, mask=i < columns), mask=i < columns)


def cross_entropy_reference(logits, labels):
    top = logits.max(1, keepdims=True)
    logsum = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
    return logsum - np.take_along_axis(logits, labels[:, None].astype(np.int64), 1)[:, 0]


# /// kernelmate
# sizes = [{ rows = 7, classes = 333 }, { rows = 1, classes = 2 }]
# require = ["classes > 0", "classes <= 512"]
# grid = ["rows"]
# options = ["BLOCK=512", "num_warps=2"]
# reference = "rows.py:cross_entropy_reference"
# [args]
# logits = "in float32[rows, classes]"
# labels = "in int32[rows] ~ integers(0, classes)"
# loss = "out float32[rows]"
# classes = "int32"
# ///
@triton.jit
def cross_entropy(logits, labels, loss, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(logits + row * classes + i, mask=i < classes, other=-float("inf"))
    top = tl.max(v, axis=0)
    total = tl.sum(tl.exp(v - top), axis=0)
    own = tl.load(logits + row * classes + tl.load(labels + row))
    tl.store(loss + row, tl.log(total) + top - own)


# /// kernelmate
# sizes = [{ rows = 8, columns = 200 }, { rows = 2, columns = 1 }]
# require = ["columns > 0", "columns <= 256"]
# grid = ["rows"]
# options = ["BLOCK=256"]
# reference = "np.argmax(x, axis=1)"
# [args]
# x = "in float32[rows, columns]"
# out = "out int32[rows]"
# columns = "int32"
# ///
@triton.jit
def row_argmax(x, out, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    tl.store(out + row, tl.argmax(v, axis=0))


# /// kernelmate
# sizes = [{ rows = 6, columns = 120 }, { rows = 2, columns = 1 }]
# require = ["columns <= 128"]
# grid = ["rows"]
# options = ["BLOCK=128"]
# reference = "np.cumsum(x, axis=1)"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def row_cumsum(x, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    tl.store(y + at, tl.cumsum(tl.load(x + at, mask=i < columns, other=0.0), axis=0), mask=i < columns)


@triton.jit
def first_order(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


def recurrence_reference(a, b):
    h, out = np.zeros(a.shape[0], a.dtype), np.empty_like(b)
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        out[:, t] = h
    return out


# /// kernelmate
# sizes = [{ rows = 4, steps = 60 }, { rows = 2, steps = 1 }]
# require = ["steps <= 64"]
# grid = ["rows"]
# options = ["BLOCK=64", "num_warps=1"]
# reference = "rows.py:recurrence_reference"
# [args]
# a = "in float32[rows, steps] ~ uniform(0, 1)"
# b = "in float32[rows, steps]"
# out = "out float32[rows, steps]"
# steps = "int32"
# ///
@triton.jit
def linear_recurrence(a, b, out, steps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * steps + i
    decay = tl.load(a + at, mask=i < steps, other=1.0)
    value = tl.load(b + at, mask=i < steps, other=0.0)
    _, state = tl.associative_scan((decay, value), 0, first_order)
    tl.store(out + at, state, mask=i < steps)


# /// kernelmate
# sizes = [{ rows = 3, columns = 60 }, { rows = 1, columns = 1 }]
# require = ["columns <= 64"]
# grid = ["rows"]
# options = ["BLOCK=64"]
# reference = "np.sort(x, axis=1)"
# [args]
# x = "in float32[rows, columns]"
# y = "out float32[rows, columns]"
# columns = "int32"
# ///
@triton.jit
def row_sort(x, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + i
    v = tl.load(x + at, mask=i < columns, other=float("inf"))
    tl.store(y + at, tl.sort(v), mask=i < columns)
