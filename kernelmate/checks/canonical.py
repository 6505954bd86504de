"""Canonical form of outputs whose order or parts do not matter, for comparison.

Every launch's outputs and every result of a reference pass through `canonical`, so that comparisons, tolerances and
guards need not know about extents, masks and orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernelmate.checks.argument_values import gathered
from kernelmate.checks.precision import Array, is_inexact, module_of, on_device, on_host, wide
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import evaluate


def canonical(contract: Contract, size: Size, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns outputs with zeros where they are not compared, and in ascending order where their order does not matter.

    The number of compared elements and the masks come from the same outputs. They are themselves compared, so that a
    kernel cannot reduce its work by a smaller count.

    Args:
        contract: has extents, masks and orders.
        size: the size of the launch.
        arrays: outputs by argument, of a kernel or of a reference; others pass unchanged.
        given: inputs of the launch, for counts and masks that are inputs.
    """
    found = gathered(contract, arrays)
    partly = [a for a in contract.args if a.partly and a.name in found]
    if not partly:
        return found
    host = {name: on_host(array) for name, array in {**given, **found}.items()}
    changed: dict[str, Array] = {}
    for argument in partly:
        if argument.paired is None:
            group = [argument, *(other for other in partly if other.paired == argument.name)]
            changed.update(_group(group, size, host))
    for name, array in changed.items():
        found[name] = module_of(found[name]).asarray(array) if on_device(found[name]) else array
    return found


def _group(group: Sequence[Argument], size: Size, host: Mapping[str, Array]) -> dict[str, Array]:
    """Returns an output, and those that share its order, in canonical form."""
    kept = {one.name: _compared(one, size, host) for one in group}
    cleared = {name: np.where(mask, host[name], np.zeros((), host[name].dtype)) for name, mask in kept.items()}
    first = group[0]
    if not first.unordered or not cleared[first.name].size:
        return cleared
    axis = 0 if first.extent is None else first.extent[0]
    order = _order([cleared[one.name] for one in group], kept[first.name], axis)
    return {name: _taken(array, order, axis) for name, array in cleared.items()}


def _compared(argument: Argument, size: Size, host: Mapping[str, Array]) -> Array:
    """Returns the mask of elements that are compared."""
    shape = host[argument.name].shape
    kept = np.ones(shape, bool)
    if argument.extent is not None and shape:
        axis, count = argument.extent
        most: Any = host[count].astype(np.int64) if count in host else np.asarray(int(evaluate(count, size)))
        most = most.reshape(shape[:axis] if axis else ())
        place = np.arange(shape[axis]).reshape((1,) * axis + (-1,))
        inside = place < np.expand_dims(most, axis)
        kept &= inside.reshape(inside.shape + (1,) * (len(shape) - axis - 1))
    if argument.mask is not None:
        kept &= host[argument.mask].astype(bool)
    return kept


def _order(arrays: Sequence[Array], kept: Array, axis: int) -> Array:
    """Returns the indices along `axis` that sort its rows in ascending order; rows that are not compared come last.

    Columns of exact types are compared before those of rounded types, since rounding must not change the pairing of
    rows.
    """
    columns = [column for array in arrays for column in _columns(array, axis)]
    columns.sort(key=lambda column: is_inexact(column.dtype))
    keys = [wide(column) if is_inexact(column.dtype) else column for column in columns]
    outside = ~np.moveaxis(kept, axis, -1).reshape(*kept.shape[:axis], -1, kept.shape[axis]).any(axis=-2)
    return np.lexsort((*reversed(keys), outside), axis=-1)


def _columns(array: Array, axis: int) -> list[Array]:
    """Returns the elements after `axis` as separate arrays whose last axis is `axis`."""
    moved = np.moveaxis(array, axis, -1).reshape(*array.shape[:axis], -1, array.shape[axis])
    return [moved[..., number, :] for number in range(moved.shape[-2])]


def _taken(array: Array, order: Array, axis: int) -> Array:
    places = order.reshape(order.shape + (1,) * (array.ndim - axis - 1))
    return np.take_along_axis(array, np.broadcast_to(places, array.shape), axis)
