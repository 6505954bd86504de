"""Finds a kernel whose answer depends on earlier launches."""

from __future__ import annotations

from kernelmate.checks.precision import same_bits
from kernelmate.checks.trials import Bench, LaunchOutcome
from kernelmate.records import Contract, Size


def find(contract: Contract, bench: Bench, size: Size, later: LaunchOutcome) -> tuple[str, str] | None:
    """The output that differs from what a freshly loaded module gives, and a sentence.

    Inputs, schedule and poison are equal, so nothing but what the module kept can make the difference; a launch that
    differs between two fresh modules as well is not this guard's.

    Args:
        contract: says what the outputs are.
        bench: the version; it is loaded anew.
        size: the size of the launch.
        later: a launch that came after others.
    """
    bench.reload()
    fresh = bench.run(size, later.shot, later.given)
    changed = None if fresh.stopped else _changed(contract, later, fresh)
    if changed is None:
        return None
    bench.reload()
    if _changed(contract, fresh, bench.run(size, later.shot, later.given)) is not None:
        return None
    return changed, f"{changed} is another one after other launches: the kernel keeps something between launches"


def _changed(contract: Contract, one: LaunchOutcome, two: LaunchOutcome) -> str | None:
    for argument in contract.args:
        if argument.direction in ("out", "inout"):
            name = argument.name
            if not same_bits(one.result.arrays[name], two.result.arrays[name]):
                return name
    return None
