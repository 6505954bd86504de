"""Translations of layers, normalisations, attention, losses, convolutions and pooling to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmate_torch.numpy_text import NumpyValue, SizeTexts, Untranslated, axis_text
from kernelmate_torch.program import TensorSpec

# ruff: noqa: ARG001 -- a translation takes what every translation takes


def _softmax(kind: str) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int, *_: Any, **given: Any) -> str:
        return f"{sizes.helper(kind)}({x}, {axis % x.rank})"

    return translate


def _layer_norm(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    shape: Sequence[Any],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
    **__: Any,
) -> str:
    axes = axis_text(list(range(-len(shape), 0)), x.rank)
    return _affine(f"{sizes.helper('normalised')}({x}, {axes}, {eps})", weight, bias)


def _rms_norm(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, shape: Sequence[Any], weight: Any = None, eps: Any = None
) -> str:
    axes = axis_text(list(range(-len(shape), 0)), x.rank)
    if eps is None:
        raise Untranslated("a root mean square without a number for eps, which then follows from the dtype")
    return _affine(f"{x} / np.sqrt(({x} ** 2).mean(axis={axes}, keepdims=True) + {eps})", weight, None)


def _affine(text: str, weight: Any, bias: Any, spread: str = "") -> str:
    text = text if weight is None else f"{text} * {weight}{spread}"
    return text if bias is None else f"{text} + {bias}{spread}"


def _channels(x: NumpyValue) -> str:
    """Returns the subscript that aligns a vector with the channels of (batch, channels, ...)."""
    return f"[:, {', '.join(['None'] * (x.rank - 2))}]" if x.rank > 2 else ""


def _batch_norm(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
) -> str:
    training, eps = (rest[0], rest[2]) if len(rest) > 2 else (False, rest[-1])
    if training or mean is None:
        raise Untranslated("batch normalisation by the batch's own statistics (training mode)")
    spread = _channels(x)
    return _affine(f"({x} - {mean}{spread}) / np.sqrt({var}{spread} + {eps})", weight, bias, spread)


def _group_norm(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> str:
    channels = x.spec.shape[1]
    sizes.fixed.add(channels)
    shape = (x.spec.shape[0], groups, int(channels) // groups, *x.spec.shape[2:])
    axes = ", ".join(map(str, range(2, len(shape))))
    apart = f"{x}.reshape{sizes.shape(shape)}"
    whole = f"{sizes.helper('normalised')}({apart}, ({axes}{',' if len(shape) == 3 else ''}), {eps}).reshape{sizes.shape(x.spec.shape)}"
    return _affine(whole, weight, bias, _channels(x))


def _instance_norm(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    own: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> str:
    if not own:
        raise Untranslated("instance normalisation by running statistics")
    axes = axis_text(list(range(2, x.rank)), x.rank)
    return _affine(f"{sizes.helper('normalised')}({x}, {axes}, {eps})", weight, bias, _channels(x))


def _linear(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, weight: NumpyValue, bias: Any = None) -> str:
    return f"{x} @ {weight}.T{'' if bias is None else f' + {bias}'}"


def _addmm(sizes: SizeTexts, out: TensorSpec, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> str:
    product = f"{a} @ {b}" if alpha == 1 else f"{alpha} * ({a} @ {b})"
    return f"{product} + {c}" if beta == 1 else f"{product} + {beta} * {c}"


def _attention(
    sizes: SizeTexts,
    out: TensorSpec,
    q: NumpyValue,
    k: NumpyValue,
    v: NumpyValue,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    **given: Any,
) -> str:
    if dropout or given.get("enable_gqa"):
        raise Untranslated("attention with dropout" if dropout else "attention with grouped heads")
    scale = given.get("scale")
    factor = f" / np.sqrt({q}.shape[-1])" if scale is None else f" * {scale}"
    scores = f"{q} @ {_swapped(k)}{factor}"
    if causal:
        rows, columns = sizes.dim(q.spec.shape[-2]), sizes.dim(k.spec.shape[-2])
        scores = f"np.where(np.tri({rows}, {columns}, dtype=bool), {scores}, -np.inf)"
    elif isinstance(mask, NumpyValue):
        scores = f"np.where({mask}, {scores}, -np.inf)" if mask.spec.dtype == "bool" else f"{scores} + {mask}"
    return f"{sizes.helper('softmax')}({scores}, -1) @ {v}"


def _swapped(x: NumpyValue) -> str:
    return f"{x}.T" if x.rank == 2 else f"np.swapaxes({x}, -1, -2)"


def _einsum(sizes: SizeTexts, out: TensorSpec, equation: str, operands: Sequence[Any], **_: Any) -> str:
    return f'np.einsum("{equation.replace(" ", "")}", {", ".join(operands)})'


def _embedding(sizes: SizeTexts, out: TensorSpec, table: NumpyValue, ids: NumpyValue, *_: Any) -> str:
    return f"{table}[{ids}]"


def _loss(form: str) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, a: NumpyValue, b: NumpyValue, reduction: int = 1) -> str:
        return _reduced(form.format(a=a, b=b), reduction)

    return translate


def _reduced(each: str, reduction: int) -> str:
    """Returns a loss from its elements' text by the number that ATen has for `none`, `mean` and `sum`."""
    return each if reduction == 0 else f"{each}.{'mean' if reduction == 1 else 'sum'}()"


def _cross_entropy(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    target: NumpyValue,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
    smoothing: float = 0.0,
) -> str:
    if smoothing or target.floating:
        raise Untranslated("cross entropy with smoothing or probabilities")
    return _picked(f"{sizes.helper('log_softmax')}({x}, 1)", x, target, weight, reduction, ignored)


def _picked(text: str, x: NumpyValue, target: NumpyValue, weight: Any, reduction: int, ignored: int) -> str:
    """Returns the negative of each row's value at its class; 0 for the class that is ignored."""
    if weight is not None or x.rank != 2 or reduction != 0:
        raise Untranslated("a loss with weights of classes, or of more axes")
    place = f"np.where({target} == {ignored}, 0, {target})[:, None]"
    return f"np.where({target} == {ignored}, 0, -np.take_along_axis({text}, {place}, axis=1)[:, 0])"


def _nll(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    target: NumpyValue,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
) -> str:
    return _picked(str(x), x, target, weight, reduction, ignored)


def _kl(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, target: NumpyValue, reduction: int = 1, **given: Any) -> str:
    if given.get("log_target"):
        each = f"(np.exp({target}) * ({target} - {x}))"
    else:
        each = f"np.where({target} > 0, {target} * (np.log(np.where({target} > 0, {target}, 1)) - {x}), 0)"
    return _reduced(each, reduction)


def _cosine(sizes: SizeTexts, out: TensorSpec, a: NumpyValue, b: NumpyValue, axis: int = 1, eps: float = 1e-8) -> str:
    place = axis % max(a.rank, b.rank)
    norms = [f"np.maximum(np.sqrt(({one} * {one}).sum(axis={place})), {eps})" for one in (a, b)]
    return f"({a} * {b}).sum(axis={place}) / ({norms[0]} * {norms[1]})"


NETWORK_OPERATIONS: dict[str, Callable[..., str]] = {
    "_native_batch_norm_legit_no_training.default[0]": _batch_norm,
    "native_layer_norm.default[0]": _layer_norm,
    "prelu.default": lambda sizes, out, x, w: (
        f"np.where({x} > 0, {x}, {w}{_channels(x) if w.spec.shape != (1,) else ''} * {x})"
    ),
    "softmax.int": _softmax("softmax"),
    "_softmax.default": _softmax("softmax"),
    "log_softmax.int": _softmax("log_softmax"),
    "_log_softmax.default": _softmax("log_softmax"),
    "layer_norm.default": _layer_norm,
    "rms_norm.default": _rms_norm,
    "batch_norm.default": _batch_norm,
    "group_norm.default": _group_norm,
    "instance_norm.default": _instance_norm,
    "linear.default": _linear,
    "addmm.default": _addmm,
    "baddbmm.default": _addmm,
    "scaled_dot_product_attention.default": _attention,
    "einsum.default": _einsum,
    "embedding.default": _embedding,
    "mse_loss.default": _loss("(({a} - {b}) ** 2)"),
    "l1_loss.default": _loss("np.abs({a} - {b})"),
    "cross_entropy_loss.default": _cross_entropy,
    "nll_loss_nd.default": _nll,
    "nll_loss.default": _nll,
    "smooth_l1_loss.default": lambda sizes, out, a, b, reduction=1, beta=1.0: _loss(
        f"np.where(np.abs({a} - {b}) < {beta}, 0.5 * ({a} - {b}) ** 2 / {beta}, np.abs({a} - {b}) - {0.5 * beta})"
    )(sizes, out, a, b, reduction),
    "huber_loss.default": lambda sizes, out, a, b, reduction=1, delta=1.0: _loss(
        f"np.where(np.abs({a} - {b}) <= {delta}, 0.5 * ({a} - {b}) ** 2, {delta} * (np.abs({a} - {b}) - {0.5 * delta}))"
    )(sizes, out, a, b, reduction),
    "kl_div.default": _kl,
    "cosine_similarity.default": _cosine,
}
"""Translations by the operation's name in ATen."""


# ruff: noqa: ARG001 -- a translation takes what every translation takes


_AXES = "hwd"
_TAPS = "ijk"


def _each(value: Any, rank: int) -> list[int]:
    """Returns one number for each spatial axis."""
    several = value if isinstance(value, list) else [value]
    return list(several) * rank if len(several) == 1 else list(several)


def _padded(x: NumpyValue, padding: Sequence[int], rank: int, value: str = "") -> str:
    """Returns an array with its last `rank` axes padded."""
    if not any(padding):
        return str(x)
    widths = ["(0, 0)"] * (x.rank - rank) + [f"({one}, {one})" for one in padding]
    return f"np.pad({x}, ({', '.join(widths)}){value})"


def _need(
    sizes: SizeTexts, x: NumpyValue, kernel: Sequence[Any], padding: Sequence[int], dilation: Sequence[int]
) -> None:
    """Notes that the padded array has to have at least one window."""
    for dim, k, pad, step in zip(x.spec.shape[-len(kernel) :], kernel, padding, dilation, strict=True):
        sizes.at_least(dim, (int(k) - 1) * step + 1 - 2 * pad)


def _windows(x: str, lead: int, kernel: Sequence[Any], stride: Sequence[int], dilation: Sequence[int]) -> str:
    """Returns the windows of the axes after the first `lead` ones, as axes at the end."""
    rank = len(kernel)
    spans = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    axes = ", ".join(str(lead + axis) for axis in range(rank))
    comma = "," if rank == 1 else ""
    view = f"np.lib.stride_tricks.sliding_window_view({x}, ({', '.join(map(str, spans))}{comma}), axis=({axes}{comma}))"
    if any(one != 1 for one in (*stride, *dilation)):
        steps = [":"] * lead + [f"::{one}" if one != 1 else ":" for one in (*stride, *dilation)]
        view += f"[{', '.join(steps)}]"
    return view


def _convolution(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, weight: NumpyValue, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    rank = weight.rank - 2
    if x.rank != rank + 2 or rank > 3:
        raise Untranslated("a convolution without a batch axis")
    kernel = weight.spec.shape[2:]
    if not all(isinstance(one, int) for one in kernel):
        raise Untranslated("a convolution whose kernel has no fixed size")
    stride, dilation = _each(stride, rank), _each(dilation, rank)
    if isinstance(padding, str):
        spans = [(int(k) - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        if padding == "same" and any(one % 2 for one in spans):
            raise Untranslated("a convolution padded on one side")
        padding = [one // 2 for one in spans] if padding == "same" else [0] * rank
    padding = _each(padding, rank)
    sizes.fixed |= set(kernel)
    _need(sizes, x, kernel, padding, dilation)
    view = _windows(_padded(x, padding, rank), 2, kernel, stride, dilation)
    places, taps = _AXES[:rank], _TAPS[:rank]
    if groups == 1:
        text = f'np.einsum("nc{places}{taps},oc{taps}->no{places}", {view}, {weight})'
    else:
        text = _grouped(sizes, x, weight, view, groups, places, taps, out)
    spread = f"[:, {', '.join(['None'] * rank)}]"
    return text if bias is None else f"{text} + {bias}{spread}"


def _grouped(
    sizes: SizeTexts, x: NumpyValue, weight: NumpyValue, view: str, groups: int, places: str, taps: str, out: TensorSpec
) -> str:  # fmt: skip
    depthwise = x.spec.shape[1] == groups and weight.spec.shape[0] == groups
    if depthwise:
        return f'np.einsum("nc{places}{taps},c{taps}->nc{places}", {view}, {weight}[:, 0])'
    raise Untranslated("a convolution in groups of several channels")


def _transposed(sizes: SizeTexts, out: TensorSpec, *_: Any, **__: Any) -> str:
    raise Untranslated("a transposed convolution")


def _convolution_core(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, weight: NumpyValue, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> str:  # fmt: skip
    if transposed:
        return _transposed(sizes, out)
    return _convolution(sizes, out, x, weight, bias, stride, padding, dilation, groups)


def _pool(kind: str, rank: int) -> Callable[..., str]:
    def translate(
        sizes: SizeTexts, out: TensorSpec, x: NumpyValue, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any
    ) -> str:  # fmt: skip
        kernel = _each(kernel, rank)
        stride, padding, dilation = _each(stride or kernel, rank), _each(padding, rank), [1] * rank
        ceil = bool(rest[1] if kind == "max" else rest[0]) if len(rest) > (kind == "max") else False
        if kind == "max" and rest:
            dilation = _each(rest[0], rank)
        if kind == "mean" and any(padding) and len(rest) > 1 and not rest[1]:
            raise Untranslated("an average that leaves out the padding")
        if ceil or (kind == "mean" and len(rest) > 2 and rest[2] is not None):
            raise Untranslated("pooling with ceil_mode or a divisor")
        filler = ", constant_values=-np.inf" if kind == "max" else ""
        lead = x.rank - rank
        _need(sizes, x, kernel, padding, dilation)
        view = _windows(_padded(x, padding, rank, filler), lead, kernel, stride, dilation)
        return f"{view}.{kind}(axis=({', '.join(str(one) for one in range(-rank, 0))},))"

    return translate


def _adaptive(rank: int) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, wanted: Any, *_: Any) -> str:
        if any(one != 1 for one in _each(wanted, rank)):
            raise Untranslated("adaptive pooling to more than one element")
        return f"{x}.mean(axis=({', '.join(str(one) for one in range(x.rank - rank, x.rank))},), keepdims=True)"

    return translate


WINDOW_OPERATIONS: dict[str, Callable[..., str]] = {
    "conv1d.default": _convolution, "conv2d.default": _convolution, "conv3d.default": _convolution, "conv1d.padding": _convolution,
    "conv2d.padding": _convolution, "convolution.default": _convolution_core, "conv_transpose2d.input": _transposed,
    "conv_transpose1d.default": _transposed, "conv_transpose3d.input": _transposed,
    **{f"max_pool{rank}d.default": _pool("max", rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d.default": _pool("mean", rank) for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d.default": _adaptive(rank) for rank in (1, 2, 3)},
}  # fmt: skip
"""Translations by the operation's name in ATen."""
