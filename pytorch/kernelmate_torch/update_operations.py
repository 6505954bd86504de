"""Translations of operations that replace some elements of a tensor, which in-place updates are exported as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelmate_torch.numpy_text import NumpyValue, SizeTexts, Untranslated, number_text
from kernelmate_torch.program import TensorSpec

# ruff: noqa: ARG001 -- a translation takes what every translation takes

END = 2**31
"""Ends of slices from this on are the axis's own."""


def _scalar(value: Any, out: TensorSpec) -> str:
    """Returns the text of a number or a tensor of another dtype as one of the result's dtype."""
    if isinstance(value, NumpyValue):
        same = value.spec.dtype == out.dtype or (value.floating and "float" in out.dtype)
        return str(value) if same else f"{value}.astype(np.{'float64' if 'float' in out.dtype else out.dtype})"
    if not isinstance(value, bool) and isinstance(value, float) and "float" not in out.dtype:
        raise Untranslated("a fraction that is stored into integers")
    return str(number_text(value))


def _joined(x: NumpyValue, source: str, axis: int, start: int, stop: int | None) -> str:
    """Returns a tensor with the elements between two places of an axis replaced; negative ones count from its end."""
    lead = [":"] * axis
    pieces = [f"{x}[{', '.join([*lead, f':{start}'])}]"] if start else []
    pieces += [source]
    pieces += [] if stop is None else [f"{x}[{', '.join([*lead, f'{stop}:'])}]"]
    return source if len(pieces) == 1 else f"np.concatenate([{', '.join(pieces)}], axis={axis})"


def _place(index: Any, length: Any) -> int:
    """Returns a place on an axis, counted from its start, or from its end if the length varies."""
    if not isinstance(index, int):
        raise Untranslated("an update at a place that varies")
    return index + length if index < 0 and isinstance(length, int) else index


def _select_scatter(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, source: NumpyValue, axis: int, index: Any) -> str:
    axis %= x.rank
    length = x.spec.shape[axis]
    place = _place(index, length)
    sizes.at_least(length, place + 2 if place >= 0 else 1 - place)
    last = None if place + 1 in (0, length) else place + 1
    return _joined(x, f"np.expand_dims({_scalar(source, out)}, {axis})", axis, place, last)


def _slice_scatter(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, source: NumpyValue, axis: int = 0, start: Any = None, stop: Any = None,
    step: int = 1,
) -> str:  # fmt: skip
    axis %= x.rank
    length = x.spec.shape[axis]
    if step != 1:
        raise Untranslated("an update of every other element")
    start = _place(start or 0, length)
    to_end = stop is None or stop == length or (isinstance(stop, int) and stop >= END)
    last = None if to_end else _place(stop, length)
    if last is not None and isinstance(length, int) and last >= length:
        last = None
    if source.spec.shape[axis] == 0 or (last is not None and (start < 0) == (last < 0) and last <= start):
        raise Untranslated("an update of no element")
    if last is not None and start < 0 <= last:
        raise Untranslated("an update between a place counted from the end and one from the start")
    sizes.at_least(length, _shortest(start, last))
    if isinstance(length, int) and (start or last is not None):
        sizes.fixed |= {length, source.spec.shape[axis]}
    return _joined(x, _scalar(source, out), axis, start, last)


def _shortest(start: int, last: int | None) -> int:
    """Returns the least length at which all pieces of an update have elements."""
    if start < 0:
        return 1 - start
    return start + 1 if last is None else last + 1 if last > 0 else start + 1 - last


def _copied(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, source: NumpyValue, *_: Any, **__: Any) -> str:
    text = _scalar(source, out)
    return text if source.spec.shape == out.shape else f"np.broadcast_to({text}, {sizes.shape(out.shape)})"


def _filled(sizes: SizeTexts, out: TensorSpec, x: NumpyValue, value: Any) -> str:
    if isinstance(value, NumpyValue):
        return f"np.broadcast_to({_scalar(value, out)}, {sizes.shape(out.shape)})"
    dtype = "bool" if out.dtype == "bool" else f"np.{'float64' if 'float' in out.dtype else out.dtype}"
    return f"np.full({sizes.shape(out.shape)}, {_scalar(value, out)}, {dtype})"


def _masked_put(
    sizes: SizeTexts,
    out: TensorSpec,
    x: NumpyValue,
    indices: Sequence[Any],
    value: NumpyValue,
    accumulate: bool = False,
) -> str:
    """Returns `x[mask] = value` for a mask of the tensor's leading axes and one value."""
    mask = indices[0] if len(indices) == 1 else None
    if not isinstance(mask, NumpyValue) or mask.spec.dtype != "bool":
        raise Untranslated("an update at places that other values give")
    if value.spec.shape not in ((), (1,)) or accumulate:
        raise Untranslated("an update by a mask with several values")
    spread = f"[{', '.join([':'] * mask.rank + ['None'] * (x.rank - mask.rank))}]" if x.rank > mask.rank else ""
    return f"np.where({mask}{spread}, {_scalar(value, out)}, {x})"


def _scattered(
    sizes: SizeTexts, out: TensorSpec, x: NumpyValue, axis: int, index: NumpyValue, value: Any, **given: Any
) -> str:
    """Returns a tensor with one element along an axis replaced, as a one-hot vector is made."""
    axis %= max(x.rank, 1)
    sides = [(one, other) for place, (one, other) in enumerate(zip(index.spec.shape, x.spec.shape, strict=True)) if place != axis]  # fmt: skip
    if given or index.spec.shape[axis] != 1 or any(one != other for one, other in sides):
        raise Untranslated("a scatter of several elements to a row, or to some of the rows")
    places = f"np.arange({sizes.dim(x.spec.shape[axis])})" + f"[:, {', '.join(['None'] * (x.rank - 1 - axis))}]" * (axis < x.rank - 1)  # fmt: skip
    return f"np.where({places} == {index}, {_scalar(value, out)}, {x})"


UPDATE_OPERATIONS: dict[str, Callable[..., str]] = {
    "select_scatter.default": _select_scatter,
    "slice_scatter.default": _slice_scatter,
    "copy.default": _copied,
    "fill.Scalar": _filled,
    "fill.Tensor": _filled,
    "index_put.default": _masked_put,
    "scatter.value": _scattered,
    "scatter.src": _scattered,
}
"""Translations by the operation's name in ATen."""
