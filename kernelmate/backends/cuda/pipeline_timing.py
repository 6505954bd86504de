"""Pipelines on a GPU, timed as a whole: their stages, fills and library steps as one CUDA graph.

Replaying a graph leaves no gaps that depend on how fast the host submits launches, as a program that captures its
stages has none. Inside another capture, where a graph cannot be launched, the stages are submitted one by one.
CuPy refuses to call cuBLAS during a capture, so that matrix products are captured by calls of cuBLAS itself.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import keyword
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from kernelmate.backends.base import ArrayArgument, ScalarArgument, StageLaunch
from kernelmate.backends.cuda.launching import device_view
from kernelmate.backends.cuda.timing_arena import Launch, TimingArena, launcher
from kernelmate.backends.pipeline import PipelineLaunch, Temporary
from kernelmate.backends.timed import CannotCapture, TimedFault
from kernelmate.records import Finding, FindingCode
from kernelmate.source import numpy_dtype

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaModule


@runtime_checkable
class ReplayedVersion(Protocol):
    """A version of a timing device that is not a single plain launch, such as several kernels."""

    @property
    def traps(self) -> bool:
        """True if a kernel contains a trap instruction."""
        ...

    def placed(self, arena: TimingArena, place: int, stream: Any) -> Launch:
        """Returns a launcher on an arena's arrays; `place` is the number of the placement, `stream` the current CuPy stream."""
        ...


@dataclass(frozen=True, slots=True)
class CudaPipeline:
    """The loaded kernels of a pipeline, and its run; a timing device takes it as a version.

    Attributes:
        modules: for each stage its kernel, or None for a step of a library.
        launch: the run.
    """

    modules: tuple[CudaModule | None, ...]
    launch: PipelineLaunch

    @property
    def prints(self) -> bool:
        """True if a kernel may print."""
        return any(one.prints for one in self.modules if one is not None)

    @property
    def traps(self) -> bool:
        """True if a kernel contains a trap instruction."""
        return any(one.traps for one in self.modules if one is not None)

    def placed(self, arena: TimingArena, place: int, stream: Any) -> Launch:
        """Returns a launcher of the whole pipeline on an arena's arrays, with temporaries of its own.

        Args:
            arena: has the arrays that the pipeline takes.
            place: number of the placement, which selects the address of the kernels' code.
            stream: the current CuPy stream.
        """
        import cupy

        held = {one.name: _HeldTemporary(one, cupy.cuda.alloc(max(one.nbytes, 1))) for one in self.launch.temporaries}
        places = {**arena.places, **{name: int(one.memory.ptr) for name, one in held.items()}}
        types = {
            one.name: (one.data.shape, one.data.dtype) for one in arena.arguments if isinstance(one, ArrayArgument)
        }
        types |= {one.name: (one.shape, numpy_dtype(one.dtype)) for one in self.launch.temporaries}
        steps: list[Launch] = [one.fill for one in held.values() if one.temporary.fill is not None]
        for stage, module in zip(self.launch.stages, self.modules, strict=True):
            if module is None:
                steps.append(LibraryStep(stage, places, types))
            else:
                steps.append(_kernel_step(stage, module, place, places, types, stream))
        return ReplayedSteps(steps, stream, tuple(held.values()))


@dataclass(frozen=True, slots=True)
class _HeldTemporary:
    """Device memory of a temporary."""

    temporary: Temporary
    memory: Any

    def fill(self, stream: int) -> None:
        """Clears the memory as the host does, or fills it with ones."""
        import cupy

        one = self.temporary
        if not one.nbytes:
            return
        if one.fill == 0:
            cupy.cuda.runtime.memsetAsync(self.memory.ptr, 0, one.nbytes, stream)
        else:
            device_view(int(self.memory.ptr), one.shape, numpy_dtype(one.dtype)).fill(one.fill)


def _kernel_step(
    stage: StageLaunch, module: CudaModule, place: int, places: dict[str, int], types: dict[str, Any], stream: Any
) -> Launch:
    """Returns a launcher of one kernel on the arrays of the run."""
    assert stage.shape is not None
    arguments: list[ArrayArgument | ScalarArgument] = []
    addresses: dict[str, int] = {}
    for one in stage.arguments:
        if isinstance(one, ScalarArgument):
            arguments.append(one)
            continue
        parameter, source = one
        addresses[parameter] = places[source]
        arguments.append(ArrayArgument(parameter, np.empty(0, types[source][1])))
    function = module.ready_elsewhere(stage.shape, place) if place else module.ready(stage.shape)
    return launcher(function, stage.shape, arguments, addresses, stream)


class LibraryStep:
    """An expression evaluated by CuPy on the arrays of the run; its intermediate arrays keep memory of their own."""

    def __init__(self, stage: StageLaunch, places: dict[str, int], types: dict[str, Any]) -> None:
        import cupy

        assert stage.text is not None
        arrays = [one for one in stage.arguments if not isinstance(one, ScalarArgument)]
        named: dict[str, Any] = {name: device_view(places[source], *types[source]) for name, source in arrays}
        self._result = next(named[name] for name, source in arrays if source in stage.writes)
        named |= {one.name: one.value.item() for one in stage.arguments if isinstance(one, ScalarArgument)}
        # A keyword of Python has a trailing underscore in expressions.
        self._names = {name + "_" * keyword.iskeyword(name): value for name, value in named.items()}
        self._names |= {"np": cupy, **stage.sizes}
        self._text = stage.text
        tree = ast.parse(stage.text, mode="eval")
        self._code = _compiled(tree.body)
        self._factors: tuple[Any, ...] = ()
        if isinstance(tree.body, ast.BinOp) and isinstance(tree.body.op, ast.MatMult):
            self._factors = _compiled(tree.body.left), _compiled(tree.body.right)
        self._pool = cupy.cuda.MemoryPool()

    def __call__(self, stream: int) -> None:
        """Evaluates the expression, whose names the worker has checked, into the result's memory.

        Raises:
            CannotCapture: the stream is capturing, and CuPy does not record this.
            TimedFault: CuPy has no such function.
        """
        import cupy

        errors = (
            cupy.cuda.driver.CUDADriverError,
            cupy.cuda.runtime.CUDARuntimeError,
            cupy.cuda.memory.OutOfMemoryError,
        )
        capturing = bool(cupy.cuda.runtime.streamIsCapturing(stream))
        try:
            with cupy.cuda.using_allocator(self._pool.malloc):
                if capturing and self._factors:
                    a, b = (self._value(one) for one in self._factors)
                    _product(a, b, self._result, stream)
                else:
                    self._result[...] = self._value(self._code)
        except (*errors, CannotCapture):
            raise
        except Exception as error:  # noqa: BLE001 -- CuPy has not every function and type of NumPy
            if capturing:
                raise CannotCapture(f"{self._text!r}: {error}") from None
            said = f"not timed: CuPy does not compute {self._text!r} ({type(error).__name__}: {error})"
            raise TimedFault(Finding(FindingCode.LAUNCH_FAILURE, "note", said)) from None

    def _value(self, code: Any) -> Any:
        return eval(code, dict(self._names))  # noqa: S307


def _compiled(node: ast.expr) -> Any:
    return compile(ast.Expression(node), "<stage>", "eval")


_BLAS_TYPES = {
    "float32": (0, 68, ctypes.c_float),
    "float64": (1, 70, ctypes.c_double),
    "float16": (2, 68, ctypes.c_float),
}
"""`cudaDataType`, `cublasComputeType_t` and the type of factors (`library_types.h`, `cublas_api.h`)."""

_DEFAULT_ALGORITHM = -1
"""`CUBLAS_GEMM_DEFAULT`."""


@functools.cache
def _cublas() -> ctypes.CDLL:
    """Returns the library that CuPy has loaded."""
    import cupy

    version = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}")


def _product(a: Any, b: Any, result: Any, stream: int) -> None:
    """Computes a matrix product on a stream that is capturing, by `cublasGemmStridedBatchedEx`.

    Args:
        a: a CuPy array of shape (..., rows, depth).
        b: likewise, of shape (..., depth, columns), with the same leading dimensions.
        result: likewise, of shape (..., rows, columns), contiguous.
        stream: its handle.

    Raises:
        CannotCapture: cuBLAS has no such product in one call, or refuses it.
    """
    import cupy

    leading = result.shape[:-2]
    # Row-major matrices are column-major ones transposed, and the transpose of a product has its factors exchanged.
    factors = [_factor(one, result.dtype, leading) for one in (b, a)]
    if str(result.dtype) not in _BLAS_TYPES or None in factors or not result.size:
        raise CannotCapture(
            f"the product of {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)} is not one call of cuBLAS"
        )
    data, compute, scalar = _BLAS_TYPES[str(result.dtype)]
    handle, library = ctypes.c_void_p(cupy.cuda.device.get_cublas_handle()), _cublas()
    (rows, columns), arrays = result.shape[-2:], []
    for _, pointer, step, batch in (one for one in factors if one is not None):
        arrays += [ctypes.c_void_p(pointer), data, step, ctypes.c_longlong(batch)]
    status = library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)) or library.cublasGemmStridedBatchedEx(
        handle, *(one[0] for one in factors if one is not None), columns, rows, a.shape[-1],
        ctypes.byref(scalar(1)), *arrays, ctypes.byref(scalar(0)), ctypes.c_void_p(result.data.ptr), data, columns,
        ctypes.c_longlong(rows * columns), math.prod(leading), compute, _DEFAULT_ALGORITHM,
    )  # fmt: skip
    if status:
        raise CannotCapture(f"cuBLAS refuses the product (status {status})")


def _factor(matrix: Any, dtype: Any, leading: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Returns `cublasOperation_t`, address, leading dimension and elements between batches; None for an operand that cuBLAS does not accept."""
    if matrix.dtype != dtype or matrix.ndim < 2 or matrix.shape[:-2] != leading:
        return None
    steps = [one // matrix.itemsize for one in matrix.strides]
    if any(steps[at] != steps[at + 1] * matrix.shape[at + 1] for at in range(len(leading) - 1)):
        return None
    batch, pointer, (rows, columns) = steps[-3] if leading else 0, matrix.data.ptr, matrix.shape[-2:]
    if steps[-1] == 1 and steps[-2] >= columns:
        return 0, pointer, steps[-2], batch
    if steps[-2] == 1 and steps[-1] >= rows:
        return 1, pointer, steps[-1], batch
    return None


class ReplayedSteps:
    """Steps that are launched together: a graph that is replayed, or the steps themselves where a graph cannot be launched.

    Args:
        steps: launchers, in order.
        stream: the stream on which the graph is captured and replayed.
        held: memory that must live as long as the graph.

    Attributes:
        is_graph: True if a graph is replayed.
    """

    def __init__(self, steps: Sequence[Launch], stream: Any, held: object) -> None:
        self._steps, self._stream, self._held = steps, stream, held
        # Libraries make handles and allocate memory at their first call, which a capture forbids.
        self._submit(stream.ptr)
        stream.synchronize()
        self._graph = _captured(stream, lambda: self._submit(stream.ptr))
        self.is_graph = self._graph is not None

    def _submit(self, stream: int) -> None:
        for step in self._steps:
            step(stream)

    def __call__(self, stream: int) -> None:
        """Runs the steps once on a stream, given by its handle."""
        if self._graph is None or stream != self._stream.ptr or self._stream.is_capturing():
            self._submit(stream)
        else:
            self._graph.launch(self._stream)


def _captured(stream: Any, submit: Callable[[], None]) -> Any:
    """Returns a CUDA graph of the submitted work; None if CUDA or CuPy refuses to capture it."""
    import cupy

    errors = (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError)
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
    try:
        submit()
    except (*errors, CannotCapture):
        # A capture that was started must be ended, or the stream becomes unusable.
        with suppress(*errors):
            stream.end_capture()
        return None
    try:
        return stream.end_capture()
    except errors:
        return None
