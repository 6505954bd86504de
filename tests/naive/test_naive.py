"""The naive kernels are right and without findings in the emulator, so that they can be baselines of recipes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract

FILES = sorted((Path(__file__).resolve().parents[1] / "data" / "naive").glob("*.cu"))
KERNELS = [kernel for path in FILES for kernel in load_kernels(path)]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=20261121, backend="emulator", timeout_s=300)) as opened:
        yield opened


def test_there_are_twenty_and_each_has_sizes_that_are_no_multiples() -> None:
    assert len(KERNELS) == 20
    for kernel in KERNELS:
        contract = parse_contract(kernel)
        assert contract is not None
        assert contract.reference
        assert any(any(value % 2 for value in size.values()) for size in contract.sizes[1:])


@pytest.mark.exhaustive(share=0.2)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_naive_kernel_is_right(session, kernel) -> None:
    for verdict in session.bench(kernel):
        assert [finding for finding in verdict.findings if finding.severity == "error"] == []
        assert verdict.correct is True, verdict.reasons
