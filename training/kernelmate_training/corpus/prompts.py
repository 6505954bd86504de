"""What users write when they ask for something, by the metric that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernelmate.records import MetricName

PROMPTS: Mapping[MetricName, tuple[str, ...]] = {
    "time": (
        "make it faster", "speed this up", "this kernel is too slow", "optimize for speed", "reduce the runtime", "improve performance",
        "optimize this kernel", "make it run faster on an H100", "lower the latency", "get more throughput", "faster please",
        "why is this slow? make it fast", "better performance", "cut the execution time", "increase memory bandwidth utilisation",
        "it takes most of the step time, speed it up", "faster", "speed", "mach das schneller", "bitte beschleunigen", "rends ce kernel plus rapide",
        "让它更快", "优化性能", "速くして", "hazlo más rápido", "use fewer instructions and make it fast",
    ),
    "shared_bytes": (
        "reduce shared memory", "use less shared memory", "lower shared memory usage", "it needs too much smem", "reduce memory usage",
        "less shared memory per block", "weniger gemeinsamen Speicher", "减少共享内存", "moins de mémoire partagée", "shared memory", "shrink the shared memory footprint", "cut static shared memory",
    ),
    "registers": (
        "use fewer registers", "reduce register usage", "lower register pressure", "fewer registers per thread",
        "reduce registers", "weniger Register", "减少寄存器", "registers", "it uses too many registers",
    ),
    "local_bytes": (
        "avoid register spills", "get rid of the spills", "reduce local memory", "no local memory please", "it spills, fix the spills",
        "use less local memory",
    ),
    "global_bytes": (
        "reduce global memory traffic", "fewer memory transactions", "move fewer bytes", "coalesce the memory accesses",
        "reduce DRAM traffic", "cut the number of sectors", "make the global loads coalesced", "coalesce the accesses", "weniger globale Speicherzugriffe", "减少全局内存访问", "fewer sectors", "less global memory traffic",
    ),
    "occupancy": (
        "increase occupancy", "raise the occupancy", "more active warps per SM", "improve occupancy", "提高占用率", "höhere Auslastung", "occupancy is too low",
    ),
    "accuracy": (
        "make it more accurate", "improve the accuracy", "reduce the numerical error", "it loses precision, make it more precise", "genauer bitte", "提高精度", "more accurate",
    ),
    "correct": (
        "fix it", "it does not work, fix the kernel", "find and fix the bug", "wrong results, fix it", "fix the error",
        "make it correct", "it does not compile or gives wrong values, repair it", "debug this kernel", "fix the bug", "repariere den Kernel", "修复错误", "corrige ce kernel", "make it work", "fix",
    ),
}  # fmt: skip


def draw_prompt(metric: MetricName, rng: Random) -> str:
    """One way to ask for a metric."""
    return rng.choice(PROMPTS[metric])
