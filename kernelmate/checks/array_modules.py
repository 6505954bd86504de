"""Calls a user's function with NumPy replaced by CuPy, or by a NumPy with a narrower default floating type.

A reference is written for NumPy in float64. The same code must also run on a GPU, and in the type that the kernel
computes in. Array arguments carry their module and type through most of the code. The exceptions are arrays that the
function creates itself (`np.zeros(n)`, `np.arange(n) / n`), `np.float64` by name, and scalars such as `np.sqrt(2 /
np.pi)`, which NumPy 2 (NEP 50) lets promote float32 arrays to float64. So the function is rebuilt with other
globals: each NumPy module becomes an `ArrayModule`, and each NumPy scalar a Python number, which does not promote
arrays.
"""

from __future__ import annotations

import builtins
import importlib
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks.device_arrays import module_like
from kernelmate.checks.precision import is_fused

SOURCES = ("numpy", "scipy")
"""Packages whose modules are replaced."""

_MAKERS = frozenset({"asarray", "array", "ascontiguousarray", "asanyarray"})
"""Functions that keep the type of their argument: a float64 array passed to them is float64 by the user's request."""


class NarrowArray(np.ndarray[Any, Any]):
    """An array whose operations never promote to float64: float64 results and operands are cast to `working`.

    `working` is a class attribute of the subclass that `narrow_type` creates for each type. `product` is the unrounded
    product that fused arithmetic adds to the next operand.
    """

    working: np.dtype[Any] = np.dtype(np.float32)
    product: np.ndarray[Any, Any] | None = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Applies the ufunc to plain arrays and casts float64 results."""
        plain = {name: _plain(value) for name, value in keywords.items()}
        operands = [_operand(one) for one in inputs]
        if is_fused(type(self).working) and method == "__call__" and not keywords:
            return self._fused(ufunc, inputs, operands)
        return self._narrowed(getattr(ufunc, method)(*operands, **plain))

    def _fused(self, ufunc: np.ufunc, inputs: Sequence[Any], operands: Sequence[Any]) -> Any:
        """Applies the ufunc; a product keeps its exact value for the sum or difference that may follow."""
        fusing = next(
            (n for n, one in enumerate(inputs) if isinstance(one, NarrowArray) and one.product is not None), None
        )
        if ufunc in (np.add, np.subtract) and fusing is not None:
            exact = [_exact(one) for one in operands]
            exact[fusing] = inputs[fusing].product
            return self._narrowed(ufunc(*exact))
        result = self._narrowed(ufunc(*operands))
        if ufunc is np.multiply and isinstance(result, NarrowArray) and result.dtype == np.float32:
            result.product = np.multiply(*(_exact(one) for one in operands))
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Applies a NumPy function to plain arrays and casts float64 results."""
        return self._narrowed(func(*_plain(tuple(args)), **_plain(dict(kwargs))))

    def _narrowed(self, result: Any) -> Any:
        return as_narrow_arrays(result, type(self).working)


def as_narrow_arrays(result: Any, working: np.dtype[Any]) -> Any:
    """Converts arrays to `NarrowArray`, with float64 cast to `working`, and NumPy float64 scalars to Python numbers."""
    if isinstance(result, tuple | list):
        return (
            type(result)(as_narrow_arrays(one, working) for one in result) if type(result) in (tuple, list) else result
        )
    if isinstance(result, np.ndarray):
        plain = result.view(np.ndarray)
        if plain.dtype in (np.float64, np.complex128):
            plain = plain.astype(np.result_type(working, np.complex64) if plain.dtype.kind == "c" else working)
        if type(result) is narrow_type(working) and plain.dtype == result.dtype:
            return result  # with its product
        return plain.view(narrow_type(working)) if plain.dtype.kind in "biufc" else plain
    return as_python_scalar(result)


def as_python_scalar(value: Any) -> Any:
    """Converts a NumPy float64 scalar to a Python number, which adopts the type of arrays it is combined with."""
    return value.item() if isinstance(value, np.float64 | np.complex128) else value


class RoundedNumber(float):
    """A number in the reference's code, or a scalar argument, whose arithmetic with other numbers is rounded to float32.

    Combined with arrays it acts as a Python number and adopts their type.
    """


def _rounded_to_float32(value: float) -> RoundedNumber:
    with np.errstate(all="ignore"):
        return RoundedNumber(np.float32(value))


def _rounding(name: str) -> Callable[[RoundedNumber, Any], Any]:
    def operate(self: RoundedNumber, other: Any) -> Any:
        result = getattr(float, name)(self, other)
        return _rounded_to_float32(result) if type(result) is float else result

    return operate


for _name in ("add", "sub", "mul", "truediv", "pow"):
    for _side in ("", "r"):
        setattr(RoundedNumber, f"__{_side}{_name}__", _rounding(f"__{_side}{_name}__"))
RoundedNumber.__neg__ = lambda self: RoundedNumber(-float(self))  # type: ignore[method-assign]


def rounded_number(working: np.dtype[Any] | None) -> Callable[[float], float] | None:
    """Returns the function that rounds a reference's floating-point numbers for an evaluation in a dtype.

    The result is None if numbers need no rounding.
    """
    return _rounded_to_float32 if working == np.float32 else None


_NARROW_TYPES: dict[tuple[np.dtype[Any], bool], type[NarrowArray]] = {}


def narrow_type(working: np.dtype[Any]) -> type[NarrowArray]:
    """Returns the subclass of `NarrowArray` for a floating type."""
    key = working, is_fused(working)
    if key not in _NARROW_TYPES:
        _NARROW_TYPES[key] = type(f"Narrow_{working}", (NarrowArray,), {"working": working})
    return _NARROW_TYPES[key]


def _plain(value: Any) -> Any:
    if isinstance(value, NarrowArray):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(_plain(one) for one in value)
    return {name: _plain(one) for name, one in value.items()} if type(value) is dict else value


def _exact(value: Any) -> Any:
    """Returns an operand of float32 arithmetic in float64, where the product of two operands is exact."""
    return np.asarray(value, np.float32).astype(np.float64) if not np.iscomplexobj(value) else value


def _operand(value: Any) -> Any:
    return float(value) if isinstance(value, RoundedNumber) else as_python_scalar(_plain(value))


class ArrayModule:
    """A module of NumPy or SciPy whose default floating type is narrower than float64.

    Args:
        source: the module.
        working: the floating type.
    """

    def __init__(self, source: types.ModuleType, working: np.dtype[Any]) -> None:
        self._source, self._working = source, working

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the module, wrapped if it creates arrays."""
        value = getattr(self._source, name)
        if isinstance(value, types.ModuleType):
            return ArrayModule(value, self._working)
        if value is np.float64:
            return self._working.type
        if value is np.vectorize:
            return partial(_vectorized, self._working)
        if isinstance(value, type) or not callable(value):
            return as_python_scalar(value)
        return _ModuleFunction(value, self._working, keeps=name in _MAKERS)


def _vectorized(
    working: np.dtype[Any], function: Callable[..., Any], *arguments: Any, **keywords: Any
) -> _ModuleFunction:
    """Replaces `np.vectorize`: the scalar functions compute in float64, and their results are cast."""
    return _ModuleFunction(np.vectorize(function, *arguments, **keywords), working, keeps=False)


class _ModuleFunction:
    """A function of an array module whose results have the working type, unless it returns an array unchanged."""

    def __init__(self, function: Callable[..., Any], working: np.dtype[Any], *, keeps: bool) -> None:
        self._function, self._working, self._keeps = function, working, keeps

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if keywords.get("dtype") is float:
            keywords["dtype"] = self._working
        result = self._function(*arguments, **keywords)
        kept = self._keeps and keywords.get("dtype") is None and isinstance(result, np.ndarray)
        return result if kept else as_narrow_arrays(result, self._working)

    def __getattr__(self, name: str) -> Any:
        """Returns a ufunc's method, such as `at` or `reduce`."""
        return getattr(self._function, name)


def module_for(source: types.ModuleType, *, device: bool, working: np.dtype[Any] | None) -> Any:
    """Returns the replacement of a module of NumPy or SciPy.

    Args:
        source: the module.
        device: True for CuPy arrays.
        working: the default floating type; None is float64.

    Raises:
        NotAvailable: CuPy has no counterpart of it.
    """
    if device:
        return module_like(source, working)
    return source if working is None else ArrayModule(source, working)


def with_array_module(
    function: Callable[..., Any], directory: Path, *, device: bool, working: np.dtype[Any] | None
) -> Callable[..., Any]:
    """Returns a user's function with NumPy replaced in it and in the functions of the user's files that it calls.

    Args:
        function: a plain function; anything else is returned as it is.
        directory: the folder of the user's files; code from other folders is not rebuilt.
        device: True for CuPy arrays.
        working: the default floating type; None is float64.

    Raises:
        NotAvailable: CuPy has no counterpart of a module that it names.
    """
    modules = partial(module_for, device=device, working=working)
    return _Rebuilding(directory, modules, number=rounded_number(working)).function(function)


def rebuilt_with(
    function: Callable[..., Any],
    directory: Path,
    module: Callable[[types.ModuleType], Any],
    names: Mapping[str, Any] | None = None,
    number: Callable[[float], Any] | None = None,
) -> Callable[..., Any]:
    """Returns the function as `with_array_module` does, with other replacements.

    `module` returns the replacement of each module, `math` and those of PyTorch included. `names` are additional globals. `number` returns
    the replacement of each floating-point constant of the functions and of their modules.
    """
    return _Rebuilding(directory, module, names or {}, (*SOURCES, "math", "torch"), number).function(function)


class _Rebuilding:
    """Rebuilds functions and records replaced globals by the identity of the original."""

    def __init__(
        self,
        directory: Path,
        module: Callable[[types.ModuleType], Any],
        names: Mapping[str, Any] = types.MappingProxyType({}),
        sources: Sequence[str] = SOURCES,
        number: Callable[[float], Any] | None = None,
    ) -> None:
        self._directory, self._module, self._names, self._sources = directory.resolve(), module, names, sources
        self._number = number
        self._replaced: dict[int, dict[str, Any]] = {}

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(function, types.FunctionType):
            return function
        made = types.FunctionType(
            self._constant(function.__code__),
            self._globals(function.__globals__),
            function.__name__,
            self._constant(function.__defaults__),
            function.__closure__,
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def _constant(self, value: Any) -> Any:
        """Replaces floating-point constants, also inside tuples and nested functions."""
        if self._number is None:
            return value
        if isinstance(value, tuple):
            return tuple(map(self._constant, value))
        if isinstance(value, types.CodeType):
            return value.replace(co_consts=tuple(map(self._constant, value.co_consts)))
        return self._number(value) if type(value) is float else value

    def _globals(self, held: dict[str, Any]) -> dict[str, Any]:
        if id(held) not in self._replaced:
            self._replaced[id(held)] = replaced = {**self._names, **held}
            for name, value in held.items():
                replaced[name] = self._value(value)
            replaced["__builtins__"] = {**vars(builtins), "__import__": self._import}
        return self._replaced[id(held)]

    def _import(self, *args: Any, **keywords: Any) -> Any:
        """Imports a module for a statement within a function, and replaces it as those of the file's head."""
        return self._value(builtins.__import__(*args, **keywords))

    def _value(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] in self._sources:
                return self._module(value)
            return _Namespace(self._globals(value.__dict__)) if self._owns(value.__dict__) else value
        if isinstance(value, types.FunctionType) and self._owns(value.__globals__):
            return self.function(value)
        if isinstance(value, np.vectorize):
            return self._module(np).vectorize(self._value(value.pyfunc))
        if isinstance(value, np.generic):
            return self._constant(as_python_scalar(value))
        if type(value) in (float, tuple):
            return self._constant(value)
        return self._imported(value)

    def _imported(self, value: Any) -> Any:
        """Replaces a function or type imported from NumPy or SciPy by name."""
        origin = getattr(value, "__module__", None)
        if isinstance(value, np.ufunc):
            origin = "numpy" if getattr(np, value.__name__, None) is value else "scipy.special"
        if not callable(value) or not isinstance(origin, str) or origin.partition(".")[0] not in self._sources:
            return value
        name = getattr(value, "__name__", "")
        package = importlib.import_module(origin)
        public = np if hasattr(np, name) and getattr(np, name) is value else package
        return getattr(self._module(public), name, value)

    def _owns(self, held: Mapping[str, Any]) -> bool:
        file = held.get("__file__")
        if not isinstance(file, str) or "site-packages" in Path(file).parts:
            return False
        return self._directory in Path(file).resolve().parents


class _Namespace:
    """A user's module with its names replaced."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.__dict__.update(names)
