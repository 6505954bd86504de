"""Work and traffic of a launch, from the counts of its emulated run."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate.backends.base import RunResult
from kernelmate.measure.instructions import basic_blocks, count
from kernelmate.measure.predict import explain
from kernelmate.records import Compiled, LaunchShape, Target, Work


def work_of(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Work:
    """Returns operations, bytes and, by the prediction, the limiter of the launch on the target."""
    made_of = explain(target, compiled, shape, result)
    moved = made_of.traffic
    return Work(made_of.mix.flops, moved.unique, moved.l1, moved.l2, made_of.limiter)


def operations(compiled: Compiled, result: RunResult) -> Mapping[str, float]:
    """Returns the floating-point operations of a launch by precision (`fp16`, `fp32`, `fp64`, `tensor`).

    A fused multiply-add is two.
    """
    return count(basic_blocks(compiled.ptx, compiled.lowered_name), result.block_counts).flops
