"""The results of the kernels in this folder."""

import numpy as np


def histogram(x, bins, counts):
    return counts + np.bincount(x, minlength=bins).astype(np.int32)


def ring(x):
    return np.roll(x, 1, axis=1)[:, :, ::-1], x.sum(axis=(1, 2)).astype(np.int32)


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def stencil(x):
    for _ in range(6):
        padded = np.pad(x, ((0, 0), (1, 1)))
        x = 0.25 * padded[:, :-2] + 0.5 * padded[:, 1:-1] + 0.25 * padded[:, 2:]
    return x
