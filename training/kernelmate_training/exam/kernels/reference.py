"""What the kernels of the exam must compute, in NumPy, and the inputs that are bound to one another.

References get by keyword the arguments that they name: arrays in float64 (integers stay integers) and scalars; what they return
is the expected output, or a tuple of them in argument order. Makers get sizes and a seed. Sizes of zero are in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def make_padded(zeilen: int, breite: int, seed: int) -> dict[str, Array]:
    """Rows of random lengths of at least one."""
    rng = np.random.default_rng(seed)
    return {
        "eingabe": rng.standard_normal((zeilen, breite), dtype=np.float32),
        "laenge": rng.integers(1, breite + 1, zeilen, dtype=np.int32),
    }


def padded_softmax(eingabe: Array, laenge: Array) -> Array:
    """Softmax of the first elements of each row, zeros behind them."""
    rows, width = eingabe.shape
    valid = np.arange(width)[None, :] < laenge.astype(np.int64)[:, None]
    shifted = np.where(valid, eingabe, -np.inf)
    weights = np.exp(shifted - shifted.max(axis=1, keepdims=True, initial=-1e300))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True)) if rows else weights


def cosine_pairs(u: Array, v: Array) -> Array:
    """Cosine of the angle between rows of the same number."""
    lengths = np.sqrt((u * u).sum(axis=1)) * np.sqrt((v * v).sum(axis=1))
    return np.asarray((u * v).sum(axis=1) / (lengths + 1e-8))


def channel_energy(pcm: Array) -> Array:
    """Sum of squares of samples scaled to [-1, 1)."""
    return np.asarray(((pcm.astype(np.float64) / 32768.0) ** 2).sum(axis=1))


def rotate_image(from_: Array) -> Array:
    """A quarter turn clockwise."""
    return np.rot90(from_, -1)


def jacobi7(phi: Array, rhs: Array, h2: float) -> Array:
    """One sweep inside the box; faces are copied."""
    after = phi.copy()
    if min(phi.shape) > 2:
        inner = phi[:-2, 1:-1, 1:-1] + phi[2:, 1:-1, 1:-1] + phi[1:-1, :-2, 1:-1] + phi[1:-1, 2:, 1:-1]
        inner = inner + phi[1:-1, 1:-1, :-2] + phi[1:-1, 1:-1, 2:]
        after[1:-1, 1:-1, 1:-1] = (inner - h2 * rhs[1:-1, 1:-1, 1:-1]) / 6.0
    return np.asarray(after)


def tile_scan(values: Array) -> Array:
    """Inclusive sums that start anew every 512 values."""
    whole = np.pad(values.astype(np.int64), (0, -values.size % 512)).reshape(-1, 512)
    return whole.cumsum(axis=1).reshape(-1)[: values.size].astype(np.int32)


def dense_relu(x: Array, W: Array, b: Array) -> Array:  # noqa: N803 -- arguments are named as in the kernel
    """A dense layer and what is positive of it."""
    return np.asarray(np.maximum(x @ W.T + b, 0.0))


def causal_conv(x: Array, w: Array, pas: int) -> Array:
    """Each channel with its own taps, `pas` samples apart, looking back only."""
    result = np.zeros_like(x)
    for tap in range(w.shape[1]):
        shift = tap * pas
        if shift < x.shape[1]:
            result[:, shift:] += w[:, tap : tap + 1] * x[:, : x.shape[1] - shift]
    return result


def _offsets(rng: np.random.Generator, parts: int, total: int) -> Array:
    """Bounds of random parts of a total, some of them empty."""
    inner = np.sort(rng.integers(0, total + 1, max(parts - 1, 0)))
    return np.concatenate([[0], inner, [total]]).astype(np.int32)


def make_bags(bags: int, dim: int, entries: int, vocab: int, seed: int) -> dict[str, Array]:
    """Bags of random lengths over a random table."""
    rng = np.random.default_rng(seed)
    return {
        "begin": _offsets(rng, bags, entries),
        "word": rng.integers(0, vocab, entries, dtype=np.int32),
        "table": rng.standard_normal((vocab, dim), dtype=np.float32),
    }


def embedding_bag(begin: Array, word: Array, table: Array) -> Array:
    """Mean of the rows of each bag; zeros for an empty one."""
    begin, word = begin.astype(np.int64), word.astype(np.int64)
    sums = np.zeros((begin.size - 1, table.shape[1]))
    np.add.at(sums, np.repeat(np.arange(begin.size - 1), np.diff(begin)), table[word])
    return np.asarray(sums / np.maximum(np.diff(begin), 1)[:, None])


def joint_histogram(fixed: Array, moving: Array, table: Array) -> Array:
    """Counts of pairs of cells, added to what was there."""
    cells = [np.clip((one * 16).astype(np.int64), 0, 15) for one in (fixed, moving)]
    counts = np.bincount(cells[0] * 16 + cells[1], minlength=256).reshape(16, 16)
    return np.asarray(table + counts.astype(table.dtype))


def _radical_inverse(count: int, base: int) -> Array:
    number, digit = np.arange(1, count + 1, dtype=np.int64), 1.0 / base
    result = np.zeros(count)
    while number.any():
        result += digit * (number % base)
        number //= base
        digit /= base
    return result


def halton_disc(radius: Array, hits: Array, points: int) -> Array:
    """How many Halton points lie in a quarter of each disc, added to what was there."""
    x, y = _radical_inverse(points, 2), _radical_inverse(points, 3)
    distance = np.sort(np.sqrt(x * x + y * y))
    return np.asarray(hits + np.searchsorted(distance, radius, side="right").astype(hits.dtype))


def focal_loss(logit: Array, target: Array) -> Array:
    """Focal loss with gamma 2 and alpha 0.25."""
    p = 1.0 / (1.0 + np.exp(-logit))
    right = np.where(target == 1, p, 1.0 - p)
    alpha = np.where(target == 1, 0.25, 0.75)
    return np.asarray(-alpha * (1.0 - right) ** 2 * np.log(right + 1e-7))


def count_lines(text: Array) -> Array:
    """Newlines in slices of 256 bytes."""
    return np.asarray((text.reshape(-1, 256) == 10).sum(axis=1).astype(np.int32))


def hamming_match(query: Array, entry: Array) -> Array:
    """The nearest entry of each query, the first of equals."""
    different = query.astype(np.uint32)[:, None, :] ^ entry.astype(np.uint32)[None, :, :]
    return np.asarray(np.bitwise_count(different).sum(axis=2).argmin(axis=1).astype(np.int32))


def record_hash(data: Array) -> Array:
    """FNV-1a of 32 bytes each."""
    state = np.full(data.shape[0], 2166136261, dtype=np.uint64)
    for column in data.astype(np.uint64).T:
        state = (state ^ column) * np.uint64(16777619) & np.uint64(0xFFFFFFFF)
    return state.astype(np.uint32)


def quantize_rows(act: Array) -> tuple[Array, Array]:
    """Rows scaled by a power of two so that the largest magnitude is below 128, rounded; and that power."""
    largest = np.maximum(np.abs(act).max(axis=1, initial=0.0), 1e-12)
    inverse = 2.0 ** (6 - np.floor(np.log2(largest)))
    return np.minimum(np.rint(act * inverse[:, None]), 127), inverse


def causal_scores(Q: Array, K: Array) -> Array:  # noqa: N803 -- arguments are named as in the kernel
    """Scaled products of queries and keys; later keys are hidden."""
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    later = np.arange(scores.shape[1])[None, :] > np.arange(scores.shape[0])[:, None]
    return np.where(later, float(np.float32(-1e9)), scores)


def dynamic_threshold(x0: Array) -> Array:
    """Each image divided by its largest magnitude where that is above one."""
    return np.asarray(x0 / np.maximum(np.abs(x0).max(axis=1, initial=0.0), 1.0)[:, None])


def bilinear(src: Array, dh: int, dw: int) -> Array:
    """Bilinear interpolation between pixel centres, clamped."""
    places = []
    for size, wanted in ((src.shape[0], dh), (src.shape[1], dw)):
        at = (np.arange(wanted) + 0.5) * size / max(wanted, 1) - 0.5
        low = np.floor(at).astype(np.int64)
        places.append((np.clip(low, 0, size - 1), np.clip(low + 1, 0, size - 1), at - low))
    (ya, yb, ty), (xa, xb, tx) = places
    tx, ty = tx[None, :, None], ty[:, None, None]
    top = src[ya][:, xa] * (1 - tx) + src[ya][:, xb] * tx
    bottom = src[yb][:, xa] * (1 - tx) + src[yb][:, xb] * tx
    return np.asarray(top * (1 - ty) + bottom * ty)


def sobel(img: Array) -> Array:
    """Sum of the magnitudes of both gradients, up to 255; zeros outside."""
    p = np.pad(img.astype(np.int64), 1)
    rows, cols = img.shape
    part = {(y, x): p[y : y + rows, x : x + cols] for y in range(3) for x in range(3)}
    gx = part[0, 2] + 2 * part[1, 2] + part[2, 2] - part[0, 0] - 2 * part[1, 0] - part[2, 0]
    gy = part[2, 0] + 2 * part[2, 1] + part[2, 2] - part[0, 0] - 2 * part[0, 1] - part[0, 2]
    return np.asarray(np.minimum(np.abs(gx) + np.abs(gy), 255).astype(np.uint8))


def median_despeckle(noisy: Array) -> Array:
    """Median of 3 x 3 neighbours, edges replicated."""
    rows, cols = noisy.shape
    p = np.pad(noisy, 1, mode="edge")
    return np.asarray(np.median([p[y : y + rows, x : x + cols] for y in range(3) for x in range(3)], axis=0))


def max_pool(in_: Array) -> Array:
    """The largest of 2 x 2 pixels."""
    batch, height, width, channels = in_.shape
    return np.asarray(in_.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4)))


def channel_moments(x: Array, moments: Array) -> Array:
    """Sum and sum of squares of each channel, added to what was there."""
    return np.asarray(moments + np.stack([x.sum(axis=(0, 2)), (x * x).sum(axis=(0, 2))], axis=1))


def cross_entropy(logits: Array, truth: Array, total: Array) -> Array:
    """Cross entropy of all rows, added to what was there."""
    top = logits.max(axis=1, keepdims=True)
    norm = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return np.asarray(total + (norm - logits[np.arange(truth.size), truth.astype(np.int64)]).sum())


def sensor_curve(raw: Array, coef: Array) -> Array:
    """A polynomial, lowest power first."""
    return np.asarray(sum(c * raw**k for k, c in enumerate(coef)))


def srgb_linear(rgb: Array) -> Array:
    """The transfer curve of IEC 61966-2-1."""
    code = rgb.astype(np.float64) / 255.0
    return np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)


def kmeans_assign(P: Array, M: Array) -> Array:  # noqa: N803 -- arguments are named as in the kernel
    """Distance of each point to the nearest centre."""
    return np.asarray(np.sqrt(((P[:, None, :] - M[None, :, :]) ** 2).sum(axis=2)).min(axis=1))


def make_atoms(atoms: int, seed: int) -> dict[str, Array]:
    """Atoms near the points of a cubic grid, so that none are on top of each other."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(max(atoms, 1) ** (1 / 3)))
    grid = np.stack(np.unravel_index(np.arange(atoms), (side, side, side)), axis=1) * 1.2
    place = (grid + rng.uniform(-0.1, 0.1, grid.shape)).astype(np.float32)
    return {name: np.ascontiguousarray(place[:, axis]) for axis, name in enumerate("xyz")}


def lennard_jones(x: Array, y: Array, z: Array) -> Array:
    """Half the pair energies of each atom."""
    place = np.stack([x, y, z], axis=1)
    r2 = ((place[:, None, :] - place[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(r2, np.inf)
    return np.asarray(0.5 * (4.0 * (r2**-6 - r2**-3)).sum(axis=1))


def option_tree(spot: Array, strike: Array, up: float, p: float, discount: float) -> Array:
    """American put by a binomial tree of 16 steps."""
    value = np.maximum(strike[:, None] - spot[:, None] * up ** (2.0 * np.arange(17) - 16)[None, :], 0.0)
    for level in range(15, -1, -1):
        hold = discount * (p * value[:, 1 : level + 2] + (1 - p) * value[:, : level + 1])
        node = spot[:, None] * up ** (2.0 * np.arange(level + 1) - level)[None, :]
        value = np.maximum(hold, strike[:, None] - node)
    return np.asarray(value[:, 0])


def ell_spmv(column: Array, value: Array, vec: Array) -> Array:
    """Sparse matrix times vector; column -1 is nothing."""
    column = column.astype(np.int64)
    return np.asarray(np.where(column >= 0, value * vec[np.maximum(column, 0)], 0.0).sum(axis=1))


def make_segments(segments: int, features: int, rows: int, seed: int) -> dict[str, Array]:
    """Segments of random lengths over random rows."""
    rng = np.random.default_rng(seed)
    return {
        "start": _offsets(rng, segments, rows),
        "data": rng.standard_normal((rows, features), dtype=np.float32),
    }


def segment_max(start: Array, data: Array) -> Array:
    """Largest value of each feature in each segment; zeros for an empty one."""
    peak = np.zeros((start.size - 1, data.shape[1]))
    for number, (low, high) in enumerate(zip(start[:-1].astype(int), start[1:].astype(int), strict=True)):
        if low < high:
            peak[number] = data[low:high].max(axis=0)
    return peak


def window_rms(audio: Array) -> Array:
    """Root mean square of windows of 256 samples that begin every 64."""
    if audio.size < 256:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(audio, 256)[::64]
    return np.asarray(np.sqrt((windows**2).mean(axis=1)))


def bias_nchw(x: Array, bias: Array) -> Array:
    """A bias per channel, then what is positive."""
    return np.asarray(np.maximum(x + bias[None, :, None, None], 0.0))


def rank_order(score: Array) -> Array:
    """How many scores come before each one, the largest first."""
    rank = np.empty(score.size, dtype=np.int32)
    rank[np.argsort(-score, kind="stable")] = np.arange(score.size)
    return rank


def decay_filter(x: Array, a: float) -> Array:
    """Exponential smoothing along each row from zero."""
    y = np.empty_like(x)
    state = np.zeros(x.shape[0])
    for step in range(x.shape[1]):
        state = a * state + (1 - a) * x[:, step]
        y[:, step] = state
    return y


def top_four(score: Array) -> Array:
    """The four largest scores of each row, the largest first; rows that are shorter end in -1e30."""
    padded = np.concatenate([score, np.full((score.shape[0], 4), float(np.float32(-1e30)))], axis=1)
    return -np.sort(-padded, axis=1)[:, :4]


def unpack_nibbles(packed: Array, scale: Array) -> Array:
    """Eight weights of four bits from each word, times the scale of 32 of them."""
    nibbles = (packed.astype(np.int64)[:, None] >> (4 * np.arange(8))[None, :]) & 15
    return np.asarray(((nibbles - 8) * np.repeat(scale, 4)[:, None]).reshape(-1))


def block_peak(wave: Array) -> Array:
    """Largest magnitude of every 256 samples."""
    return np.asarray(np.pad(np.abs(wave), (0, -wave.size % 256)).reshape(-1, 256).max(axis=1, initial=0.0))


def time_shift(in_: Array) -> Array:
    """Each sample less the one before."""
    return np.diff(in_, prepend=0.0)


def blend(front: Array, back: Array, mask: Array) -> Array:
    """A mix of two frames by a mask of bytes."""
    opacity = mask.astype(np.float64) / 255.0
    return np.asarray(opacity * front + (1 - opacity) * back)


def quaternions(q: Array) -> Array:
    """Quaternions of length one."""
    length = np.sqrt((q * q).sum(axis=1, keepdims=True))
    return np.where(length > 0, q / np.where(length > 0, length, 1.0), np.array([0.0, 0.0, 0.0, 1.0]))


def vertex_degrees(a: Array, b: Array, degree: Array) -> Array:
    """How many ends of edges every vertex has, added to what was there."""
    ends = np.concatenate([a, b]).astype(np.int64)
    return np.asarray(degree + np.bincount(ends, minlength=degree.size).astype(degree.dtype))


def trapezoid(curve: Array, dx: float) -> Array:
    """Area under each row by the trapezoid rule."""
    return np.asarray(0.5 * dx * (curve[:, :-1] + curve[:, 1:]).sum(axis=1))


def neighbour_mean(signal: Array) -> Array:
    """Mean of three neighbours, zeros outside."""
    p = np.pad(signal, 1)
    return np.asarray((p[:-2] + p[1:-1] + p[2:]) / 3.0)


def half_clamp(a: Array, limit: float) -> Array:
    """Values held within the limit."""
    return np.clip(a, -limit, limit)


def complex_product(spectrum: Array, taps: Array) -> Array:
    """The product of complex numbers."""
    product = (spectrum[:, 0] + 1j * spectrum[:, 1]) * (taps[:, 0] + 1j * taps[:, 1])
    return np.stack([product.real, product.imag], axis=1)


def group_sum(v: Array) -> Array:
    """Sums of 64 neighbours."""
    return np.asarray(v.reshape(-1, 64).sum(axis=1))


def gamma_ramp(weight: Array, steps: int) -> Array:
    """A weighted quadratic ramp from 0 to 1."""
    return np.asarray(weight * (np.arange(steps) / max(steps - 1, 1)) ** 2)
