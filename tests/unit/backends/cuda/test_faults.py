"""CUDA's errors as findings."""

from __future__ import annotations

import pytest

from kernelmate.backends.cuda.faults import fault_of
from kernelmate.checks.findings import CODES


@pytest.mark.parametrize(
    ("status", "code", "sticky"),
    [
        (700, "illegal-address", True),
        (716, "misaligned-access", True),
        (719, "trap", True),
        (710, "trap", True),
        (2, "out-of-memory", False),
        (701, "launch-failure", False),
        (1, "launch-failure", False),
        (999, "launch-failure", False),
    ],
)
def test_a_status_becomes_its_finding(status: int, code: str, sticky: bool) -> None:
    fault = fault_of(status, "CUDA_ERROR_X: words")
    assert (fault.finding.code, fault.sticky) == (code, sticky)
    assert fault.finding.severity == "error"
    assert "CUDA_ERROR_X: words" in fault.finding.message
    assert code in CODES
