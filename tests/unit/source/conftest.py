"""Shared pieces of the source tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Kernel
from kernelmate.source import find_kernels, parse_contract, text_unit

SOFTMAX = (
    "__global__ void softmax(const float* __restrict__ x, float* y, int rows, int cols, float alpha) {\n"
    "  extern __shared__ float s[];\n"
    "}\n"
)

SOFTMAX_TOML = """\
sizes = [{ rows = 4096, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
grid = "rows"
block = 256
shared = "block * 4"
reference = "reference.py:softmax"
tolerance = { rtol = 1e-5, atol = 1e-6 }
[args]
x = "in float32[rows, cols]"
y = "out float32[rows, cols]"
rows = "int32"
cols = "int32"
alpha = "float32 = 0.5"
"""


def commented(toml: str) -> str:
    """TOML as a contract block."""
    lines = ["/// kernelmate", *toml.rstrip("\n").split("\n"), "///"]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines)


@pytest.fixture
def only() -> Callable[[str], Kernel]:
    """The one kernel of a text."""

    def find(text: str) -> Kernel:
        kernels = find_kernels(text_unit(text, "k.cu"))
        assert len(kernels) == 1, [kernel.name for kernel in kernels]
        return kernels[0]

    return find


@pytest.fixture
def softmax_toml() -> str:
    return SOFTMAX_TOML


@pytest.fixture
def contract_of(only: Callable[[str], Kernel]) -> Callable[..., Contract]:
    """The contract of a block's TOML above a kernel's text (the softmax unless another is given)."""

    def parse(toml: str, kernel: str = SOFTMAX) -> Contract:
        contract = parse_contract(only(commented(toml) + kernel))
        assert contract is not None
        return contract

    return parse


@pytest.fixture
def mistake_in(contract_of: Callable[..., Contract]) -> Callable[..., ContractError]:
    """The error that a block's TOML gives, with line and column in the TOML itself (both from 1)."""

    def parse(toml: str, kernel: str = SOFTMAX) -> ContractError:
        with pytest.raises(ContractError) as caught:
            contract_of(toml, kernel)
        error = caught.value
        assert error.file == "k.cu"
        assert error.hint, error.message
        assert error.line is not None
        error.line -= 1
        if error.column is not None:
            error.column -= len("// ")
        return error

    return parse
