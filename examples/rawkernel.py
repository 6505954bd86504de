"""CUDA in strings of a Python file: two kernels that CuPy compiles, each with its contract in the comments above."""

from __future__ import annotations

# /// kernelmate
# sizes = [{ n = 131072 }, { n = 31561 }, { n = 1 }]
# grid = "cdiv(n, block)"
# block = 256
# reference = "reference.py:ema_update"
# [args]
# shadow = "inout float32[n]"
# weights = "in float32[n]"
# decay = "float32 = 0.999"
# n = "int32"
# ///
EMA_UPDATE = r"""
extern "C" __global__ void ema_update(float* shadow, const float* weights, float decay, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) {
        shadow[i] = decay * shadow[i] + (1.0f - decay) * weights[i];
    }
}
"""


def ema_update(shadow, weights, decay=0.999):
    """Move `shadow` (float32, on the GPU) a little towards `weights`, in place."""
    import cupy as cp

    n = shadow.size
    kernel = cp.RawKernel(EMA_UPDATE, "ema_update")
    kernel(((n + 255) // 256,), (256,), (shadow, weights, cp.float32(decay), cp.int32(n)))


def causal_mask(scores):
    """Hide the future from attention scores (heads, length, length; float32, on the GPU), in place."""
    import cupy as cp

    # /// kernelmate
    # sizes = [{ heads = 4, length = 192 }, { heads = 3, length = 101 }, { heads = 1, length = 1 }]
    # grid = ["cdiv(length, block)", "length", "heads"]
    # block = 128
    # reference = "reference.py:causal_mask"
    # [args]
    # scores = "inout float32[heads, length, length]"
    # length = "int32"
    # ///
    kernel = cp.RawKernel(
        r"""
        extern "C" __global__ void causal_mask(float* scores, int length) {
            int key = blockDim.x * blockIdx.x + threadIdx.x;
            int query = blockIdx.y;
            if (key < length && key > query) {
                scores[((size_t)blockIdx.z * length + query) * length + key] = -1e30f;
            }
        }
        """,
        "causal_mask",
    )
    heads, length, _ = scores.shape
    kernel(((length + 127) // 128, length, heads), (128,), (scores, cp.int32(length)))
