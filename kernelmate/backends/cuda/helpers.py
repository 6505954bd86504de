"""Helper kernels of timing, as PTX, which every driver and GPU accepts, and the evaluation of their time stamps."""

from __future__ import annotations

import ctypes
import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.records import LaunchShape

EMPTY = "kernelmate_empty"
FLUSH = "kernelmate_flush"
CLOCK = "kernelmate_clock"
COPY = "kernelmate_copy"

EMPTY_PLACES = 12
"""Copies of the empty kernel.

On an H100 an empty kernel takes 0.35 us less if its code lies next to the code that ran just before it; elsewhere its
time varies with placement like that of other kernels in the process.
"""

EMPTY_PTX = """
.version 6.3
.target sm_75
.address_size 64

// Does nothing: what a launch costs by itself.
.visible .entry kernelmate_empty()
{
    ret;
}
"""

PTX = """
.version 6.3
.target sm_75
.address_size 64

// Reads `count` times 16 bytes, so that nothing else is left in L2. Reads leave no dirty lines to be written back.
.visible .entry kernelmate_flush(.param .u64 buffer, .param .u64 count, .param .u64 sink)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %d<8>;

    ld.param.u64 %d0, [buffer];
    ld.param.u64 %d1, [count];
    ld.param.u64 %d2, [sink];
    cvta.to.global.u64 %d0, %d0;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r0, %r1;
    cvt.u64.u32 %d4, %r2;
    add.u64 %d3, %d3, %d4;
    mov.u32 %r0, %nctaid.x;
    mul.wide.u32 %d4, %r0, %r1;
    mov.u32 %r7, 0;
LOOP:
    setp.ge.u64 %p0, %d3, %d1;
    @%p0 bra DONE;
    shl.b64 %d5, %d3, 4;
    add.u64 %d6, %d0, %d5;
    ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d6];
    or.b32 %r7, %r7, %r3;
    or.b32 %r7, %r7, %r4;
    or.b32 %r7, %r7, %r5;
    or.b32 %r7, %r7, %r6;
    add.u64 %d3, %d3, %d4;
    bra LOOP;
DONE:
    // The buffer holds zeros, so this never stores; the compiler does not know.
    setp.eq.u32 %p1, %r7, 0;
    @%p1 bra END;
    st.global.u32 [%d2], %r7;
END:
    ret;
}

// Copies `count` times 16 bytes.
.visible .entry kernelmate_copy(.param .u64 to, .param .u64 from, .param .u64 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %d<9>;

    ld.param.u64 %d0, [to];
    ld.param.u64 %d1, [from];
    ld.param.u64 %d2, [count];
    cvta.to.global.u64 %d0, %d0;
    cvta.to.global.u64 %d1, %d1;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r0, %r1;
    cvt.u64.u32 %d4, %r2;
    add.u64 %d3, %d3, %d4;
    mov.u32 %r0, %nctaid.x;
    mul.wide.u32 %d4, %r0, %r1;
NEXT:
    setp.ge.u64 %p0, %d3, %d2;
    @%p0 bra COPIED;
    shl.b64 %d5, %d3, 4;
    add.u64 %d6, %d1, %d5;
    add.u64 %d7, %d0, %d5;
    ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d6];
    st.global.v4.u32 [%d7], {%r3, %r4, %r5, %r6};
    add.u64 %d3, %d3, %d4;
    bra NEXT;
COPIED:
    ret;
}

// Cycles of this SM, and nanoseconds of the GPU's timer, between two ticks of that timer at least `duration` apart.
.visible .entry kernelmate_clock(.param .u64 out, .param .u64 duration)
{
    .reg .pred %p<2>;
    .reg .b64 %d<9>;

    ld.param.u64 %d0, [out];
    ld.param.u64 %d1, [duration];
    cvta.to.global.u64 %d0, %d0;
    mov.u64 %d2, %globaltimer;
FIRST:
    mov.u64 %d3, %globaltimer;
    setp.eq.u64 %p0, %d3, %d2;
    @%p0 bra FIRST;
    mov.u64 %d4, %clock64;
    add.u64 %d1, %d1, %d3;
MORE:
    mov.u64 %d5, %globaltimer;
    setp.lt.u64 %p1, %d5, %d1;
    @%p1 bra MORE;
    mov.u64 %d6, %clock64;
    sub.u64 %d7, %d6, %d4;
    sub.u64 %d8, %d5, %d3;
    st.global.u64 [%d0], %d7;
    st.global.u64 [%d0+8], %d8;
    ret;
}
"""


@dataclass(frozen=True, slots=True)
class HelperKernels:
    """The helper kernels on one GPU as driver handles, valid while `loaded` lives.

    Attributes:
        empties: copies of the empty kernel at different addresses.
    """

    empties: tuple[int, ...]
    flush: int
    clock: int
    copy: int
    loaded: tuple[Any, ...]


@functools.cache
def helpers(device: int) -> HelperKernels:
    """Returns the helper kernels on a GPU; loads them once.

    Raises:
        cupy.cuda.driver.CUDADriverError: the driver does not load them.
    """
    import cupy

    with cupy.cuda.Device(device):
        # The empty kernels come first, so that most of them lie away from the clock kernel, which runs just before each
        # launch.
        empties = [_loaded(EMPTY_PTX, EMPTY)[0] for _ in range(EMPTY_PLACES)]
        flush, clock, copy = functions = _loaded(PTX, FLUSH, CLOCK, COPY)
    return HelperKernels(
        tuple(int(one.ptr) for one in empties), int(flush.ptr), int(clock.ptr), int(copy.ptr), (*empties, *functions)
    )


def helper_launch(function: int, shape: LaunchShape, *numbers: int) -> Callable[[int], None]:
    """Returns a launcher of a helper kernel with 64-bit arguments, on a stream given by its handle."""
    from cupy.cuda import driver

    values = np.array(numbers or (0,), np.uint64)
    pointers = (ctypes.c_void_p * len(values))(*(values.ctypes.data + 8 * index for index in range(len(values))))
    address = ctypes.addressof(pointers)

    def launch(stream: int) -> None:
        assert pointers is not None
        assert values is not None
        driver.launchKernel(function, *shape.grid, *shape.block, 0, stream, address, 0)

    return launch


def _loaded(ptx: str, *names: str) -> tuple[Any, ...]:
    """Returns a text's kernels, each of which keeps its module loaded."""
    from cupy.cuda.function import Module

    module = Module()
    module.load(ptx.encode() + b"\0")
    return tuple(module.get_function(name) for name in names)


LEAST_US = 0.001
"""Microseconds assigned to a launch whose time is below the time stamps' resolution."""


STEP_US = 0.25
"""Difference of empty kernels' spans in microseconds that separates two kinds.

A step is 0.35 us, and the middle half of one kind lies within 0.2.
"""


TAIL = 6
"""Pairs of time stamps at the end of the stream that are ignored.

On an H100 the last five lie 0.7 us closer together than all before, in every chunk of every process
(`benchmarks/gpu_spread.py`).
"""


def kept_ahead(took_ns: int, waited_ns: int, spans_us: Sequence[float]) -> bool:
    """Returns True if the host was always ahead of the GPU, so that no gap between stamps is the host's.

    That holds if the host had submitted everything before the GPU started, or if each launch takes the GPU longer than
    the host.

    Args:
        took_ns: host time of all submissions.
        waited_ns: time that the GPU spun before the first launch.
        spans_us: between the stamps of each launch.
    """
    return took_ns < waited_ns or took_ns / len(spans_us) < 1e3 * min(spans_us)


def durations_of(spans_us: Sequence[float], empty_spans_us: Sequence[float], empty_us: float) -> list[float]:
    """Returns durations from the spans between time stamps of launches and of empty kernels.

    Args:
        spans_us: one for each launch.
        empty_spans_us: spans of empty kernels; see `empty_of`.
        empty_us: duration of an empty kernel.
    """
    empty = empty_of(empty_spans_us)
    return [max(span - empty + empty_us, LEAST_US) for span in spans_us]


def empty_of(spans_us: Sequence[float], tail: int = TAIL) -> float:
    """Returns the span of an empty kernel whose code placement is ordinary.

    Copies next to the code that ran just before are faster by a step. So the middle half of the spans counts, and if
    the step lies within it, the part above the step.

    Args:
        spans_us: of empty kernels that were the last in the stream, in their order.
        tail: number of last spans to ignore, if there are at least three times as many.
    """
    ordered = sorted(spans_us[: len(spans_us) - tail] if len(spans_us) >= 3 * tail else spans_us)
    cut = len(ordered) // 4
    inner = ordered[cut : len(ordered) - cut]
    if inner[-1] - inner[0] > STEP_US:
        inner = [span for span in inner if span >= (inner[0] + inner[-1]) / 2]
    return statistics.fmean(inner)
