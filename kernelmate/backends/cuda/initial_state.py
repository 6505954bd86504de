"""Initial state of a judged launch on the GPU: no data of an earlier launch, and different contents each time.

Shared memory keeps its contents from one kernel to the next (seen on an H100: every word of it), so a kernel that reads
what it never wrote can find the right thing there. Lines of L2 that a kernel has asked to keep stay until they are
released. And where all SMs are idle, blocks start in the same order each time, which hides what depends on the order.
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
"""Words that shared memory is filled with, each bit the other's opposite: the first is NaN in every floating type."""

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
    """The helper kernels on one GPU. `shared_bytes` is the most that one block may have."""

    scrub: Any
    spin: Any
    beside: Any
    multiprocessors: int
    shared_bytes: int


@functools.cache
def _tools(device: int) -> _Tools:
    """Load the helper kernels on a GPU, which must be the current one."""
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
def prepared(device: int, stream: Any, seed: int) -> Iterator[None]:
    """The GPU in the condition that a seed names, for one launch on a stream that is waited for inside.

    Shared memory of every SM is filled, lines that were to persist in L2 are released, and, for seeds other than 0, some
    SMs are busy for a moment.

    Args:
        device: the current GPU.
        stream: the current cupy.cuda.Stream.
        seed: as of the launch (`Run.schedule_seed`).

    Raises:
        cupy.cuda.driver.CUDADriverError: the GPU has failed. cupy.cuda.runtime.CUDARuntimeError: likewise.
    """
    tools = _tools(device)
    release_persisting()
    scrub(device, seed)
    if seed:
        # The scrubbing takes every SM, so it must be over: its last blocks would be beside what is judged.
        stream.synchronize()
        busy = random.Random(seed).randrange(1, max(tools.multiprocessors // 2, 2))  # noqa: S311 -- an order, no secret
        tools.spin((busy, 1, 1), (32, 1, 1), (np.uint64(SPIN_NS),), tools.shared_bytes, tools.beside)
    yield
    if seed:
        tools.beside.synchronize()


def scrub(device: int, seed: int) -> None:
    """Fill the shared memory of every SM, on the current stream; even and odd seeds fill it with opposite patterns."""
    tools = _tools(device)
    arguments = np.uint32(PATTERNS[seed % 2]), np.uint32(tools.shared_bytes // 4)
    tools.scrub((tools.multiprocessors, 1, 1), (1024, 1, 1), arguments, tools.shared_bytes)


def release_persisting() -> None:
    """Make every line of L2 that was to persist an ordinary one, so that no version lives on what another one kept.

    GPUs before compute capability 8.0 have no such lines, and say so, which changes nothing.
    """
    _driver().cuCtxResetPersistingL2Cache()


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
