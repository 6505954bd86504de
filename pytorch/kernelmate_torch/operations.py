"""Translations of ATen operations to NumPy expressions; an operation that is not here stays eager.

Each is called with the part's sizes, the result's shape, and the operation's arguments: tensors as `NumpyValue`, numbers as
they are. It returns an expression, or raises `Untranslated` for an option that it does not cover. Semantics are those of
docs.pytorch.org's torch and torch.nn.functional. `RANDOM` operations draw numbers, `VIEWS` move none.
"""

# ruff: noqa: ARG001 -- a translation takes what every translation takes

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmate_torch.network_operations import NETWORK_OPERATIONS
from kernelmate_torch.numpy_text import NumpyValue, SizeTexts, Untranslated, along_text, axis_text, number_text
from kernelmate_torch.program import TensorSpec
from kernelmate_torch.update_operations import UPDATE_OPERATIONS
from kernelmate_torch.window_operations import WINDOW_OPERATIONS

Translation = Callable[..., str]
"""(sizes, result's spec, *arguments, **keyword arguments) to an expression."""

RANDOM = ("rand", "dropout", "bernoulli", "normal_functional", "multinomial", "exponential", "poisson")

VIEWS = frozenset(
    f"aten.{one}"
    for one in (
        "view.default", "reshape.default", "permute.default", "transpose.int", "t.default", "unsqueeze.default",
        "squeeze.dim", "squeeze.dims", "squeeze.default", "flatten.using_ints", "expand.default", "contiguous.default",
        "clone.default", "alias.default", "detach.default", "_unsafe_view.default", "unflatten.int", "select.int",
        "slice.Tensor", "movedim.int", "numpy_T.default", "view_as.default", "unbind.int", "split.Tensor", "chunk.default",
        "split_with_sizes.default",
    )
)  # fmt: skip
"""Operations that compute nothing: alone, they stay as they are."""

STRIDED = frozenset(
    f"aten.{one}"
    for one in (
        "permute.default",
        "transpose.int",
        "t.default",
        "movedim.int",
        "numpy_T.default",
        "select.int",
        "slice.Tensor",
    )
)
"""Views whose elements do not follow each other in memory."""

HEAVY = frozenset(
    f"aten.{one}"
    for one in (
        "linear.default", "matmul.default", "mm.default", "bmm.default", "addmm.default", "baddbmm.default", "mv.default",
        "conv1d.default", "conv2d.default", "conv3d.default", "convolution.default", "einsum.default",
        "scaled_dot_product_attention.default", "dot.default", "conv1d.padding", "conv2d.padding",
    )
)  # fmt: skip
"""Operations for which PyTorch calls a library (cuBLAS, cuDNN)."""


def _binary(sign: str) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, a: Any, b: Any, alpha: Any = 1) -> str:
        scaled = b if alpha == 1 else f"{number_text(alpha)} * {b}"
        return f"{_cast(out, a)} {sign} {_cast(out, scaled) if alpha == 1 else scaled}"

    return translate


def _cast(out: TensorSpec, value: Any) -> Any:
    """Returns an operand, with bool and whole numbers cast where NumPy's result would be another dtype than torch's."""
    if isinstance(value, NumpyValue) and value.spec.dtype == "bool" and out.dtype != "bool":
        return f"{value}.astype(np.{'float64' if 'float' in out.dtype else out.dtype})"
    return number_text(value)


def _compare(sign: str) -> Translation:
    return lambda sizes, out, a, b: f"{number_text(a)} {sign} {number_text(b)}"


def _running(name: str) -> Translation:
    return lambda sizes, out, x, axis: f"np.{name}.accumulate({x}, axis={axis % x.rank})"


def _call(name: str) -> Translation:
    return lambda sizes, out, *args: f"np.{name}({', '.join(str(number_text(one)) for one in args)})"


def _text(form: str, helper: str | None = None) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, x: Any) -> str:
        if helper is not None:
            sizes.helper(helper)
        return form.format(x=x)

    return translate


def _reduction(kind: str) -> Translation:
    def translate(
        sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: Any = None, keep: bool = False, **given: Any
    ) -> str:
        keep = bool(given.get("keepdim", keep))
        given = {name: value for name, value in given.items() if name not in ("keepdim", "dtype", "dim")}
        if given:
            raise Untranslated(f"{kind} with {', '.join(given)}")
        return f"{_whole(out, x)}.{kind}({along_text(axis, x, keep)})"

    return translate


def _whole(out: TensorSpec, x: NumpyValue) -> str:
    """Returns a value with booleans converted to integers, as torch sums them."""
    return f"{x}.astype(np.int64)" if x.spec.dtype == "bool" and out.dtype != "bool" else x


def _var(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: Any = None, *rest: Any, **given: Any) -> str:
    correction = given.get("correction", 1)
    keep = bool(given.get("keepdim", False))
    if rest:  # var.dim(x, dim, unbiased, keepdim)
        correction, keep = int(rest[0]), bool(rest[1]) if len(rest) > 1 else keep
    if isinstance(axis, bool):
        axis, correction = None, int(axis)
    correction = 1 if correction is None else correction
    along = along_text(axis, x, keep)
    return f"{x}.var({along}{', ' if along else ''}ddof={number_text(correction)})"


def _std(sizes: SizeTexts, out: TensorSpec, *args: Any, **given: Any) -> str:
    return f"np.sqrt({_var(sizes, out, *args, **given)})"


def _norm(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, order: Any = 2, axis: Any = None, keep: bool = False, **given: Any
) -> str:
    if given.get("dtype") is not None or order not in (1, 2, None):
        raise Untranslated(f"the norm of order {order}")
    if isinstance(order, int | float) and order == 1:
        return f"np.abs({x}).sum({along_text(axis, x, keep)})"
    return f"np.sqrt(({x} ** 2).sum({along_text(axis, x, keep)}))"


def _distance(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    y: NumpyValue,
    order: Any = 2,
    eps: float = 1e-6,
    keep: bool = False,
) -> str:
    if order not in (1, 2):
        raise Untranslated(f"the distance of order {order}")
    along = f"axis=-1{', keepdims=True' * keep}"
    apart = f"{x} - {y} + {number_text(eps)}"
    return f"np.abs({apart}).sum({along})" if order == 1 else f"np.sqrt((({apart}) ** 2).sum({along}))"


def _logsumexp(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: Any, keep: bool = False) -> str:
    place = axis_text(axis, x.rank)
    inner = f"np.log(np.exp({x} - {x}.max(axis={place}, keepdims=True)).sum({along_text(axis, x, keep)}))"
    return f"{x}.max({along_text(axis, x, keep)}) + {inner}"


def _cumulative(kind: str) -> Translation:
    return lambda sizes, out, x, axis, **_: f"{_whole(out, x)}.{kind}(axis={axis % max(x.rank, 1)})"


def _gelu(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, approximate: str = "none") -> str:
    if approximate == "tanh":
        return f"0.5 * {x} * (1 + np.tanh(np.sqrt(2 / np.pi) * ({x} + 0.044715 * {x} ** 3)))"
    return f"0.5 * {x} * (1 + {sizes.helper('erf')}({x} * np.sqrt(0.5)))"


def _clamp(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, low: Any = None, high: Any = None, **given: Any) -> str:
    low, high = given.get("min", low), given.get("max", high)
    inner = str(x) if low is None else f"np.maximum({x}, {number_text(low)})"
    return inner if high is None else f"np.minimum({inner}, {number_text(high)})"


def _leaky(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, slope: float = 0.01) -> str:
    return f"np.where({x} > 0, {x}, {slope} * {x})"


def _elu(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, alpha: float = 1.0, scale: float = 1, input_scale: float = 1
) -> str:
    if (scale, input_scale) != (1, 1):
        return f"{scale} * np.where({x} > 0, {x}, {alpha} * np.expm1({input_scale} * np.minimum({x}, 0)))"
    return f"np.where({x} > 0, {x}, {alpha} * np.expm1(np.minimum({x}, 0)))"


def _softplus(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, beta: float = 1, threshold: float = 20) -> str:
    if beta != 1:
        return f"{sizes.helper('softplus')}({beta} * {x}) / {beta}"
    return f"{sizes.helper('softplus')}({x})"


def _reshaped(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, *_: Any) -> str:
    """Returns a reshape; dimensions that are split into numbers, or joined from them, keep the exported numbers."""
    before, after = x.spec.shape, out.shape
    kept = [one for one in after if one in before]
    for one in {*before, *after} - set(kept):
        sizes.fixed.add(one)
    unknown = [one for one in after if isinstance(one, str) and one not in sizes.names]
    if len(unknown) == 1 and after.count(unknown[0]) == 1:
        texts = ["-1" if one == unknown[0] else sizes.dim(one) for one in after]
        return f"{x}.reshape({', '.join(texts)})"
    return f"{x}.reshape{sizes.shape(after)}"


def _permute(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axes: Sequence[int]) -> str:
    return f"{x}.transpose({', '.join(str(one % x.rank) for one in axes)})"


def _transpose(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, a: int = 0, b: int = 1) -> str:
    return f"np.swapaxes({x}, {a % x.rank}, {b % x.rank})" if x.rank > 1 else str(x)


def _expand(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, *_: Any, **__: Any) -> str:
    return f"np.broadcast_to({x}, {sizes.shape(out.shape)})"


def _squeeze(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: Any = None) -> str:
    several = range(x.rank) if axis is None else [one % x.rank for one in (axis if isinstance(axis, list) else [axis])]
    ones = [one for one in several if x.spec.shape[one] == 1]
    return f"{x}[{', '.join('0' if one in ones else ':' for one in range(x.rank))}]" if ones else str(x)


def _unsqueeze(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int) -> str:
    return f"np.expand_dims({x}, {axis % (x.rank + 1)})"


def _select(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int, index: Any) -> str:
    return f"{x}[{', '.join([':'] * (axis % x.rank) + [str(index)])}]"


def _slice(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> str:
    axis %= x.rank
    stop = None if isinstance(stop, int) and stop >= 2**31 else stop
    length = x.spec.shape[axis]
    if any(isinstance(one, int) and abs(one) > 4 for one in (start, stop)) and isinstance(length, int):
        sizes.fixed |= {length, out.shape[axis]}
    if isinstance(length, int) and isinstance(stop, int) and stop >= length:
        stop = None
    text = f"{'' if start in (None, 0) else start}:{'' if stop is None else stop}{'' if step == 1 else f':{step}'}"
    return f"{x}[{', '.join([':'] * axis + [text])}]"


def _cat(sizes: SizeTexts, out: TensorSpec, several: Sequence[NumpyValue], axis: int = 0) -> str:
    return f"np.concatenate([{', '.join(several)}], axis={axis % len(out.shape)})"


def _stack(sizes: SizeTexts, out: TensorSpec, several: Sequence[NumpyValue], axis: int = 0) -> str:
    return f"np.stack([{', '.join(several)}], axis={axis % len(out.shape)})"


def _index(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, indices: Sequence[Any]) -> str:
    if any(isinstance(one, NumpyValue) and one.spec.dtype == "bool" for one in indices):
        raise Untranslated("a selection by a mask, whose length depends on values")
    return f"{x}[{', '.join(':' if one is None else str(one) for one in indices)}]"


def _gather(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int, index: NumpyValue, **_: Any) -> str:
    return f"np.take_along_axis({x}, {index}, axis={axis % x.rank})"


def _index_select(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int, index: NumpyValue) -> str:
    return f"np.take({x}, {index}, axis={axis % x.rank})"


def _triangle(kind: str) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, diagonal: int = 0) -> str:
        rows, columns = (sizes.dim(one) for one in x.spec.shape[-2:])
        mask = f"np.tri({rows}, {columns}, {diagonal if kind == 'tril' else diagonal - 1}, dtype=bool)"
        return f"np.where({mask}, {x}, 0)" if kind == "tril" else f"np.where({mask}, 0, {x})"

    return translate


def _arange(sizes: SizeTexts, out: TensorSpec, *bounds: Any, **_: Any) -> str:
    bounds = tuple(sizes.dim(one) if isinstance(one, int) and one == out.shape[0] else one for one in bounds)
    made = f"np.arange({', '.join(map(str, bounds))})"
    return made if out.dtype == "int64" else f"{made}.astype(np.{'float64' if 'float' in out.dtype else out.dtype})"


def _full(sizes: SizeTexts, out: TensorSpec, *args: Any, **_: Any) -> str:
    return f"np.full({sizes.shape(out.shape)}, {number_text(args[-1])}, {_numpy_dtype(out)})"


def _filled(value: Any) -> Translation:
    return lambda sizes, out, *_, **__: f"np.full({sizes.shape(out.shape)}, {value}, {_numpy_dtype(out)})"


def _numpy_dtype(out: TensorSpec) -> str:
    if out.dtype == "bool":
        return "bool"
    return f"np.{'float64' if 'float' in out.dtype else out.dtype}"


def _converted(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, *_: Any, **__: Any) -> str:
    if x.spec.dtype == out.dtype or (x.floating and "float" in out.dtype):
        return str(x)
    return f"{x}.astype({_numpy_dtype(out)})"


def _same(sizes: SizeTexts, out: TensorSpec, x: Any, *_: Any, **__: Any) -> str:
    return str(x)


def _dropout(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, share: float, training: bool) -> str:
    if training and share:
        raise Untranslated("dropout draws random numbers")
    return str(x)


def _where(sizes: SizeTexts, out: TensorSpec, condition: Any, a: Any, b: Any) -> str:
    return f"np.where({condition}, {number_text(a)}, {number_text(b)})"


def _masked_fill(sizes: SizeTexts, out: TensorSpec, x: Any, mask: Any, value: Any) -> str:
    return f"np.where({mask}, {number_text(value)}, {x})"


def _power(sizes: SizeTexts, out: TensorSpec, a: Any, b: Any) -> str:
    return f"{number_text(a)} ** {number_text(b)}"


def _division(sizes: SizeTexts, out: TensorSpec, a: Any, b: Any, **given: Any) -> str:
    if given.get("rounding_mode") == "floor":
        return f"{a} // {b}"
    if given.get("rounding_mode"):
        if "float" not in out.dtype:
            raise Untranslated("a division of integers that rounds towards zero")
        return f"np.trunc({_cast(out, a)} / {_cast(out, b)})"
    return f"{_cast(out, a)} / {_cast(out, b)}"


def _shift(sign: str) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, by: Any) -> str:
        bits = int("".join(filter(str.isdigit, x.spec.dtype)) or 0)
        if (
            not isinstance(by, int) or not 0 <= by < bits
        ):  # by as many bits as there are, PyTorch gives 0 and C++ anything
            raise Untranslated("a shift by a number of bits that varies, or by all bits")
        return f"{x} {sign} {by}"

    return translate


def _fmod(sizes: SizeTexts, out: TensorSpec, a: NumpyValue, b: Any) -> str:
    if not a.floating:
        raise Untranslated("a remainder of integers with the dividend's sign")
    return f"np.fmod({a}, {number_text(b)})"


def _reversed(sizes: SizeTexts, out: TensorSpec, a: Any, b: Any, alpha: Any = 1) -> str:
    return f"{b} - {a if alpha == 1 else f'{alpha} * {a}'}"


def _extreme(kind: str) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: Any = None, keep: bool = False) -> str:
        return f"{x}.{kind}({along_text(axis, x, keep)})"

    return translate


def _lerp(sizes: SizeTexts, out: TensorSpec, a: Any, b: Any, w: Any) -> str:
    return f"{a} + {w} * ({b} - {a})"


def _addc(sign: str) -> Translation:
    def translate(sizes: SizeTexts, out: TensorSpec, c: Any, a: Any, b: Any, value: Any = 1) -> str:
        return f"{c} + {a} {sign} {b}" if value == 1 else f"{c} + {value} * ({a} {sign} {b})"

    return translate


def _flip(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axes: Sequence[int]) -> str:
    return f"np.flip({x}, {axis_text(list(axes), x.rank)})"


_PLAIN: dict[str, Translation] = {
    "max.dim[0]": _extreme("max"), "min.dim[0]": _extreme("min"), "max.dim[1]": _extreme("argmax"), "min.dim[1]": _extreme("argmin"),
    "add.Tensor": _binary("+"), "add.Scalar": _binary("+"), "sub.Tensor": _binary("-"), "sub.Scalar": _binary("-"),
    "mul.Tensor": _binary("*"), "mul.Scalar": _binary("*"), "div.Tensor": _division, "div.Scalar": _division,
    "div.Tensor_mode": _division, "rsub.Scalar": _reversed, "rsub.Tensor": _reversed, "true_divide.Tensor": _division,
    "floor_divide.default": _compare("//"), "remainder.Scalar": _compare("%"), "remainder.Tensor": _compare("%"),
    "pow.Tensor_Scalar": _power, "pow.Tensor_Tensor": _power, "pow.Scalar": _power, "square.default": _text("{x} ** 2"),
    **{f"{name}.{kind}": _compare(sign) for name, sign in {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}.items() for kind in ("Tensor", "Scalar")},
    "logical_and.default": _call("logical_and"), "logical_or.default": _call("logical_or"), "logical_not.default": _call("logical_not"),
    "logical_xor.default": _call("logical_xor"), "bitwise_not.default": _text("~{x}"),
    **{f"{name}.{kind}": _compare(sign) for sign, names in {"&": ("bitwise_and", "__and__"), "|": ("bitwise_or", "__or__"), "^": ("bitwise_xor", "__xor__")}.items() for name in names for kind in ("Tensor", "Scalar")},
    "__lshift__.Scalar": _shift("<<"), "bitwise_left_shift.Tensor_Scalar": _shift("<<"), "__rshift__.Scalar": _shift(">>"), "bitwise_right_shift.Tensor_Scalar": _shift(">>"),
    "fmod.Tensor": _fmod, "fmod.Scalar": _fmod, "hypot.default": _call("hypot"), "copysign.Tensor": _call("copysign"), "copysign.Scalar": _call("copysign"),
    "maximum.default": _call("maximum"), "minimum.default": _call("minimum"), "max.other": _call("maximum"), "min.other": _call("minimum"),
    **{f"{name}.default": _call(name) for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh", "abs", "floor", "ceil", "trunc", "sign", "isnan", "isinf", "isfinite")},
    "isposinf.default": _text("{x} == np.inf"), "isneginf.default": _text("{x} == -np.inf"), "cummax.default[0]": _running("maximum"), "cummin.default[0]": _running("minimum"),
    **{f"{name}.default": _call(f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2.default": _call("arctan2"), "round.default": _call("rint"), "neg.default": _text("-{x}"), "reciprocal.default": _text("1 / {x}"), "rsqrt.default": _text("1 / np.sqrt({x})"),
    "erf.default": _text("erf({x})", "erf"), "sigmoid.default": _text("1 / (1 + np.exp(-{x}))"), "relu.default": _text("np.maximum({x}, 0)"),
    "relu6.default": _text("np.minimum(np.maximum({x}, 0), 6)"), "silu.default": _text("{x} / (1 + np.exp(-{x}))"),
    "hardtanh.default": lambda sizes, out, x, low=-1.0, high=1.0: _clamp(sizes, out, x, low, high),
    "hardsigmoid.default": _text("np.minimum(np.maximum({x} + 3, 0), 6) / 6"), "hardswish.default": _text("{x} * np.minimum(np.maximum({x} + 3, 0), 6) / 6"),
    "softsign.default": _text("{x} / (1 + np.abs({x}))"), "tanhshrink.default": _text("{x} - np.tanh({x})"),
    "log_sigmoid.default": _text("-softplus(-{x})", "softplus"), "mish.default": _text("{x} * np.tanh(softplus({x}))", "softplus"),
    "selu.default": _text("1.0507009873554805 * np.where({x} > 0, {x}, 1.6732632423543772 * np.expm1(np.minimum({x}, 0)))"),
    "leaky_relu.default": _leaky, "elu.default": _elu, "celu.default": lambda sizes, out, x, alpha=1.0: f"np.where({x} > 0, {x}, {alpha} * np.expm1(np.minimum({x}, 0) / {alpha}))",
    "softplus.default": _softplus, "gelu.default": _gelu, "clamp.default": _clamp, "clip.default": _clamp,
    "clamp_min.default": lambda sizes, out, x, low: _clamp(sizes, out, x, low), "clamp_max.default": lambda sizes, out, x, high: _clamp(sizes, out, x, None, high),
    "clamp.Tensor": _clamp, "where.self": _where, "where.ScalarOther": _where, "where.ScalarSelf": _where, "masked_fill.Scalar": _masked_fill, "masked_fill.Tensor": _masked_fill,
    "lerp.Scalar": _lerp, "lerp.Tensor": _lerp, "addcmul.default": _addc("*"), "addcdiv.default": _addc("/"),
    "sum.default": _reduction("sum"), "sum.dim_IntList": _reduction("sum"), "mean.default": _reduction("mean"), "mean.dim": _reduction("mean"),
    "prod.default": _reduction("prod"), "prod.dim_int": _reduction("prod"), "amax.default": _extreme("max"), "amin.default": _extreme("min"),
    "max.default": _extreme("max"), "min.default": _extreme("min"), "argmax.default": _extreme("argmax"), "argmin.default": _extreme("argmin"),
    "any.default": _extreme("any"), "any.dim": _extreme("any"), "all.default": _extreme("all"), "all.dim": _extreme("all"),
    "var_mean.correction[0]": _var, "var_mean.correction[1]": lambda sizes, out, x, axis=None, **given: f"{x}.mean({along_text(axis, x, bool(given.get('keepdim')))})",
    "var.default": _var, "var.dim": _var, "var.correction": _var, "std.default": _std, "std.dim": _std, "std.correction": _std,
    "linalg_vector_norm.default": _norm, "norm.ScalarOpt_dim": _norm, "norm.Scalar": _norm, "pairwise_distance.default": _distance, "logsumexp.default": _logsumexp, "cumsum.default": _cumulative("cumsum"), "cumprod.default": _cumulative("cumprod"), "matmul.default": _compare("@"), "mm.default": _compare("@"), "bmm.default": _compare("@"), "mv.default": _compare("@"), "dot.default": _compare("@"), "outer.default": lambda sizes, out, a, b: f"{a}[:, None] * {b}",
    "view.default": _reshaped, "reshape.default": _reshaped, "_unsafe_view.default": _reshaped, "flatten.using_ints": _reshaped, "unflatten.int": _reshaped, "view_as.default": _reshaped,
    "permute.default": _permute, "transpose.int": _transpose, "t.default": _transpose, "numpy_T.default": _transpose, "expand.default": _expand, "expand_as.default": _expand, "squeeze.dim": _squeeze, "squeeze.dims": _squeeze, "squeeze.default": _squeeze,
    "unsqueeze.default": _unsqueeze, "select.int": _select, "slice.Tensor": _slice, "cat.default": _cat, "concat.default": _cat, "stack.default": _stack, "flip.default": _flip,
    "contiguous.default": _same, "clone.default": _same, "alias.default": _same, "detach.default": _same, "lift_fresh_copy.default": _same, "detach_.default": _same,
    "dropout.default": _dropout, "index.Tensor": _index, "gather.default": _gather, "index_select.default": _index_select,
    "tril.default": _triangle("tril"), "triu.default": _triangle("triu"), "arange.default": _arange, "arange.start": _arange, "arange.start_step": _arange,
    "full.default": _full, "full_like.default": _full, "zeros.default": _filled(0), "ones.default": _filled(1), "zeros_like.default": _filled(0), "ones_like.default": _filled(1),
    "new_zeros.default": _filled(0), "new_ones.default": _filled(1), "scalar_tensor.default": lambda sizes, out, value, **_: f"np.asarray({number_text(value)})",
    "_to_copy.default": _converted, "to.dtype": _converted, "to.dtype_layout": _converted, "type_as.default": _converted, "hinge_embedding_loss.default": lambda *_, **__: _unsupported("hinge embedding loss"),
}  # fmt: skip


def _unsupported(what: str) -> str:
    raise Untranslated(f"{what} has no translation")


OPERATIONS: dict[str, Translation] = {
    f"aten.{name}": one
    for name, one in {**_PLAIN, **NETWORK_OPERATIONS, **WINDOW_OPERATIONS, **UPDATE_OPERATIONS}.items()
}
"""Translation of each operation, by its name in PyTorch."""
