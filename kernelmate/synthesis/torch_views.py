"""Views and windows of a graph as indexing in Python: slices, padding, and slices that are put into another array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.records import Size
from kernelmate.source import evaluate as evaluate_expression
from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, OTHERWISE, AxisMap

NO_SLICE = "an index map that is not a slice has no exact counterpart in torch"


class NotCarried(Exception):
    """The graph has no exact counterpart in torch; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that is a slice along each axis.

    Attributes:
        padding: elements before and after each axis, the last axis first, as `torch.nn.functional.pad` takes them.
        slices: text of the index of the padded array.
        kept: number of axes after the slicing.
        inserted: for each axis of the result, True for a new one of length 1.
    """

    padding: tuple[int, ...]
    slices: str
    kept: int
    inserted: tuple[bool, ...]

    def text(self, source: str) -> str:
        """Returns the text of the window of an array that is already padded."""
        return arranged(f"{source}[{self.slices}]", self.kept, list(range(self.kept)), self.inserted)


def shape_of(node: Node, size: Size) -> tuple[int, ...]:
    """Returns a node's shape at a size."""
    return tuple(int(evaluate_expression(one, size)) for one in node.shape)


def arranged(text: str, rank: int, kept: Sequence[int], inserted: Sequence[bool]) -> str:
    """Returns the text of an array with some axes kept, and axes of length 1 inserted.

    Args:
        text: text of the array.
        rank: its number of axes.
        kept: the axes that remain, in the result's order; the others have length 1.
        inserted: for each axis of the result, True for a new one.
    """
    dropped = [axis for axis in range(rank) if axis not in kept]
    if dropped:
        text += f".squeeze({dropped[0] if len(dropped) == 1 else tuple(dropped)})"
    order = [sum(other not in dropped for other in range(axis)) for axis in kept]
    if order != sorted(order):
        text += f".permute({', '.join(map(str, order))})"
    if any(inserted):
        text += f"[{', '.join('None' if one else ':' for one in inserted)}]"
    return text


def maps_of(node: Node, shape: Sequence[int]) -> list[AxisMap]:
    """Returns the index maps of a window along the axes of its source.

    Raises:
        NotCarried: one of them is not a slice.
    """
    maps = [AxisMap.of(entry) for entry in node.data]
    places = [one.terms[0][0] for one in maps if one.terms]
    known = all(one.beyond in (ORDINARY, OTHERWISE, ABOVE) for one in maps)
    forward = all(len(one.terms) <= 1 and all(step > 0 for _, step in one.terms) for one in maps)
    whole = all(side == 1 for axis, side in enumerate(shape) if axis not in places)
    if not (known and forward and whole and places == sorted(set(places))):
        raise NotCarried(NO_SLICE)
    return maps


def window_of(maps: Sequence[AxisMap], sides: Sequence[int], shape: Sequence[int], size: Size) -> Window:
    """Returns a window as slices of a padded array.

    Args:
        maps: as `maps_of` returns them.
        sides: shape of the source.
        shape: shape of the result.
        size: the size.

    Raises:
        NotCarried: not every position is one of the source.
    """
    padding: list[int] = []
    slices: list[str] = []
    for one, side in zip(maps, sides, strict=True):
        if one.every != 1:
            raise NotCarried(NO_SLICE)
        first, (place, step) = _first(one, size), one.terms[0] if one.terms else (None, 1)
        count = 1 if place is None else shape[place]
        before, after = max(-first, 0), max(first + step * (count - 1) + 1 - side, 0)
        padding = [before, after, *padding]
        slices.append(str(first + before) if place is None else _slice(first + before, step, count))
    places = [one.terms[0][0] for one in maps if one.terms]
    inserted = tuple(axis not in places for axis in range(len(shape)))
    return Window(tuple(padding), ", ".join(slices), len(places), inserted)


def insertion_of(maps: Sequence[AxisMap], sides: Sequence[int], shape: Sequence[int], size: Size) -> tuple[str, str]:
    """Returns the slices of the result that take elements of the source, and these elements' slices; arguments as `window_of`.

    Raises:
        NotCarried: the elements are not slices.
    """
    if len(maps) != len(shape) or any(not one.terms or one.terms[0][1] != 1 for one in maps):
        raise NotCarried(NO_SLICE)
    to, of = [], []
    for one, side, length in zip(maps, sides, shape, strict=True):
        first, every = _first(one, size), one.every
        start = -(-max(first, 0) // every)  # the first element of the source that is used
        count = max(min(side - 1, (first + length - 1) // every) - start + 1, 0)
        of.append(f"{start}:{start + count}")
        to.append(_slice(every * start - first, every, count) if count else "0:0")
    return ", ".join(to), ", ".join(of)


def _first(one: AxisMap, size: Size) -> int:
    return int(evaluate_expression(one.offset, size))


def _slice(first: int, step: int, count: int) -> str:
    stop = first + step * (count - 1) + 1 if count else first
    return f"{first}:{stop}" + (f":{step}" if step > 1 else "")
