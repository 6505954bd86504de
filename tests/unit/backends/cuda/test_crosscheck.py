"""The largest block that the driver tells, computed from registers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelmate.backends.cuda.crosscheck import resource_disagreements
from kernelmate.compiler.targets import find_target
from kernelmate.records import Compiled, Resources

H100 = find_target("H100 SXM")


def told(registers: int, bound: int, largest: int) -> list[str]:
    resources = Resources(registers, 0, 0, 0, 0, bound, 100)
    compiled = Compiled("k", None, "k", "sm_90", "by hand", True, (), resources=resources)
    function = SimpleNamespace(
        num_regs=registers, shared_size_bytes=0, local_size_bytes=0, max_threads_per_block=largest
    )
    return list(resource_disagreements(compiled, H100, function))


# Read from the driver of an H100: 256 for a kernel of 255 registers, 896 for one of 72.
@pytest.mark.parametrize(
    ("registers", "bound", "largest"), [(255, 1024, 256), (72, 1024, 896), (32, 1024, 1024), (40, 512, 512)]
)
def test_the_largest_block_follows_from_registers_and_launch_bounds(registers: int, bound: int, largest: int) -> None:
    assert told(registers, bound, largest) == []


def test_another_largest_block_is_told() -> None:
    assert told(32, 1024, 512) == ["largest block: 1024 by the compiled code, 512 by the driver"]
