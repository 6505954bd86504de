"""Triton kernels on the GPU: the emulator's verdicts, by the code that Triton makes for the GPU itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

pytest.importorskip("triton", reason="triton is not installed")
_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

SAMPLES = Path(__file__).parents[1] / "data" / "triton"
KERNELS = {kernel.name: kernel for path in sorted(SAMPLES.glob("*.py")) for kernel in load_kernels(path)}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=300, backend="cuda")) as session:
        yield session


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_right(name: str, session: Session) -> None:
    (verdict,) = session.bench(KERNELS[name])
    assert verdict.backend == "cuda"
    assert verdict.correct, (verdict.findings, verdict.diagnostics)
