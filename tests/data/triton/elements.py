"""Triton kernels of elements, with their contracts."""

import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

LOG2E = tl.constexpr(1.4426950408889634)


# /// kernelmate
# sizes = [{ n = 4096 }, { n = 1000 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=512"]
# reference = "x_ptr + y_ptr"
# [args]
# x_ptr = "in float32[n]"
# y_ptr = "in float32[n]"
# out_ptr = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp2(-x * LOG2E))


# /// kernelmate
# sizes = [{ n = 3000 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# reference = "gate / (1 + np.exp(-gate)) * up"
# [args]
# gate = "in float16[n]"
# up = "in float16[n]"
# out = "out float16[n]"
# n = "int32"
# ///
@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"]
)
@triton.jit
def silu_and_mul(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    g = tl.load(gate + i, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + i, (g * sigmoid(g) * u).to(out.dtype.element_ty), mask=inside)


def gelu_reference(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# /// kernelmate
# sizes = [{ n = 4096 }, { n = 77 }]
# grid = ["cdiv(n, BLOCK)"]
# reference = "elements.py:gelu_reference"
# [args]
# x = "in float32[n]"
# y = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(y + i, 0.5 * v * (1.0 + libdevice.tanh(inner)), mask=i < n)


# /// kernelmate
# sizes = [{ n = 8192 }, { n = 1000 }]
# require = ["n % 8 == 0"]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=1024", "num_warps=8"]
# reference = "scale * q"
# [args]
# q = "in int8[n]"
# scale = "float32 = 0.125"
# out = "out bfloat16[n]"
# n = "int32"
# ///
@triton.jit
def dequantise(q, scale, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, (tl.load(q + i, mask=i < n).to(tl.float32) * scale).to(tl.bfloat16), mask=i < n)


# /// kernelmate
# sizes = [{ n = 1000 }, { n = 16 }]
# require = ["n % 8 == 0"]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=256", "KIND=tl.float16", "ROUND='nearest'"]
# reference = "np.clip(x, -2, 2).astype(np.float16)"
# [args]
# x = "in float32[n]"
# y = "out float16[n]"
# n = "int32"
# step = "int32 = 1"
# ///
@triton.jit
def clip_and_cast(x, y, n, step, BLOCK: tl.constexpr, KIND: tl.constexpr, ROUND: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * step
    v = tl.load(x + i, mask=i < n)
    v = tl.where(v < -2.0, -2.0, tl.where(v > 2.0, 2.0, v))
    if ROUND == "nearest":
        tl.store(y + i, v.to(KIND), mask=i < n)
    else:
        tl.store(y + i, v.to(KIND, fp_downcast_rounding="rtz"), mask=i < n)


# /// kernelmate
# sizes = [{ n = 700 }, { n = 1 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["bias=None", "BLOCK=256"]
# reference = "np.maximum(x, 0)"
# [args]
# x = "in float32[n]"
# y = "out float32[n]"
# n = "int32"
# ///
@triton.jit
def relu_with_optional_bias(x, bias, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if bias is not None:
        v += tl.load(bias + i, mask=i < n)
    tl.store(y + i, tl.where(v < 0, 0.0, v), mask=i < n)
