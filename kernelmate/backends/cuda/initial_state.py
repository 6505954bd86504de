"""Initial state of a judged launch on the GPU: no data of earlier launches, and different contents each time.

Shared memory keeps its contents between kernels (observed on an H100 for every word), so a kernel that reads
uninitialised shared memory may find the right values. Persisting L2 lines stay until they are released. On idle SMs
blocks start in the same order each time, which hides order dependence.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

PATTERNS = (0xFFA5FFA5, 0x005A005A)
"""Fill words of shared memory, with complementary bits: the first is NaN in every floating type."""

SPIN_NS = 60_000
"""Nanoseconds for which some SMs are kept busy when a launch begins."""

PTX = """
.version 6.3
.target sm_75
.address_size 64

.extern .shared .align 16 .b8 memory[];

// Fills the block's dynamic shared memory with one word.
.visible .entry kernelmate_scrub(.param .u32 pattern, .param .u32 words)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;

    ld.param.u32 %r0, [pattern];
    ld.param.u32 %r1, [words];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, memory;
LOOP:
    setp.ge.u32 %p0, %r2, %r1;
    @%p0 bra DONE;
    shl.b32 %r5, %r2, 2;
    add.u32 %r6, %r4, %r5;
    st.volatile.shared.u32 [%r6], %r0;
    add.u32 %r2, %r2, %r3;
    bra LOOP;
DONE:
    ret;
}

// Keeps an SM to itself for a while: nothing fits beside a block that has all its shared memory.
.visible .entry kernelmate_spin(.param .u64 duration)
{
    .reg .pred %p<2>;
    .reg .b64 %d<4>;

    ld.param.u64 %d0, [duration];
    mov.u64 %d1, %globaltimer;
    add.u64 %d1, %d1, %d0;
WAIT:
    mov.u64 %d2, %globaltimer;
    setp.lt.u64 %p0, %d2, %d1;
    @%p0 bra WAIT;
    ret;
}
"""


@dataclass(frozen=True, slots=True)
class _Tools:
    """The helper kernels on one GPU. `shared_bytes` is the maximum per block."""

    scrub: Any
    spin: Any
    beside: Any
    multiprocessors: int
    shared_bytes: int


@functools.cache
def _tools(device: int) -> _Tools:
    """Loads the helper kernels on a GPU, which must be the current one."""
    import cupy
    from cupy.cuda.function import Module

    module = Module()
    module.load(PTX.encode() + b"\0")
    attributes = cupy.cuda.Device(device).attributes
    shared_bytes = int(attributes["MaxSharedMemoryPerBlockOptin"])
    fill, spin = module.get_function("kernelmate_scrub"), module.get_function("kernelmate_spin")
    for function in (fill, spin):
        # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of `cuda.h`
        cupy.cuda.driver.funcSetAttribute(function.ptr, 8, shared_bytes)
    beside = cupy.cuda.Stream(non_blocking=True)
    return _Tools(fill, spin, beside, int(attributes["MultiProcessorCount"]), shared_bytes)


@contextmanager
def prepared_gpu(device: int, stream: Any, seed: int) -> Iterator[None]:
    """Context manager that prepares the GPU for one launch, by a seed; the launch must be awaited inside.

    It fills every SM's shared memory, releases persisting L2 lines, and for seeds other than 0 keeps some SMs busy for
    a moment.

    Args:
        device: the current GPU.
        stream: the current cupy.cuda.Stream.
        seed: the launch's seed (`Run.schedule_seed`).

    Raises:
        cupy.cuda.driver.CUDADriverError: the GPU has failed. cupy.cuda.runtime.CUDARuntimeError: likewise.
    """
    tools = _tools(device)
    release_persisting()
    fill_shared_memory(device, seed)
    if seed:
        # Filling uses every SM and must finish first, or its last blocks would run beside the judged kernel.
        stream.synchronize()
        busy = random.Random(seed).randrange(1, max(tools.multiprocessors // 2, 2))  # noqa: S311 -- an order, no secret
        tools.spin((busy, 1, 1), (32, 1, 1), (np.uint64(SPIN_NS),), tools.shared_bytes, tools.beside)
    yield
    if seed:
        tools.beside.synchronize()


def fill_shared_memory(device: int, seed: int) -> None:
    """Fills the shared memory of every SM, on the current stream; even and odd seeds fill it with opposite patterns."""
    tools = _tools(device)
    arguments = np.uint32(PATTERNS[seed % 2]), np.uint32(tools.shared_bytes // 4)
    tools.scrub((tools.multiprocessors, 1, 1), (1024, 1, 1), arguments, tools.shared_bytes)


def release_persisting() -> None:
    """Releases all persisting L2 lines, so that no version benefits from another's.

    GPUs before compute capability 8.0 have none and report an error, which is ignored.
    """
    _driver().cuCtxResetPersistingL2Cache()


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
