"""The contract reference: every key, every error, and examples that are read by the product."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.source.distributions import parse_distribution
from kernelmate.source.document import KEYS
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.expressions import FUNCTIONS, RESERVED
from kernelmate_docs import contract_errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text()
EXAMPLES = re.findall(r"```cuda\n(.*?)```", PAGE, re.DOTALL)


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_key_has_a_row_and_a_section() -> None:
    listed = re.findall(r"\[`(\w+)`\]\(#([\w-]+)\)", section("Keys"))
    assert sorted(key for key, _ in listed) == sorted(KEYS)
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^### (.+)$", PAGE, re.MULTILINE)}
    assert {anchor for _, anchor in listed} <= headings


def test_every_error_has_its_cause_and_every_cause_its_error() -> None:
    known = [one.message for one in contract_errors.causes()]
    assert sorted(known) == sorted(contract_errors.messages())
    assert len(known) > 90
    assert all(len(one.cause) > 15 and one.cause.endswith(".") for one in contract_errors.causes())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r"void (\w+)", text)[0])
def test_every_example_is_a_contract_that_is_read(example: str) -> None:
    (kernel,) = find_kernels(text_unit(example, "example.cu"))
    assert not contract_for(kernel).inferred


def test_expressions_dtypes_and_distributions_are_complete() -> None:
    assert set(re.findall(r"`(\w+)`", section("Dtypes").strip().split("\n\n")[0])) == set(ITEM_BYTES)
    assert all(f"`{name}(" in section("Expressions") for name in FUNCTIONS)
    assert all(f"`{name}`" in PAGE for name in RESERVED)
    forms = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.+?) \|", section("Distributions"), re.MULTILINE)))
    names = {"low": 1, "high": 2, "mean": 0, "std": 1}
    assert {parse_distribution(form, names).name for form in forms} == {
        "normal", "uniform", "integers", "ascending", "zeros", "ones", "file",
    }  # fmt: skip
