"""CUDA's errors: the kernel's as findings, the machine's not held against any kernel."""

from __future__ import annotations

import pytest

from kernelmate.backends.cuda.faults import fault_of
from kernelmate.errors import DeviceFailed
from kernelmate.records import FindingCode


@pytest.mark.parametrize(
    ("status", "traps", "code", "sticky"),
    [
        (700, False, "illegal-address", True),
        (716, False, "misaligned-access", True),
        (719, True, "trap", True),
        (719, False, "illegal-address", True),
        (710, True, "trap", True),
        (715, False, "trap", True),
        (702, False, "hang", True),
        (2, False, "out-of-memory", False),
        (701, False, "launch-failure", False),
        (1, False, "launch-failure", False),
    ],
)
def test_a_status_becomes_its_finding(status: int, traps: bool, code: str, sticky: bool) -> None:
    fault = fault_of(status, "CUDA_ERROR_X: words", traps=traps)
    assert (fault.finding.code, fault.sticky) == (code, sticky)
    assert fault.finding.severity == "error"
    assert "CUDA_ERROR_X: words" in fault.finding.message
    assert code in set(FindingCode)


@pytest.mark.parametrize("status", [46, 214, 220, 226, 709, 805, 810, 999, 12345])
def test_what_no_kernel_causes_is_no_finding(status: int) -> None:
    with pytest.raises(DeviceFailed, match="This says nothing about the kernel") as caught:
        fault_of(status, "CUDA_ERROR_X: words", traps=True)
    assert "CUDA_ERROR_X: words" in caught.value.message
    assert "nvidia-smi" in str(caught.value.hint)
