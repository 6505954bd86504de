"""NumPy functions of many kinds, with the arrays that they take: `kernelmate write` writes a right kernel for each."""

import numpy as np


def bilinear_upsampling(x: "float32[c=3, h=12, w=20]"):
    h, w = x.shape[1:]
    ys = np.clip((np.arange(2 * h) + 0.5) / 2 - 0.5, 0, h - 1)
    xs = np.clip((np.arange(2 * w) + 0.5) / 2 - 0.5, 0, w - 1)
    y0, x0 = np.floor(ys).astype(int), np.floor(xs).astype(int)
    y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
    fy, fx = (ys - y0)[:, None], (xs - x0)[None, :]
    top = x[:, y0][:, :, x0] * (1 - fx) + x[:, y0][:, :, x1] * fx
    bottom = x[:, y1][:, :, x0] * (1 - fx) + x[:, y1][:, :, x1] * fx
    return top * (1 - fy) + bottom * fy


def grid_sample(
    img: "float32[c=2, h=16, w=12]", gx: "float32[n=64] ~ uniform(-1, 1)", gy: "float32[n] ~ uniform(-1, 1)"
):
    h, w = img.shape[1:]
    x, y = (gx + 1) / 2 * (w - 1), (gy + 1) / 2 * (h - 1)
    x0 = np.clip(np.floor(x).astype(np.int32), 0, w - 1)
    y0 = np.clip(np.floor(y).astype(np.int32), 0, h - 1)
    x1, y1 = np.minimum(x0 + 1, w - 1), np.minimum(y0 + 1, h - 1)
    fx, fy = x - x0, y - y0
    near = img[:, y0, x0] * (1 - fx) + img[:, y0, x1] * fx
    return near * (1 - fy) + (img[:, y1, x0] * (1 - fx) + img[:, y1, x1] * fx) * fy


def linear_gelu_half(x: "float16[m=20, k=24]", w: "float16[n=36, k]", b: "float16[n]"):
    y = x.astype(np.float32) @ w.astype(np.float32).T + b
    return (0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3)))).astype(np.float16)


def linear_gelu(x: "float32[m=37, k=53]", w: "float32[n=71, k]", b: "float32[n]"):
    y = x @ w.T + b
    return 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3)))


def transposed_convolution(x: "float32[c=5, h=6, w=10]", k: "float32[c, o=4, 2, 2]"):
    y = np.einsum("chw,coij->ohiwj", x, k)
    return y.reshape(k.shape[1], 2 * x.shape[1], 2 * x.shape[2])


def heads_projection(a: "float32[b=2, t=9, h=3, d=8]", w: "float32[h, d, e=20]"):
    return np.einsum("bthd,hde->bte", a, w)


def grouped_query_attention(q: "float32[heads=4, t=20, 16]", k: "float32[2, t, 16]", v: "float32[2, t, 16]"):
    k, v = (np.repeat(one, q.shape[0] // 2, axis=0) for one in (k, v))
    s = q @ k.transpose(0, 2, 1) * 0.25
    t = s.shape[-1]
    s = np.where(np.tril(np.ones((t, t), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def median_of_nine(x: "float32[h=12, w=20]"):
    p = np.pad(x, 1, mode="reflect")
    return np.median(np.stack([p[i : i + x.shape[0], j : j + x.shape[1]] for i in range(3) for j in range(3)]), axis=0)


def mirrored_blur(x: "float32[h=12, w=20]"):
    p = np.pad(x, 2, mode="reflect")
    return sum(p[i : i + x.shape[0], j : j + x.shape[1]] for i in range(5) for j in range(5)) / 25


def symmetric_blur(x: "float32[h=12, w=20]"):
    p = np.pad(x, ((0, 0), (2, 3)), mode="symmetric")
    return p[:, :-5] + 2 * p[:, 2:-3] + p[:, 5:]


def weighted_histogram(x: "float32[n=500] ~ uniform(0, 1)", w: "float32[n]"):
    return np.bincount(np.minimum((x * 64).astype(np.int32), 63), weights=w, minlength=64).astype(np.float32)


def histogram_of_pairs(a: "int32[n=500] ~ integers(0, 16)", b: "int32[n] ~ integers(0, 16)"):
    out = np.zeros((16, 16), np.int32)
    np.add.at(out, (a, b), 1)
    return out


def integral_of_rows(y: "float32[rows=12, n=70]", x: "float32[n]"):
    return np.trapezoid(y, x, axis=1) + np.trapezoid(y, dx=0.5, axis=1)


def packed_signs(x: "float32[n=50, 8]"):
    return ((x > 0).astype(np.uint8) << np.arange(8, dtype=np.uint8)).sum(1).astype(np.uint8)


def rotated_norm(x: "float32[t=12, heads=3, 32]", w: "float32[32]", cos: "float32[t, 16]", sin: "float32[t, 16]"):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    a, b = y[..., :16], y[..., 16:]
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def rounding_error(x: "float32[n=500]"):
    return x - x.astype(np.float16).astype(np.float32)


def grouped_weights(q: "int8[n=20, k=64]", s: "float16[n, k // 32]"):
    return (q.astype(np.float32) * np.repeat(s.astype(np.float32), 32, axis=1)).astype(np.float16)


def layernorm_linear(
    x: "float32[rows=20, cols=48]",
    gamma: "float32[cols]",
    beta: "float32[cols]",
    w: "float32[n=24, cols]",
    b: "float32[n]",
):
    """Layer normalisation, then a projection."""
    mean = x.mean(axis=1, keepdims=True)
    var = x.var(axis=1, keepdims=True)
    return ((x - mean) / np.sqrt(var + 1e-5) * gamma + beta) @ w.T + b


def linear_layernorm(x: "float32[rows=20, k=48]", w: "float32[cols=24, k]", gamma: "float32[cols]"):
    """A projection, then layer normalisation of its result."""
    h = x @ w.T
    mean = h.mean(axis=1, keepdims=True)
    return (h - mean) / np.sqrt(((h - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5) * gamma


def low_rank(x: "float32[rows=24, k=40]", w: "float32[n=36, k]", a: "float32[rank=8, k]", b: "float32[n, rank]"):
    """A projection with a low-rank update."""
    return x @ w.T + (x @ a.T) @ b.T * 0.5


def gated_network(
    x: "float32[batch=3, tokens=7, d=16]",
    w1: "float32[d, hidden=40]",
    w3: "float32[d, hidden]",
    w2: "float32[hidden, d]",
):
    """A feed-forward network with a SiLU gate."""
    gate = x @ w1
    return (gate / (1 + np.exp(-gate)) * (x @ w3)) @ w2


def router(x: "float32[tokens=50, d=24]", w: "float32[d, experts=8]"):
    """Probabilities of experts."""
    score = x @ w
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def three_matrices(a: "float32[i=12, j=20]", b: "float32[j, k=28]", c: "float32[k, l=16]"):
    """A product of three matrices."""
    return np.einsum("ij,jk,kl->il", a, b, c)


def bilinear_form(x: "float32[batch=10, i=12]", y: "float32[batch, j=14]", w: "float32[o=6, i, j]"):
    """Bilinear forms of two vectors."""
    return np.einsum("bi,oij,bj->bo", x, w, y)


def excitation(
    x: "float32[batch=4, channels=16, pixels=60]", w1: "float32[channels, few=4]", w2: "float32[few, channels]"
):
    """Channels scaled by what a small network makes of their means."""
    hidden = np.maximum(x.mean(axis=2) @ w1, 0)
    return x / (1 + np.exp(-(hidden @ w2)))[:, :, None]


def pooled(x: "float32[batch=4, t=30, d=32]", q: "float32[d]"):
    """Attention of one learned query to all positions."""
    score = np.einsum("btd,d->bt", x, q)
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return np.einsum("bt,btd->bd", weight / weight.sum(axis=1, keepdims=True), x)


def rotated_halves(x: "float32[t=9, heads=4, d=32]", cosine: "float32[t, 1, half=16]", sine: "float32[t, 1, half]"):
    """Rotary position embedding of the two halves of each head."""
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)


def four_bit_product(x: "float32[n=128]", packed: "uint8[rows=12, half=64]", scales: "float32[rows, groups=4]"):
    """A product with weights of four bits and a scale for each group of 32."""
    low = (packed & 15).astype(np.int32) - 8
    high = (packed >> 4).astype(np.int32) - 8
    weights = np.stack([low, high], axis=-1).reshape(packed.shape[0], -1).astype(np.float32)
    return (weights * np.repeat(scales, weights.shape[1] // scales.shape[1], axis=1)) @ x


def scaled_groups(x: "float32[rows=6, k=64]", w: "int8[n=10, k]", scales: "float32[n, groups=4]"):
    """A product with weights of eight bits and a scale for each group."""
    n, k = w.shape
    groups = scales.shape[1]
    return x @ (w.astype(np.float32).reshape(n, groups, k // groups) * scales[:, :, None]).reshape(n, k).T


def gated_unit(x: "float32[rows=10, k=24]", w: "float32[k, n=32]"):
    """A gated linear unit: half of a product gates the other half."""
    z = x @ w
    n = z.shape[1] // 2
    return z[:, :n] / (1 + np.exp(-z[:, n:]))


def recurrent_cell(
    x: "float32[batch=6, d=20]",
    h: "float32[batch, n=16]",
    c: "float32[batch, n]",
    w: "float32[d, gates=64]",
    u: "float32[n, gates]",
    b: "float32[gates]",
):
    """A step of a long short-term memory."""
    n = c.shape[1]
    z = x @ w + h @ u + b
    i, f, o, g = z[:, :n], z[:, n : 2 * n], z[:, 2 * n : 3 * n], z[:, 3 * n :]
    cell = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    return np.tanh(cell) / (1 + np.exp(-o)), cell


def sums_of_exponentials(p: "float32[rows=20, k=5]", q: "float32[cols=24, k]"):
    """Sums over all pairs, of what is not zero where the arrays are."""
    return np.exp(p[:, None, :] - q[None, :, :]).sum(axis=-1)


def ranks(x: "float32[rows=12, cols=24]"):
    """How many elements of a row are larger than each."""
    return (x[:, None, :] > x[:, :, None]).sum(-1).astype(np.int32)


def attention_in_double(q: "float64[t=12, d=16]", k: "float64[s=20, d]", v: "float64[s, e=8]"):
    """Attention in double."""
    score = q @ k.T / np.sqrt(q.shape[1])
    weight = np.exp(score - score.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True) @ v


def box_of_27(x: "float32[depth=5, height=14, width=20]"):
    """Means of the neighbours in three dimensions."""
    padded = np.pad(x, 1)
    d, h, w = x.shape
    return sum(padded[i : i + d, j : j + h, k : k + w] for i in range(3) for j in range(3) for k in range(3)) / 27


def weighted_box(x: "float32[height=30, width=40]"):
    """A filter of three rows and five columns."""
    padded = np.pad(x, ((1, 1), (2, 2)))
    h, w = x.shape
    return sum((i + 2 * j + 1.0) * padded[i : i + h, j : j + w] for i in range(3) for j in range(5))


def biquad(
    x: "float32[rows=12, cols=60]", b0: "float32" = 0.2, b1: "float32" = 0.3, a1: "float32" = 0.4, a2: "float32" = 0.1
):
    """A filter of second order along rows."""
    y = np.zeros_like(x)
    first = np.zeros(x.shape[0], x.dtype)
    second = np.zeros(x.shape[0], x.dtype)
    for t in range(x.shape[1]):
        y[:, t] = b0 * x[:, t] + first
        first = b1 * x[:, t] - a1 * y[:, t] + second
        second = b0 * x[:, t] - a2 * y[:, t]
    return y


def logistic(x: "float32[rows=12, cols=60]"):
    """A nonlinear recurrence along rows."""
    y = np.empty_like(x)
    state = x[:, 0] * 0 + 0.3
    for t in range(x.shape[1]):
        state = 2.5 * state * (1 - state) + 0.01 * x[:, t]
        y[:, t] = state
    return y


def positions_added(x: "float32[t=12, d=32]"):
    """Sines and cosines of positions, side by side."""
    t, d = x.shape
    frequency = np.exp(-np.log(10000.0) * 2 * np.arange(d // 2) / d)
    angle = np.arange(t)[:, None] * frequency
    return x + np.stack([np.sin(angle), np.cos(angle)], -1).reshape(t, d)


def traces(a: "float32[b=10, n=8, n]", c: "float32[b, n, n]"):
    """Traces of products of matrices."""
    return np.einsum("bij,bji->b", a, c)


def two_largest(x: "float32[rows=20, experts=24]"):
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    chosen = np.argsort(-p, axis=1)[:, :2]
    weights = np.take_along_axis(p, chosen, 1)
    return weights / weights.sum(1, keepdims=True), chosen.astype(np.int32)


def third_largest(x: "float32[rows=20, cols=60]"):
    return np.sort(x, axis=1)[:, -3]


def kept_largest(x: "float32[rows=20, cols=60]"):
    least = np.sort(x, axis=1)[:, ::-1][:, 3:4]
    return np.where(x >= least, x, 0)


def row_statistics(x: "float32[rows=20, cols=60]"):
    y = np.empty((len(x), 2), np.float32)
    y[:, 0] = x.mean(1)
    y[:, 1] = x.std(1)
    return y


def column_statistics(x: "float32[rows=60, cols=20]"):
    return np.stack([x.mean(0), x.var(0)])


def extent(x: "float32[n=500]"):
    return np.array([x.min(), x.max(), x.mean()])


def selective_scan(
    x: "float32[batch=2, t=20, channels=6]",
    a: "float32[channels, n=12] ~ uniform(-1, 0)",
    b: "float32[batch, t, n]",
    c: "float32[batch, t, n]",
    dt: "float32[batch, t, channels] ~ uniform(0, 1)",
    skip: "float32[channels]",
):
    h = np.zeros((x.shape[0], *a.shape))
    y = np.zeros(x.shape)
    for t in range(x.shape[1]):
        h = np.exp(dt[:, t, :, None] * a) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        y[:, t] = (h * c[:, t, None]).sum(-1) + skip * x[:, t]
    return y


def gated_linear_attention(
    q: "float32[t=20, d=40]", k: "float32[t, d]", v: "float32[t, e=12]", gate: "float32[t, d] ~ uniform(0.5, 1)"
):
    state = np.zeros((q.shape[1], v.shape[1]))
    y = np.zeros(v.shape)
    for t in range(len(q)):
        state = gate[t][:, None] * state + np.outer(k[t], v[t])
        y[t] = q[t] @ state
    return y


def buckets(x: "float32[rows=20, cols=30]", edges: "float32[k=100]"):
    return np.searchsorted(edges, x, side="right").astype(np.int32)


def interpolated(x: "float32[n=500]", xp: "float32[k=100]", fp: "float32[k]"):
    return np.interp(x, xp, fp)


def counts_between(x: "float32[n=500]", edges: "float32[k=33]", w: "float32[n]"):
    return np.histogram(x, bins=edges, weights=w)[0]


def shares(x: "float32[n=500] ~ uniform(-0.1, 1.1)"):
    return np.histogram(x, bins=32, range=(0, 1))[0].astype(np.int32)


def tiles(x: "float32[h=6, w=8]"):
    y = np.tile(np.polyval([0.5, -1.0, 2.0], x), (2, 3))
    i, j = np.indices(y.shape)
    return y * ((i + j) % 2)


def shuffled_channels(x: "float32[n=4, c=12, hw=30]"):
    n, c, hw = x.shape
    return x.reshape(n, 3, c // 3, hw).transpose(0, 2, 1, 3).reshape(n, c, hw)


def floored(a: "int32[n=100] ~ integers(-50, 50)", b: "int32[n] ~ integers(-9, 9)"):
    return a // b, a % b


def count_below(x: "float32[n=50]", t: "float32[m=9]"):
    return np.searchsorted(t, x).astype(np.int32)


def covariances(x: "float32[n=60, p=12]"):
    d = x - x.mean(0)
    return d.T @ d / (len(x) - 1)


def correlations(x: "float32[p=12, n=60]"):
    return np.corrcoef(x)


def standardised(x: "float32[n=60, p=12]", w: "float32[p, q=5]"):
    return (x - x.mean(0)) / x.std(0) @ w


def over_trace(a: "float32[n=12, n]"):
    return a / (1 + np.abs(np.trace(a))), np.diag(a)


def two_filters(a: "float32[b=5, n=20] ~ uniform(-1, 1)", d: "float32[b, n] ~ uniform(3, 4)"):
    c = np.empty_like(a)
    r = np.empty_like(a)
    c[:, 0] = a[:, 0] / d[:, 0]
    r[:, 0] = d[:, 0]
    for i in range(1, a.shape[1]):
        c[:, i] = a[:, i] / (d[:, i] - a[:, i] * c[:, i - 1])
        r[:, i] = d[:, i] - 0.5 * c[:, i] * r[:, i - 1]
    return c, r


def group_means(ids: "int32[n=60] ~ integers(0, m)", x: "float32[n, d=6]", c: "float32[m=10]"):
    count = np.bincount(ids, minlength=len(c))
    total = np.zeros((len(c), x.shape[1]))
    np.add.at(total, ids, x)
    return total / np.maximum(count, 1)[:, None]


def sums_and_squares(ids: "int32[n=60] ~ integers(0, m)", w: "float32[n]", y: "float32[m=10]"):
    total = np.zeros(len(y))
    np.add.at(total, ids, w)
    return total, w * w


def focal_loss(z: "float32[n=20, v=50]", labels: "int32[n] ~ integers(0, v)"):
    e = np.exp(z - z.max(1, keepdims=True))
    p = e[np.arange(len(z)), labels] / e.sum(1)
    return (-((1 - p) ** 2) * np.log(p)).mean()


def chamfer(a: "float32[n=30, 3]", b: "float32[m=25, 3]"):
    d = ((a[:, None] - b) ** 2).sum(2)
    return d.min(1).mean() + d.min(0).mean()


def integral_images(x: "float32[b=3, h=20, w=40]", m: "float32[h, w]"):
    return np.cumsum(np.cumsum(x * m, axis=2), axis=1)


def forward_substitution(a: "float32[b=40, 3, 3]", y: "float32[b, 3]"):
    x = np.zeros_like(y)
    for i in range(3):
        x[:, i] = (y[:, i] - (a[:, i, :i] * x[:, :i]).sum(-1)) / a[:, i, i]
    return x


def symmetric_toeplitz(c: "float32[n=50]", x: "float32[n]"):
    i = np.arange(len(c))
    return c[np.abs(i[:, None] - i)] @ x


def cofactors(a: "float32[n=40, 3, 3]"):
    return np.cross(a[:, [1, 2, 0]], a[:, [2, 0, 1]])


def cells_of_pairs(p: "float32[n=300, 2] ~ uniform(0, 8)"):
    x, y = p[:, 0].astype(np.int32), p[:, 1].astype(np.int32)
    return np.bincount(x * 8 + y, minlength=64)


def error_function(x: "float32[n=500]"):
    from math import erf

    return np.vectorize(lambda v: erf(v / 2**0.5))(x)


def rotated_in_halves(q: "float32[h=3, t=8, d=16]", cos: "float32[t, d]", sin: "float32[t, d]"):
    half = q.shape[-1] // 2
    return q * cos + np.concatenate([-q[..., half:], q[..., :half]], axis=-1) * sin


def segment_softmax(e: "float32[n=60]", segment: "int32[n] ~ integers(0, 6)"):
    largest = np.full(6, -np.inf)
    np.maximum.at(largest, segment, e)
    p = np.exp(e - largest[segment])
    sums = np.zeros(6)
    np.add.at(sums, segment, p)
    return p / sums[segment]


def upsampled_colours(y: "float32[h=12, w=16]", uv: "float32[hh=6, ww=8, 2]"):
    u, v = (np.repeat(np.repeat(uv[..., k], 2, axis=0), 2, axis=1) for k in range(2))
    return np.stack([y + v, y - u - v, y + u], axis=-1)


def eroded(image: "uint8[h=12, w=20]"):
    p = np.pad(image, 1, constant_values=255)
    out = np.full_like(image, 255)
    for i in range(3):
        for j in range(3):
            out = np.minimum(out, p[i : i + image.shape[0], j : j + image.shape[1]])
    return out


def pooled_maxima(x: "int32[h=12, w=20]"):
    h, w = x.shape
    return x.reshape(h // 2, 2, w // 2, 2).max(axis=(1, 3))


def permuted_hash(k: "uint32[n=500]"):
    s = k * np.uint32(747796405) + np.uint32(2891336453)
    w = ((s >> ((s >> np.uint32(28)) + np.uint32(4))) ^ s) * np.uint32(277803737)
    return (w >> np.uint32(22)) ^ w


def selected_neighbours(x: "float32[rows=12, cols=20]", k: "int32[cols] ~ integers(0, cols)"):
    return np.roll(x[:, k], 1, axis=1) - np.repeat(x, 2, axis=1)[:, ::2]


def neighbours_along_rows(x: "float32[rows=12, cols=20]", k: "int32[rows, cols] ~ integers(0, cols)"):
    chosen = np.take_along_axis(x, k, axis=1)
    return np.concatenate([chosen[:, 1:], chosen[:, :1]], axis=1) + x


def padded_averages(x: "float32[n=5, rows=9, cols=20]"):
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    rows, cols = (x.shape[1] - 1) // 2 + 1, (x.shape[2] - 1) // 2 + 1
    out = 0.0
    for i in range(3):
        for j in range(3):
            out = out + p[:, i : i + 2 * rows - 1 : 2, j : j + 2 * cols - 1 : 2]
    return out / 9
