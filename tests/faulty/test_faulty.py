"""Kernels with one fault each."""

from __future__ import annotations

import re
from pathlib import Path

from kernelmate.checks.findings import CODES
from kernelmate.source import load_kernels, parse_contract

FAULTY = sorted(Path(__file__).resolve().parent.glob("*.cu"))


def expected(path: Path) -> str:
    found = re.search(r"^// expect: (\S+)$", path.read_text(), flags=re.MULTILINE)
    assert found is not None, f"{path.name} does not say what is wrong with it"
    return found[1]


def test_there_are_enough_and_each_says_what_is_wrong_and_can_be_launched() -> None:
    assert len(FAULTY) >= 30
    for path in FAULTY:
        assert re.match(r"// \S.{20,}\.$", path.read_text().splitlines()[0]), path.name
        assert expected(path) in CODES, path.name
        (kernel,) = load_kernels(path)
        assert kernel.name == path.stem
        contract = parse_contract(kernel)
        assert contract is not None
        assert len(contract.sizes) == 1
    assert len({expected(path) for path in FAULTY}) >= 11
