"""LLVM: compiles IR to an object, loads objects, and applies functions of the C library to arrays."""

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
Array = np.ndarray[Any, np.dtype[Any]]

_LOOP = """
declare double @{name}(double)

define void @{entry}(i64 %count, ptr %from, ptr %to) {{
entry:
  %none = icmp sle i64 %count, 0
  br i1 %none, label %done, label %loop
loop:
  %at = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr double, ptr %from, i64 %at
  %target = getelementptr double, ptr %to, i64 %at
  %value = load double, ptr %source
  %result = call double @{name}(double %value)
  store double %result, ptr %target
  %next = add i64 %at, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
"""Applies a function of the C library to each element of an array."""


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
    """Compiles LLVM IR to an object file for this machine.

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
        self._address = self._engine.get_function_address(ENTRY)
        if not self._address:
            raise RuntimeError("the object does not hold the kernel's function")
        self.run: Native = self.function(ctypes.c_int64)

    def function(self, *parameters: Any) -> Callable[..., None]:
        """Returns the object's function as one of parameters of these ctypes; a call through ctypes releases the GIL."""
        found: Any = ctypes.CFUNCTYPE(None, *parameters)(self._address)
        found.code = self._engine  # it frees the code once nothing refers to it
        called: Callable[..., None] = found
        return called


@functools.cache
def array_function(name: str) -> tuple[Callable[[Array], Array], bool]:
    """Returns a float64 function over arrays, and True if the C library's function has the same results bit for bit.

    It is NumPy's where that is known to be the same, as on CPUs without AVX-512, else the C library's in a compiled loop.
    Without LLVM it is NumPy's.

    Args:
        name: the function's name in both, as `exp2`.
    """
    theirs: Callable[[Array], Array] = getattr(np, name)
    if _agrees(name):
        return theirs, True
    try:
        loaded = LoadedObject(compile_text(_LOOP.format(name=name, entry=ENTRY)))
    except Exception:  # noqa: BLE001 - LLVM is absent, or fails in its own ways
        return theirs, False
    apply = loaded.function(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)

    def applied(values: Array) -> Array:
        source = np.asarray(values, np.float64, order="C")
        result = np.empty_like(source)
        apply(source.size, source.ctypes.data, result.ctypes.data)
        return result

    return applied, True


@functools.cache
def _agrees(name: str) -> bool:
    """Returns True if the C library's float64 function equals NumPy's bit for bit on ten thousand values.

    On CPUs with AVX-512 NumPy has its own vectorised forms, whose last bit may differ.
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
