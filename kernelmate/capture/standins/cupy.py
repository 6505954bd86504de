"""Stand-in for CuPy in a program that `kernelmate capture` runs without a GPU.

Arrays are NumPy's, with CuPy's methods; `RawKernel` and `RawModule` launch in KernelMate's emulator. Everything else of CuPy that
has the same name in NumPy is NumPy's.
"""

from __future__ import annotations

import kernelmate_here  # noqa: F401 -- first, since it explains a failure

# isort: split
import functools
import importlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.capture import emulated
from kernelmate.records import LaunchShape

__version__ = "14.0.0"

_STANDIN = "The stand-in of CuPy that kernelmate capture uses without a GPU"

_SCALAR_METHODS = ("all", "any", "argmax", "argmin", "dot", "max", "mean", "min", "prod", "std", "sum", "trace", "var")
"""Methods of arrays that give a scalar in NumPy and an array without dimensions in CuPy."""


class _DeviceMemory:
    """The memory of an array: CuPy's `MemoryPointer`."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.ptr = array.ctypes.data
        self.size = array.nbytes


class ndarray(np.ndarray[Any, Any]):
    """A NumPy array with the methods of CuPy's."""

    @property
    def data(self) -> Any:
        """The array's memory, with its address `ptr`."""
        return _DeviceMemory(self)

    @property
    def device(self) -> Any:
        """The only device."""
        return sys.modules["cupy.cuda"].Device(0)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """Returns a copy as NumPy's own array."""
        return asnumpy(self, out=out)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copies an array of the host into this one."""
        self[...] = arr

    def __getitem__(self, key: Any) -> Any:
        return _taken(super().__getitem__(_on_host(key)))


def _taken(value: Any) -> Any:
    """Returns a result of NumPy in CuPy's form: arrays as stand-ins, scalars as arrays without dimensions."""
    if isinstance(value, ndarray):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(_taken, value)) if type(value) in (tuple, list) else value
    return value


def _on_host(value: Any) -> Any:
    """Returns an index with arrays without dimensions as numbers."""
    if isinstance(value, ndarray) and value.ndim == 0:
        return value.item()
    return tuple(map(_on_host, value)) if isinstance(value, tuple) else value


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        for name in ("stream", "blocking"):
            named.pop(name, None)
        return _taken(function(*args, **named))

    return call


for _name in _SCALAR_METHODS:
    setattr(ndarray, _name, _wrapped(getattr(np.ndarray, _name)))


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """Returns a copy of an array as NumPy's own."""
    copied = np.array(a, order=order).view(np.ndarray)  # type: ignore[call-overload]
    if out is None:
        return copied
    out[...] = copied
    return out


def get_array_module(*_args: Any) -> types.ModuleType:
    """Returns this module, whose functions take arrays of both kinds."""
    return sys.modules[__name__]


def is_available() -> bool:
    """Returns True, so that programs take their GPU path."""
    return True


class _MemoryPool:
    """A memory pool that holds nothing."""

    def free_all_blocks(self, *_args: Any, **_named: Any) -> None:
        """Does nothing."""

    def used_bytes(self) -> int:
        """Returns 0."""
        return 0

    def total_bytes(self) -> int:
        """Returns 0."""
        return 0


def get_default_memory_pool() -> _MemoryPool:
    """Returns a pool that holds nothing."""
    return _MemoryPool()


def get_default_pinned_memory_pool() -> _MemoryPool:
    """Returns a pool that holds nothing."""
    return _MemoryPool()


class EmulatedRawKernel:
    """CuPy's `RawKernel`, which launches in the emulator and waits.

    Args:
        code: CUDA text.
        name: the kernel, or an instance of a template.
        options: compiler options.
    """

    def __init__(
        self, code: str, name: str, options: Sequence[str] = (), backend: str = "nvrtc", translate_cucomplex: bool = False,
        *, enable_cooperative_groups: bool = False, jitify: bool = False,
    ) -> None:  # fmt: skip
        self.code, self.name, self.options = code, name, tuple(options)
        self.max_dynamic_shared_size_bytes = 0
        self.enable_cooperative_groups = enable_cooperative_groups

    def compile(self, log_stream: Any = None) -> None:
        """Compiles the kernel."""
        emulated.cuda_kernel(self.code, self.name, self.options, self.enable_cooperative_groups)

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:  # fmt: skip
        """Launches the kernel.

        Raises:
            EmulatedLaunchFailed: it does not compile, is not supported, or did something wrong.
        """
        shape = LaunchShape(_three(grid), _three(block), int(shared_mem), self.enable_cooperative_groups)
        values = [_passed(one) for one in args]
        with emulated.noted_failure(self.name, shape, values):
            made = emulated.cuda_kernel(self.code, self.name, self.options, self.enable_cooperative_groups)
        emulated.launch(made, shape, values)


def _three(sides: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*(int(one) for one in sides), 1, 1, 1)[:3]
    return x, y, z


def _passed(value: Any) -> Any:
    """Returns an argument as CuPy passes it: a Python number has eight bytes."""
    if isinstance(value, np.ndarray | np.generic):
        return value
    if value is None:
        return np.uint64(0)
    if isinstance(value, bool):
        return np.bool_(value)
    kinds: tuple[tuple[type, type], ...] = ((int, np.int64), (float, np.float64), (complex, np.complex128))
    for kind, made in kinds:
        if isinstance(value, kind):
            return made(value)
    raise TypeError(f"Unsupported type {type(value)}")


class EmulatedRawModule:
    """CuPy's `RawModule` of CUDA text.

    Args:
        code: CUDA text.
        options: compiler options.
        name_expressions: instances of templates.
    """

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: Sequence[str] = (), backend: str = "nvrtc",
        translate_cucomplex: bool = False, enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None, jitify: bool = False,
    ) -> None:  # fmt: skip
        if code is None:
            raise NotImplementedError(
                f"{_STANDIN} has no RawModule of a compiled file, {path}: give CUDA text as `code`, or capture this program on a GPU."
            )
        self.code, self.options = code, tuple(options)
        self.enable_cooperative_groups = enable_cooperative_groups

    def get_function(self, name: str) -> EmulatedRawKernel:
        """Returns a kernel of the text."""
        return EmulatedRawKernel(
            self.code, name, self.options, enable_cooperative_groups=self.enable_cooperative_groups
        )

    def compile(self, log_stream: Any = None) -> None:
        """Does nothing: each kernel is compiled when it is launched."""


RawKernel, RawModule = EmulatedRawKernel, EmulatedRawModule


def __getattr__(name: str) -> Any:
    if name.startswith("__") or not hasattr(np, name):
        raise AttributeError(f"{_STANDIN} has no {name}: capture this program on a GPU.")
    value = getattr(np, name)
    if isinstance(value, types.ModuleType):
        return _NumpyModule(value)
    return value if isinstance(value, type) or not callable(value) else _wrapped(value)


class _NumpyModule:
    """A module of NumPy, such as `linalg`, whose functions give stand-in arrays."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return value if isinstance(value, type) or not callable(value) else _wrapped(value)


# As modules of the package, which a single file is not otherwise.
cuda = sys.modules["cupy.cuda"] = importlib.import_module("cupy_cuda")
random = sys.modules["cupy.random"] = importlib.import_module("cupy_random")
