"""Arrays on a GPU that behave like NumPy's for a reference function, or raise an exception.

CuPy is not NumPy: it lets assignments overlap, writes to duplicate indices in any order, wraps indices that are out of
range, and casts NaN to another integer than NumPy, all without an error. A `DeviceArray` wraps a CuPy array, forwards
operations with the same meaning, and raises `NotAvailable` for others; the reference is then evaluated by NumPy on the
host.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np


class NotAvailable(Exception):
    """A module, function or operation has no equivalent on the GPU."""


REFUSED = frozenset(
    {"vectorize", "frompyfunc", "random", "put", "place", "putmask", "put_along_axis", "copyto", "fromfunction"}
)
"""NumPy function names whose CuPy counterparts behave differently, or that write through their arguments."""

REDUCTIONS = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "sum": "add",
    "prod": "multiply",
}
"""Reductions whose `initial` argument CuPy lacks, with the ufunc that applies it to the result."""


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A CuPy array that a reference function can use like a NumPy array.

    Args:
        held: the array.
        working: the floating type that results of type float64 are cast to; None leaves them.
    """

    library: ClassVar[Any] = None
    """The array module: CuPy, or a stand-in in tests."""

    __slots__ = ("_held", "_working")

    def __init__(self, held: Any, working: np.dtype[Any] | None) -> None:
        self._held, self._working = held, working

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Applies a ufunc of NumPy or SciPy through its GPU counterpart."""
        function = _counterpart(ufunc)
        if method == "at":
            raise NotAvailable(f"{ufunc.__name__}.at")
        operation = function if method == "__call__" else getattr(function, method)
        out = keywords.pop("out", None)
        given = [unwrapped(one) for one in inputs]
        result = operation(*given, **unwrapped(keywords))
        if out is None:
            return wrapped(result, self._working)
        # The result goes to a new array first, because CuPy lets operands overlap with the output.
        target = out[0]
        target._held[...] = result
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Applies a NumPy function through its GPU counterpart."""
        return called(func.__name__, _counterpart(func), args, kwargs, self._working)

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuses implicit copies to the host.

        Raises:
            NotAvailable: always.
        """
        raise NotAvailable("conversion to a NumPy array")

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute or a method of the array."""
        if name.startswith("__"):
            raise AttributeError(name)  # protocols by which others would read the memory
        value = getattr(self._held, name)
        if not callable(value):
            return wrapped(value, self._working)

        def method(*arguments: Any, **keywords: Any) -> Any:
            if name in ("astype", "view"):
                return self._cast(name, *arguments, **keywords)
            if name in REDUCTIONS:
                return called(name, getattr(self.library, name), (self, *arguments), keywords, self._working)
            if name in ("put", "partition", "sort", "fill", "setflags", "tofile", "dump", "itemset"):
                raise NotAvailable(f"ndarray.{name}")
            return wrapped(value(*unwrapped(arguments), **unwrapped(keywords)), self._working)

        return method

    def _cast(self, name: str, dtype: Any, *arguments: Any, **keywords: Any) -> Any:
        wanted = np.dtype(dtype)
        if name == "astype" and wanted.kind in "iub" and self._held.dtype.kind in "fc":
            top = float(2 ** (8 * wanted.itemsize - (wanted.kind == "i"))) if wanted.kind in "iu" else np.inf
            held = self._held
            if held.size and not bool(((held < top) & (held >= (-top if wanted.kind == "i" else 0))).all()):
                raise NotAvailable("a cast of what the type cannot hold")
        if wanted == np.float64 and self._working is not None:
            wanted = self._working
        return wrapped(getattr(self._held, name)(wanted, *arguments, **keywords), self._working)

    def __getitem__(self, key: Any) -> Any:
        """Returns elements; as in NumPy, indices out of range raise `IndexError`."""
        _check_range(self._held.shape, key)
        return wrapped(self._held[unwrapped(key)], self._working)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes elements selected by slices, integers or a mask.

        Raises:
            NotAvailable: the key is an array of indices.
        """
        if any(isinstance(one, DeviceArray | np.ndarray | list) and _kind(one) != "b" for one in _keys(key)):
            raise NotAvailable("a write through positions")
        held = unwrapped(value)
        if isinstance(value, DeviceArray) and self.library.may_share_memory(self._held, held):
            held = held.copy()
        self._held[unwrapped(key)] = held

    def __len__(self) -> int:
        """Returns the extent of the first axis."""
        return len(self._held)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the first axis."""
        return (self[index] for index in range(len(self._held)))

    def __float__(self) -> float:
        """Returns the only element."""
        return float(self._held)

    def __int__(self) -> int:
        """Returns the only element."""
        return int(self._held)

    def __bool__(self) -> bool:
        """Returns the only element's truth value."""
        return bool(self._held)

    def __index__(self) -> int:
        """Returns the only element of an integer array."""
        return int(self._held.__index__() if self.library is np else self._held.get().__index__())


def wrapped(value: Any, working: np.dtype[Any] | None) -> Any:
    """Converts a CuPy result for a reference, casting float64 to `working` if set."""
    library = DeviceArray.library
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(wrapped(one, working) for one in value)
    if isinstance(value, library.ndarray):
        if working is not None and value.dtype == np.float64:
            value = value.astype(working)
        return DeviceArray(value, working)
    return value.item() if isinstance(value, np.float64) else value


def unwrapped(value: Any) -> Any:
    """Converts a reference's value for CuPy; NumPy arrays are copied to the GPU."""
    if isinstance(value, DeviceArray):
        return value._held
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(unwrapped(one) for one in value)
    if type(value) is dict:
        return {name: unwrapped(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return DeviceArray.library.asarray(value)
    # CuPy takes only plain Python numbers, no subclasses.
    return float(value) if isinstance(value, float) else value


def called(
    name: str, function: Callable[..., Any], arguments: Any, keywords: Any, working: np.dtype[Any] | None
) -> Any:
    """Calls a function of the array module with a reference's arguments.

    Raises:
        NotAvailable: the function is in `REFUSED`.
    """
    if name in REFUSED:
        raise NotAvailable(name)
    given, named = unwrapped(tuple(arguments)), unwrapped(dict(keywords))
    library = DeviceArray.library
    if name == "repeat" and getattr(given[1] if len(given) > 1 else named.get("repeats"), "ndim", 0) == 1:
        return wrapped(_repeated(*given, **named), working)
    if name == "take":
        _check_range(
            given[0].reshape(-1).shape if named.get("axis") is None else (given[0].shape[named["axis"]],), arguments[1]
        )
    if working is not None and named.get("dtype") in (float, np.float64):
        named["dtype"] = working
    initial = named.pop("initial", None) if name in REDUCTIONS else None
    result = function(*given, **named)
    if initial is not None:
        result = getattr(library, REDUCTIONS[name])(result, initial)
    return wrapped(result, working)


def _repeated(array: Any, repeats: Any, axis: int | None = None) -> Any:
    """Implements `np.repeat` with one count per element, which CuPy lacks."""
    library = DeviceArray.library
    ends = library.cumsum(repeats)
    places = library.searchsorted(ends, library.arange(int(ends[-1]) if ends.size else 0), side="right")
    return library.take(array, places, axis=axis)


def _counterpart(function: Any) -> Callable[..., Any]:
    """Returns the GPU counterpart of a NumPy or SciPy function.

    Raises:
        NotAvailable: there is none.
    """
    name, library = function.__name__, DeviceArray.library
    if isinstance(function, np.ufunc):
        place = library if getattr(np, name, None) is function else _module("scipy.special")
    else:
        place = _module(function.__module__)
    found = getattr(place, name, None)
    if found is None or name in REFUSED:
        raise NotAvailable(name)
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    """Returns the replacement for a module of NumPy or SciPy.

    Raises:
        NotAvailable: CuPy has no counterpart of it.
    """
    library = DeviceArray.library
    if library is np:
        return importlib.import_module(name)
    package, _, rest = name.partition(".")
    base = "cupy" if package == "numpy" else "cupyx.scipy"
    try:
        return importlib.import_module(f"{base}.{rest}" if rest and not rest.startswith("_") else base)
    except ImportError:
        raise NotAvailable(name) from None


def _keys(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _kind(array: Any) -> str:
    return str(np.asarray(array).dtype.kind) if isinstance(array, list) else str(array.dtype.kind)


def _check_range(shape: tuple[int, ...], key: Any) -> None:
    """Raises an exception for index arrays that are out of range.

    Raises:
        IndexError: as NumPy does.
    """
    keys = _keys(key)
    if not any(isinstance(one, DeviceArray) and _kind(one) in "iu" for one in keys):
        return
    taken = sum(_axes(one) for one in keys if one is not Ellipsis)
    axis = 0
    for one in keys:
        if one is Ellipsis:
            axis += len(shape) - taken
            continue
        if isinstance(one, DeviceArray) and _kind(one) in "iu" and one.size and axis < len(shape):
            least, most = int(one._held.min()), int(one._held.max())
            if least < -shape[axis] or most >= shape[axis]:
                raise IndexError(f"index {most if most >= shape[axis] else least} is out of bounds for axis {axis}")
        axis += _axes(one)


def _axes(key: Any) -> int:
    """Returns the number of axes that one part of an index uses."""
    if key is None or isinstance(key, bool):
        return 0
    return int(key.ndim) if isinstance(key, DeviceArray | np.ndarray) and _kind(key) == "b" else 1


def module_like(source: types.ModuleType, working: np.dtype[Any] | None) -> DeviceModule:
    """Returns the replacement for a module of NumPy or SciPy in a reference on the GPU.

    Raises:
        NotAvailable: CuPy has no counterpart of it.
    """
    return DeviceModule(source, _module(source.__name__), working)


class DeviceModule:
    """A module of NumPy or SciPy on the GPU: its functions take and return `DeviceArray`s."""

    def __init__(self, source: types.ModuleType, target: Any, working: np.dtype[Any] | None) -> None:
        self._source, self._target, self._working = source, target, working

    def __getattr__(self, name: str) -> Any:
        """Returns the GPU's counterpart of the module's attribute with this name.

        Raises:
            NotAvailable: the GPU has no equivalent.
        """
        own = getattr(self._source, name)
        if name in REFUSED:
            raise NotAvailable(name)
        if isinstance(own, types.ModuleType):
            return module_like(own, self._working)
        if self._working is not None and own is np.float64:
            return self._working.type
        if isinstance(own, type) or not callable(own):
            return own.item() if isinstance(own, np.float64) else own
        found = getattr(self._target, name, None)
        if found is None:
            raise NotAvailable(f"{self._source.__name__}.{name}")
        return _DeviceFunction(name, found, own, self._working)


class _DeviceFunction:
    """A function of a `DeviceModule`. With scalar arguments only it calls NumPy's own, so that results remain numbers."""

    def __init__(self, name: str, found: Callable[..., Any], own: Any, working: np.dtype[Any] | None) -> None:
        self._name, self._found, self._own, self._working = name, found, own, working

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(self._own, np.ufunc) and all(np.isscalar(one) for one in arguments) and not keywords:
            result = self._own(*arguments)
            return result.item() if isinstance(result, np.float64) else result
        if isinstance(self._own, np.ufunc) and "out" in keywords:
            return self._own(*arguments, **keywords)
        return called(self._name, self._found, arguments, keywords, self._working)

    def __getattr__(self, method: str) -> Any:
        """Returns a ufunc's method, such as `reduce` or `accumulate`."""
        if method == "at":
            raise NotAvailable(f"{self._name}.at")
        found = getattr(self._found, method)
        return lambda *arguments, **keywords: called(method, found, arguments, keywords, self._working)
