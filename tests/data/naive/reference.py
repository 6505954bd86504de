"""NumPy references of the naive kernels; arguments come by keyword, floats as float64."""

from __future__ import annotations

import numpy as np


def softmax_rows(logits):
    """Softmax along each row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return shifted / shifted.sum(axis=1, keepdims=True)


def gemm(alpha, A, B, beta, C):
    """The matrix product, scaled and added."""
    return alpha * (A @ B) + beta * C


def letter_counts(data, bins):
    """Returns `bins` plus the number of occurrences of each value from 0 to 63."""
    data = data.astype(np.int64)
    return bins + np.bincount(data[(data >= 0) & (data < 64)], minlength=64).astype(bins.dtype)


def sum_interleaved(g_idata):
    """Sums of 512 elements each."""
    padded = np.zeros(-(-g_idata.size // 512) * 512)
    padded[: g_idata.size] = g_idata
    return padded.reshape(-1, 512).sum(axis=1)


def layer_norm_half(in_, gain):
    """Rows to mean 0 and variance 1, times the gain."""
    centred = in_ - in_.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gain


def fir_filter(signal, coeff, len, taps):  # noqa: A002 -- the kernel's own names
    """Correlation with the coefficients."""
    return sum((signal[t : t + len] * coeff[t] for t in range(taps)), np.zeros(len))


def rgb_to_gray(image):
    """Luminance, cut to a whole number."""
    return np.floor(image.astype(np.float64) @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


def gelu(x):
    """GELU by its tanh approximation."""
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def pairwise_l2(ptsA, ptsB):
    """Squared Euclidean distance of every pair."""
    return ((ptsA[:, None, :] - ptsB[None, :, :]) ** 2).sum(axis=2)


def count_above(samples, threshold, hits):
    """Number of samples above the threshold, added to what was there."""
    return hits + np.count_nonzero(samples > threshold)


def row_variance(X):
    """Mean and variance of each row."""
    return X.mean(axis=1), X.var(axis=1)


def field_scale(field, profile):
    """The field times a profile along its last axis."""
    return field * profile


def single_block_axpy(a, x, y):
    """y + a x."""
    return y + a * x


def chunked_convert(pcm):
    """Samples from -1 to 1."""
    return pcm.astype(np.float64) / 32768


def nbody_step(bodies, eps2):
    """Softened gravity of all bodies on each."""
    place, mass = bodies[:, :3], bodies[:, 3]
    away = place[None, :, :] - place[:, None, :]
    weight = mass[None, :] * ((away**2).sum(axis=2) + eps2) ** -1.5
    return (away * weight[:, :, None]).sum(axis=1)


def box_blur(src, radius):
    """Mean over a square, borders repeated."""
    padded = np.pad(src, radius, mode="edge")
    side = 2 * radius + 1
    rows, cols = src.shape
    total = sum(padded[i : i + rows, j : j + cols] for i in range(side) for j in range(side))
    return total / side**2


def argmax_rows(scores):
    """Returns the position of the largest score in each row, and its softmax."""
    best = scores.argmax(axis=1)
    top = scores[np.arange(len(scores)), best]
    return best.astype(np.int32), np.exp(top) / np.exp(scores).sum(axis=1)


def sum_of_squares(signal, energy):
    """The sum of squares, added to what was there."""
    return energy + (signal**2).sum()
