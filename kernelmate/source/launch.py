"""Evaluates a contract's expressions at one size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, LaunchShape, Passed, Size, TextureView
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.expressions import ExpressionError, evaluate, evaluate_integer
from kernelmate.source.toml_positions import Path

MAX_THREADS = 1024
"""Maximum threads per block on every architecture (CUDA C++ Programming Guide, technical specifications)."""

BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
CLUSTER_LIMIT = 16

AXES = "xyz"

MAP_ALIGNMENT = 16
"""Bytes of which rows of an array with a tensor map, and of its box, must be multiples (cuTensorMapEncodeTiled)."""


class SizeError(ContractError):
    """A contract's expression has no usable value at a size.

    `path` names the key, `offset` the position in its text; the caller, who knows the block's text, adds the place in
    the file.
    """

    def __init__(self, error: ContractError, path: Path, size: Size, line: int | None = None) -> None:
        at = ", ".join(f"{name} = {value}" for name, value in size.items())
        message = error.message
        if at and f"at {at}" not in message:
            message = f"{message.rstrip('.')} (size {at})."
        super().__init__(message, line=line, hint=error.hint)
        self.path = path
        self.offset = error.offset if isinstance(error, ExpressionError) else 0


NOT_FINITE: dict[str, float] = {
    "inf": float("inf"),
    "+inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}
"""Names of floating-point values that a scalar may have."""


@contextmanager
def _located(path: Path, size: Size, line: int | None) -> Iterator[None]:
    """Context manager that adds key and size to the error of an expression without a usable value."""
    try:
        yield
    except ExpressionError as error:
        raise SizeError(error, path, size, line) from None


def launch_shape(contract: Contract, size: Size) -> LaunchShape:
    """Returns the launch at one size; of a pipeline, a launch of one thread, if all its stages can be launched.

    Raises:
        ContractError: a side is not a whole number of at least 1, or over what every GPU allows.
    """
    for stage in contract.stages:
        launch_shape(stage.contract, size)
    block = _sides(contract, "block", contract.block, size, size)
    threads = block[0] * block[1] * block[2]
    with _located(("block",), size, contract.line):
        if threads > MAX_THREADS:
            raise ExpressionError(
                f"block has {threads} threads, which is over the {MAX_THREADS} that a block may have.",
                hint=f"Set block to {MAX_THREADS} or less in the contract.",
            )
    names = {**size, "block": threads, "block_x": block[0], "block_y": block[1], "block_z": block[2]}
    grid = _sides(contract, "grid", contract.grid, size, names)
    shared = _shared(contract, size, names)
    _check_cluster(contract, size, grid)
    return LaunchShape(grid, block, shared, contract.cooperative, contract.cluster)


def _sides(
    contract: Contract, key: str, texts: tuple[str, ...], size: Size, names: Mapping[str, int]
) -> tuple[int, int, int]:
    sides = [1, 1, 1]
    for axis, text in enumerate(texts):
        name = key if len(texts) == 1 else f"{key}.{AXES[axis]}"
        with _located((key, axis), size, contract.line):
            sides[axis] = evaluate_integer(text, names, name)
            _check_side(key, axis, name, sides[axis])
    return sides[0], sides[1], sides[2]


def _check_side(key: str, axis: int, name: str, side: int) -> None:
    if side < 1:
        hint = "Change the expression so that at least one is launched, or leave this size out."
        raise ExpressionError(f"{name} is {side}: at least 1 is needed.", hint=hint)
    limit = BLOCK_LIMITS[axis] if key == "block" else GRID_LIMITS[axis]
    if side > limit and key == "grid":
        hint = "Use another axis, or let each thread do more."
        raise ExpressionError(f"{name} is {side}, which is over the limit of {limit}.", hint=hint)
    if side > limit:
        hint = f"Set {name} to {limit} or less in the contract."
        raise ExpressionError(f"{name} is {side}, which is over the {limit} threads that a block may have.", hint=hint)


def _shared(contract: Contract, size: Size, names: Mapping[str, int]) -> int:
    with _located(("shared",), size, contract.line):
        shared = evaluate_integer(contract.shared, names, "shared")
        if shared < 0:
            raise ExpressionError(f"shared is {shared} bytes: it cannot be negative.", hint="Change the expression.")
    return shared


def _check_cluster(contract: Contract, size: Size, grid: tuple[int, int, int]) -> None:
    for axis, side in enumerate(contract.cluster or ()):
        with _located(("cluster",), size, contract.line):
            if grid[axis] % side:
                raise ExpressionError(
                    f"grid.{AXES[axis]} is {grid[axis]}, which is not a multiple of the cluster's {side}.",
                    hint="Round the grid up to a multiple of the cluster.",
                )


def argument_shapes(contract: Contract, size: Size) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every array, by argument, in parameter order.

    Raises:
        ContractError: a dimension is not a whole number of at least 0.
    """
    return {a.name: argument_shape(a, size, contract.line) for a in contract.args if a.shape is not None}


def argument_shape(argument: Argument, size: Size, line: int | None = None) -> tuple[int, ...]:
    """Returns the shape of one array.

    Raises:
        ContractError: a dimension is not a whole number of at least 0.
    """
    return _shape(argument, tuple(size.items()), line)


@lru_cache(maxsize=4096)
def _shape(argument: Argument, sizes: tuple[tuple[str, int], ...], line: int | None) -> tuple[int, ...]:
    """`argument_shape` with a cache, since a verdict asks for the same shapes thousands of times."""
    size = dict(sizes)
    shape = []
    for axis, text in enumerate(argument.shape or ()):
        what = f"dimension {axis} of {argument.name}"
        with _located(("args", argument.name, "shape", axis), size, line):
            extent = evaluate_integer(text, size, what)
            if extent < 0:
                raise ExpressionError(
                    f"{what} is {extent}: it cannot be negative.", hint="Change the shape or the size."
                )
        shape.append(extent)
    return tuple(shape)


def scalar_values(contract: Contract, size: Size) -> dict[str, int | float]:
    """Returns the value of every scalar argument by name, in parameter order; integers for integer dtypes.

    Raises:
        ContractError: an expression has no value, or the value does not fit the dtype.
    """
    return {a.name: scalar_value(a, size, contract.line) for a in contract.args if a.shape is None}


def scalar_value(argument: Argument, size: Size, line: int | None = None) -> int | float:
    """Returns the value of one scalar argument.

    Raises:
        ContractError: its expression has no value, or the value does not fit its dtype.
    """
    text = argument.name if argument.value is None else argument.value
    with _located(("args", argument.name, "value"), size, line):
        if argument.dtype == "bool" or "int" in argument.dtype:
            return _whole_value(argument, text, size)
        if text in NOT_FINITE:
            return NOT_FINITE[text]
        return float(evaluate(text, size))


def _whole_value(argument: Argument, text: str, size: Size) -> int:
    whole = evaluate_integer(text, size, argument.name)
    low, high = _range(argument.dtype)
    if not low <= whole <= high:
        raise ExpressionError(
            f"{argument.name} is {whole}, which does not fit {argument.dtype} ({low} to {high}).",
            hint="Change the value or the size.",
        )
    return whole


def _range(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = 8 * ITEM_BYTES[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def alias_start(contract: Contract, passed: Passed, size: Size) -> int:
    """Returns the first element of an alias in its array; 0 for what is not an alias.

    Raises:
        ContractError: it is not a whole number, or outside of the array.
    """
    if passed.kind != "alias":
        return 0
    target = next(one for one in contract.args if one.name == passed.members[0].argument)
    elements = math.prod(argument_shape(target, size, contract.line))
    with _located(("args", passed.name, "start"), size, contract.line):
        start = evaluate_integer(passed.start, size, f"the start of {passed.name}")
        if not 0 <= start <= elements:
            message = f"{passed.name} starts at element {start} of {target.name}, which has {elements}."
            raise ExpressionError(message, hint="Change the expression.")
    return start


def is_first_use(contract: Contract, passed: Passed) -> bool:
    """Returns True if no earlier parameter passes the array of a tensor map, a texture or a surface."""
    name = passed.members[0].argument
    return next(one for one in contract.passing if any(part.argument == name for part in one.members)) is passed


def check_shown(contract: Contract, size: Size) -> None:
    """Checks that a tensor map, texture or surface can be made at this size for each array that the contract passes as one.

    Raises:
        ContractError: one cannot be made.
    """
    arrays = {one.name: one for one in contract.args}
    for passed in contract.passing:
        if passed.box is None and passed.view is None:
            continue
        array = arrays[passed.members[0].argument]
        with _located(("args", passed.name), size, contract.line):
            shape = argument_shape(array, size, contract.line)
            if passed.view is not None:
                kind, reason = (
                    "surface" if passed.view.surface else "texture",
                    _reason_against_object(passed.view, shape),
                )
            else:
                kind, reason = "tensor map", _reason_against_map(array.dtype, shape)
            if reason is not None:
                raise ExpressionError(
                    f"{array.name} can have no {kind}: {reason}.",
                    hint="Change the size, or exclude it by `require`.",
                )


def size_allowed(contract: Contract, size: Size) -> bool:
    """Returns True if a size meets all conditions of the contract's `require`, and its tensor maps and textures are possible.

    Raises:
        ContractError: a requirement has no value at this size.
    """
    if not meets_requirements(contract, size):
        return False
    try:
        check_shown(contract, size)
    except ContractError:
        return False
    return True


def meets_requirements(contract: Contract, size: Size) -> bool:
    """Returns True if a size meets all conditions of the contract's `require`.

    Raises:
        ContractError: a requirement has no value at this size.
    """
    for index, text in enumerate(contract.require):
        with _located(("require", index), size, contract.line):
            if not evaluate(text, size):
                return False
    return True


def _reason_against_map(dtype: str, shape: Sequence[int]) -> str | None:
    """Returns why an array of this shape can have no tensor map; None if it can."""
    if not all(1 <= extent <= 1 << 32 for extent in shape):
        return "a tensor map needs 1 to 2^32 elements in every dimension"
    row = shape[-1] * ITEM_BYTES[dtype]
    if len(shape) > 1 and row % MAP_ALIGNMENT:
        return f"a row has {row} bytes, and a tensor map needs a multiple of {MAP_ALIGNMENT}"
    if math.prod(shape[1:]) * ITEM_BYTES[dtype] >= 1 << 40:
        return "a tensor map needs strides below 2^40 bytes"
    return None


_MOST_TEXELS = {1: (131072,), 2: (65536, 131072), 3: (16384, 16384, 16384)}
"""Largest extents of CUDA arrays by the number of coordinates, in the order of the shape (CUDA C++ Programming Guide, technical
specifications per compute capability)."""
_MOST_LINEAR, _MOST_LAYERS, _MOST_LAYERED, _MOST_SURFACE = 1 << 28, 2048, 32768, 32768
"""The same for linear memory, layers, the extents of a layer, and a surface of one dimension."""


def _reason_against_object(view: TextureView, shape: Sequence[int]) -> str | None:
    """Returns why an array of this shape can have no texture or surface; None if it can."""
    if not all(shape):
        return "it needs an element"
    extents = view.extents(shape)
    most = (_MOST_LINEAR,) if view.buffer else _MOST_TEXELS[len(extents)]
    if view.layered:
        most = tuple(min(one, _MOST_LAYERED) for one in most)
    elif view.surface and len(extents) == 1:
        most = (_MOST_SURFACE,)
    if any(extent > one for extent, one in zip(extents, most, strict=True)):
        return f"it would need more than {' x '.join(map(str, most))} texels"
    if view.layered and shape[0] > _MOST_LAYERS:
        return f"it would need more than {_MOST_LAYERS} layers"
    return None
