"""Kernels that use the shared memory of a cluster give the same results and verdicts on the GPU and on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions
from kernelmate.session import Session
from kernelmate.source import load_kernels
from tests.clusters import FILES, launches

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(autouse=True)
def _on_hopper(backend) -> None:
    if int(backend.device.compute_capability) != 90:
        pytest.skip("this GPU is not of the architecture that the emulator is asked for")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_launch_has_the_same_results(backend, path: Path) -> None:
    target = find_target("sm_90")
    compiled = compile_kernel(load_kernels(path)[0], (), instance=None, target=target, options=CompileOptions())
    run = launches()[path.stem]
    ours = EmulatorBackend().load(compiled, target).run(run)
    theirs = backend.load(compiled, target).launch(run)
    assert ours.findings == theirs.findings == ()
    # Exponentials and divisions are approximate on the GPU.
    rtol = 1e-5 if path.stem == "softmax" else 0
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array, theirs.arrays[name], rtol=rtol, atol=0)


@pytest.fixture(scope="module")
def sessions() -> Iterator[tuple[Session, Session]]:
    with (
        Session(load_settings(seed=20261121, backend="emulator", target="sm_90", timeout_s=300)) as emulator,
        Session(load_settings(seed=20261121, backend="cuda", target="sm_90", timeout_s=60, timing_budget_s=0)) as cuda,
    ):
        yield emulator, cuda


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_contract_has_the_same_verdict(sessions: tuple[Session, Session], path: Path) -> None:
    (ours,), (theirs,) = (session.bench(load_kernels(path)[0]) for session in sessions)
    assert (theirs.backend, theirs.correct, ours.correct) == ("cuda", True, True)
    assert all(finding.severity != "error" for verdict in (ours, theirs) for finding in verdict.findings)
