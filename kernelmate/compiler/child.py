"""The compiler process, `python -m kernelmate.compiler.child`.

It calls NVRTC through `cuda.bindings` or, for CuPy's CUDA 12 wheel, CuPy's binding. NVRTC cannot be interrupted, so the
parent kills the process instead. The process exits when its input is closed, even during a compilation, because a
separate thread reads the input.
"""

from __future__ import annotations

import functools
import importlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import msgspec

from kernelmate.compiler.cuda_toolkit import cuda_major
from kernelmate.compiler.frames import CompileJob, CompileOutput, pack, read_frame
from kernelmate.compiler.options import SEED


class NvrtcLibrary(Protocol):
    """Interface of an NVRTC binding."""

    def compile(self, job: CompileJob) -> CompileOutput:
        """Compiles a job; errors in the text are in the result's log, not raised."""
        ...

    def version(self) -> tuple[int, int]:
        """Returns the major and minor version of NVRTC."""
        ...

    def architectures(self) -> tuple[int, ...]:
        """Returns the architectures that NVRTC compiles for; 90 stands for sm_90."""
        ...


@functools.lru_cache(maxsize=1)
def load_library() -> NvrtcLibrary:
    """Returns this machine's NVRTC binding.

    Raises:
        ImportError: the binding is not installed.
        RuntimeError: the binding is installed, but its library is not.
    """
    return CupyBinding() if cuda_major() == 12 else CudaBindings()


class CudaBindings:
    """NVRTC through `cuda.bindings.nvrtc`."""

    def __init__(self) -> None:
        from cuda.bindings import nvrtc

        self._nvrtc: Any = nvrtc
        self._demand(nvrtc.nvrtcVersion()[0])

    def compile(self, job: CompileJob) -> CompileOutput:
        """Compile to PTX and CUBIN; the result has only PTX if ptxas failed."""
        product = self._compile(job, job.options)
        if SEED in product.log:
            # An older NVRTC does not know it; then code may be named differently from run to run.
            product = self._compile(job, tuple(option for option in job.options if option != SEED))
        if not product.ok and "ptxas" in product.log and "): error" not in product.log:
            virtual = tuple(option.replace("=sm_", "=compute_") for option in job.options)
            return CompileOutput(False, product.log, ptx=self._compile(job, virtual).ptx)
        return product

    def version(self) -> tuple[int, int]:
        """Returns the major and minor version of NVRTC."""
        _, major, minor = self._nvrtc.nvrtcVersion()
        return int(major), int(minor)

    def architectures(self) -> tuple[int, ...]:
        """Returns the architectures that NVRTC compiles for; 90 stands for sm_90.

        Raises:
            RuntimeError: NVRTC reported an error.
        """
        status, architectures = self._nvrtc.nvrtcGetSupportedArchs()
        self._demand(status)
        return tuple(architectures)

    def _compile(self, job: CompileJob, options: tuple[str, ...]) -> CompileOutput:
        nvrtc = self._nvrtc
        with self._program(job) as program:
            for expression in job.expressions:
                self._demand(nvrtc.nvrtcAddNameExpression(program, expression.encode())[0])
            encoded = [option.encode() for option in options]
            (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
            log = self._fetch(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                return CompileOutput(False, log.rstrip("\0") or f"the compiler ended with {status.name}")
            ptx = self._fetch(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode(errors="replace")
            virtual = any("=compute_" in option for option in options)
            cubin = b"" if virtual else self._fetch(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            lowered = tuple(self._lowered(program, expression) for expression in job.expressions)
            return CompileOutput(True, log.rstrip("\0"), ptx.rstrip("\0"), cubin, lowered)

    @contextmanager
    def _program(self, job: CompileJob) -> Iterator[Any]:
        contents = [content.encode() for _, content in job.headers]
        names = [name.encode() for name, _ in job.headers]
        status, program = self._nvrtc.nvrtcCreateProgram(
            job.text.encode(), job.name.encode(), len(names), contents, names
        )
        self._demand(status)
        try:
            yield program
        finally:
            self._nvrtc.nvrtcDestroyProgram(program)

    def _lowered(self, program: Any, expression: str) -> str:
        status, name = self._nvrtc.nvrtcGetLoweredName(program, expression.encode())
        self._demand(status)
        return str(name.decode())

    def _fetch(self, program: Any, size_of: Any, get: Any) -> bytes:
        status, size = size_of(program)
        self._demand(status)
        buffer: bytes = b"\0" * size
        self._demand(get(program, buffer)[0])
        return buffer

    def _demand(self, status: Any) -> None:
        if status != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"NVRTC answered {status}")


class CupyBinding:
    """NVRTC through `cupy_backends.cuda.libs.nvrtc`, which cupy-cuda12x contains."""

    def __init__(self) -> None:
        # Imported by name, because CuPy is optional.
        self._nvrtc: Any = importlib.import_module("cupy_backends.cuda.libs.nvrtc")

    def compile(self, job: CompileJob) -> CompileOutput:
        """Compile to PTX and CUBIN."""
        nvrtc = self._nvrtc
        # The binding keeps no reference to these bytes, so they must live until the program is destroyed.
        names = [name.encode() for name, _ in job.headers]
        contents = [content.encode() for _, content in job.headers]
        program = nvrtc.createProgram(job.text, job.name, contents, names)
        try:
            for expression in job.expressions:
                nvrtc.addNameExpression(program, expression)
            try:
                # Only CUDA 13's NVRTC supports a seed.
                nvrtc.compileProgram(program, tuple(option for option in job.options if option != SEED))
            except nvrtc.NVRTCError as error:
                return CompileOutput(False, _text(nvrtc.getProgramLog(program)) or str(error))
            lowered = tuple(_text(nvrtc.getLoweredName(program, expression)) for expression in job.expressions)
            log, ptx = _text(nvrtc.getProgramLog(program)), _text(nvrtc.getPTX(program))
            return CompileOutput(True, log, ptx, bytes(nvrtc.getCUBIN(program)), lowered)
        finally:
            nvrtc.destroyProgram(program)

    def version(self) -> tuple[int, int]:
        """Returns the major and minor version of NVRTC."""
        major, minor = self._nvrtc.getVersion()
        return int(major), int(minor)

    def architectures(self) -> tuple[int, ...]:
        """Returns the architectures that NVRTC compiles for; 90 stands for sm_90."""
        return tuple(self._nvrtc.getSupportedArchs())


def _text(value: str | bytes) -> str:
    return (value.decode(errors="replace") if isinstance(value, bytes) else value).rstrip("\0")


def main() -> int:
    """Serves NVRTC jobs until the input ends."""
    return serve(_compile)


def serve(compile_job: Callable[[CompileJob], CompileOutput]) -> int:
    """Answers each job that arrives; the process exits at the end of the input."""
    # Line information contains the working folder, and code must not depend on where it was compiled.
    os.chdir(os.path.abspath(os.sep))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Output of NVRTC or a library must not corrupt the frames.
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(requests, jobs), daemon=True).start()
    while True:
        answers.write(pack(compile_job(msgspec.msgpack.decode(jobs.get(), type=CompileJob))))
        answers.flush()


def _read_jobs(requests: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Queues incoming jobs; exits the process at the end of the stream, which closes when the parent dies."""
    try:
        while True:
            jobs.put(read_frame(requests))
    except (EOFError, OSError):
        os._exit(0)


def _compile(job: CompileJob) -> CompileOutput:
    try:
        library = load_library()
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        return CompileOutput(False, "", missing=f"{type(error).__name__}: {error}")
    return library.compile(job)


if __name__ == "__main__":
    sys.exit(main())
