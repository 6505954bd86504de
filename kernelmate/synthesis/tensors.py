"""Traced tensors: the operators, methods and functions of PyTorch, implemented by those of NumPy on traced arrays.

A function of PyTorch is traced with these in place of tensors and of the modules of torch. They follow PyTorch's documentation
where it differs from NumPy's: `var` and `std` divide by n - 1, and `max` along a dimension returns indices too.
"""

from __future__ import annotations

import contextlib
import math
import operator
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelmate.errors import ContractError
from kernelmate.source import numpy_dtype
from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.functions import swapaxes
from kernelmate.synthesis.sizes import Dim, Untraceable, text_of
from kernelmate.synthesis.tensor_functions import FUNCTIONS, IN_PLACE, MAKERS, METHODS

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "short": "int16", "int": "int32", "long": "int64",
    **{name: name for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")},
}  # fmt: skip
"""Dtypes of PyTorch, by name."""

_CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e, "newaxis": None}
_CONTEXTS = frozenset({"no_grad", "inference_mode", "enable_grad"})
_IGNORED = frozenset(
    {"device", "requires_grad", "memory_format", "non_blocking", "layout", "pin_memory", "copy", "inplace"}
)
"""Keyword arguments that change no value."""

MOST_TURNS = 64
"""Maximum number of parts of a tensor that Python iterates over."""


class Tensor:
    """A traced tensor.

    Attributes:
        array: its value as a traced array.
    """

    __array_priority__ = 2000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions, as sizes with their expressions."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, as NumPy's."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.array.ndim

    @property
    def T(self) -> Tensor:  # noqa: N802 -- PyTorch's name
        """The tensor with its dimensions reversed."""
        return Tensor(self.array.T)

    @property
    def mT(self) -> Tensor:  # noqa: N802 -- PyTorch's name
        """The tensor with its last two dimensions exchanged."""
        return Tensor(swapaxes(self.array, -1, -2))

    device = "cpu"
    requires_grad = False
    is_cuda = False

    def size(self, dim: int | None = None) -> Any:
        """Returns the length of a dimension, or of all."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Any:
        if not self.ndim or not text_of(self.shape[0]).isdigit() or len(self) > MOST_TURNS:
            raise Untraceable("a loop over the parts of a tensor")
        return iter([self[place] for place in range(len(self))])

    def __bool__(self) -> bool:
        return bool(self.array)

    def __float__(self) -> float:
        return float(self.array)

    __int__ = __index__ = __float__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Untraceable("a function of NumPy with a tensor")

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self.array[unwrapped(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[unwrapped(key)] = unwrapped(value)

    def __getattr__(self, name: str) -> Any:
        """Returns a method."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _DTYPES:
            return lambda: Tensor(cast(self.array, _dtype(name)))
        if name in IN_PLACE:
            return partial(self._change, IN_PLACE[name])
        function = METHODS.get(name, FUNCTIONS.get(name))
        if function is None:
            raise Untraceable(f"the tensor method {name}")
        return partial(called, function, self)

    def _change(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Tensor:
        self.array[...] = unwrapped(called(function, self, *args, **keywords))
        return self


def _operator(name: str, function: Callable[..., Any]) -> None:
    def operate(self: Tensor, *others: Any) -> Any:
        return wrapped(function(self.array, *map(unwrapped, others)))

    def reflected(self: Tensor, other: Any) -> Any:
        return wrapped(function(unwrapped(other), self.array))

    def assigned(self: Tensor, other: Any) -> Tensor:
        self.array[...] = function(self.array, unwrapped(other))
        return self

    setattr(Tensor, f"__{name}__", operate)
    if name in _ARITHMETIC:
        setattr(Tensor, f"__r{name}__", reflected)
        setattr(Tensor, f"__i{name}__", assigned)


_ARITHMETIC = frozenset({"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"})  # fmt: skip
for _name in (*_ARITHMETIC, "lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert", "pos"):
    _function: Callable[..., Any] = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    _operator(_name, _function)


def wrapped(value: Any) -> Any:
    """Returns traced arrays as tensors, also within tuples and lists; other values unchanged."""
    if isinstance(value, Array):
        return Tensor(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(wrapped, value))
    return type(value)(map(wrapped, value)) if type(value) in (tuple, list) else value


def unwrapped(value: Any) -> Any:
    """Returns tensors as traced arrays, also within tuples, lists and dictionaries; other values unchanged."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, Mapping):
        return {name: unwrapped(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(unwrapped, value))
    return type(value)(map(unwrapped, value)) if type(value) in (tuple, list) else value


def called(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Calls a function of traced arrays with tensors; returns tensors."""
    if keywords.get("out") is not None:
        raise Untraceable("a function with out=")
    kept = {name: unwrapped(value) for name, value in keywords.items() if name not in _IGNORED and name != "out"}
    return wrapped(function(*map(unwrapped, args), **kept))


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return numpy_dtype(_DTYPES[name])
    except ContractError:
        raise Untraceable(f"the dtype {name}") from None


class TorchModule:
    """A module of PyTorch whose functions take traced tensors.

    Args:
        source: the module.
        builder: builds the graph.
        arrays: the module of NumPy for traced arrays, which creates tensors.
    """

    def __init__(self, source: types.ModuleType, builder: Builder, arrays: Any) -> None:
        self._source, self._builder, self._arrays = source, builder, arrays

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the module, or a function that is called with traced tensors."""
        if name in _DTYPES:
            return _dtype(name)
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name == "Tensor":
            return Tensor
        if name in _CONTEXTS:
            return contextlib.nullcontext
        if name in ("finfo", "iinfo"):
            return getattr(np, name)
        if name == "device":
            return str
        value = getattr(self._source, name)
        if isinstance(value, types.ModuleType):
            return TorchModule(value, self._builder, self._arrays)
        if name in MAKERS:
            return lambda *args, **keywords: called(partial(MAKERS[name], self._arrays), *args, **keywords)
        function = FUNCTIONS.get(name)
        if function is None:
            said = f"{self._source.__name__}.{name}"
            return partial(_refuse, said)
        return partial(called, function)


def module_for(arrays: Callable[[types.ModuleType, Builder], Any], builder: Builder, source: types.ModuleType) -> Any:
    """Returns the replacement of a module of PyTorch, or by `arrays` that of another one."""
    if source.__name__.partition(".")[0] != "torch":
        return arrays(source, builder)
    return TorchModule(source, builder, arrays(np, builder))


def _refuse(name: str, *_: Any, **__: Any) -> Any:
    raise Untraceable(name)


def torch_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """Returns replacements of builtins for a function of PyTorch: those of NumPy, for tensors; loops over sizes are refused."""

    def counted(*bounds: Any) -> range:
        if any(isinstance(one, Tensor) or (isinstance(one, Dim) and not text_of(one).isdigit()) for one in bounds):
            raise Untraceable("a loop over a size in a function of torch")
        return range(*map(int, bounds))

    def passed(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **keywords: wrapped(function(*map(unwrapped, args), **keywords))

    kept = {name: passed(names[name]) for name in ("float", "int", "max", "min", "len")}
    return {**kept, "range": counted, "enumerate": enumerate, "zip": zip}
