"""Detects a kernel whose result depends on earlier launches."""

from __future__ import annotations

from kernelmate.checks.case_launches import Bench, LaunchOutcome
from kernelmate.checks.precision import same_bits
from kernelmate.records import Contract, Size


def find(contract: Contract, bench: Bench, size: Size, later: LaunchOutcome) -> tuple[str, str] | None:
    """Returns an output that differs from that of a freshly loaded module, and a sentence; None if there is none.

    Inputs, schedule and poison are equal, so only state kept in the module can make the difference. Launches that
    differ even between two fresh modules give no result here; other guards report them.

    Args:
        contract: defines the outputs.
        bench: runs the version, loaded again.
        size: the size of the launch.
        later: a launch that followed others.
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
