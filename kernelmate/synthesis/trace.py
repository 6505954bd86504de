"""Traces a contract's Python reference to a graph, at several sizes whose graphs must agree. Runs in the evaluator."""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks.array_modules import rebuilt_with
from kernelmate.checks.precision import is_inexact
from kernelmate.checks.reference import checked_expression, named, spelled
from kernelmate.checks.torch_reference import IN_TORCH, uses_torch
from kernelmate.checks.userfiles import load_function
from kernelmate.errors import ContractError, ReferenceFailed
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import numpy_dtype, size_allowed
from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.composed import COMPOSED, Erf, Vectorized
from kernelmate.synthesis.counted import counted_by, is_count, repeats_steps, with_counts
from kernelmate.synthesis.functions import FUNCTIONS, copied
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.growing import Growing
from kernelmate.synthesis.indexed import Segments
from kernelmate.synthesis.joining import PARTS
from kernelmate.synthesis.loops import loop_enumerate, loop_range, loop_zip
from kernelmate.synthesis.makers import MAKERS
from kernelmate.synthesis.primitives import broadcast_to, expand_dims
from kernelmate.synthesis.protocol import OPERATIONS
from kernelmate.synthesis.recurrences import Again, Carried, without_unread
from kernelmate.synthesis.sizes import Dim, Unequal, Untraceable, extreme, product, real
from kernelmate.synthesis.tensors import Tensor, module_for, torch_names, unwrapped, wrapped
from kernelmate.synthesis.ufuncs import mapped

MOST_SIZES = 8
"""Maximum number of sizes at which a reference is traced."""

MOST_TRACES = 24
"""Maximum number of traces at one size: each finds further values that loops carry, or their shapes."""

EXPRESSION = "<reference>"
"""File name given to a contract's expression when it is compiled."""


LARGEST_EDGE = 2
"""Largest size at which a special case of the reference, such as a grid without an interior, is left to the judgement."""

FEWEST_ALIKE = 3
"""Minimum number of sizes at which the trace must be the same if it differs at such an edge."""


def trace(contract: Contract, directory: Path) -> Graph:
    """Returns the graph of a contract's reference, equal at every tried size.

    Raises:
        ReferenceFailed: the reference cannot be loaded, or cannot be traced; the message names line and operation.
    """
    if contract.reference_kind not in ("function", "expression"):
        raise ReferenceFailed("Only references in Python are traced.", line=contract.line)
    counted = _counted(contract, directory)
    if counted is not None:
        return counted
    try:
        return _alike(contract, directory, literal=False)
    except ReferenceFailed:
        # Integers that loops or shapes depend on have only the contract's own value.
        if not any(_is_free(one) for one in contract.args):
            raise
        return _alike(contract, directory, literal=True)


def _counted(contract: Contract, directory: Path) -> Graph | None:
    """Returns the graph in which integer scalars count iterations that carry values; None if none of them does so."""
    own = with_counts(contract)
    if own is None:
        return None
    try:
        for size in sizes_to_trace(own)[:1]:
            _, graph = _traced(own, directory, size, literal=False)
            if counted_by(graph) & {one.name for one in contract.args if is_count(one)}:
                return _alike(own, directory, literal=False)
    except (ReferenceFailed, Unequal):
        pass  # as without counts
    return None


def _repeated(contract: Contract, directory: Path, size: Size, *, literal: bool) -> Graph | None:
    """Returns the graph in which long loops of a fixed length stay loops; None if they do more than repeat steps."""
    try:
        if repeats_steps(_traced(contract, directory, size, literal=literal, repeats=True)[1]):
            return _alike(contract, directory, literal=literal, repeats=True)
    except (ReferenceFailed, Unequal):
        pass  # written out
    return None


def _is_free(argument: Argument) -> bool:
    """Returns True if an argument is an integer literal of the contract that may vary."""
    return argument.shape is None and not argument.fixed and (argument.value or "").isdigit()


def _alike(contract: Contract, directory: Path, *, literal: bool, repeats: bool = False) -> Graph:
    """Returns the graph that the reference has at every size tried."""
    alike: list[tuple[Builder, Graph]] = []
    edge: Builder | None = None
    for size in sizes_to_trace(contract):
        try:
            builder, graph = _traced(contract, directory, size, literal=literal, repeats=repeats)
        except Unequal:
            continue  # NumPy would refuse this generated size
        if builder.long_loops and not alike and not repeats:
            repeated = _repeated(contract, directory, size, literal=literal)
            if repeated is not None:
                return repeated
        if alike and graph != alike[0][1]:
            # A special case of the smallest sizes, which a kernel for all sizes may follow: the judge tells.
            if not any(
                value <= LARGEST_EDGE and value < min(one.size[name] for one, _ in alike)
                for name, value in size.items()
            ):
                raise _depends(contract, alike[0][0], builder)
            edge = builder
        else:
            alike.append((builder, graph))
    if not alike:
        raise ReferenceFailed("No listed size has elements to trace the reference at.", line=contract.line)
    if edge is not None and len(alike) < FEWEST_ALIKE:
        raise _depends(contract, alike[0][0], edge)
    return alike[0][1]


def sizes_to_trace(contract: Contract) -> list[Size]:
    """Returns the listed non-empty sizes, and others near the smallest, so that a loop over a size is noticed.

    A value common to all sizes would otherwise look like a constant.
    """
    listed = [size for size in contract.sizes if all(size.values())]
    others: list[Size] = []
    for size in sorted(listed, key=lambda one: sum(one.values()))[:2]:
        others += [{name: 2 * value for name, value in size.items()}, {name: value + 1 for name, value in size.items()}]
        others += [{**size, name: 3 * value} for name, value in size.items()]
    found = listed[: MOST_SIZES // 2]
    found += listed[-1:] if listed and listed[-1] not in found else []
    for size in others:
        if len(found) < MOST_SIZES and size not in found and _allowed(contract, size):
            found.append(size)
    return found


def _allowed(contract: Contract, size: Size) -> bool:
    try:
        return size_allowed(contract, size)
    except ContractError:
        return False


def _depends(contract: Contract, first: Builder, other: Builder) -> ReferenceFailed:
    """Returns the error for a reference whose graph depends on its sizes, with the first operation that differs."""
    longer = max(first, other, key=lambda one: len(one.nodes))
    pairs = zip_longest(first.nodes, other.nodes, longer.lines)
    line = next((line for mine, theirs, line in pairs if mine != theirs), None)
    sizes = " and ".join(", ".join(f"{k}={v}" for k, v in one.size.items()) for one in (first, other))
    return _refusal(contract, first.file, line, f"operations that depend on a size: they differ between {sizes}")


def _refusal(contract: Contract, file: str, line: int | None, what: str, also: str = "") -> ReferenceFailed:
    written = linecache.getline(file, line).strip() if line is not None else ""
    if file == EXPRESSION:
        file, line, written = "", contract.line, contract.reference or ""
    where = f"{Path(file).name}:{line}: " if file and line is not None else ""
    shown = f" in `{written[:100]}`" if written else ""
    return ReferenceFailed(
        f"{where}The reference cannot be traced: {what}{shown}{also}.",
        file=file or None,
        line=line,
        hint="Recipes need no trace.",
    )


def _traced(
    contract: Contract, directory: Path, size: Size, *, literal: bool, repeats: bool = False
) -> tuple[Builder, Graph]:
    """Returns the graph at one size; traces again while its loops turn out to carry more values."""
    carried: dict[int, Carried] = {}
    for _ in range(MOST_TRACES):
        try:
            return _traced_once(contract, directory, size, carried, literal=literal, repeats=repeats)
        except Again:
            continue
    raise ReferenceFailed(
        "A loop of the reference carries too many values from iteration to iteration.", line=contract.line
    )


def _traced_once(
    contract: Contract, directory: Path, size: Size, carried: dict[int, Carried], *, literal: bool, repeats: bool
) -> tuple[Builder, Graph]:
    if contract.reference_kind == "function":
        function = load_function(contract.reference or "", directory, contract.line)
        code = getattr(function, "__code__", None)
        file: str = EXPRESSION if code is None else code.co_filename
        builder = Builder(size, file, OPERATIONS, carried)
        folder = (directory / (contract.reference or "").rpartition(":")[0]).parent
        values, names = _stand_ins(contract, builder, literal=literal), _builtins(builder)
        torch_used = uses_torch(function)
        if torch_used:
            values, names = {name: wrapped(one) for name, one in values.items()}, torch_names(names)
        function = rebuilt_with(function, folder, partial(module_for, _Module, builder), names, real)
        call: Callable[[], Any] = partial(function, **named(contract, inspect.signature(function).parameters, values))
    else:
        torch_used = False
        file, builder = EXPRESSION, Builder(size, EXPRESSION, OPERATIONS, carried)
        compiled = checked_expression(contract)
        names = {"np": _Module(np, builder), **_builtins(builder), **_stand_ins(contract, builder, literal=literal)}
        call = partial(eval, compiled, names)  # its names were checked
    builder.repeats = repeats
    try:
        with np.errstate(all="ignore"), _naming(builder):
            returned = call()
        return builder, without_unread(builder.graph(_outputs(contract, builder, unwrapped(returned))))
    except (ReferenceFailed, Again):
        raise
    except Exception as error:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
        if isinstance(error, Unequal) and size not in contract.sizes:
            raise
        said = str(error) if isinstance(error, Untraceable) else f"{type(error).__name__}: {error}"
        line = error.line if isinstance(error, Untraceable) else None
        line = line or (frames[-1].lineno if frames else None)
        raise _refusal(contract, file, line, said, f"; {IN_TORCH}" if torch_used else "") from None


@contextmanager
def _naming(builder: Builder) -> Iterator[None]:
    """Context manager that gives results the names of the reference's locals; the last assigned name wins."""

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_filename == builder.file:
            for name, local in frame.f_locals.items():
                value = local.array if isinstance(local, Tensor) else local
                if isinstance(value, Array) and value.builder is builder and 0 <= value.recorded < len(builder.nodes):
                    builder.called(name, value.recorded)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _stand_ins(contract: Contract, builder: Builder, *, literal: bool) -> dict[str, Any]:
    """Returns sizes, scalars and traced arrays by the names that the reference uses."""
    values: dict[str, Any] = {spelled(name): builder.dim(name) for name in builder.size}
    for argument in contract.args:
        values[spelled(argument.name)] = _stand_in(argument, builder, literal=literal)
    return values


def _stand_in(argument: Argument, builder: Builder, *, literal: bool) -> Any:
    dtype = numpy_dtype(argument.dtype)
    if is_inexact(dtype) and dtype.kind != "c":
        dtype = np.dtype(np.float64)
    if dtype.kind not in "biuf":
        return None
    if argument.shape is None:
        size = argument.value if argument.value is not None else argument.name
        if dtype.kind in "iu" and (size in builder.size or (size.isdigit() and (literal or not _is_free(argument)))):
            return builder.dim(size)
        return builder.add("scalar", dtype=dtype, data=(argument.name,))
    shape = [builder.dim(text) for text in map(_plain, argument.shape)]
    return builder.add("input", (), shape, dtype, (argument.name,))


def _plain(text: str) -> str:
    """Returns a dimension's expression, in parentheses if it is more than a name or number."""
    text = text.strip()
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _outputs(contract: Contract, builder: Builder, returned: Any) -> list[Array]:
    if isinstance(returned, Mapping):
        raise Untraceable("a dictionary as its result, in place of a tuple of arrays")
    several = returned if isinstance(returned, tuple | list) else (returned,)
    wanted = [one for one in contract.args if one.direction in ("out", "inout")]
    if not wanted:
        return [builder.lift(value) for value in several]  # a new kernel, whose results are not known yet
    if len(several) != len(wanted):
        raise Untraceable(f"{len(several)} results where the contract has {len(wanted)} out and inout arguments")
    found = []
    for argument, value in zip(wanted, several, strict=True):
        shape = tuple(builder.dim(text) for text in map(_plain, argument.shape or ()))
        array = builder.lift(value)
        if not array.shape and argument.shape == ("1",):
            array = expand_dims(array, 0)
        dtype = numpy_dtype(argument.dtype)
        if dtype.kind in "iu" and array.dtype.kind == "f" and _is_whole(builder, array.node):
            array = cast(array, dtype)
        array = _before_rounding(array, dtype)
        if tuple(map(int, array.shape)) != tuple(map(int, shape)):
            raise Untraceable(f"a result of another shape than {argument.name}")
        found.append(broadcast_to(array, shape))
    return found


def _before_rounding(array: Array, dtype: np.dtype[Any]) -> Array:
    """Returns the result without a last conversion to float16, which storing it in an argument of that dtype makes anyway."""
    nodes = array.builder.nodes
    node = nodes[array.node]
    stored = node.op == "cast" and node.dtype == dtype.name and nodes[node.args[0]].dtype in ("float32", "float64")
    return Array(array.builder, node.args[0]) if stored and dtype == np.float16 else array


def _is_whole(builder: Builder, index: int, known: dict[int, bool] | None = None) -> bool:
    """Returns True if a floating value is always a whole number, which any conversion to an integer keeps.

    `known` holds the answers for nodes that were seen before, since a node may be reached by many paths.
    """
    known = {} if known is None else known
    if index not in known:
        node = builder.nodes[index]
        name = node.data[0] if node.op == "map" else ""
        if node.op == "constant":
            known[index] = float(node.data[0] or 0).is_integer()
        elif not node.dtype.startswith("float") or name in ("rint", "floor", "ceil", "trunc"):
            known[index] = True
        elif node.op in ("view", "reshape", "cast") or name in _KEEPING_WHOLE:
            within = node.args[1:] if name == "where" else node.args
            known[index] = all(_is_whole(builder, one, known) for one in within)
        else:
            known[index] = False
    return known[index]


_KEEPING_WHOLE = frozenset({"maximum", "minimum", "where", "negative", "add", "subtract", "multiply"})
"""Operations on whole numbers whose results are whole."""


class _Module:
    """A module of NumPy or SciPy whose functions create traced arrays and keep sizes symbolic."""

    def __init__(self, source: types.ModuleType, builder: Builder) -> None:
        self._source, self._builder = source, builder

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the module, wrapped if callable."""
        value = getattr(self._source, name)
        if isinstance(value, types.ModuleType):
            return _Module(value, self._builder)
        if isinstance(value, type) and issubclass(value, np.generic):
            return _Scalar(value)
        if value is np.vectorize:
            return Vectorized
        return (
            _TracedFunction(value, name, self._builder)
            if callable(value) and not isinstance(value, type)
            else real(value)
        )


class _Scalar:
    """A scalar type: callable on traced arrays, and usable as a dtype."""

    def __init__(self, source: type[np.generic]) -> None:
        self._source = source
        self.dtype = np.dtype(source)

    def __call__(self, value: Any = 0) -> Any:
        """Converts the value to this type."""
        if isinstance(value, Dim):
            value = value.scalar(value.text)
        return copied(cast(value, self.dtype)) if isinstance(value, Array) else self._source(value)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the type."""
        return getattr(self._source, name)


class _Number:
    """Python's `float` or `int`: callable on traced arrays and sizes, and usable as a dtype."""

    def __init__(self, kind: type[float] | type[int]) -> None:
        self._kind = kind
        self.dtype = np.dtype(kind)

    def __call__(self, value: Any = 0) -> Any:
        """Converts the value to this type."""
        if isinstance(value, Dim):
            return value if self._kind is int else value.scalar(value.text)
        return cast(value, self.dtype) if isinstance(value, Array) else self._kind(value)


class _TracedFunction:
    """A function of an array module."""

    def __init__(self, function: Callable[..., Any], name: str, builder: Builder) -> None:
        self._function, self._name, self._builder = function, name, builder

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Traces if it creates arrays or has traced or size arguments; otherwise calls NumPy's function."""
        keywords = {key: _dtype_or(value) for key, value in keywords.items()}
        args = tuple(_dtype_or(value) for value in args)
        if self._name in MAKERS:
            return MAKERS[self._name](self._builder, *args, **keywords)
        makes = self._name in ("asarray", "array", "ascontiguousarray", "asanyarray")
        if makes and args and _holds_stand_in(args[0]):
            args = (self._builder.lift(args[0]), *args[1:])
        if makes and isinstance(args[0], Array):
            made = cast(args[0], args[1] if len(args) > 1 else keywords.get("dtype") or args[0].dtype)
            return copied(made) if self._name == "array" else made
        if args and self._name in FUNCTIONS and self._name not in PARTS and _holds_stand_in(args[0]):
            args = (self._builder.lift(args[0]), *args[1:])
        if self._name in COMPOSED and any(isinstance(one, Array) for one in args):
            return COMPOSED[self._name](*args, **keywords)
        if isinstance(self._function, types.BuiltinFunctionType) and self._function.__module__ == "math":
            return self._plain_mathematics(args, keywords)
        if isinstance(self._function, np.ufunc):
            args = tuple(self._builder.lift(one) if isinstance(one, Dim) else one for one in args)
        try:
            return real(self._function(*args, **keywords))
        except Untraceable:
            several = (one for arg in args for one in (arg if isinstance(arg, tuple | list) else (arg,)))
            if any(isinstance(one, Array | Segments | Growing) for one in several):
                raise
            raise Untraceable(f"np.{self._name} of a size") from None

    def _plain_mathematics(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Handles a function of `math`: for sizes and traced arrays like NumPy's equivalent, otherwise unchanged."""
        if self._name == "prod" and not keywords:
            return product(tuple(args[0]), self._builder.scalar)
        if not any(isinstance(one, Dim | Array) for one in args):
            return real(self._function(*args, **keywords))
        if self._name in ("erf", "erfc") and isinstance(args[0], Array):  # within a function for `np.vectorize`
            return mapped(args[0].builder, Erf(self._name), args)
        ufunc = getattr(np, {"pow": "power"}.get(self._name, self._name), None)
        if not isinstance(ufunc, np.ufunc) or self._name in ("floor", "ceil", "trunc") or len(args) != ufunc.nin:
            raise Untraceable(f"math.{self._name} of a size or a value of an array")
        return ufunc(*(self._builder.lift(one) if isinstance(one, Dim) else one for one in args))

    def __getattr__(self, name: str) -> Any:
        """Returns a ufunc's method, such as `reduce`, which also takes lists of traced arrays."""
        method = getattr(self._function, name)
        if name not in ("reduce", "accumulate") or not isinstance(self._function, np.ufunc):
            return method
        return lambda several, *args, **keywords: method(
            self._builder.lift(several) if _holds_stand_in(several) else several, *args, **keywords
        )


def _holds_stand_in(value: Any) -> bool:
    """True if a list has traced arrays in it."""
    return isinstance(value, list | tuple) and any(isinstance(one, Array) or _holds_stand_in(one) for one in value)


def _dtype_or(value: Any) -> Any:
    """Returns the dtype that a replaced type denotes; other values unchanged."""
    return value.dtype if isinstance(value, _Scalar | _Number) else value


def _builtins(builder: Builder) -> dict[str, Any]:
    """Returns replacements of builtins that would treat a traced array or size as a plain number."""

    def most(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def choose(*values: Any, **keywords: Any) -> Any:
            several = tuple(values[0]) if len(values) == 1 else values
            if any(isinstance(one, Array) for one in several):
                ufunc = np.maximum if name == "max" else np.minimum
                result = several[0]
                for one in several[1:]:
                    result = ufunc(result, one)
                return result
            if any(isinstance(one, Dim) for one in several):
                return extreme(name, several, builder.scalar)
            return plain(*values, **keywords)

        return choose

    def length(value: Any) -> int:
        return value.shape[0] if isinstance(value, Array) else len(value)

    return {
        "float": _Number(float),
        "int": _Number(int),
        "max": most("max", max),
        "min": most("min", min),
        "len": length,
        "range": partial(loop_range, builder),
        "enumerate": loop_enumerate,
        "zip": loop_zip,
    }
