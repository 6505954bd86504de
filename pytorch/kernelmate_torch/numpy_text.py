"""Shared pieces of the translations of operations: values with their shapes, sizes as text, and helper functions in NumPy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kernelmate_torch.program import SYMBOL, Dim, TensorSpec


class Untranslated(Exception):
    """An operation, or one of its options, that has no translation; the message is the reason."""


class UnknownSize(Untranslated):
    """A size that follows from no input of the part; with more inputs it may."""


class NumpyValue(str):
    """A value's name in a reference's text, with its shape and dtype."""

    __slots__ = ("spec",)
    spec: TensorSpec

    def __new__(cls, text: str, spec: TensorSpec) -> NumpyValue:
        """Returns the name `text` of a value of this shape and dtype."""
        made = super().__new__(cls, text)
        made.spec = spec
        return made

    @property
    def rank(self) -> int:
        """Returns the number of axes."""
        return len(self.spec.shape)

    @property
    def floating(self) -> bool:
        """Returns True if it holds floating numbers."""
        return "float" in self.spec.dtype


HELPERS = {
    "erf": "erf = np.vectorize(math.erf)",
    "softmax": '''def softmax(x, axis):
    """Exponentials along an axis, divided by their sum."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)''',
    "log_softmax": '''def log_softmax(x, axis):
    """Logarithm of the softmax along an axis."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))''',
    "softplus": '''def softplus(x):
    """log(1 + exp(x)), also where exp(x) has no finite value."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))''',
    "normalised": '''def normalised(x, axis, eps):
    """Values without their mean, over their standard deviation, along some axes."""
    mean = x.mean(axis=axis, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=axis, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)''',
    "resized": '''def resized(x, axis, length):
    """Linear interpolation along an axis, in which elements are as far from the ends as their centres."""
    n = x.shape[axis]
    at = np.maximum((np.arange(length) + 0.5) * (n / length) - 0.5, 0)
    low = at.astype(np.int64)
    part = (at - low).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return np.take(x, low, axis=axis) * (1 - part) + np.take(x, np.minimum(low + 1, n - 1), axis=axis) * part''',
    "resized_aligned": '''def resized_aligned(x, axis, length):
    """Linear interpolation along an axis from its first element to its last one."""
    n = x.shape[axis]
    at = np.arange(length) * ((n - 1) / (length - 1))
    low = at.astype(np.int64)
    part = (at - low).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return np.take(x, low, axis=axis) * (1 - part) + np.take(x, np.minimum(low + 1, n - 1), axis=axis) * part''',
}
"""Functions that translations call, in NumPy; a reference's file contains those that it uses."""


class SizeTexts:
    """Texts of dimensions in a reference: names of its sizes, expressions over them, or numbers.

    Args:
        names: by dimension, the name of the size.
    """

    def __init__(self, names: dict[Dim, str]) -> None:
        self.names = names
        self.fixed: set[Dim] = set()
        self.helpers: list[str] = []
        self.require: list[str] = []

    def at_least(self, dim: Dim, least: int) -> None:
        """Notes that a dimension has to have this many elements; a number has them already."""
        text = self.dim(dim)
        if least > 1 and not text.isdigit():
            self.require.append(f"{text} >= {least}")

    def helper(self, name: str) -> str:
        """Returns the name of a helper function, and notes that the file needs it."""
        if name not in self.helpers:
            self.helpers.append(name)
        return name

    def dim(self, dim: Dim) -> str:
        """Returns a dimension's text.

        Raises:
            Untranslated: it is an expression over symbols that are not sizes of this part.
        """
        if dim in self.names and dim not in self.fixed:
            return self.names[dim]
        if isinstance(dim, int):
            return str(dim)
        text, missing = substituted(dim, {str(key): name for key, name in self.names.items() if isinstance(key, str)})
        if missing:
            raise UnknownSize(f"its size {dim} follows from no input of the part")
        return f"({text})" if not text.isidentifier() else text

    def shape(self, dims: Sequence[Dim]) -> str:
        """Returns a shape as a tuple's text."""
        texts = [self.dim(one) for one in dims]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def substituted(expression: str, names: dict[str, str]) -> tuple[str, bool]:
    """Returns an expression with symbols replaced by names, and True if one has no name."""
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        if match[0] not in names:
            missing = True
        return names.get(match[0], match[0])

    return SYMBOL.sub(replace, expression), missing


def number_text(value: Any) -> Any:
    """Returns a number's text, also for those that are not finite."""
    if isinstance(value, float) and value != value:
        return "np.nan"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "np.inf" if value > 0 else "-np.inf"
    return value


def axis_text(axis: Any, rank: int) -> str:
    """Returns axes as text; "None" for all."""
    if axis is None or axis == []:
        return "None"
    several = [one % rank if rank else 0 for one in (axis if isinstance(axis, list) else [axis])]
    return str(several[0]) if len(several) == 1 else f"({', '.join(map(str, several))})"


def along_text(axis: Any, x: NumpyValue, keep: bool) -> str:
    """Returns the arguments of a reduction: its axes, and whether they are kept."""
    place = axis_text(axis, x.rank)
    return ", ".join([*([] if place == "None" else [f"axis={place}"]), *(["keepdims=True"] if keep else [])])
