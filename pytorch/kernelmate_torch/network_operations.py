"""Translations of layers, normalisations, attention and losses to NumPy."""

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
    if dropout:
        raise Untranslated("attention with dropout")
    scale = given.get("scale")
    factor = f" / np.sqrt({q}.shape[-1])" if scale is None else f" * {scale}"
    of_heads = [_of_heads(sizes, q, one) if given.get("enable_gqa") else one for one in (k, v)]
    swapped = _swapped(k) if of_heads[0] == k else f"np.swapaxes({of_heads[0]}, -1, -2)"
    scores = f"{q} @ {swapped}{factor}"
    if causal:
        rows, columns = sizes.dim(q.spec.shape[-2]), sizes.dim(k.spec.shape[-2])
        scores = f"np.where(np.tri({rows}, {columns}, dtype=bool), {scores}, -np.inf)"
    elif isinstance(mask, NumpyValue):
        scores = f"np.where({mask}, {scores}, -np.inf)" if mask.spec.dtype == "bool" else f"{scores} + {mask}"
    return f"{sizes.helper('softmax')}({scores}, -1) @ {of_heads[1]}"


def _of_heads(sizes: SizeTexts, q: NumpyValue, x: NumpyValue) -> str:
    """Returns keys or values with one head for each of the queries', of which groups share one."""
    heads, groups = q.spec.shape[-3], x.spec.shape[-3]
    if not isinstance(heads, int) or not isinstance(groups, int):
        raise Untranslated("attention with groups of heads whose number varies")
    sizes.fixed |= {heads, groups}
    return str(x) if heads == groups else f"np.repeat({x}, {heads // groups}, axis={x.rank - 3})"


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
    logarithms = f"{sizes.helper('log_softmax')}({x}, 1)"
    if not target.floating:
        return _picked(logarithms, x, target, weight, reduction, ignored, smoothing)
    if weight is not None or x.rank != 2:
        raise Untranslated("cross entropy of probabilities with weights of classes, or of more axes")
    share = f"({1 - smoothing} * {target} + {smoothing} / {x}.shape[1])" if smoothing else str(target)
    return _reduced(f"(-({share} * {logarithms}).sum(axis=1))", reduction)


def _picked(
    text: str, x: NumpyValue, target: NumpyValue, weight: Any, reduction: int, ignored: int, smoothing: float = 0.0
) -> str:
    """Returns the negated value of each row at its class, with label smoothing; 0 for the ignored class."""
    if x.rank != 2 or reduction != 0 or (weight is not None and smoothing):
        raise Untranslated("a loss of more axes, or with weights of classes and smoothed labels")
    place = f"np.where({target} == {ignored}, 0, {target})"
    value = f"-np.take_along_axis({text}, {place}[:, None], axis=1)[:, 0]"
    if weight is not None:
        value = f"{value} * {weight}[{place}]"
    if smoothing:
        value = f"{1 - smoothing} * ({value}) - {smoothing} * {text}.mean(axis=1)"
    return f"np.where({target} == {ignored}, 0, {value})"


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
