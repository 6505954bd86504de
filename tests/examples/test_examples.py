"""Every example is right and without findings in the emulator, and exercises the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = [*sorted(EXAMPLES.glob("*.cu")), *sorted(EXAMPLES.glob("pipelines/*.cu")), EXAMPLES / "rawkernel.py"]


def judged(path: Path) -> list[Kernel]:
    """Returns the kernels and pipelines of a file, without the kernels that a pipeline launches."""
    found = load_kernels(path)
    launched = {start for one in found for start, _ in one.parts}
    return [one for one in found if one.parts or one.start not in launched]


KERNELS = [kernel for path in FILES for kernel in judged(path)]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=20261121, backend="emulator", timeout_s=300)) as opened:
        yield opened


def test_there_are_enough_examples_and_each_has_a_contract() -> None:
    assert len(KERNELS) >= 14
    contracts = [parse_contract(kernel) for kernel in KERNELS]
    assert all(contract is not None and contract.reference for contract in contracts)
    assert all(len(contract.sizes) >= 3 for contract in contracts)


@pytest.mark.exhaustive(share=0.3)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_an_example_is_right_and_clean(session, kernel) -> None:
    for verdict in session.bench(kernel):
        assert [finding for finding in verdict.findings if finding.severity == "error"] == []
        assert (verdict.compiled, verdict.correct, verdict.accepted) == (True, True, True), verdict.reasons
        assert any(case.correct and not case.degenerate for case in verdict.cases)
        assert verdict.timing.kind == "predicted"
        assert verdict.counters.global_load_sectors + verdict.counters.global_store_sectors > 0
        assert verdict.diagnostics == ()


def test_every_example_is_named_in_the_readme_of_the_folder() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in FILES if f"]({path.relative_to(EXAMPLES)})" not in text] == []
