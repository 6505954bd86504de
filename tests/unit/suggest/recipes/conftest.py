"""Recipes held to the judge: what they make is compiled, run on the emulator and compared with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Candidate, Judged
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.composition import new_warnings
from kernelmate.suggest.recipes import Recipe
from tests.sampling import sweep_of

pytest_itemcollected = sweep_of("emulated", share=0.25)


@pytest.fixture(scope="session")
def emulated() -> Iterator[Session]:
    """One warm session on the emulator for all recipes."""
    with Session(load_settings(seed=11, backend="emulator", timeout_s=300)) as session:
        yield session


class Alone:
    """A suggester that is one recipe."""

    name = "alone"

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        return self.recipe.candidates(request)


@pytest.fixture
def judged(emulated: Session, tmp_path: Path) -> Callable[..., list[Judged]]:
    """`judged(source, recipe, prompt="make it faster")`: what the recipe makes of the kernel, in its order, each judged right.

    Fails where a candidate does not compile, brings a new warning, is wrong, or has a finding of severity error.
    """

    def judge(source: str, recipe: Recipe, prompt: str = "make it faster") -> list[Judged]:
        path = tmp_path / "kernel.cu"
        path.write_text(source)
        found: list[Judged] = []
        result = emulated.optimize(load_kernel(str(path)), prompt, suggesters=[Alone(recipe)], on_judged=found.append)
        assert result.baseline.correct is True, result.baseline.reasons
        for one in found:
            assert one.verdict.compiled, one.verdict.diagnostics
            assert one.verdict.correct is True, (one.candidate.kernel.source, one.verdict.reasons)
            assert new_warnings(result.baseline, one.verdict) == [], one.candidate.kernel.source
            assert [finding for finding in one.verdict.findings if finding.severity == "error"] == []
        return found

    return judge


@pytest.fixture
def x_to_y() -> Callable[..., str]:
    """`x_to_y(body, head="", n=(4096,), grid=..., block=256, reference="2 * x")`: a kernel `k(x, y, n)` with its contract."""

    def made(
        body: str,
        head: str = "",
        n: tuple[int, ...] = (4096,),
        grid: str = "cdiv(n, block)",
        block: int = 256,
        reference: str = "2 * x",
    ) -> str:
        sizes = ", ".join(f"{{ n = {one} }}" for one in n)
        return f"""{head}
// /// kernelmate
// sizes = [{sizes}]
// grid = "{grid}"
// block = {block}
// reference = "{reference}"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{{body}}}
"""

    return made
