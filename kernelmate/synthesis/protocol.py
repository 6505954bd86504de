"""Operations that implement Python's and NumPy's protocols for traced arrays.

Subscripts are whole axes, slices, masks, index arrays, and indices of loops over sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array
from kernelmate.synthesis.composed import COMPOSED, logaddexp, logsumexp
from kernelmate.synthesis.functions import FUNCTIONS, METHODS, matmul
from kernelmate.synthesis.indexed import Segments, accumulated, added_at, backwards, by_number, by_numbers, reduced_at
from kernelmate.synthesis.joining import stack
from kernelmate.synthesis.loop_places import depends
from kernelmate.synthesis.loop_subscripts import accumulated as accumulated_in_turns
from kernelmate.synthesis.loop_subscripts import assign as assign_turns
from kernelmate.synthesis.loop_subscripts import chosen as loop_chosen
from kernelmate.synthesis.loops import batched, over
from kernelmate.synthesis.masks import assign_by_index, assign_masked, assign_numbered, masked
from kernelmate.synthesis.primitives import broadcast_to, gathered, reduced, take, where
from kernelmate.synthesis.ragged import CsrRows
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.slices import ArraySlice, part_of
from kernelmate.synthesis.tables import TABLES
from kernelmate.synthesis.ufuncs import mapped


def subscript(a: Array, key: Any) -> Any:
    """Reads part of an array: by whole axes, new axes, slices, an index array, or per-row indices."""
    chosen = masked(a, key)
    if chosen is not None:
        return chosen
    keys = list(key) if isinstance(key, tuple) else [key]
    named = sum(one is not None and one is not Ellipsis for one in keys)
    if any(one is Ellipsis for one in keys):
        place = next(index for index, one in enumerate(keys) if one is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (a.ndim - named)
    if a.builder.open and depends(keys):
        keys += [slice(None)] * (a.ndim - sum(one is not None for one in keys))
        found = loop_chosen(a, [one for one in keys if one is not None])
        kept = [one for one in keys if one is None or isinstance(one, slice)]
        return found[tuple(one if one is None else slice(None) for one in kept)] if None in kept else found
    if len(keys) == a.ndim == 2 and all(isinstance(one, Array) for one in keys) and _is_iota(keys[0]):
        return gathered(a, keys[1])
    keys += [slice(None)] * (a.ndim - sum(one is not None for one in keys))
    if isinstance(keys[0], Array) and len(keys) == a.ndim and _all_whole(keys[1:], a.shape[1:]):
        return take(a, keys[0], 0)
    for known in (_listed, by_numbers, by_number, backwards):
        found = known(a, keys)
        if found is not None:
            return found
    if sum(one is not None for one in keys) > a.ndim:
        raise Untraceable("more indices than axes")
    sides = iter(a.shape)
    if not all(one is None or _keeps(one, next(sides)) for one in keys):
        return part_of(a, keys)
    axes: list[int | None] = []
    axis = 0
    for one in keys:
        if one is None:
            axes.append(None)
            continue
        axes += [axis] if isinstance(one, slice) else []
        axis += 1
    return a.view_of(axes)


MOST_LISTED = 64
"""Maximum number of constant indices, each of which becomes a slice of its own."""


def _listed(a: Array, keys: Sequence[Any]) -> Any:
    """Implements `a[:, [1, 2, 0]]`: constant indices of one axis, and slices of others; None for other keys."""
    places = [place for place, one in enumerate(keys) if isinstance(one, list | np.ndarray)]
    if len(places) != 1 or not all(
        one is None or isinstance(one, slice) for i, one in enumerate(keys) if i not in places
    ):
        return None
    (place,) = places
    if any(isinstance(one, Array) for one in keys[place]):
        return None
    numbers = np.asarray(keys[place])
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not 0 < len(numbers) <= MOST_LISTED:
        return None
    return stack([subscript(a, (*keys[:place], int(one), *keys[place + 1 :])) for one in numbers], axis=place)


def _keeps(key: Any, side: int) -> bool:
    """Returns True if a key takes a whole axis, or the only element of one."""
    single = isinstance(key, int) and text_of(side) == "1" and int(key) in (0, -1)
    return single or (isinstance(key, slice) and _whole(key, side))


def _all_whole(keys: Sequence[Any], sides: Sequence[int]) -> bool:
    return all(isinstance(one, slice) and _whole(one, side) for one, side in zip(keys, sides, strict=True))


def _whole(part: slice, side: int) -> bool:
    if any(isinstance(one, Array) for one in (part.start, part.stop, part.step)):
        raise Untraceable("a slice whose bound is a value")
    start, stop = part.start in (None, 0), part.stop is None or text_of(part.stop) == text_of(side)
    return start and stop and part.step in (None, 1)


def _is_iota(a: Array) -> bool:
    return a.builder.nodes[a.node].op == "iota" and not a.loops


def assigned(a: Array, key: Any, value: Any) -> None:
    """Assign to a part of an array."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if a.builder.open and depends(keys):
        if any(one is Ellipsis for one in keys):
            place = next(index for index, one in enumerate(keys) if one is Ellipsis)
            keys[place : place + 1] = [slice(None)] * (a.ndim - len(keys) + 1)
        assign_turns(a, [*keys, *[slice(None)] * (a.ndim - len(keys))], value)
        return
    if assign_masked(a, key, value) or (isinstance(key, tuple) and assign_numbered(a, key, value)):
        return
    if assign_by_index(a, keys, value):
        return
    part = subscript(a, key)
    value = a.builder.lift(value)
    if not isinstance(part, ArraySlice):
        raise Untraceable("an assignment to elements that are chosen by an array")
    part.assign(value)


def function_named(name: str) -> Callable[..., Any] | None:
    """Returns a traced function of NumPy by name; None if it is not supported."""
    return FUNCTIONS.get(name) or COMPOSED.get(name) or TABLES.get(name)


def element(a: Array, key: Any) -> Any:
    """Returns the elements of an array that a key selects."""
    if isinstance(key, Segments):
        return key.of(a)
    return key.taken_from(a) if isinstance(key, CsrRows) else subscript(a, key)


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "method": METHODS.get, "function": function_named, "subscript": element, "assign": assigned, "iterate": over,
    "batched": batched, "stack": stack, "broadcast": broadcast_to, "where": where, "reduce": reduced, "accumulate": accumulated,
    "at": added_at, "reduceat": reduced_at, "matmul": matmul, "logaddexp": logaddexp, "logsumexp": logsumexp,
    "accumulate_in_turns": accumulated_in_turns, "mapped": mapped,
}  # fmt: skip
"""Operations by the names under which `arrays` calls them."""
