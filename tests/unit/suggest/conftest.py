"""Requests as small as a test of a suggestion needs them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.decide.objective import read_objective
from kernelmate.records import Compiled, Judged, Resources, Target, Verdict
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.base import SuggestRequest

# The server that tests of Claude talk to stands beside them.
sys.path.insert(0, str(Path(__file__).resolve().parent))

H100 = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "test")

RESOURCES = Resources(32, 4096, 0, 0, 0, 1024, 2048)


@pytest.fixture
def ask(verdict: Callable[..., Verdict]) -> Callable[..., SuggestRequest]:
    """`ask(source, prompt="make it faster", ptx="", **verdict)`: a request about the first kernel of CUDA text."""

    def make(
        source: str, prompt: str = "make it faster", ptx: str = "", name: str = "", **changes: object
    ) -> SuggestRequest:
        kernels = find_kernels(text_unit(source, "test.cu"))
        kernel = next(one for one in kernels if one.name == (name or kernels[0].name))
        compiled = Compiled(kernel.name, None, kernel.name, "sm_90", "NVRTC", True, (), ptx, b"", None, RESOURCES)

        def judge(candidate: object) -> Judged:
            raise AssertionError(f"a recipe judges nothing itself: {candidate}")

        known = verdict(**changes)
        return SuggestRequest(
            kernel=kernel,
            contract=contract_for(kernel),
            compiled=compiled,
            verdict=known,
            objective=read_objective(prompt, known),
            target=H100,
            judge=judge,
            versions=lambda: (),
            stop=lambda: False,
        )

    return make
