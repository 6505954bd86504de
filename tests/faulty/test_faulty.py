"""Each faulty kernel is reported by the emulator with the code of its fault and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import FindingCode
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract

FAULTY = sorted(Path(__file__).resolve().parent.glob("*.cu"))


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=20261121, backend="emulator", timeout_s=300)) as opened:
        yield opened


def expected(path: Path) -> str:
    found = re.search(r"^// expect: (\S+)$", path.read_text(), flags=re.MULTILINE)
    assert found is not None, f"{path.name} does not say what is wrong with it"
    return found[1]


@pytest.mark.exhaustive(share=0.2)
@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_faulty_kernel_is_found_out(session, path) -> None:
    (verdict,) = session.bench(load_kernels(path)[0])
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    assert [finding.code for finding in errors][:1] == [expected(path)], errors
    assert errors[0].line is not None or expected(path) == "uninitialised-global"


def test_there_are_enough_and_each_says_what_is_wrong_and_can_be_launched() -> None:
    assert len(FAULTY) >= 30
    for path in FAULTY:
        assert re.match(r"// \S.{20,}\.$", path.read_text().splitlines()[0]), path.name
        assert expected(path) in set(FindingCode), path.name
        (kernel,) = load_kernels(path)
        assert kernel.name == path.stem
        contract = parse_contract(kernel)
        assert contract is not None
        assert len(contract.sizes) == 1
    assert len({expected(path) for path in FAULTY}) >= 11
