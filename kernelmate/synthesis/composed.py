"""Functions of NumPy and SciPy that are traced as several graph operations."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.functions import einsum, mean, ravel
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, linear
from kernelmate.synthesis.indexed import difference
from kernelmate.synthesis.joining import concatenate, pad, stack
from kernelmate.synthesis.primitives import broadcast_to, expand_dims, picked, reduced, reshape, transpose, where
from kernelmate.synthesis.sizes import Unequal, Untraceable, text_of
from kernelmate.synthesis.slices import part_of, window
from kernelmate.synthesis.ufuncs import mapped

MOST_TAPS = 64
"""Maximum number of taps of a filter, each of which is a separate statement."""


def softmax(x: Array, axis: Any = None) -> Any:
    """Computes SciPy's `softmax`: the maximum is subtracted first."""
    exponentials = np.exp(x - reduced(x, "max", axis, keepdims=True))
    return exponentials / reduced(exponentials, "sum", axis, keepdims=True)


def logsumexp(a: Array, axis: Any = None, *, keepdims: Any = False) -> Any:
    """Computes SciPy's `logsumexp` for finite values."""
    largest = reduced(a, "max", axis, keepdims=True)
    shifted = reduced(np.exp(a - largest), "sum", axis, keepdims=keepdims)
    return np.log(shifted) + reduced(a, "max", axis, keepdims=keepdims)


def shifted(positions: Any, by: Any) -> Any:
    """Adds an offset to positions, unless the offset is zero."""
    return positions if text_of(by) == "0" else positions + by


def _triangle(m: Array, k: Any, *, lower: bool) -> Any:
    rows, columns = (m.builder.add("iota", (), [side], np.int64) for side in m.shape[-2:])
    below = shifted(expand_dims(rows, 1), k if lower else k - 1) >= columns
    node, kept = m.builder.nodes[m.node], below if lower else np.logical_not(below)
    if m.dtype.kind == "b":
        return kept if node.op == "constant" and node.data[0] else np.logical_and(m, kept)
    return where(kept, m, m.dtype.type(0))


COMPOSED: dict[str, Callable[..., Any]] = {
    "tril": lambda m, k=0: _triangle(m, k, lower=True), "triu": lambda m, k=0: _triangle(m, k, lower=False),
    "outer": lambda a, b, out=None: expand_dims(ravel(a), 1) * ravel(b), "expit": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": softmax, "logsumexp": logsumexp,
    "log_softmax": lambda x, axis=None: x - logsumexp(x, axis, keepdims=True),
}  # fmt: skip
"""Functions of NumPy and SciPy that are traced as several operations."""


def norm(x: Array, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Array:  # noqa: A002
    """Computes vector norms of order 1, 2 and infinity, and the Frobenius norm of matrices."""
    vector = ord is None or x.ndim == 1 or isinstance(axis, int)
    if vector and ord in (1, np.inf):
        return reduced(np.absolute(x), "sum" if ord == 1 else "max", axis, keepdims=keepdims)
    if ord not in (None, "fro", 2) or (ord == 2 and not vector):
        raise Untraceable(f"np.linalg.norm of the order {ord}")
    return mapped(x.builder, np.sqrt, (reduced(x * x, "sum", axis, keepdims=keepdims),))


def moveaxis(a: Array, source: Any, destination: Any) -> Array:
    """Moves axes to other positions."""
    sources, targets = ([one] if isinstance(one, int) else list(one) for one in (source, destination))
    order = [axis for axis in range(a.ndim) if axis not in [operator.index(one) % a.ndim for one in sources]]
    pairs = zip(targets, sources, strict=True)
    for target, one in sorted((operator.index(t) % a.ndim, operator.index(s) % a.ndim) for t, s in pairs):
        order.insert(target, one)
    return transpose(a, order)


def split(ary: Array, indices_or_sections: Any, axis: Any = 0) -> list[Array]:
    """Splits an array along an axis into equal parts, or at given positions."""
    place, given = operator.index(axis) % ary.ndim, indices_or_sections
    side = ary.shape[place]
    if isinstance(given, int):
        if int(side) % int(given):
            raise Untraceable("np.split into parts that are not equal")
        given = [side // given * part for part in range(1, int(given))]
    bounds = [None, *given, None]
    keys = [slice(None)] * ary.ndim
    return [part_of(ary, [*keys[:place], slice(*pair), *keys[place + 1 :]]) for pair in itertools.pairwise(bounds)]


def logaddexp(x1: Any, x2: Any) -> Any:
    """Computes the logarithm of the sum of two exponentials, for finite values."""
    return np.maximum(x1, x2) + np.log1p(np.exp(-np.absolute(x1 - x2)))


def gradient(f: Array, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Returns central differences in the interior and one-sided ones at the ends, along one axis or each."""
    axes = range(f.ndim) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    steps = list(varargs) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if edge_order != 1 or any(isinstance(one, Array) and one.ndim for one in steps):
        raise Untraceable("np.gradient of second order at the edges, or with uneven steps")

    def along(place: int, step: Any) -> Any:
        side = f.shape[place]
        wide = pad(f, [(1, 1) if one == place else (0, 0) for one in range(f.ndim)], "edge")
        keys: list[list[Any]] = [[slice(None)] * f.ndim, [slice(None)] * f.ndim]
        keys[0][place], keys[1][place] = slice(2, None), slice(None, -2)
        position = f.builder.add("iota", (), [side], np.int64).view_of(
            [0 if one == place else None for one in range(f.ndim)]
        )
        at_an_end = np.logical_or(position == 0, position == side - 1)
        return (part_of(wide, keys[0]) - part_of(wide, keys[1])) * where(at_an_end, 1.0 / step, 0.5 / step)

    found = [along(operator.index(one) % f.ndim, step) for one, step in zip(axes, steps, strict=True)]
    return found[0] if len(found) == 1 else found


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Convolves a vector with taps."""
    return _filtered(a, v, mode, backwards=True)


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """Correlates a vector with taps."""
    return _filtered(a, v, mode, backwards=False)


def _filtered(a: Any, v: Any, mode: str, *, backwards: bool) -> Any:
    name = "np.convolve" if backwards else "np.correlate"
    taps = v.shape[0] if isinstance(v, Array) else len(v)
    if not isinstance(a, Array) or a.ndim != 1:
        raise Untraceable(f"{name} of other than a vector")
    if int(taps) > int(a.shape[0]):  # then NumPy exchanges them
        raise Unequal(f"{name} with more taps than elements")
    half = (taps - 1) // 2
    before, after = {"full": (taps - 1, taps - 1), "same": (taps - 1 - half, half), "valid": (0, 0)}[mode]
    if text_of(taps) == str(int(taps)) and int(taps) <= MOST_TAPS:
        wide, count = pad(a, (before, after)), int(taps)
        length = a.shape[0] + (before + after - count + 1)
        return sum(wide[tap : tap + length] * v[count - 1 - tap if backwards else tap] for tap in range(count))
    if not isinstance(v, Array):
        raise Untraceable(f"{name} with a table of more than {MOST_TAPS} taps")
    shape = [linear(text_of(a.shape[0] + (before + after - taps + 1))).text(), text_of(taps)]
    first = text_of(taps - 1 - before) if backwards else linear(text_of(before)).times(-1).text()
    maps = [AxisMap(first, ((0, 1), (1, -1 if backwards else 1)), ORDINARY if mode == "valid" else OTHERWISE)]
    zero = a.builder.add("constant", dtype=a.dtype, data=(0,))
    return reduced(window(a, shape, maps, None if mode == "valid" else zero) * v, "sum", 1)


def neighbours(a: Array, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Any:
    """Computes `np.diff`, with elements prepended or appended."""
    place = operator.index(axis) % a.ndim
    ends: list[list[Array]] = []
    for end in (prepend, append):
        one = a.builder.lift(0 if end is None else end)
        sides = [1 if at == place else side for at, side in enumerate(a.shape)]
        ends.append([] if end is None else [one if one.ndim == a.ndim else broadcast_to(cast(one, a.dtype), sides)])
    whole = concatenate([*ends[0], a, *ends[1]], place) if prepend is not None or append is not None else a
    return difference(whole, n, place)


def piecewise(x: Array, condlist: Sequence[Any], funclist: Sequence[Any], *args: Any, **keywords: Any) -> Any:
    """Computes `np.piecewise`: the function or value of the last condition that holds, else the extra one, else 0."""
    values = [one(x, *args, **keywords) if callable(one) else one for one in funclist]
    result = values[-1] if len(values) == len(condlist) + 1 else 0
    for condition, value in zip(condlist, values, strict=False):
        result = where(condition, value, result)
    return cast(x.builder.lift(result), x.dtype)


def nansum(a: Array, axis: Any = None, *, keepdims: Any = False) -> Array:
    """Computes the sum over elements that are not NaN."""
    return reduced(where(np.isnan(a), 0.0, a), "sum", axis, keepdims=keepdims)


def nanmean(a: Array, axis: Any = None, *, keepdims: Any = False) -> Any:
    """Computes the mean over elements that are not NaN."""
    count = reduced(cast(mapped(a.builder, np.logical_not, (np.isnan(a),)), np.int64), "sum", axis, keepdims=keepdims)
    return nansum(a, axis, keepdims=keepdims) / count


def average(a: Array, axis: Any = None, weights: Any = None) -> Any:
    """Computes the mean; with weights of the same shape, or a vector along the axis, the weighted mean."""
    if weights is None:
        return mean(a, axis)
    if weights.ndim != a.ndim:
        place = operator.index(axis) % a.ndim
        weights = weights.view_of([0 if one == place else None for one in range(a.ndim)])
        return reduced(a * weights, "sum", axis) / reduced(weights, "sum", None)
    return reduced(a * weights, "sum", axis) / reduced(weights, "sum", axis)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Sums products over the last axes of one array and the first axes of another, or over pairs of axes."""
    ranks = np.ndim(a), np.ndim(b)
    pair = (range(ranks[0] - axes, ranks[0]), range(axes)) if isinstance(axes, int) else axes
    first, second = ([one] if isinstance(one, int) else list(one) for one in pair)
    left = [chr(ord("a") + place) for place in range(ranks[0])]
    right = [chr(ord("A") + place) for place in range(ranks[1])]
    for one, other in zip(first, second, strict=True):
        right[other] = left[one]
    shared = {left[one] for one in first}
    result = "".join(one for one in (*left, *right) if one not in shared)
    return einsum(f"{''.join(left)},{''.join(right)}->{result}", a, b)


def cross(a: Any, b: Any, axis: Any = -1, **_: Any) -> Any:
    """Computes cross products of vectors of three elements."""
    first, second = (one if isinstance(one, Array) else other.builder.lift(one) for one, other in ((a, b), (b, a)))
    last = axis in (-1, first.ndim - 1)
    if not last or any(one.ndim == 0 or text_of(one.shape[-1]) != "3" for one in (first, second)):
        raise Untraceable("np.cross of other than three elements along the last axis")
    x, y = ([one[..., at] for at in range(3)] for one in (first, second))
    return stack([x[at - 2] * y[at - 1] - x[at - 1] * y[at - 2] for at in range(3)], -1)


def kron(a: Any, b: Any) -> Any:
    """Computes the Kronecker product of arrays of one rank."""
    if not (isinstance(a, Array) and isinstance(b, Array)) or a.ndim != b.ndim:
        raise Untraceable("np.kron of other than two arrays of one rank")
    left = a.view_of([one // 2 if one % 2 == 0 else None for one in range(2 * a.ndim)])
    right = b.view_of([one // 2 if one % 2 else None for one in range(2 * a.ndim)])
    return reshape(left * right, [one * other for one, other in zip(a.shape, b.shape, strict=True)])


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, **_: Any) -> list[Any]:
    """Returns vectors as the axes of a grid, with axes of length 1; `indexing="xy"` exchanges the first two."""
    builder = next(one for one in xi if isinstance(one, Array)).builder
    vectors = [builder.lift(one) for one in xi]
    if any(one.ndim != 1 for one in vectors):
        raise Untraceable("np.meshgrid of other than vectors")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    views = [one.view_of([0 if place == axis else None for place in order]) for axis, one in enumerate(vectors)]
    shape = [vectors[axis].shape[0] for axis in order]
    return views if sparse else [broadcast_to(one, shape) for one in views]


def det(a: Array) -> Any:
    """Computes the determinants of 2 x 2 or 3 x 3 matrices."""
    side = text_of(a.shape[-1])
    if side not in ("2", "3") or text_of(a.shape[-2]) != side:
        raise Untraceable("np.linalg.det of other than matrices of 2 x 2 or 3 x 3")
    m = [[a[..., row, column] for column in range(int(side))] for row in range(int(side))]
    if side == "2":
        return m[0][0] * m[1][1] - m[0][1] * m[1][0]
    minors = [m[1][at - 2] * m[2][at - 1] - m[1][at - 1] * m[2][at - 2] for at in range(3)]
    return m[0][0] * minors[0] + m[0][1] * minors[1] + m[0][2] * minors[2]


class Vectorized:
    """Implements `np.vectorize`: calls the scalar function on traced arrays."""

    def __init__(self, pyfunc: Callable[..., Any], otypes: Any = None, **_: Any) -> None:
        self._function = pyfunc

    def __call__(self, *args: Any) -> Any:
        """Applies the function to whole arrays: `math.erf` as SciPy's `erf`."""
        name = getattr(self._function, "_name", getattr(self._function, "__name__", ""))
        if name in ("erf", "erfc") and len(args) == 1 and isinstance(args[0], Array):
            return mapped(args[0].builder, Erf(name), args)
        return self._function(*args)


class Erf:
    """Stand-in for the ufuncs `erf` and `erfc`, with the attributes that `mapped` uses."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def resolve_dtypes(self, dtypes: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the dtypes of operand and result: float64 for integers, else the argument's dtype."""
        given = np.result_type(dtypes[0])
        return (given, given if given.kind == "f" else np.dtype(np.float64))


def polyval(p: Any, x: Any) -> Any:
    """Computes a polynomial of a few coefficients, the highest power first, by Horner's scheme."""
    count = p.shape[0] if isinstance(p, Array) else len(p)
    if text_of(count) != str(int(count)) or not 0 < int(count) <= MOST_TAPS:
        raise Untraceable(f"np.polyval of other than 1 to {MOST_TAPS} coefficients")
    result = p[0]
    for place in range(1, int(count)):
        result = result * x + p[place]
    return result if int(count) > 1 else 0 * x + result


def vander(x: Array, N: Any = None, increasing: Any = False) -> Any:  # noqa: N803 -- NumPy's name
    """Returns the powers of each element, the highest first."""
    if not isinstance(N, int) or text_of(N) != str(N) or N > MOST_TAPS:
        raise Untraceable(f"np.vander with more than {MOST_TAPS} powers, or a size of them")
    powers = [mapped(x.builder, np.power, (x, power)) if power else x * 0 + 1 for power in range(N)]
    return stack(powers if increasing else powers[::-1], 1)


def tile(A: Array, reps: Any) -> Any:  # noqa: N803 -- NumPy's name
    """Repeats an array along its axes."""
    times = [1] * (A.ndim - (len(reps) if isinstance(reps, tuple | list) else 1)) + (
        list(reps) if isinstance(reps, tuple | list) else [reps]
    )
    a = A.view_of([*[None] * (len(times) - A.ndim), *range(A.ndim)])
    for place, (count, side) in enumerate(zip(times, a.shape, strict=True)):
        if text_of(count) != "1":
            positions = a.builder.add("iota", (), [side * count], np.int64)
            a = picked(a, positions % side, place)
    return a


def indices(builder: Any, dimensions: Sequence[Any]) -> list[Any]:
    """Returns the positions along each axis of a grid."""
    rank = len(dimensions)
    lines = [builder.add("iota", (), [side], np.int64) for side in dimensions]
    views = [one.view_of([0 if place == axis else None for place in range(rank)]) for axis, one in enumerate(lines)]
    return [broadcast_to(one, dimensions) for one in views]


def sinc(x: Any) -> Any:
    """Computes the normalised sine cardinal, which is 1 at zero."""
    scaled = np.pi * x
    return where(x == 0, 1.0, np.sin(scaled) / where(x == 0, 1.0, scaled))


def packbits(a: Array, axis: Any = None, bitorder: str = "big") -> Array:
    """Computes `np.packbits`: eight elements in a byte, the last byte filled with zeros."""
    flat, place = (ravel(a), 0) if axis is None else (a, operator.index(axis) % a.ndim)
    before, behind = [slice(None)] * place, [(0, 0)] * (flat.ndim - place - 1)
    count = flat.shape[place]
    bits = pad(cast(flat != 0, np.uint8), [*[(0, 0)] * place, (0, 8 * ((count + 7) // 8) - count), *behind])
    shifts = range(8) if bitorder == "little" else range(7, -1, -1)
    parts = [bits[(*before, slice(k, None, 8))] << np.uint8(shift) for k, shift in enumerate(shifts)]
    packed: Array = reduce(operator.or_, parts)
    return packed


def unpackbits(a: Array, axis: Any = None, count: Any = None, bitorder: str = "big") -> Array:
    """Computes `np.unpackbits`: an element of 0 or 1 for each bit."""
    if count is not None:
        raise Untraceable("np.unpackbits with a count")
    flat, place = (ravel(a), 0) if axis is None else (a, operator.index(axis) % a.ndim)
    shifts = range(8) if bitorder == "little" else range(7, -1, -1)
    bits = stack([(flat >> np.uint8(shift)) & np.uint8(1) for shift in shifts], place + 1)
    return reshape(bits, [*flat.shape[:place], 8 * flat.shape[place], *flat.shape[place + 1 :]])


COMPOSED |= {
    "packbits": packbits, "unpackbits": unpackbits,
    "polyval": polyval, "vander": vander, "tile": tile, "sinc": sinc,
    "moveaxis": moveaxis, "split": split, "array_split": split, "logaddexp": logaddexp, "gradient": gradient,
    "convolve": convolve, "correlate": correlate, "norm": norm, "hsplit": lambda ary, sections: split(ary, sections, min(1, ary.ndim - 1)),
    "vsplit": lambda ary, sections: split(ary, sections, 0),
    "average": average, "tensordot": tensordot, "diff": neighbours, "piecewise": piecewise,
    "nansum": nansum, "nanmean": nanmean, "cross": cross, "kron": kron, "det": det, "meshgrid": meshgrid,
}  # fmt: skip
