"""Merging of domain axes that are contiguous in every array, and element addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import FLAT, Index, Refused
from kernelmate.synthesis.sizes import joined

Order: TypeAlias = "tuple[int | str, ...]"
"""The axes of an array in memory order, the last one contiguous, by their numbers in a domain.

The first entry may be `@7`: a row index that is the value of node 7. `#1/3` is position 1 of an axis of length 3.
"""


def order_of(index: Index) -> Order:
    """Returns the memory order in which an array has the axes of a domain.

    Raises:
        Refused: it is indexed by something other than positions along axes.
    """
    if index == (FLAT,):
        raise Refused("it changes the shape of an array between operations")
    if any(isinstance(one, str) and not one.startswith("#") for one in index[1:]):
        raise Refused("it gathers one element for each result")
    return tuple(one for one in index if one is not None)


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a domain, merged where every array allows it.

    Attributes:
        sides: the length of each axis, as a contract expression.
        groups: for each axis, the axes of the original domain that it merges.
    """

    sides: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def merged(domain: Sequence[str], orders: Iterable[Order]) -> Axes:
        """Merges adjacent axes of a domain that are contiguous in every array, given by the arrays' orders."""
        known = set(orders)
        groups: list[list[int]] = []
        for axis in range(len(domain)):
            together = axis > 0 and all(_follows(order, axis - 1, axis) for order in known)
            if together:
                groups[-1].append(axis)
            else:
                groups.append([axis])
        sides = []
        for group in groups:
            side = "1"
            for axis in group:
                side = joined(side, "*", domain[axis])
            sides.append(side)
        return Axes(tuple(sides), tuple(tuple(group) for group in groups))

    def order(self, order: Order) -> Order:
        """Translates an order of the original axes to one of the merged axes."""
        firsts: dict[int | str, int] = {group[0]: place for place, group in enumerate(self.groups)}
        return tuple(firsts.get(axis, axis) for axis in order if axis in firsts or isinstance(axis, str))

    def lengths(
        self, kernel: KernelText, names: Mapping[int, str], lines: list[str], skipped: int | None = None
    ) -> list[str]:
        """Returns the extents in C++; expressions become locals, which are declared in `lines`.

        The extent of axis `skipped` is returned as an empty string.
        """
        texts = []
        for place, side in enumerate(self.sides):
            if place == skipped:
                texts.append("")
                continue
            text = kernel.size(side)
            if not text.isidentifier() and not text.isdigit():
                name = kernel.size_name(text, names.get(place, "length"))
                lines.append(f"const int {name} = {text};")
                text = name
            texts.append(text)
        return texts


def address(order: Order, lengths: Sequence[str] | Mapping[int, str], at: Mapping[int | str, str]) -> str:
    """Returns the offset of an element in an array, from positions along the axes."""
    if not order:
        return "0"
    text = _position(order[0], at)
    for number, axis in enumerate(order[1:]):
        text = f"static_cast<size_t>({text})" if number == 0 else f"({text})" if " + " in text else text
        length = str(axis).partition("/")[2] if isinstance(axis, str) else lengths[axis]
        position = in_sum(_position(axis, at))
        text = f"{text} * {length}{f' + {position}' * (position != '0')}"
    return text


def in_sum(text: str) -> str:
    """Returns an expression as a term of a sum: in parentheses if an operator in it binds less than `+`."""
    outside = text
    while (inner := re.sub(r"\([^()]*\)|\[[^\[\]]*\]|static_cast<[\w ]+>", "", outside)) != outside:
        outside = inner
    return f"({text})" if re.search(r"[?<>=&|^]", outside) else text


def leaf_text(kernel: KernelText, node: Node, position: Callable[[], str], offset: Callable[[], str]) -> str:
    """Returns the text of a leaf of a graph.

    Args:
        kernel: the kernel.
        node: the leaf: a scalar, a position along an axis, or an array's element.
        position: returns the text of the position.
        offset: returns the offset of the element.
    """
    if node.op == "iota":
        return in_sum(position())
    name = str(node.data[0])
    return kernel.loaded(name, name if node.op == "scalar" else f"{name}[{offset()}]")


def position_lines(
    index: str, axes: Sequence[int], lengths: Sequence[str] | Mapping[int, str], at: Mapping[int | str, str]
) -> list[str]:
    """Returns the declarations of the positions along some axes of the element with a flat index over them."""
    lines, left = [], index
    for axis in reversed(axes):
        text = left if axis == axes[0] else f"{left} % {lengths[axis]}"
        lines.append(f"const int {at[axis]} = static_cast<int>({text});")
        left = f"{left} / {lengths[axis]}"
    return lines


def _position(axis: int | str, at: Mapping[int | str, str]) -> str:
    """Returns the position along an axis, or the constant position of `#1/3`."""
    is_part = isinstance(axis, str) and axis.startswith("#")
    return str(axis)[1:].partition("/")[0] if is_part else at[axis]


def _follows(order: Order, first: int, second: int) -> bool:
    """Returns True if an array has the second axis directly after the first, or neither of them."""
    if first not in order or second not in order:
        return first not in order and second not in order
    return order.index(second) == order.index(first) + 1
