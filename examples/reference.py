"""NumPy references of the example kernels.

Each function gets by keyword the arguments it names: arrays in float64 (integers stay integers) and scalars. It returns
the expected output, or a tuple of them in argument order. Sizes of zero are in order everywhere.
"""

from __future__ import annotations

import numpy as np


def softmax(x):
    """Softmax along the last axis."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def transpose(in_):
    """The transposed matrix."""
    return in_.T


def ddim_step(x, eps, noise, alpha, alpha_prev, sigma):
    """Denoising diffusion implicit models: the update from alpha to alpha_prev, with noise of strength sigma."""
    clean = (x - np.sqrt(1 - alpha) * eps) / np.sqrt(alpha)
    return np.sqrt(alpha_prev) * clean + np.sqrt(1 - alpha_prev - sigma**2) * eps + sigma * noise


def _silu(x):
    return x / (1 + np.exp(-x))


def groupnorm_silu(x, weight, bias, groups, eps):
    """Group normalisation of NCHW data (pixels flattened), then SiLU."""
    batch, channels, pixels = x.shape
    grouped = x.reshape(batch, groups, channels // groups * pixels)
    count = max(grouped.shape[2], 1)
    centred = grouped - grouped.sum(axis=2, keepdims=True) / count
    variance = (centred**2).sum(axis=2, keepdims=True) / count
    normalised = (centred / np.sqrt(variance + eps)).reshape(x.shape)
    return _silu(normalised * weight[:, None] + bias[:, None])


def rmsnorm(x, weight, eps):
    """Each row divided by its root mean square, times the weights."""
    mean_square = (x**2).sum(axis=1, keepdims=True) / max(x.shape[1], 1)
    return x / np.sqrt(mean_square + eps) * weight


def layernorm(x, gamma, beta, eps):
    """Each row to mean 0 and variance 1, times gamma, plus beta."""
    count = max(x.shape[1], 1)
    centred = x - x.sum(axis=1, keepdims=True) / count
    variance = (centred**2).sum(axis=1, keepdims=True) / count
    return centred / np.sqrt(variance + eps) * gamma + beta


def rope(q, cosines, sines, positions):
    """Pairs (d, d + dim/2) of every head rotated by the angle of the token's position."""
    half = q.shape[2] // 2
    rows = positions.astype(np.int64)
    c, s = cosines[rows][:, None, :], sines[rows][:, None, :]
    low, high = q[:, :, :half], q[:, :, half:]
    return np.concatenate([low * c - high * s, low * s + high * c], axis=2)


def matmul(a, b):
    """The matrix product."""
    return a @ b


def histogram(samples, counts):
    """Adds the counts of the 256 byte values to `counts`."""
    return counts + np.bincount(samples.astype(np.int64), minlength=256).astype(counts.dtype)


def heat_step(u, rate):
    """One explicit Euler step of the heat equation; the border stays."""
    after = u.copy()
    around = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1]
    after[1:-1, 1:-1] += rate * (around - 4 * u[1:-1, 1:-1])
    return after


def dequantize_int8(q, scale, zero):
    """Weights with a scale and a zero point per row."""
    return scale[:, None] * (q.astype(np.float64) - zero.astype(np.float64)[:, None])


def make_csr(rows, cols, nnz, seed):
    """A random sparse matrix in CSR with a few heavy rows, and a vector to multiply it with."""
    rng = np.random.default_rng(seed)
    row_of = np.sort((rows * rng.random(nnz) ** 2).astype(np.int64))
    return {
        "offsets": np.searchsorted(row_of, np.arange(rows + 1)).astype(np.int32),
        "columns": rng.integers(0, cols, nnz, dtype=np.int32),
        "values": rng.standard_normal(nnz, dtype=np.float32),
        "x": rng.standard_normal(cols, dtype=np.float32),
    }


def spmv_csr(offsets, columns, values, x):
    """Sparse matrix times vector."""
    offsets = offsets.astype(np.int64)
    row_of = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.bincount(row_of, weights=values * x[columns.astype(np.int64)], minlength=offsets.size - 1)


def swiglu(gate, up):
    """SiLU of the gate, times the up projection."""
    return _silu(gate) * up


def dot(x, y, result):
    """Adds the dot product to `result`."""
    return result + x @ y


def embedding(ids, table, position):
    """Rows of the table, plus the position's embedding."""
    return table[ids.astype(np.int64)] + position


def row_scan(x):
    """Inclusive prefix sums along each row."""
    return np.cumsum(x, axis=1)


def attention_row(q, k, v, scale):
    """Attention of one query per head over a cache of keys and values."""
    weights = softmax(np.einsum("hd,htd->ht", q, k) * scale)
    return np.einsum("ht,htd->hd", weights, v)


def depthwise_conv(x, weight):
    """Correlates each channel with its own 3 x 3 filter, with zero padding."""
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    shifted = [padded[:, dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3)]
    return np.einsum("schw,cs->chw", np.stack(shifted), weight.reshape(-1, 9))


def gated_residual(hidden, branch, gate):
    """The hidden state plus the branch's output, gated per channel."""
    return hidden + gate * branch


def bias_gelu(x, bias):
    """QuickGELU of x + bias."""
    v = x + bias
    return v / (1 + np.exp(-1.702 * v))


def l2_normalize(x, floor):
    """Divides each row by its Euclidean norm, or by `floor` if that is larger."""
    return x / np.maximum(np.sqrt((x**2).sum(axis=1, keepdims=True)), floor)


def adamw(param, grad, first, second, lr, decay, correction1, correction2):
    """AdamW with decoupled weight decay: new parameters and moments. The betas are floats in the kernel."""
    beta1, beta2 = float(np.float32(0.9)), float(np.float32(0.999))
    m = beta1 * first + (1 - beta1) * grad
    v = beta2 * second + (1 - beta2) * grad**2
    step = (m / correction1) / (np.sqrt(v / correction2) + 1e-8)
    return param - lr * (step + decay * param), m, v


def ema_update(shadow, weights, decay):
    """Exponential moving average of weights."""
    return decay * shadow + (1 - decay) * weights


def causal_mask(scores):
    """Scores of later keys replaced by -1e30."""
    length = scores.shape[-1]
    hidden = np.arange(length)[None, :] > np.arange(length)[:, None]
    return np.where(hidden, float(np.float32(-1e30)), scores)
