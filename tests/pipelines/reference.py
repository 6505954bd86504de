"""References of the pipelines beside this file."""

import numpy as np


def total(x):
    return np.sum(x).reshape(1)


def bias_gelu(a, b, bias):
    v = a @ b + bias
    return 0.5 * v * (1 + np.tanh(0.7978845608028654 * (v + 0.044715 * v**3)))


def product(a, b):
    return a @ b


def offsets(keys, bins):
    counts = np.bincount(keys, minlength=bins)
    return np.cumsum(counts) - counts


def layernorm(x, gain, shift):
    mean = x.mean(axis=1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gain + shift


def blurred_twice(x):
    for _ in range(2):
        x = (np.concatenate([x[:1], x[:-1]]) + x + np.concatenate([x[1:], x[-1:]])) / 3
    return x
