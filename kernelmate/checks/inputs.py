"""Input generation: the contract's own distributions, else several distributions at several scales."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks import reference_process
from kernelmate.checks.live_inputs import live_values
from kernelmate.checks.made_inputs import adapted
from kernelmate.checks.precision import Array, Arrays, blocks_of, is_float, is_inexact, limits
from kernelmate.checks.scalars import varied
from kernelmate.checks.styles import InputStyle, bound_of, is_free
from kernelmate.checks.userfiles import call_user, load_function, note_helpers
from kernelmate.checks.values import (
    close,
    every_byte,
    every_pattern,
    high_integers,
    integer_range,
    late_floats,
    lowest_integers,
    mixed_floats,
    offset_floats,
    plant,
    plant_chains,
    plant_constants,
    repeated,
    strided,
    tie,
    wide_integers,
    with_infinite_halves,
)
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import argument_shapes, evaluate, numpy_dtype, parse_distribution, scalar_values
from kernelmate.source.distributions import LIVE


def fallback_distribution(argument: Argument) -> str | None:
    """Returns the distribution of an argument at sizes other than its live array's, or its only distribution."""
    if argument.distribution is None or not argument.distribution.lstrip().startswith(f"{LIVE}("):
        return argument.distribution
    return parse_distribution(argument.distribution).otherwise


ON_HOST = frozenset({"mixed", "offset", "patterns", "integers", "late", "strided", "close"})
"""Styles that are always drawn on the host, since only small arrays use them."""

PLANTED_EVERY = 512
"""Number of elements per planted special value, so that enough rows contain no special value."""

ZEROED_EVERY = 4
"""Number of elements per zero among infinities, since their product is NaN, which a version that skips zeros loses."""

FEWEST_ROWS = 3
"""Minimum number of rows in an array of which one row is filled with infinities."""

SMALL_INTEGERS = 8
"""Undeclared integers are drawn below this and below every size, since they may be indices, counts or shift amounts."""


class DeviceRandom:
    """CuPy random generator with the methods that `draw` uses.

    Args:
        module: CuPy.
        seed: equal seeds give equal numbers on one machine.
    """

    def __init__(self, module: Any, seed: tuple[int, ...]) -> None:
        self.module = module
        state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        self._generator = module.random.Generator(module.random.Philox4x3210(int(state[0])))

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Any:
        """Returns float64 numbers, uniform between two bounds."""
        return self._generator.random(shape) * (high - low) + low

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        """Returns normal float64 numbers with mean 0 and standard deviation 1."""
        return self._generator.standard_normal(shape)

    def normal(self, mean: float, deviation: float, shape: tuple[int, ...]) -> Any:
        """Returns normal float64 numbers."""
        return self.standard_normal(shape) * deviation + mean

    def integers(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int64, *, endpoint: bool = False
    ) -> Any:
        """Returns integers from `low` to below `high`, or up to `high` with `endpoint`."""
        drawn = self._generator.integers(int(low), int(high) + endpoint, shape, dtype=np.int64)
        return drawn.astype(dtype)


DeviceMaker = Callable[[tuple[int, ...]], DeviceRandom]
"""Function that creates a generator on a GPU from a seed."""


def rng_module(rng: Any) -> Any:
    """Returns the array module of a generator's arrays."""
    return rng.module if isinstance(rng, DeviceRandom) else np


def draw(
    contract: Contract, size: Size, seed: tuple[int, ...], style: InputStyle, directory: Path, *, first: bool = False,
    device: DeviceMaker | None = None,
) -> Arrays:  # fmt: skip
    """Draws the contents of all `in` and `inout` arrays, zeros for `out` arrays, and varied scalars, by argument.

    Args:
        contract: defines distributions and dtypes.
        size: defines shapes.
        seed: equal seeds give equal contents.
        style: style of contents for which the contract states no distribution.
        directory: folder that file names are relative to.
        first: True for the first set, in which live arrays keep their order.
        device: creates a CuPy generator on a GPU; None draws on the host. Equal seeds give different numbers there, of
            the same distributions. Contents from a function, a file or a notebook are not drawn on the GPU.

    Raises:
        ReferenceFailed: the contract's own `inputs` function or file failed, or gave wrong names, shapes or values.
    """
    if style.name in ON_HOST:
        device = None
    rng: Any = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))) if device is None else device(seed)
    shapes = argument_shapes(contract, size)
    arguments = [a for a in contract.args if a.shape is not None]
    if contract.inputs is not None:
        on_host = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
        drawn = on_host.integers(2**30)
        # Parity tells a function that chooses among stored arrays which sets have to differ.
        arrays = made_inputs(contract, size, 2 * int(drawn) + (not first), shapes, directory)
        scalars_made = varied(contract, size, style.vary, seed, zeros=style.zeros)
        scalars_made.update((name, _scalar(contract, name, value)) for name, value in style.given)
        return {**adapted(contract, size, arrays, style, on_host), **scalars_made}
    made: Arrays = varied(contract, size, style.vary, seed, zeros=style.zeros)
    scalars = {a.name for a in contract.args if a.shape is None and a.value is not None} if style.planted else set()
    edges = [float(made.get(name, value)) for name, value in scalar_values(contract, size).items() if name in scalars]
    made.update((name, _scalar(contract, name, value)) for name, value in style.given)
    constants = dict(style.constants)
    for a in arguments:
        live = live_values(a, shapes[a.name], directory, rng, first=first)
        left = replace(a, distribution=fallback_distribution(a))
        made[a.name] = _array(left, shapes[a.name], size, rng, style, directory) if live is None else live
        if style.planted and live is None and a.direction in ("in", "inout") and a.name not in style.positions:
            made[a.name] = plant(left, made[a.name], size, edges, rng, alone=style.alone)
        if a.name in constants and live is None and a.direction in ("in", "inout") and a.name not in style.positions:
            made[a.name] = plant_constants(left, made[a.name], size, constants[a.name], rng, alone=style.alone)
    if style.chained:
        _chain(made, [a for a in arguments if a.name in style.chained], size, rng)
    if style.name in ("integers", "mixed"):
        _tie_equals(made, [a for a in arguments if is_free(a) and a.name not in style.positions], rng)
    return made


def _scalar(contract: Contract, name: str, value: float) -> Array:
    argument = next(a for a in contract.args if a.name == name)
    return np.asarray(value).astype(numpy_dtype(argument.dtype))


def _chain(made: Arrays, chained: Sequence[Argument], size: Size, rng: Any) -> None:
    """Plants integers that need most steps of common loops, in the arrays of the first one's shape together."""
    together = [a for a in chained if made[a.name].shape == made[chained[0].name].shape]
    ends = [(np.iinfo(made[a.name].dtype).min, np.iinfo(made[a.name].dtype).max) for a in together]
    ranges = [integer_range(a, size) or end for a, end in zip(together, ends, strict=True)]
    plant_chains([made[a.name] for a in together], [(max(low, 1), high) for low, high in ranges], rng)


def _tie_equals(made: Arrays, free: Sequence[Argument], rng: Any) -> None:
    """Copies some elements between arrays of equal dtype and shape, so that comparisons see equal operands."""
    for before, after in itertools.pairwise(free):
        one, two = made[before.name], made[after.name]
        if one.shape == two.shape and one.dtype == two.dtype and one.dtype.kind in "iuf":
            made[after.name] = tie(two, one, rng)


def only_written(argument: Argument) -> bool:
    """Returns True for an array whose contents before a launch are meaningless: an output, or scratch without values."""
    return argument.direction == "out" or (argument.direction == "scratch" and argument.distribution is None)


def _array(
    argument: Argument, shape: tuple[int, ...], size: Size, rng: Any, style: InputStyle, directory: Path
) -> Array:
    dtype = numpy_dtype(argument.dtype)
    if only_written(argument):
        return rng_module(rng).zeros(shape, dtype)  # type: ignore[no-any-return]
    if argument.distribution is not None:
        return _within_declared(argument, _declared(argument, shape, size, rng, directory), style, rng)
    if not is_inexact(dtype):
        if style.name == "integers" and argument.name in style.positions:
            return _levelled(_cast(rng.integers(0, bound_of(size, style), shape), dtype), style)
        return _levelled(_integers(dtype, shape, size, rng, style), style)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return rng_module(rng).ascontiguousarray(_floats(part, (*shape, 2), rng, style)).view(dtype)[..., 0]  # type: ignore[no-any-return]
    return _floats(dtype, shape, rng, style)


def _within_declared(argument: Argument, drawn: Array, style: InputStyle, rng: Any) -> Array:
    """Reorders, repeats or equals drawn values if the style requires it, so that each stays one that the distribution allows."""
    name = parse_distribution(argument.distribution or "").name
    if name in ("normal", "uniform"):
        return _arranged(drawn, style, rng)
    return _levelled(drawn, style) if name == "integers" else drawn


def _arranged(drawn: Array, style: InputStyle, rng: Any) -> Array:
    """Returns drawn numbers in another order, or some of them in the place of others, if the style requires it."""
    if style.name == "strided":
        return strided(drawn, style.strides)
    if style.name == "repeated":
        return repeated(drawn, rng)
    if style.name == "close" and drawn.dtype.kind == "f" and drawn.dtype.itemsize > 2:
        return close(drawn, rng)
    if style.name == "offset" and style.high != style.low and drawn.size:
        drawn[...] = drawn.max() if style.high else drawn.min()
    return drawn


def _levelled(drawn: Array, style: InputStyle) -> Array:
    """Returns the drawn integers; if the style requires equal ones, all are set to the first."""
    if style.equal and drawn.size:
        drawn[...] = drawn.reshape(-1)[0]
    return drawn


def _integers(dtype: np.dtype[Any], shape: tuple[int, ...], size: Size, rng: Any, style: InputStyle) -> Array:
    """Draws integers: bytes of their whole range, wider ones below `SMALL_INTEGERS` except in style `integers`."""
    if dtype.kind == "b":
        return _cast(rng.integers(0, 2, shape), dtype)
    if dtype.itemsize == 1 and style.name != "integers":
        info = np.iinfo(dtype)
        drawn = _cast(rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True), dtype)
        return drawn if isinstance(rng, DeviceRandom) else every_byte(drawn, rng)
    if style.low:
        return lowest_integers(dtype, shape, rng, style.bits)
    if style.high:
        return high_integers(dtype, shape, rng, style.bits)
    if style.name == "integers":
        return wide_integers(dtype, shape, rng, style.bits, signed=style.signed)
    smallest = min((value for value in size.values() if value > 0), default=1)
    top = min(smallest, SMALL_INTEGERS)
    drawn = rng.integers(0, top, shape)
    if not shape or top < 3:
        return _cast(drawn, dtype)
    # Each row has its own largest value; among many small numbers it would be the same in all rows.
    largest = rng.integers(top // 2, top, (*shape[:-1], 1))
    drawn = np.minimum(drawn, largest)
    return _cast(drawn * rng.choice((-1, 1), shape) if style.negative and dtype.kind == "i" else drawn, dtype)


def _floats(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, style: InputStyle) -> Array:
    if style.name == "zeros":
        return rng_module(rng).zeros(shape, dtype)  # type: ignore[no-any-return]
    bounds = limits(dtype)
    if style.name == "patterns" and is_float(dtype) and dtype.itemsize <= 2:
        return every_pattern(dtype, shape, rng)
    if style.name in ("mixed", "offset"):
        mixed, sign = style.name == "mixed", style.high - style.low
        return _cast(
            mixed_floats(dtype, shape, rng, style.milder) if mixed else offset_floats(dtype, shape, rng, sign), dtype
        )
    if style.name == "late":
        return _cast(late_floats(shape, rng), dtype)
    if style.name in ("strided", "close"):
        return _arranged(_cast(rng.standard_normal(shape), dtype), style, rng)
    if style.name == "sides":
        return _cast(with_infinite_halves(shape, rng_module(rng)), dtype)
    if style.name == "denormals":
        return _cast(rng.uniform(-1, 1, shape) * bounds.smallest_normal, dtype)
    if not style.specials and not isinstance(rng, DeviceRandom):
        return _floats_in_blocks(dtype, shape, rng, style)
    values = rng.uniform(-1, 1, shape) if style.name == "uniform" else rng.standard_normal(shape)
    # A value beyond a narrow type's range becomes its largest value, not an infinity that nobody requested.
    values = np.clip(values * style.scale, -bounds.top, bounds.top)
    if style.specials and values.size:
        if not style.plants_nan:
            values.reshape(-1)[rng.integers(0, values.size, (-(-values.size // ZEROED_EVERY),))] = 0.0
        places = rng.integers(0, values.size, max(len(style.specials), values.size // PLANTED_EVERY))
        values.reshape(-1)[places] = np.resize(style.specials, places.size)
        if style.plants_nan:
            _begin_a_row(values, float(style.specials[0]), rng)
        else:
            _begin_a_row(values, min(style.specials), rng)
            _fill_a_row(values, min(style.specials), rng)
    with np.errstate(all="ignore"):
        return _cast(values, dtype)


def _begin_a_row(values: Array, value: float, rng: Any) -> None:
    """Sets the first element of one of several rows to a value, since loops over rows begin with it."""
    if values.ndim > 1 and values.size >= FEWEST_ROWS * values.shape[-1]:
        rows = values.reshape(-1, values.shape[-1])
        rows[int(rng.integers(0, rows.shape[0], (1,))[0]), 0] = value


def _fill_a_row(values: Array, value: float, rng: Any) -> None:
    """Fills one of several rows with a single value, as in a fully masked row; skipped for rows of odd length."""
    if values.ndim > 1 and values.shape[-1] % 2 == 0 and values.size >= FEWEST_ROWS * values.shape[-1]:
        rows = values.reshape(-1, values.shape[-1])
        rows[int(rng.integers(0, rows.shape[0], (1,))[0])] = value


def _floats_in_blocks(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, style: InputStyle) -> Array:
    """Draws ordinary numbers, scaled and cast one block at a time."""
    drawn, top = np.empty(shape, dtype), limits(dtype).top
    out = drawn.reshape(-1)
    for part in blocks_of(out):
        count = part.stop - part.start
        values = rng.uniform(-1, 1, count) if style.name == "uniform" else rng.standard_normal(count)
        with np.errstate(all="ignore"):
            out[part] = np.clip(values * style.scale, -top, top).astype(dtype)
    return drawn


def _cast(values: Any, dtype: np.dtype[Any]) -> Array:
    """Casts drawn values to a dtype; a plain number, drawn for a scalar shape, is converted first."""
    cast: Array = (values if hasattr(values, "astype") else np.asarray(values)).astype(dtype)
    return cast


def _declared(argument: Argument, shape: tuple[int, ...], size: Size, rng: Any, directory: Path) -> Array:
    dtype = numpy_dtype(argument.dtype)
    distribution = parse_distribution(argument.distribution or "")
    if distribution.name == "file":
        return _from_file(argument, shape, directory / (distribution.path or ""))
    numbers = [evaluate(text, size) for text in distribution.arguments]
    if distribution.name in ("zeros", "ones"):
        return rng_module(rng).full(shape, distribution.name == "ones").astype(dtype)  # type: ignore[no-any-return]
    values: Array
    try:
        ascending = distribution.name == "ascending"
        if distribution.name == "integers" or (ascending and not is_inexact(dtype)):
            values = rng.integers(int(numbers[0]), int(numbers[1]), shape) if math.prod(shape) else np.zeros(shape)
        elif distribution.name == "uniform" or ascending:
            values = rng.uniform(numbers[0], numbers[1], shape)
        else:
            mean, deviation = numbers or (0.0, 1.0)
            values = rng.normal(mean, deviation, shape)
    except (ValueError, OverflowError) as error:
        at = ", ".join(f"{name} = {value}" for name, value in size.items())
        raise ReferenceFailed(
            f"The distribution {argument.distribution!r} of {argument.name} cannot be drawn at {at}: {error}.",
            hint="Change it, or leave such sizes out with `require`.",
        ) from None
    if ascending and shape:
        values = rng_module(rng).sort(values, axis=-1)
    if is_float(dtype):
        top = limits(dtype).top
        values = np.clip(values, -top, top)
    return _cast(values, dtype)


def _from_file(argument: Argument, shape: tuple[int, ...], path: Path) -> Array:
    try:
        loaded = np.load(path, allow_pickle=False)
        array = loaded if isinstance(loaded, np.ndarray) else loaded[argument.name]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ReferenceFailed(
            f"The contents of {argument.name} cannot be read: {error}.",
            file=str(path),
            hint=f"Save them with np.savez, under the name {argument.name!r}.",
        ) from None
    return _fitted(argument, array, shape, str(path))


def _fitted(argument: Argument, array: Any, shape: tuple[int, ...], where: str) -> Array:
    try:
        made = np.asarray(array)
        fitted = np.ascontiguousarray(made.astype(numpy_dtype(argument.dtype)))
    except (ValueError, TypeError) as error:
        raise ReferenceFailed(
            f"{where} gave no array of {argument.dtype} for {argument.name}: {error}.", hint="Return NumPy arrays."
        ) from None
    if made.shape != shape:
        raise ReferenceFailed(
            f"{argument.name} has shape {list(made.shape)} in {where}, and the contract says {list(shape)} at this size.",
            hint="Make it of the contract's shape for every size.",
        )
    return fitted


def made_inputs(
    contract: Contract, size: Size, seed: int, shapes: Mapping[str, tuple[int, ...]], directory: Path
) -> Arrays:
    """Calls the contract's `inputs` function, and checks its result.

    The function returns a mapping by argument, or arrays in the arguments' order.

    Raises:
        ReferenceFailed: it failed, or gave wrong names, shapes or values.
    """
    process = reference_process.current()
    if process is not None:
        arrays, helpers = process.make(contract, directory, size, seed)
        note_helpers(contract.inputs, directory, helpers)
        return arrays
    where = contract.inputs or ""
    function = load_function(where, directory, contract.line)
    named = inspect.signature(function).parameters
    everything = any(p.kind is p.VAR_KEYWORD for p in named.values())
    given = {name: value for name, value in {**size, "seed": seed}.items() if everything or name in named}
    made = call_user(function, given, where, directory)
    wanted = [a for a in contract.args if a.shape is not None]
    if not isinstance(made, Mapping):
        values = made if isinstance(made, tuple | list) else (made,)
        takes = [a for a in wanted if a.direction in ("in", "inout")] if len(values) < len(wanted) else wanted
        if len(values) != len(takes):
            raise ReferenceFailed(
                f"{where} gave {len(values)} arrays, and the contract has {len(takes)} to fill.",
                line=contract.line,
                hint="Return a dict by argument name, or one array per in and inout argument in their order.",
            )
        made = {a.name: value for a, value in zip(takes, values, strict=True)}
    arrays = {}
    for argument in wanted:
        if argument.direction in ("out", "scratch"):
            filled = np.ones if argument.distribution == "ones" else np.zeros
            arrays[argument.name] = filled(shapes[argument.name], numpy_dtype(argument.dtype))
        elif argument.name in made:
            arrays[argument.name] = _fitted(argument, made[argument.name], shapes[argument.name], where)
        else:
            raise ReferenceFailed(
                f"{where} gave no array for {argument.name}.",
                line=contract.line,
                hint="Return every in and inout array.",
            )
    return arrays
