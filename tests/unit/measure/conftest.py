"""Launches as an emulator would have counted them, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.records import Compiled, Counters, LaunchShape, LineCounters, Resources, Target

PTX = """
.version 8.8
.target sm_90
.address_size 64

.visible .entry scale(
	.param .u64 scale_param_0,
	.param .u32 scale_param_1
)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<3>;
	.reg .f64 	%fd<3>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<5>;

	ld.param.u64 	%rd1, [scale_param_0];
	ld.param.u32 	%r2, [scale_param_1];
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r1, %r3, %r4, %r5;
	setp.ge.s32 	%p1, %r1, %r2;
	@%p1 bra 	$L__BB0_2;

	cvta.to.global.u64 	%rd2, %rd1;
	mul.wide.s32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.f32 	%f1, [%rd4];
	fma.rn.f32 	%f2, %f1, %f1, %f1;
	st.global.f32 	[%rd4], %f2;

$L__BB0_2:
	ret;

}
"""


@pytest.fixture
def h100() -> Target:
    return Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "test")


@pytest.fixture
def rtx4090() -> Target:
    return Target("RTX 4090", "sm_89", (8, 9), 128, 2520, 24 << 30, 1008.0, 72 << 20, 82.6, 1.29, 82.6, "test")


@pytest.fixture
def compiled() -> Callable[..., Compiled]:
    """`compiled(ptx=..., **resources)`: an element-wise kernel of 16 registers."""

    def make(ptx: str = PTX, **resources: int) -> Compiled:
        taken = replace(Resources(16, 0, 0, 0, 0, 1024, 512), **resources)
        return Compiled("scale", None, "scale", "sm_90", "NVRTC", True, (), ptx, b"", None, taken)

    return make


@pytest.fixture
def shape() -> Callable[..., LaunchShape]:
    """`shape(elements, block=256)`: one thread per element."""
    return lambda elements, block=256, shared=0: LaunchShape((-(-elements // block), 1, 1), (block, 1, 1), shared)


@pytest.fixture
def ran() -> Callable[..., RunResult]:
    """`ran(elements, **counters)`: every thread loads one float and stores one elsewhere, all coalesced."""

    def make(
        elements: int, *, unique: int | None = None, block_counts: dict[str, int] | None = None, **changes: int
    ) -> RunResult:
        sectors = -(-elements // 8)
        counters = Counters(
            source="emulated",
            global_load_requests=-(-elements // 32),
            global_load_sectors=sectors,
            global_store_requests=-(-elements // 32),
            global_store_sectors=sectors,
            global_atomic_requests=0,
            global_bytes_asked=8 * elements,
            shared_load_wavefronts=0,
            shared_store_wavefronts=0,
            bank_conflicts=0,
            local_sectors=None,
            divergent_branches=0,
            thread_instructions=8 * elements,
        )
        counters = replace(counters, **changes)
        stored = counters.global_store_sectors or 0
        moved = LineCounters(
            1,
            global_store_sectors=stored,
            global_bytes_stored=4 * elements,
            global_atomic_sectors=counters.global_atomic_requests or 0,
            # Sectors beyond those that the bytes fill lie in lines of their own.
            l1_lines=2 * -(-elements // 32) + max(stored - sectors, 0),
        )
        array = np.broadcast_to(np.float32(0), (elements,))
        return RunResult(
            arrays={"x": array, "y": array},
            counters=counters,
            reads=frozenset({"x"}),
            block_counts={"entry": elements, ".8": elements, "$L__BB0_2": elements}
            if block_counts is None
            else block_counts,
            footprint_bytes=8 * elements if unique is None else unique,
            barriers=0,
            lines=(moved,),
        )

    return make
