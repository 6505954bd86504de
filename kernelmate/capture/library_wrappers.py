"""Modules that precede a library on the import path: they import it, change how it launches kernels, and replace themselves by it.

The folder `standins` comes first on the import path of a program that is captured without a GPU. Runs in the program's process.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernelmate.capture.recorder import ReportedLaunch
from kernelmate.capture.records import LaunchHeader

STANDINS = Path(__file__).parent / "standins"


def real_module(name: str) -> ModuleType:
    """Imports a library from where it would be found without the stand-ins, in place of the stand-in that is being imported.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    folders = [one for one in sys.path if Path(one or ".").resolve() != STANDINS]
    spec = importlib.machinery.PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def is_captured() -> bool:
    """Returns False in processes of KernelMate itself, which inherit the environment of the program."""
    return not any(one.startswith("kernelmate.") for one in sys.orig_argv[1:4])


def host_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns the memory of an array or a tensor of the host as NumPy's array; None for other values."""
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    from kernelmate.source import numpy_dtype

    plain = value.detach()
    name = str(plain.dtype).removeprefix("torch.")
    dtype = numpy_dtype(name)
    if dtype.isbuiltin != 1:  # ml_dtypes', which torch cannot give to NumPy
        plain = plain.view({1: torch.uint8, 2: torch.int16}[dtype.itemsize])
    return np.asarray(plain.numpy()).view(dtype)


# --------------------------------------------------------------------------------------------------------- PyTorch


def follow_torch(torch: ModuleType) -> None:
    """Lets a program's tensors for "cuda" live in host memory, where the emulator launches kernels on them."""
    from torch.overrides import TorchFunctionMode

    tensor = torch.Tensor

    class HostTensors(TorchFunctionMode):  # type: ignore[misc]
        """Redirects calls that name a GPU to tensors on the host."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if func is tensor.cuda:
                return args[0]
            if func == tensor.is_cuda.__get__:  # made anew at each access
                return True
            if _is_cuda(torch, named.get("device")):
                named["device"] = torch.device("cpu")
            return func(*(torch.device("cpu") if _is_cuda(torch, one) else one for one in args), **named)

    HostTensors().__enter__()  # for the whole program
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.set_device = lambda *_args: None
    cuda.synchronize = lambda *_args, **_named: None
    cuda.empty_cache = lambda: None
    cuda.get_device_capability = lambda *_args: (9, 0)


def _is_cuda(torch: ModuleType, value: Any) -> bool:
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


# ----------------------------------------------------------------------------------------------------------- Numba


def follow_numba() -> None:
    """Lets kernels of Numba's CUDA simulator be recorded."""
    from numba import cuda

    kernel = type(cuda.jit(lambda: None))
    call = kernel.__call__

    def recorded_call(self: Any, *args: Any) -> Any:
        if self._device:
            return call(self, *args)
        facts = _numba_facts(self)
        values = [_numba_value(one) for one in args]
        noted = ReportedLaunch.of(facts, values)
        before = noted.copies(values)
        try:
            result = call(self, *args)
        except BaseException:
            noted.fail()
            raise
        noted.record(values, before)
        return result

    kernel.__call__ = recorded_call


def _numba_facts(kernel: Any) -> LaunchHeader:
    """Returns the launch that a kernel of the simulator is configured for."""
    grid, block = ((*sides, 1, 1, 1)[:3] for sides in (kernel.grid_dim, kernel.block_dim))
    return LaunchHeader(
        kernel.fn.__name__, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), int(kernel.dynshared_size),
        language="numba", file=kernel.fn.__code__.co_filename,
    )  # fmt: skip


def _numba_value(value: Any) -> np.ndarray[Any, Any] | np.generic:
    """Returns an argument as Numba types it: an array of the host, or a scalar of eight bytes for Python's numbers."""
    array = host_array(getattr(value, "_ary", value))
    return array if array is not None else np.asarray(value)[()]
