"""Kernels to put through codecs, and versions of them by every recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.errors import KernelmateError
from kernelmate.records import Compiled, Contract, Counters, Kernel, Objective, Resources, Target, Verdict
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import CodecLaunch, CodecVersion, Question
from kernelmate.suggest.codec.lines import read_tokens
from kernelmate.suggest.recipes import ALL

ROOT = Path(__file__).parents[4]
FILES = tuple(
    sorted(path for folder in ("examples", "tests/data/naive", "tests/data/real", "tests/data/counters") for path in (ROOT / folder).glob("*.cu"))
)  # fmt: skip
H100 = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "test")
COUNTERS = Counters("emulated", 100, 400, 100, 400, 0, 25600, 0, 0, 0, None, 0, 1000)
VERDICT = Verdict(
    "k", None, "emulator", "H100 SXM", "sm_90", "NVRTC", None, 1, True, (), Resources(32, 4096, 0, 0, 0, 1024, 2048), None, True,
    (), (), None, None, COUNTERS, None, None, (),
)  # fmt: skip


def kernels_of(path: Path) -> Iterator[tuple[Kernel, Contract]]:
    """The kernels of a file that have a contract, or for which one can be guessed."""
    for kernel in find_kernels(text_unit(path.read_text(encoding="utf-8"))):
        try:
            yield kernel, contract_for(kernel)
        except KernelmateError:
            continue


def launch_of(contract: Contract) -> CodecLaunch:
    return CodecLaunch(contract.grid, contract.block, contract.shared, contract.require)


def question_of(kernel: Kernel, contract: Contract, **changes: object) -> Question:
    return Question(kernel.unit.text, kernel.name, launch_of(contract), contract=contract, **changes)  # type: ignore[arg-type]


def recipe_versions(kernel: Kernel, contract: Contract) -> Iterator[tuple[str, CodecVersion]]:
    """Yields the candidates of every recipe for a kernel, whatever their metric."""
    compiled = Compiled(kernel.name, None, kernel.name, "sm_90", "NVRTC", True, (), ptx=".f64")
    objective = Objective("time", "decrease", "faster", "Time is to go down.")
    request = SuggestRequest(kernel, contract, compiled, VERDICT, objective, H100, pytest.fail, tuple, bool)
    for recipe in ALL:
        for candidate in recipe.candidates(request):
            yield recipe.name, CodecVersion(candidate.kernel.unit.text, launch_of(candidate.contract))


def words_of(text: str) -> list[str]:
    """A text's tokens without braces, comments and layout."""
    return [token for token in read_tokens(text).texts if token not in ("{", "}")]


@pytest.fixture(scope="session")
def softmax() -> Question:
    """The question about `examples/softmax.cu`."""
    return question_of(*next(kernels_of(ROOT / "examples" / "softmax.cu")))


Versions = Callable[[Kernel, Contract], Iterator[tuple[str, CodecVersion]]]
