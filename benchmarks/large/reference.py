"""References of the kernels in this folder, in the varied styles in which users write NumPy.

Each function gets by keyword the arguments that it names: arrays in float64 (integers stay integers) and scalars. It
returns the expected output, or a tuple of outputs in the arguments' order.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def transpose(in_, rows, cols):
    """The transposed matrix."""
    out = np.zeros((cols, rows), dtype=in_.dtype)
    out[:] = in_.T
    return out


def softmax(x):
    """Softmax along the last axis."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _neighbours(size):
    """Lower and upper source index and the upper one's weight, for twice as many outputs as inputs."""
    position = np.maximum((np.arange(2 * size) + 0.5) / 2 - 0.5, 0)
    lower = np.floor(position).astype(int)
    return lower, np.minimum(lower + 1, size - 1), position - lower


def upsample_bilinear(image, height, width):
    """Images of twice the height and width, first along columns, then along rows."""
    y0, y1, fy = _neighbours(height)
    x0, x1, fx = _neighbours(width)
    tall = image[:, y0, :] * (1 - fy)[:, None] + image[:, y1, :] * fy[:, None]
    return tall[:, :, x0] * (1 - fx) + tall[:, :, x1] * fx


def matmul(A, B):  # noqa: N803 -- named as in the kernel
    """The matrix product."""
    return np.matmul(A, B)


def layernorm(x, gamma, beta, eps):
    """Each row to mean 0 and variance 1, times gamma, plus beta."""
    mean = x.mean(axis=1, keepdims=True)
    var = x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * gamma + beta


def histogram(samples):
    """Counts of the 256 byte values."""
    return np.bincount(samples, minlength=256).astype(np.int32)


def jacobi_step(u, c):
    """One step of the heat equation; the border stays as it is."""
    v = u.copy()
    v[1:-1, 1:-1] += c * (u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[1:-1, 1:-1])
    return v


def attention(q, k, v, scale):
    """Attention of one head."""
    scores = q @ k.T
    scores *= scale
    return softmax(scores) @ v


def nbody(position, mass, softening):
    """Acceleration of each body by all others."""
    acceleration = np.zeros_like(position)
    for start in range(0, len(position), 256):
        d = position[None, :, :] - position[start : start + 256, None, :]
        r2 = (d**2).sum(axis=2) + softening**2
        acceleration[start : start + 256] = np.einsum("ij,ijk->ik", mass / (r2 * np.sqrt(r2)), d)
    return acceleration


def make_csr(rows, cols, nnz, seed):
    """A random sparse matrix with unequal rows, the first ones longer, and a vector."""
    rng = np.random.default_rng(seed)
    lengths = np.bincount((rows * rng.random(nnz) ** 1.5).astype(np.int64), minlength=rows)
    return {
        "row_ptr": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        "col_idx": rng.integers(0, cols, nnz, dtype=np.int32),
        "values": rng.standard_normal(nnz, dtype=np.float32),
        "x": rng.standard_normal(cols, dtype=np.float32),
    }


def spmv(row_ptr, col_idx, values, x):
    """Sparse matrix times vector."""
    rows = len(row_ptr) - 1
    row_of = np.repeat(np.arange(rows), np.diff(row_ptr))
    return np.bincount(row_of, weights=values * x[col_idx], minlength=rows)


def gelu(x):
    """GELU by the tanh approximation."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def column_sum(x):
    """Sum of each column."""
    return np.einsum("ij->j", x)


def conv2d(x, w, b):
    """Same-size 3 x 3 correlation, one shifted copy of the padded input for each tap."""
    cout = w.shape[0]
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    y = np.zeros((cout, height, width), dtype=x.dtype)
    for dy in range(3):
        for dx in range(3):
            y += np.tensordot(w[:, :, dy, dx], padded[:, dy : dy + height, dx : dx + width], axes=1)
    return y + b[:, None, None]


def maxpool(x):
    """Maximum of each 2 x 2 window."""
    channels, height, width = x.shape
    return x.reshape(channels, height // 2, 2, width // 2, 2).max(axis=(2, 4))


def row_scan(x):
    """Inclusive prefix sums along each row."""
    return x.cumsum(axis=1)


def embedding(ids, table, dim):
    """Rows of the table times the square root of their length."""
    return np.take(table, ids, axis=0) * np.sqrt(dim)


def batchnorm_stats(x):
    """Mean and variance of each channel."""
    return np.mean(x, axis=(0, 2)), np.var(x, axis=(0, 2))


def scatter_add(index, values, out):
    """Values added to the bins of their indices."""
    np.add.at(out, index, values)
    return out


def cross_entropy(logits, labels):
    """Negative log-likelihood of each row's label."""
    z = logits - logits.max(axis=1, keepdims=True)
    picked = np.take_along_axis(z, labels[:, None].astype(np.int64), axis=1)[:, 0]
    return np.log(np.exp(z).sum(axis=1)) - picked


def fir_filter(x, h, taps):
    """Valid part of the correlation of each signal with the taps."""
    return sliding_window_view(x, taps, axis=1) @ h
