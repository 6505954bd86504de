"""References of the kernels in this folder, in NumPy, as their authors might have written them."""

from __future__ import annotations

import numpy as np


def axpby_clip(x, y, alpha, beta, low, high):
    """A weighted sum within bounds."""
    return np.clip(alpha * x + beta * y, low, high)


def silu_mul(gate, up):
    """The gated product of a feed-forward layer."""
    return gate / (1 + np.exp(-gate)) * up


def bias_relu(x, bias):
    """A bias for each column, then max with 0."""
    return np.maximum(x + bias[None, :], 0)


def masked_fill(x, mask, value):
    """The value where a byte mask says so."""
    return np.where(mask != 0, value, x)


def half_hadamard(a, b):
    """The element-wise product in half precision."""
    return a * b


def brain_add(a, b):
    """The sum in bfloat16."""
    return a + b


def unpack_nibbles(packed):
    """Two signed 4-bit numbers of each byte, the lower one first."""
    wide = packed.astype(np.int32)
    both = np.stack([wide & 15, wide >> 4], axis=-1)
    return (both - 8).reshape(-1).astype(np.int8)


def gray(rgb):
    """Luma of interleaved bytes, rounded to the nearest."""
    r, g, b = rgb[:, 0].astype(np.int64), rgb[:, 1].astype(np.int64), rgb[:, 2].astype(np.int64)
    return ((77 * r + 150 * g + 29 * b + 128) >> 8).astype(np.uint8)


def complex_multiply(a, b):
    """Products of complex numbers whose parts lie beside each other."""
    out = np.empty_like(a)
    out[:, 0] = a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
    out[:, 1] = a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]
    return out


def outer_add(x, y):
    """All sums of one element of each vector."""
    return np.add.outer(x, y)


def sgd_momentum(weight, velocity, grad, rate, momentum):
    """A step of gradient descent; velocity first."""
    v = momentum * velocity + grad
    return weight - rate * v, v


def row_max(x):
    """The largest of each row."""
    return np.max(x, axis=-1)


def row_argmax(x):
    """The position of the first of the largest elements of each row."""
    return np.argmax(x, axis=1).astype(np.int32)


def logsumexp(x):
    """The logarithm of each row's sum of exponentials."""
    m = x.max(axis=1)
    return m + np.log(np.exp(x - m[:, None]).sum(axis=1))


def row_moments(x):
    """Mean and variance of each row."""
    return x.mean(axis=1), x.var(axis=1)


def log_softmax(x):
    """Logarithms of the softmax of each row."""
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))


def masked_softmax(x, mask):
    """Softmax over those elements of a row that a mask keeps."""
    held = np.where(mask == 0, -np.inf, x)
    e = np.exp(held - held.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def quantize_rows(x):
    """Each row scaled to int8 by its largest magnitude, and that scale."""
    scale = np.maximum(np.abs(x).max(axis=1), 1e-8) / 127
    return np.clip(np.rint(x / scale[:, None]), -127, 127).astype(np.int8), scale


def cosine_rows(a, b):
    """The cosine between rows of two matrices."""
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1) + 1e-12)


def kl_rows(p, q):
    """The divergence between rows of two distributions."""
    return np.sum(p * (np.log(p) - np.log(q)), axis=1)


def norm_rows(x):
    """Rows over their Euclidean norm."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def residual_rmsnorm(x, residual, weight):
    """The sum, and the sum over its root mean square."""
    total = x + residual
    return total, total / np.sqrt(np.mean(total**2, axis=-1, keepdims=True) + 1e-5) * weight


def layernorm_grad(dy, x, weight):
    """The gradient of a layer normalisation with respect to its input."""
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    normed = (x - mean) * rstd
    g = dy * weight
    return (g - g.mean(-1, keepdims=True) - normed * (g * normed).mean(-1, keepdims=True)) * rstd


def column_max(x):
    """The largest of each column."""
    return x.max(axis=0)


def column_moments(x):
    """Mean and variance of each column."""
    return np.mean(x, axis=0), np.var(x, axis=0)


def batchnorm_inference(x, mean, var, weight, bias):
    """Normalisation of each channel of an NCHW array by known moments."""
    scale = weight / np.sqrt(var + 1e-5)
    return x * scale[None, :, None] + (bias - mean * scale)[None, :, None]


def instance_norm(x):
    """Each channel of each image over its own moments."""
    mean = x.mean(axis=2, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=2, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5)


def groupnorm(x, weight, bias, groups):
    """Each group of channels over its own moments, with weight and bias for each channel."""
    batch, channels, pixels = x.shape
    grouped = x.reshape(batch, groups, -1)
    mean, var = grouped.mean(axis=2, keepdims=True), grouped.var(axis=2, keepdims=True)
    normed = ((grouped - mean) / np.sqrt(var + 1e-5)).reshape(batch, channels, pixels)
    return normed * weight[None, :, None] + bias[None, :, None]


def total_max(x):
    """The largest of all."""
    return x.max().reshape(1)


def mse(a, b):
    """The mean squared difference."""
    return np.mean((a - b) ** 2).reshape(1)


def matvec(a, x):
    """A matrix times a vector."""
    return a.dot(x)


def vecmat(x, a):
    """A vector times a matrix."""
    return x @ a


def linear_relu(x, weight, bias):
    """A layer: inputs times the weight's transpose, bias, max with 0."""
    return np.maximum(x @ weight.T + bias, 0)


def batched_matmul(a, b):
    """A product of matrices for each batch."""
    return np.einsum("bik,bkj->bij", a, b)


def half_matmul(a, b):
    """A product of matrices in half precision, added up in float."""
    return a.astype(np.float32) @ b.astype(np.float32)


def brain_linear_gelu(x, weight, bias):
    """A linear layer in bfloat16, then GELU by its tangent."""
    v = x.astype(np.float32) @ weight.astype(np.float32).T + bias.astype(np.float32)
    return 0.5 * v * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3)))


def half_scores(q, k, scale):
    """Scaled products of all queries with all keys of a head."""
    return scale * np.einsum("hid,hjd->hij", q.astype(np.float32), k.astype(np.float32))


def half_weighted(p, v):
    """Sums of values by the weights of each query."""
    return np.matmul(p.astype(np.float32), v.astype(np.float32))


def byte_linear(x, weight, x_scale, weight_scale):
    """A linear layer on quantised numbers, with a scale for each row of both."""
    return (x.astype(np.int32) @ weight.astype(np.int32).T) * x_scale[:, None] * weight_scale[None, :]


def half_weight_grad(dy, x):
    """The gradient of a linear layer's weights."""
    return dy.astype(np.float32).T @ x.astype(np.float32)


def half_decode(x, weight):
    """A linear layer of one row."""
    return x.astype(np.float32) @ weight.astype(np.float32).T


def brain_decode(x, weight, residual):
    """A linear layer of a few rows, added to its residual."""
    return x.astype(np.float32) @ weight.astype(np.float32) + residual.astype(np.float32)


def half_decode_relu(x, weight, bias):
    """A linear layer of some rows with a bias, then max with 0."""
    return np.maximum(np.einsum("ri,oi->ro", x.astype(np.float32), weight.astype(np.float32)) + bias, 0)


def half_ragged(a, b, alpha):
    """A scaled product of matrices whose depth is odd."""
    return alpha * (a.astype(np.float32) @ b.astype(np.float32))


def byte_weight_linear(x, weight, scale):
    """A linear layer whose weights are bytes with a scale for each of its outputs."""
    return x.astype(np.float32) @ (weight.astype(np.float32) * scale.astype(np.float32)[:, None]).T


def squared_distances(x, y):
    """Between all rows of two matrices."""
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)


def nchw_to_nhwc(x):
    """Channels moved to the end."""
    return np.transpose(x, (0, 2, 1)).copy()


def heads_first(x):
    """[batch, tokens, heads, dim] as [batch, heads, tokens, dim]."""
    return np.swapaxes(x, 1, 2)


def interleave(a, b):
    """Elements of two vectors in turn."""
    out = np.empty(2 * a.size, a.dtype)
    out[0::2] = a
    out[1::2] = b
    return out


def box_blur(x):
    """The mean of 3 x 3 neighbours, of those that are within the image by its edge repeated."""
    p = np.pad(x, 1, mode="edge")
    h, w = x.shape
    return sum(p[i : i + h, j : j + w] for i in range(3) for j in range(3)) / 9


def sobel(x):
    """Magnitude of the gradient inside, 0 at the border."""
    out = np.zeros_like(x)
    gx = x[:-2, 2:] + 2 * x[1:-1, 2:] + x[2:, 2:] - x[:-2, :-2] - 2 * x[1:-1, :-2] - x[2:, :-2]
    gy = x[2:, :-2] + 2 * x[2:, 1:-1] + x[2:, 2:] - x[:-2, :-2] - 2 * x[:-2, 1:-1] - x[:-2, 2:]
    out[1:-1, 1:-1] = np.sqrt(gx * gx + gy * gy)
    return out


def heat3d(u, c):
    """One explicit step of the heat equation inside a box; its faces stay."""
    v = u.copy()
    v[1:-1, 1:-1, 1:-1] += c * (
        u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
        + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:] - 6 * u[1:-1, 1:-1, 1:-1]
    )  # fmt: skip
    return v


def causal_conv(x, taps):
    """Each channel's signal weighted by four taps, the last for the element itself."""
    padded = np.pad(x, ((0, 0), (3, 0)))
    return sum(taps[:, k : k + 1] * padded[:, k : k + x.shape[1]] for k in range(4))


def avgpool(x):
    """The mean of 2 x 2 blocks."""
    n, h, w = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2).mean(axis=(2, 4))


def column_cumsum(x):
    """Running sums down the columns."""
    return np.cumsum(x, axis=0)


def exclusive_scan(x):
    """Sums of the elements before each one in its row."""
    return x.cumsum(axis=1) - x


def byte_histogram(x):
    """Returns the number of occurrences of each byte value."""
    return np.bincount(x, minlength=256).astype(np.uint32)


def gather_scale(table, index, scale):
    """Rows of a table by number, each times its own factor."""
    return table[index] * scale[:, None]


def bag_mean(table, index):
    """The mean of eight rows of a table for each bag."""
    return table[index].mean(axis=1)


def csr_row_mean(values, row_ptr):
    """The mean of each row of a compressed matrix; 0 if it is empty."""
    counts = np.diff(row_ptr)
    sums = np.zeros(len(counts))
    np.add.at(sums, np.repeat(np.arange(len(counts)), counts), values)
    return sums / np.maximum(counts, 1)


def ell_matvec(values, column, x):
    """A sparse matrix with as many elements in each row, times a vector."""
    return (values * x[column]).sum(axis=1)


def conv_line(x, w):
    """Convolutions of seven taps over all channels, zero beyond the ends."""
    padded = np.pad(x, ((0, 0), (0, 0), (3, 3)))
    return sum(np.einsum("oc,ncl->nol", w[:, :, k], padded[:, :, k : k + x.shape[2]]) for k in range(7))


def conv_image(x, w, bias):
    """Convolutions of 3 x 3 taps over all channels, zero beyond the border, and what is above zero of them."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + bias[:, None, None], 0)


def upsample_nearest(x):
    """Each pixel as a block of 2 x 2."""
    return x.repeat(2, axis=1).repeat(2, axis=2)


def _softmax(scores):
    """Along the keys."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def causal_attention(q, k, v, positions):
    """Attention of several heads, each position to itself and those before it."""
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    later = np.arange(positions)[None, :] > np.arange(positions)[:, None]
    return _softmax(np.where(later, -np.inf, scores)) @ v


def packed_attention(qkv, positions, heads, channels):
    """Attention of queries, keys and values that lie beside one another, with a bias by distance for each head."""
    q, k, v = (
        qkv[:, part * channels : (part + 1) * channels].reshape(positions, heads, channels // heads)
        for part in range(3)
    )
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(channels // heads)
    distance = np.arange(positions)[None, :] - np.arange(positions)[:, None]
    slopes = 2.0 ** (-8 * (np.arange(heads) + 1) / heads)
    scores = np.where(distance > 0, -np.inf, scores + slopes[:, None, None] * distance)
    return np.einsum("hij,jhd->ihd", _softmax(scores), v).reshape(positions, channels)


def decode_attention(q, keys, values, filled):
    """Attention of one new query of each head to a cache, of which a part is filled."""
    scores = np.einsum("hd,thd->ht", q, keys) / np.sqrt(q.shape[-1])
    scores = np.where(np.arange(len(keys)) < filled[0], scores, -np.inf)
    return np.einsum("ht,thd->hd", _softmax(scores), values)


def csr_inputs(rows, entries, seed):
    """Values, and where rows of uneven lengths begin."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, entries + 1, max(rows - 1, 0)))
    row_ptr = np.concatenate([[0], cuts, [entries]])[: rows + 1].astype(np.int32)
    return random.standard_normal(entries, np.float32), row_ptr


def swiglu_linear(x, gate, up):
    """A gated linear layer with weights of its own for the gate."""
    g = x @ gate
    return g / (1 + np.exp(-g)) * (x @ up)


def half_swiglu_linear(x, w):
    """A gated linear layer whose two weights are the halves of one matrix."""
    g, u = np.split(x @ w.T, 2, axis=1)
    return g / (1 + np.exp(-g)) * u


def complex_matmul(a_real, a_imag, b_real, b_imag):
    """The product of two complex matrices, real and imaginary parts apart."""
    return a_real @ b_real - a_imag @ b_imag, a_real @ b_imag + a_imag @ b_real


def cosine_similarities(a, b):
    """The cosine of each row of one matrix with each of the other."""
    return (a @ b.T) / (np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None])


def moving_average(x):
    """The mean of each element and its eight neighbours on either side, zeros beyond the ends."""
    padded = np.pad(x, ((0, 0), (8, 8)))
    return np.lib.stride_tricks.sliding_window_view(padded, 17, axis=1).sum(axis=-1) / 17


def running_average(x):
    """An exponential moving average along each row."""
    y, state = np.zeros_like(x), np.zeros(x.shape[0])
    for t in range(x.shape[1]):
        state = 0.9 * state + 0.1 * x[:, t]
        y[:, t] = state
    return y


def row_parity(x):
    """Exclusive or over each row."""
    return np.bitwise_xor.reduce(x, axis=1)
