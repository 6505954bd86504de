"""LLVM: compiles IR to an object, loads objects, and tests whether the C library computes the same as NumPy."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

ENTRY = "run_warps"
"""Name of the generated function."""

Native = Callable[[int], None]


@functools.cache
def _library() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _machine(effort: int = 1) -> Any:
    llvm = _library()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=effort, jit=True
    )


@functools.cache
def describe() -> str:
    """Returns a text that identifies LLVM's version and this CPU, on which compiled code depends besides its source."""
    import llvmlite

    llvm = _library()
    features = llvm.get_host_cpu_features().flatten()
    return f"llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info} {llvm.get_host_cpu_name()} {features}"


def compile_text(text: str, *, quick: bool = False) -> bytes:
    """Compile LLVM IR to an object file for this machine.

    Args:
        text: the module's IR.
        quick: use single-pass instruction selection and register allocation, which takes a tenth of the time; the code
            is half as fast.

    LLVM's optimisation passes are omitted: the IR leaves them almost nothing to do, and they took twice as long as all
    the rest. A launch of half a billion instructions is equally fast without them.

    Raises:
        RuntimeError: LLVM rejects it.
    """
    llvm = _library()
    module = llvm.parse_assembly(text)
    module.verify()
    return bytes(_machine(0 if quick else 1).emit_object(module))


class LoadedObject:
    """A loaded object. Keep it alive as long as `run` may be called."""

    def __init__(self, code: bytes) -> None:
        llvm = _library()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(ENTRY)
        if not address:
            raise RuntimeError("the object does not hold the kernel's function")
        # A call through ctypes releases the GIL.
        self.run: Native = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)


@functools.cache
def agrees(name: str) -> bool:
    """Returns True if the C library's float64 function equals NumPy's bit for bit on ten thousand values.

    On some CPUs NumPy has its own vectorised forms, whose last bit may differ.
    """
    features: Any = importlib.import_module("numpy._core._multiarray_umath")
    if features.__cpu_features__.get("AVX512_SKX"):
        return False
    function = getattr(ctypes.CDLL(None), name, None)
    if function is None:
        return False
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    random = np.random.default_rng(0)
    values = np.concatenate([random.uniform(-160, 160, 5000), random.uniform(-2, 2, 5000)])
    values = np.abs(values) if name == "log2" else values
    theirs: Any = getattr(np, name)(values)
    return bool((np.array([function(value) for value in values]).view(np.int64) == theirs.view(np.int64)).all())
