"""The GPU and the emulator give the same products of warpgroups (`wgmma`), up to the order of their sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_parity import difference
from benchmarks.launches import listed_launches
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

KERNELS = sorted((Path(__file__).resolve().parents[1] / "data" / "warpgroups").glob("*.cu"))
DEPTH = 16
"""Products of 16-bit elements that one instruction adds to an accumulator, which is rounded then."""

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(autouse=True)
def needs_hopper(backend: Any) -> None:
    if int(backend.device.compute_capability) != 90:
        pytest.skip("wgmma needs a GPU of compute capability 9.0")


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_products_are_the_emulators(backend: Any, path: Path) -> None:
    target = find_target("sm_90a")
    for listed in listed_launches([path], target):
        ours = EmulatorBackend().load(listed.compiled, target).run(listed.run)
        theirs = backend.load(listed.compiled, target).launch(listed.run)
        assert [*ours.findings, *theirs.findings] == []
        assert np.any(ours.arrays["c"])
        dtype = next(argument.dtype for argument in listed.contract.args if argument.name == "c")
        _, off = difference(ours.arrays["c"], theirs.arrays["c"], dtype)
        # One unit in the last place of the largest element for each time that hardware rounds or truncates.
        assert off <= (0 if dtype == "int32" else listed.size["k"] / DEPTH), listed.size_words


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_verdicts_are_the_emulators(path: Path) -> None:
    kernel = load_kernels(path)[0]
    verdicts = []
    for name, more in (("emulator", {}), ("cuda", {"timing_budget_s": 0})):
        with Session(load_settings(seed=5, backend=name, target="sm_90a", **more)) as session:
            verdicts += session.bench(kernel)
    assert [verdict.correct for verdict in verdicts] == [True, True]
    assert [[finding.code for finding in verdict.findings] for verdict in verdicts] == [[], []]
