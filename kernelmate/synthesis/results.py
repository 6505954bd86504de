"""The results of a reference whose contract has none yet: shapes, dtypes and the graph. Runs in the evaluator."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks.precision import is_inexact
from kernelmate.checks.reference import named, spelled
from kernelmate.checks.torch_reference import on_tensors, uses_torch
from kernelmate.checks.userfiles import call_user, load_function
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype, scalar_values
from kernelmate.synthesis.identities import Multiple, multiple_text, with_multiples
from kernelmate.synthesis.trace import trace

MOST_TRIED = 1000
"""Maximum number of sizes at which a reference is run to find the conditions that it needs."""

MOST_OTHER = 15
"""The largest divisor of a size that is tried, apart from powers of two."""

MOST_BOUND = 64
"""The largest lower bound of a size that is found."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a reference.

    Attributes:
        graph: text of `Graph.text`; None if the reference cannot be traced.
        dtypes: the dtypes of each result, as the reference returns it for arrays of the contract's dtypes.
        refusal: the reason that it cannot be traced, with `file` and `line`.
        require: conditions that the contract lacks and under which it does not raise at smaller sizes; all else is unknown then.
    """

    graph: str | None
    dtypes: tuple[str, ...]
    refusal: str | None = None
    file: str | None = None
    line: int | None = None
    require: tuple[str, ...] = ()

    @staticmethod
    def of(text: str) -> Results:
        """Reads results from `traced_text`."""
        held = json.loads(text)
        return Results(**{**held, "dtypes": tuple(held["dtypes"]), "require": tuple(held["require"])})


def traced_text(contract: Contract, directory: Path) -> str:
    """Returns the graph of a contract's reference as text; for a contract without results its `Results`, as JSON.

    Raises:
        ReferenceFailed: the reference cannot be loaded, raises, or, where the contract has results, cannot be traced.
    """
    if any(one.direction in ("out", "inout") for one in contract.args):
        return trace(contract, directory).text()
    try:
        dtypes = _dtypes(contract, directory)
    except ReferenceFailed:
        require = _conditions(contract, directory)
        if not require:
            raise
        return json.dumps(asdict(Results(None, (), require=require)))
    bounds = _bounds(contract, directory)
    if bounds:
        return json.dumps(asdict(Results(None, dtypes, require=bounds)))
    try:
        results = Results(trace(contract, directory).text(), dtypes)
    except ReferenceFailed as error:
        results = Results(None, dtypes, error.message, error.file, error.line)
    return json.dumps(asdict(results))


def _dtypes(contract: Contract, directory: Path) -> tuple[str, ...]:
    """Returns the dtypes of the results, from a run at the smallest size on arrays of the contract's dtypes.

    Raises:
        ReferenceFailed: the reference raises, or returns something else than arrays of numbers.
    """
    size = min(contract.sizes, key=lambda one: sum(one.values()))
    try:
        returned = _returned(contract, directory, size)
    except ReferenceFailed as error:
        if size == contract.sizes[0]:
            raise
        _returned(contract, directory, contract.sizes[0])
        at = ", ".join(f"{name}={value}" for name, value in size.items())
        error.message = f"{error.message.rstrip('.')}, at {at}; at the example's size it does not."
        error.hint = f'Say what sizes must fulfil, as in --require "{next(iter(size))} % 4 == 0".'
        raise
    several = returned if isinstance(returned, tuple | list) else (returned,)
    return tuple(_dtype(contract, one) for one in several)


def _conditions(contract: Contract, directory: Path) -> tuple[str, ...]:
    """Returns the fewest conditions under which a reference does not raise at a small size; empty if none help.

    These are `n % 2 == 0` for powers of two and small numbers that divide the headline's sizes, and `n == 2 * m` for sizes
    that are multiples of others there: first one condition, then two, then a divisor for each size. At most `MOST_TRIED` sizes
    are tried.
    """
    headline, small = contract.sizes[0], min(contract.sizes, key=lambda one: sum(one.values()))
    if small == headline or _runs(contract, directory, small):
        return ()
    # A second size, since a size may fit by chance: 52 divides by 4 and is 4 * 13.
    bases = [dict(small), {name: max(value - 1, 1) for name, value in small.items()}]
    for by, times in islice(_tried(headline), MOST_TRIED):
        sizes = [_meeting(base, headline, by, times) for base in bases]
        if all(size is not None and _runs(contract, directory, size) for size in sizes):
            divisors = [f"{name} % {factor} == 0" for name, factor in by.items()]
            return (*divisors, *(multiple_text(one) for one in times))
    return ()


def _bounds(contract: Contract, directory: Path) -> tuple[str, ...]:
    """Returns lower bounds of sizes, as `cols >= 4`, below which a reference raises, or returns fewer elements than otherwise.

    Sizes of which `require` says something already have none.
    """
    small, found = min(contract.sizes, key=lambda one: sum(one.values())), list[str]()
    known = {word for one in contract.require for word in re.findall(r"[A-Za-z_]\w*", one)}
    for name, value in small.items():
        most = min(value, MOST_BOUND)
        if most <= 2 or name in known:
            continue
        sides = partial(_sides, contract, directory, small, name)
        ordinary, shorter = sides(most), sides(most - 1)
        if ordinary is None or shorter is None:
            continue
        constant = {place: side for place, side in ordinary.items() if shorter.get(place) == side}
        own = [place for place, side in ordinary.items() if side == most and shorter.get(place) == most - 1]
        bound = most
        while bound > 1:
            at, expected = sides(bound - 1), {**constant, **dict.fromkeys(own, bound - 1)}
            if at is None or 0 in at.values() or not expected.items() <= at.items():
                break
            bound -= 1
        if bound > 1:
            found.append(f"{name} >= {bound}")
    return tuple(found)


def _sides(contract: Contract, directory: Path, size: Size, name: str, value: int) -> dict[tuple[int, int], int] | None:
    """Returns the lengths of the results' axes, by result and axis, with one size at a value; None if the reference raises."""
    try:
        returned = _returned(contract, directory, {**size, name: value})
        several = returned if isinstance(returned, tuple | list) else (returned,)
        return {(place, axis): side for place, one in enumerate(several) for axis, side in enumerate(np.shape(one))}
    except (ReferenceFailed, ValueError):
        return None


def _meeting(base: Size, headline: Size, by: Mapping[str, int], times: Sequence[Multiple]) -> Size | None:
    """Returns a size near a small one that meets conditions; None if there is none up to the headline."""
    # Odd multiples, which no larger power of two divides.
    odd = {name: factor * (max(base[name] // factor - 1, 0) | 1) for name, factor in by.items()}
    size = with_multiples({**base, **{name: min(value, headline[name]) for name, value in odd.items()}}, times)
    multiples = all(size[name] == factor * size[of] for name, factor, of in times)
    return size if multiples and all(size[name] % factor == 0 for name, factor in by.items()) else None


def _tried(headline: Size) -> Iterator[tuple[dict[str, int], tuple[Multiple, ...]]]:
    """Yields divisors of sizes, and sizes that are multiples of others, the fewest conditions first."""
    tried = dict.fromkeys([*(2**k for k in range(1, 10)), *range(3, MOST_OTHER + 1)])
    factors = {name: [one for one in tried if headline[name] % one == 0] for name in headline}
    multiples = sorted(
        (
            (name, headline[name] // headline[of], of)
            for name in headline
            for of in headline
            if name != of and headline[name] > headline[of] > 1 and headline[name] % headline[of] == 0
        ),
        key=lambda one: one[1],
    )

    def divisors(count: int) -> Iterator[dict[str, int]]:
        for names in combinations(headline, count):
            for several in product(*(factors[name] for name in names)):
                yield dict(zip(names, several, strict=True))

    yield from ((one, ()) for one in divisors(1))
    yield from (({}, (one,)) for one in multiples)
    yield from ((one, ()) for one in divisors(min(2, len(headline))) if len(headline) > 1)
    yield from (({}, one) for one in combinations(multiples, 2))
    yield from ((one, (other,)) for other in multiples for one in divisors(1))
    yield from ((one, ()) for one in divisors(len(headline)) if len(headline) > 2)


def _runs(contract: Contract, directory: Path, size: Size) -> bool:
    """Returns True if the reference does not raise at a size."""
    try:
        _returned(contract, directory, size)
    except ReferenceFailed:
        return False
    return True


def _returned(contract: Contract, directory: Path, size: Size) -> Any:
    function = load_function(contract.reference or "", directory, contract.line)
    given = named(contract, inspect.signature(function).parameters, _values(contract, size))
    if uses_torch(function):
        function = on_tensors(function, contract, device=False, working=None)
    with np.errstate(all="ignore"):
        return call_user(function, given, contract.reference or "", directory)


def _values(contract: Contract, size: Size) -> dict[str, Any]:
    """Returns sizes, scalars, and arrays of ones; integers are zero, a valid index in every array."""
    shapes = argument_shapes(contract, size)
    values: dict[str, Any] = {**size, **scalar_values(contract, size)}
    for name, shape in shapes.items():
        dtype = numpy_dtype(next(one.dtype for one in contract.args if one.name == name))
        values[name] = np.full(shape, 1 if is_inexact(dtype) else 0, dtype)
    return {spelled(name): value for name, value in values.items()}


def _dtype(contract: Contract, value: Any) -> str:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "biufcV":
        raise ReferenceFailed(
            f"The reference {contract.reference} returned a {type(value).__name__}, which is not an array of numbers.",
            line=contract.line,
            hint="Return a NumPy array, or several as a tuple.",
        )
    return array.dtype.name
