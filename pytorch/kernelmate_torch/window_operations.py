"""Translations of convolutions, pooling and upsampling to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmate.errors import KernelmateError
from kernelmate.source.expressions import evaluate
from kernelmate_torch.numpy_text import NumpyValue, SizeTexts, Untranslated
from kernelmate_torch.program import SYMBOL, TensorSpec

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
    """Records the condition that at least one window fits into the padded array."""
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
    (channels, made), (of_group, *kernel) = (x.spec.shape[1], out.shape[1]), weight.spec.shape[1:]
    sizes.fixed |= {channels, made, of_group}
    apart = sizes.shape((x.spec.shape[0], groups, of_group, *out.shape[2:], *kernel))
    weights = sizes.shape((groups, int(made) // groups, of_group, *kernel))
    sums = f'np.einsum("ngc{places}{taps},goc{taps}->ngo{places}", {view}.reshape{apart}, {weight}.reshape{weights})'
    return f"{sums}.reshape{sizes.shape(out.shape)}"


def _transposed(sizes: SizeTexts, out: TensorSpec, *_: Any, **__: Any) -> str:
    raise Untranslated("transposed convolutions have no translation to NumPy")


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
        if ceil or (kind == "mean" and len(rest) > 2 and rest[2] is not None):
            raise Untranslated("pooling with ceil_mode or a divisor")
        filler = ", constant_values=-np.inf" if kind == "max" else ""
        lead = x.rank - rank
        _need(sizes, x, kernel, padding, dilation)
        view = _windows(_padded(x, padding, rank, filler), lead, kernel, stride, dilation)
        along = f"axis=({', '.join(str(one) for one in range(-rank, 0))},)"
        if kind == "mean" and any(padding) and len(rest) > 1 and not rest[1]:  # the padding does not count
            ones = NumpyValue(
                f"np.ones({sizes.shape(x.spec.shape[lead:])})", TensorSpec(x.spec.shape[lead:], out.dtype)
            )
            counted = _windows(_padded(ones, padding, rank), 0, kernel, stride, dilation)
            return f"{view}.sum({along}) / {counted}.sum({along})"
        return f"{view}.{kind}({along})"

    return translate


def _adaptive(kind: str, rank: int) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, wanted: Any, *_: Any) -> str:
        lead = x.rank - rank
        if all(one == 1 for one in _each(wanted, rank)):
            return f"{x}.{kind}(axis=({', '.join(str(one) for one in range(lead, x.rank))},), keepdims=True)"
        pairs = list(zip(x.spec.shape[lead:], out.shape[lead:], strict=True))
        if not all(isinstance(a, int) and isinstance(b, int) and a % b == 0 for a, b in pairs):
            raise Untranslated("adaptive pooling by windows that are not all of one size")
        sizes.fixed |= {one for pair in pairs for one in pair}
        sides = [side for a, b in pairs for side in (b, int(a) // int(b))]
        axes = ", ".join(str(lead + 2 * place + 1) for place in range(rank))
        return f"{x}.reshape{sizes.shape((*x.spec.shape[:lead], *sides))}.{kind}(axis=({axes},))"

    return translate


MOST_TIMES = 16
"""Largest factor of upsampling to the nearest element for which PyTorch's places, computed in float32, are exact."""


def _nearest(rank: int) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, *_: Any) -> str:
        text = str(x)
        for axis in range(2, x.rank):
            times = _times(x.spec.shape[axis], out.shape[axis])
            if times is None or times > MOST_TIMES:
                raise Untranslated("upsampling to the nearest element by a factor that is not an integer")
            text = f"np.repeat({text}, {times}, axis={axis})"
        return text

    return translate


def _times(before: Any, after: Any) -> int | None:
    """Returns the whole number by which a dimension is multiplied; None if there is none."""
    numbers = [(_number(before, shift), _number(after, shift)) for shift in range(3)]
    found = {b / a if a else 0.0 for a, b in numbers}
    times = found.pop()
    return int(times) if not found and times >= 1 and times.is_integer() else None


def _number(dim: Any, shift: int) -> float:
    """Returns a dimension as a number: the value of an expression at given sizes, or 0 if it has none."""
    if isinstance(dim, int):
        return dim
    symbols = {name: 101 * (shift + 1) + int("0" + "".join(filter(str.isdigit, name))) for name in SYMBOL.findall(dim)}
    try:
        return evaluate(dim, symbols)
    except KernelmateError:
        return 0


def _linear_upsampling(rank: int) -> Callable[..., str]:
    def translate(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, _size: Any, aligned: bool, *factors: Any) -> str:
        given = next((one for one in factors if isinstance(one, list)), None)  # of `vec`; `default` has them one by one
        given = [one for one in factors if one is not None] if given is None else given
        given = given if len(given) == rank else [None] * rank
        text = str(x)
        for axis, factor in zip(range(2, x.rank), given, strict=True):
            if not aligned and factor is not None and _times(x.spec.shape[axis], out.shape[axis]) is None:
                raise Untranslated("linear upsampling by a factor that is not an integer")
            if aligned and out.shape[axis] == 1:
                raise Untranslated("linear upsampling to one element with aligned corners")
            sizes.fixed |= {one for one in (x.spec.shape[axis], out.shape[axis]) if isinstance(one, int)}
            sizes.at_least(out.shape[axis], 1 + aligned)
            more = f", {axis}, {sizes.dim(out.shape[axis])}"
            text = f"{sizes.helper('resized_aligned' if aligned else 'resized')}({text}{more})"
        return text

    return translate


WINDOW_OPERATIONS: dict[str, Callable[..., str]] = {
    "conv1d.default": _convolution, "conv2d.default": _convolution, "conv3d.default": _convolution, "conv1d.padding": _convolution,
    "conv2d.padding": _convolution, "convolution.default": _convolution_core, "conv_transpose2d.input": _transposed,
    "conv_transpose1d.default": _transposed, "conv_transpose3d.input": _transposed,
    **{f"max_pool{rank}d.default": _pool("max", rank) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d.default": _pool("mean", rank) for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d.default": _adaptive("mean", rank) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d.default[0]": _adaptive("max", rank) for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d.{form}": _nearest(rank) for rank in (1, 2, 3) for form in ("vec", "default")},
    **{f"upsample_{kind}{rank}d.{form}": _linear_upsampling(rank) for rank, kind in enumerate(("linear", "bilinear", "trilinear"), 1) for form in ("vec", "default")},
}  # fmt: skip
"""Translations by the operation's name in ATen."""
