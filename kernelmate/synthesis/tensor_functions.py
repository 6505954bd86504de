"""Functions and methods of PyTorch on traced arrays, by name. Arguments are those of PyTorch: `dim`, `keepdim`, `correction`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.composed import COMPOSED, Erf, logsumexp, softmax, split
from kernelmate.synthesis.functions import copied, einsum, filled, matmul, squeeze, swapaxes, take_along_axis, var
from kernelmate.synthesis.joining import PARTS, concatenate, stack
from kernelmate.synthesis.primitives import broadcast_to, expand_dims, reduced, reshape, take, transpose, where
from kernelmate.synthesis.sizes import Untraceable, product, text_of
from kernelmate.synthesis.ufuncs import mapped


class DimensionExtremes(NamedTuple):
    """Values and indices, as `max` and `min` along a dimension return them."""

    values: Any
    indices: Any


# ------------------------------------------------------------------------------------------------------ element-wise


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _silu(x: Any) -> Any:
    return x * _sigmoid(x)


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _gelu(x: Array, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + mapped(x.builder, Erf("erf"), (x / math.sqrt(2),)))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    scaled = x if beta == 1 else x * beta
    return where(scaled > threshold, x, np.log1p(np.exp(scaled)) if beta == 1 else np.log1p(np.exp(scaled)) / beta)


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002 -- PyTorch's names
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _lerp(start: Any, end: Any, weight: Any) -> Any:
    return start + weight * (end - start)


def _relu6(x: Any) -> Any:
    return _clamp(x, 0, 6)


def _divided(x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    quotient = x / other
    return quotient if rounding_mode is None else (np.floor if rounding_mode == "floor" else np.trunc)(quotient)


_UFUNCS = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
                               "floor", "ceil", "trunc", "sign", "isnan", "isinf", "isfinite", "square", "reciprocal", "maximum", "minimum",
                               "fmax", "fmin", "fmod", "remainder", "hypot", "copysign", "logical_and", "logical_or", "logical_not",
                               "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "negative", "absolute")},
    "abs": "absolute", "neg": "negative", "round": "rint", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "arctan": "arctan", "arctan2": "arctan2", "sgn": "sign",
}  # fmt: skip
"""Functions that are ufuncs of NumPy, by the name in PyTorch."""

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, ufunc) for name, ufunc in _UFUNCS.items()},
    "add": lambda x, y, alpha=1: x + (y if alpha == 1 else alpha * y), "mul": operator.mul, "multiply": operator.mul, "pow": operator.pow,
    "sub": lambda x, y, alpha=1: x - (y if alpha == 1 else alpha * y), "div": _divided, "divide": _divided, "true_divide": operator.truediv,
    "floor_divide": operator.floordiv, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": _sigmoid, "expit": _sigmoid,
    "logsigmoid": lambda x: -_softplus(-x), "silu": _silu, "relu": _relu, "relu6": _relu6, "gelu": _gelu, "softplus": _softplus,
    "leaky_relu": lambda x, negative_slope=0.01: where(x > 0, x, x * negative_slope), "mish": lambda x: x * np.tanh(_softplus(x)),
    "elu": lambda x, alpha=1.0: where(x > 0, x, alpha * np.expm1(x)), "hardtanh": lambda x, min_val=-1.0, max_val=1.0: _clamp(x, min_val, max_val),
    "hardsigmoid": lambda x: _relu6(x + 3) / 6, "hardswish": lambda x: x * _relu6(x + 3) / 6, "softsign": lambda x: x / (1 + np.absolute(x)),
    "erf": lambda x: mapped(x.builder, Erf("erf"), (x,)), "erfc": lambda x: mapped(x.builder, Erf("erfc"), (x,)),
    "clamp": _clamp, "clip": _clamp, "clamp_min": lambda x, min: _clamp(x, min), "clamp_max": lambda x, max: _clamp(x, None, max),  # noqa: A006
    "lerp": _lerp, "addcmul": lambda x, a, b, value=1: x + (a * b if value == 1 else value * a * b),
    "addcdiv": lambda x, a, b, value=1: x + (a / b if value == 1 else value * (a / b)), "frac": lambda x: x - np.trunc(x),
    "where": lambda condition, x, y: where(condition, x, y), "masked_fill": lambda x, mask, value: where(mask, value, x),
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "dropout": lambda x, p=0.5, training=True: x if not training or p == 0 else _no_random_numbers(),
}  # fmt: skip


def _no_random_numbers() -> Any:
    raise Untraceable("random numbers")


# -------------------------------------------------------------------------------------------------------- reductions


def _axis(dim: Any) -> Any:
    return tuple(map(operator.index, dim)) if isinstance(dim, list | tuple) else dim


def _reduction(kind: str) -> Callable[..., Any]:
    def function(x: Array, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        return reduced(x if dtype is None else cast(x, dtype), kind, _axis(dim), keepdims=keepdim)

    return function


_sum, _largest = _reduction("sum"), _reduction("max")


def _count(x: Array, dim: Any) -> Any:
    sides = x.shape if dim is None else [x.shape[one] for one in ([dim] if isinstance(dim, int) else dim)]
    return product(tuple(sides), x.builder.scalar)


def _mean(x: Array, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return _sum(x, dim, keepdim, dtype) / _count(x, dim)


def _place(kind: str) -> Callable[..., Any]:
    return lambda x, dim=None, keepdim=False: getattr(np, kind)(x, axis=dim, keepdims=keepdim)


def _extreme(kind: str) -> Callable[..., Any]:
    def function(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Array):
            return (np.maximum if kind == "max" else np.minimum)(x, dim)
        values = reduced(x, kind, dim, keepdims=keepdim)
        return values if dim is None else DimensionExtremes(values, _place(f"arg{kind}")(x, dim, keepdim))

    return function


def _variance(x: Array, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    less = correction if correction is not None else 0 if unbiased is False else 1
    return var(x, axis=_axis(dim), ddof=less, keepdims=keepdim)


def _deviation(x: Array, *args: Any, **keywords: Any) -> Any:
    return np.sqrt(_variance(x, *args, **keywords))


def _norm(x: Array, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None, dtype: Any = None) -> Any:  # noqa: A002
    order = p if ord is None else ord
    if order in (2, 2.0, "fro", None):
        return np.sqrt(_sum(x * x, dim, keepdim, dtype))
    if order in (1, math.inf):
        return (_sum if order == 1 else _largest)(np.absolute(x), dim, keepdim, dtype)
    raise Untraceable(f"a norm of the order {order}")


def _softmax(x: Array, dim: Any, dtype: Any = None, **_: Any) -> Any:
    return softmax(x if dtype is None else cast(x, dtype), dim)


def _log_softmax(x: Array, dim: Any, dtype: Any = None, **_: Any) -> Any:
    x = x if dtype is None else cast(x, dtype)
    return x - logsumexp(x, dim, keepdims=True)


def _any(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
    return np.any(x, axis=dim, keepdims=keepdim)


def _all(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
    return np.all(x, axis=dim, keepdims=keepdim)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "prod": _reduction("prod"), "amax": _largest, "amin": _reduction("min"), "mean": _mean, "max": _extreme("max"),
    "min": _extreme("min"), "argmax": _place("argmax"), "argmin": _place("argmin"), "var": _variance, "std": _deviation, "norm": _norm,
    "vector_norm": lambda x, ord=2, dim=None, keepdim=False: _norm(x, ord, dim, keepdim), "softmax": _softmax, "log_softmax": _log_softmax,  # noqa: A006
    "logsumexp": lambda x, dim, keepdim=False: logsumexp(x, _axis(dim), keepdims=keepdim), "any": _any, "all": _all,
    "cumsum": lambda x, dim: np.cumsum(x, axis=dim), "cumprod": lambda x, dim: np.cumprod(x, axis=dim),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, axis=dim),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ shapes


def _sides(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    joined = product(x.shape[first : last + 1], x.builder.scalar)
    return reshape(x, (*x.shape[:first], joined, *x.shape[last + 1 :]))


def _expand(x: Array, *sizes: Any) -> Any:
    sides = _sides(sizes)
    own: tuple[Any, ...] = (*(None,) * (len(sides) - x.ndim), *x.shape)
    return broadcast_to(
        x, tuple(mine if isinstance(side, int) and side == -1 else side for side, mine in zip(sides, own, strict=True))
    )


def _chunk(x: Array, chunks: int, dim: int = 0) -> Any:
    return tuple(split(x, chunks, dim))


def _split(x: Array, sizes: Any, dim: int = 0) -> Any:
    side = x.shape[dim]
    if isinstance(sizes, int):
        if int(side) % int(sizes):
            raise Untraceable("a split into parts that are not equal")
        return tuple(split(x, [sizes * part for part in range(1, int(side) // int(sizes))], dim))
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes) - 1)]
    return tuple(split(x, ends, dim))


def _part(x: Array, dim: int, key: Any) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (key,)]


def _unbound(x: Array, dim: int = 0) -> Any:
    return tuple(_part(x, dim, place) for place in range(int(x.shape[dim])))


def _index_select(x: Array, dim: int, index: Array) -> Any:
    return take(x, index, dim % x.ndim)


def _squeeze(x: Array, dim: Any = None) -> Any:
    sides = [dim] if isinstance(dim, int) else dim
    if sides is not None:  # others stay, as in PyTorch
        dim = tuple(one for one in sides if text_of(x.shape[one]) == "1")
    return squeeze(x, dim) if dim != () else x


def _changed_type(x: Array, *given: Any, dtype: Any = None) -> Any:
    kind = next((one for one in (dtype, *given) if isinstance(one, np.dtype)), None)
    like = next((one for one in given if isinstance(one, Array)), None)
    kind = like.dtype if kind is None and like is not None else kind
    return x if kind is None else cast(x, kind)


def _itself(x: Any, *_: Any, **__: Any) -> Any:
    return x


_SHAPES: dict[str, Callable[..., Any]] = {
    "reshape": lambda x, *shape, **more: reshape(x, more.get("shape") or _sides(shape)), "flatten": _flatten, "ravel": _flatten,
    "unsqueeze": lambda x, dim: expand_dims(x, dim), "squeeze": _squeeze, "permute": lambda x, *dims: transpose(x, _sides(dims)),
    "transpose": swapaxes, "swapaxes": swapaxes, "t": lambda x: x.T, "expand": _expand, "broadcast_to": lambda x, shape: _expand(x, *shape),
    "expand_as": lambda x, other: broadcast_to(x, other.shape), "cat": lambda several, dim=0: concatenate(several, dim),
    "concat": lambda several, dim=0: concatenate(several, dim), "concatenate": lambda several, dim=0: concatenate(several, dim),
    "stack": lambda several, dim=0: stack(several, dim), "chunk": _chunk, "split": _split, "unbind": _unbound,
    "select": lambda x, dim, index: _part(x, dim, index), "narrow": lambda x, dim, start, length: _part(x, dim, slice(start, start + length)),
    "roll": lambda x, shifts, dims=None: PARTS["roll"](x, shifts, dims), "flip": lambda x, *dims: PARTS["flip"](x, _sides(dims)),
    "tril": lambda x, diagonal=0: COMPOSED["tril"](x, diagonal), "triu": lambda x, diagonal=0: COMPOSED["triu"](x, diagonal),
    "gather": lambda x, dim, index: take_along_axis(x, index, dim), "index_select": _index_select,
    "take_along_dim": lambda x, indices, dim: take_along_axis(x, indices, dim), "numel": lambda x: x.size,
    "clone": copied, "contiguous": _itself, "detach": _itself, "from_numpy": _itself, "as_tensor": _changed_type,
    "zeros_like": lambda x, dtype=None: filled(x, 0, dtype), "ones_like": lambda x, dtype=None: filled(x, 1, dtype),
    "empty_like": lambda x, dtype=None: filled(x, 0, dtype), "full_like": lambda x, fill_value, dtype=None: filled(x, fill_value, dtype),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- products


def _linear(x: Array, weight: Array, bias: Any = None) -> Any:
    found = matmul(x, weight.T)
    return found if bias is None else found + bias


def _added_product(c: Any, a: Array, b: Array, beta: Any = 1, alpha: Any = 1) -> Any:
    found = matmul(a, b)
    return (c if beta == 1 else beta * c) + (found if alpha == 1 else alpha * found)


def _einsum(equation: str, *operands: Any) -> Any:
    several = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    return einsum(equation, *several)


def _attention(
    query: Array, key: Array, value: Array, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p or enable_gqa:
        raise Untraceable("scaled_dot_product_attention with dropout or grouped heads")
    scores = matmul(query, swapaxes(key, -1, -2))
    scores = scores / np.sqrt(query.builder.lift(query.shape[-1])) if scale is None else scores * scale
    if is_causal:
        kept = COMPOSED["tril"](filled(scores, 1, np.dtype(bool)), 0)
        scores = where(kept, scores, -math.inf)
    elif attn_mask is not None:
        scores = where(attn_mask, scores, -math.inf) if attn_mask.dtype.kind == "b" else scores + attn_mask
    return matmul(softmax(scores, -1), value)


_PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": matmul, "mm": matmul, "bmm": matmul, "mv": matmul, "dot": matmul, "inner": matmul, "linear": _linear, "addmm": _added_product,
    "baddbmm": _added_product, "einsum": _einsum, "outer": lambda a, b: COMPOSED["outer"](a, b), "scaled_dot_product_attention": _attention,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ layers


def _normed(x: Array, axes: Sequence[int], eps: float) -> Any:
    centred = x - _mean(x, tuple(axes), True)
    return centred / np.sqrt(_mean(centred * centred, tuple(axes), True) + eps)


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(x: Array, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    axes = range(-len(normalized_shape), 0)
    return _affine(_normed(x, axes, eps), weight, bias)


def _rms_norm(x: Array, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    scaled = x / np.sqrt(_mean(x * x, axes, True) + (np.finfo(np.float32).eps if eps is None else eps))
    return _affine(scaled, weight, None)


def _group_norm(x: Array, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    batch, channels, *rest = x.shape
    grouped = reshape(x, (batch, num_groups, channels // num_groups, *rest))
    normed = reshape(_normed(grouped, range(2, grouped.ndim), eps), x.shape)
    weight, bias = (one if one is None else one[(slice(None), *[None] * len(rest))] for one in (weight, bias))
    return _affine(normed, weight, bias)


def _normalized(x: Array, p: Any = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    return x / np.maximum(_norm(x, p, dim, True), eps)


def _reduced_loss(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else _sum(losses) if reduction == "sum" else _mean(losses)


def _huber(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    apart = np.absolute(x - y)
    return _reduced_loss(where(apart < delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction)


def _smooth(x: Any, y: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    apart = np.absolute(x - y)
    return _reduced_loss(where(apart < beta, 0.5 * apart * apart / beta, apart - 0.5 * beta), reduction)


def _cross_entropy(x: Array, target: Array, reduction: str = "mean") -> Any:
    if x.ndim != 2 or target.ndim != 1:
        raise Untraceable("cross_entropy of other than rows of logits and their classes")
    picked = take_along_axis(_log_softmax(x, 1), expand_dims(target, 1), 1)
    return _reduced_loss(-squeeze(picked, 1), reduction)


def _binary(x: Any, y: Any, reduction: str = "mean") -> Any:
    return _reduced_loss(-(y * np.log(x) + (1 - y) * np.log(1 - x)), reduction)


def _binary_with_logits(x: Any, y: Any, reduction: str = "mean") -> Any:
    return _reduced_loss(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.absolute(x))), reduction)


_LAYERS: dict[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm, "normalize": _normalized, "huber_loss": _huber,
    "smooth_l1_loss": _smooth, "cross_entropy": _cross_entropy, "binary_cross_entropy": _binary,
    "binary_cross_entropy_with_logits": _binary_with_logits, "embedding": lambda ids, weight: take(weight, ids, 0),
    "mse_loss": lambda x, y, reduction="mean": _reduced_loss((x - y) * (x - y), reduction),
    "l1_loss": lambda x, y, reduction="mean": _reduced_loss(np.absolute(x - y), reduction),
    "glu": lambda x, dim=-1: reduce(lambda a, b: a * _sigmoid(b), _chunk(x, 2, dim)),
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {**_ELEMENTWISE, **_REDUCTIONS, **_SHAPES, **_PRODUCTS, **_LAYERS}
"""Functions of torch and torch.nn.functional; those that take a tensor first are methods too."""

METHODS: dict[str, Callable[..., Any]] = {
    "view": _SHAPES["reshape"], "to": _changed_type, "type": _changed_type, "type_as": _changed_type, "cpu": _itself, "cuda": _itself,
    "numpy": _itself, "dim": lambda x: x.ndim, "where": lambda x, condition, other: where(condition, x, other),
    "view_as": lambda x, other: reshape(x, other.shape), "reshape_as": lambda x, other: reshape(x, other.shape),
    "new_zeros": lambda x, *shape: filled(x, 0, None, _sides(shape)), "new_ones": lambda x, *shape: filled(x, 1, None, _sides(shape)),
}  # fmt: skip
"""Methods that are no functions, or other ones."""

IN_PLACE: dict[str, Callable[..., Any]] = {
    f"{name}_": FUNCTIONS[name] for name in ("add", "sub", "mul", "div", "clamp", "relu", "exp", "sqrt", "abs", "neg", "tanh", "sigmoid", "masked_fill", "pow")
} | {"copy_": lambda x, source: source, "zero_": lambda x: filled(x, 0), "fill_": lambda x, value: filled(x, value)}  # fmt: skip
"""Methods that change their tensor."""


def _arange(arrays: Any, *bounds: Any, dtype: Any = None) -> Any:
    return arrays.arange(*bounds) if dtype is None else arrays.arange(*bounds, dtype=dtype)


def _maker(name: str) -> Callable[..., Any]:
    def make(arrays: Any, *sizes: Any, dtype: Any = None) -> Any:
        return getattr(arrays, name)(_sides(sizes), **({} if dtype is None else {"dtype": dtype}))

    return make


MAKERS: Mapping[str, Callable[..., Any]] = {
    "arange": _arange, "zeros": _maker("zeros"), "ones": _maker("ones"), "empty": _maker("empty"),
    "full": lambda arrays, size, fill_value, dtype=None: arrays.full(size, fill_value, **({} if dtype is None else {"dtype": dtype})),
    "eye": lambda arrays, *sizes, dtype=None: arrays.eye(*sizes), "tensor": lambda arrays, data, dtype=None: arrays.asarray(data),
}  # fmt: skip
"""Functions that create tensors; their first argument is the module of NumPy for traced arrays."""
