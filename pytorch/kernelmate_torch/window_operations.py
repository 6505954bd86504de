"""Translations of convolutions and pooling to NumPy."""

# ruff: noqa: ARG001 -- a translation takes what every translation takes

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmate_torch.numpy_text import NumpyValue, SizeTexts, Untranslated
from kernelmate_torch.program import TensorSpec

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
