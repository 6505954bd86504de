"""`--against`: the computations that a contract gives, and what is said where it gives none or nothing can be timed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmate.checks.torch_reference import IN_TORCH
from kernelmate.config import load_settings
from kernelmate.errors import BackendUnavailable, ReferenceFailed, UsageError
from kernelmate.records import Computation, Kernel
from kernelmate.session import Session
from kernelmate.session.against import computations
from kernelmate.source import contract_for, load_kernel
from kernelmate.synthesis.graph import Graph

ROOT = Path(__file__).resolve().parents[3]
Load = Callable[..., Kernel]


@pytest.fixture(scope="module")
def emulated() -> Any:
    with Session(load_settings(backend="emulator", seed=7)) as session:
        yield session


@pytest.fixture
def of(emulated: Session) -> Callable[..., tuple[Computation, ...]]:
    """The computations of a kernel, whose reference is traced."""

    def made(kernel: Kernel, *names: str) -> tuple[Computation, ...]:
        contract = contract_for(kernel)
        return computations(kernel, contract, names, lambda: Graph.of(emulated.trace(kernel, contract)))  # type: ignore[arg-type]

    return made


def _example(name: str, kernel: str = "") -> Kernel:
    return load_kernel(f"{ROOT / 'examples' / name}{kernel}")


def test_a_reference_becomes_functions_of_torch_and_a_product_is_of_cublas(of: Callable[..., Any]) -> None:
    eager, compiled = of(_example("softmax.cu"), "torch", "compile", "torch")
    assert (eager.name, compiled.name) == ("torch", "compile")
    assert eager.words == "softmax, from reference.py:softmax"
    assert eager.source == compiled.source
    assert not eager.tf32
    (product,) = of(_example("matmul.cu", "::matmul_naive"), "cublas")
    assert product.words == "the product by cuBLAS, from reference.py:matmul"
    assert "torch.matmul(" in (product.source or "")


def test_the_function_of_the_contract_comes_first_and_nothing_is_traced(load: Load, scale: str) -> None:
    kernel = load(
        scale.replace("// [args]", '// torch = "reference.py:scale_torch"\n// tolerance = { rtol = 1e-2 }\n// [args]')
    )

    def never() -> Graph:
        raise AssertionError("the reference was traced")

    (found,) = computations(kernel, contract_for(kernel), ("torch",), never)
    assert (found.function, found.source) == ("reference.py:scale_torch", None)
    assert found.words == "reference.py:scale_torch of the contract"
    assert found.tf32


def test_a_reference_that_names_torch_is_not_traced(load: Load, scale: str, tmp_path: Path) -> None:
    kernel = load(scale)
    folder = Path(kernel.unit.path).parent
    (folder / "reference.py").write_text("import torch.nn.functional as F\n\n\ndef scale(x):\n    return F.silu(x)\n")

    def never() -> Graph:
        raise AssertionError("the reference was traced")

    (found,) = computations(kernel, contract_for(kernel), ("torch",), never)
    assert found.function == "reference.py:scale"


def test_a_reference_in_torch_is_the_function_itself(load: Load, scale: str) -> None:
    kernel = load(scale)

    def untraced() -> Graph:
        raise ReferenceFailed(f"reference.py:4: The reference cannot be traced: {IN_TORCH}.")

    eager, compiled = computations(kernel, contract_for(kernel), ("torch", "compile"), untraced)
    assert (eager.function, compiled.function) == ("reference.py:scale", "reference.py:scale")
    with pytest.raises(UsageError, match="uses torch"):
        computations(kernel, contract_for(kernel), ("torch", "cublas"), untraced)


def test_what_has_no_counterpart_is_said_with_the_remedy(of: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"recur|segment") as refused:
        of(_example("spmv_csr.cu"), "torch")
    assert refused.value.hint is not None
    assert 'Add torch = "reference.py:spmv_csr_torch"' in refused.value.hint
    assert refused.value.line is not None
    with pytest.raises(UsageError, match="no matrix product") as none:
        of(_example("softmax.cu"), "cublas")
    assert none.value.hint == "Use --against torch."


def test_a_reference_that_cannot_be_traced_is_said_with_the_remedy(of: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"--against: .*cannot be traced") as refused:
        of(load_kernel(ROOT / "benchmarks" / "large" / "nbody.cu"), "compile")
    assert 'Add torch = "reference.py:nbody_torch"' in (refused.value.hint or "")


def test_a_contract_without_a_reference_in_python_says_what_to_add(
    load: Load, scale: str, of: Callable[..., Any]
) -> None:
    with pytest.raises(UsageError, match="needs a reference in Python or a function of PyTorch"):
        of(load(scale.replace('// reference = "reference.py:scale"\n', "")), "torch", "cublas")


@pytest.mark.parametrize("call", ["bench", "compare", "optimize"])
def test_without_a_gpu_nothing_is_judged_and_the_reason_is_said(call: str, load: Load, scale: str) -> None:
    kernel = load(scale)
    more = {"bench": (), "compare": (kernel,), "optimize": ("make it faster",)}[call]
    with (
        Session(load_settings(backend="emulator", against=("torch",))) as session,
        pytest.raises(BackendUnavailable) as refused,
    ):
        getattr(session, call)(kernel, *more)
    assert refused.value.exit_code == 3
    assert "needs a GPU" in refused.value.message


def test_the_setting_takes_names_as_text_and_no_others() -> None:
    assert load_settings(against="torch cublas").against == ("torch", "cublas")
    with pytest.raises(UsageError):
        load_settings(against="tvm")


def test_an_expression_of_the_contract_is_a_reference_too(load: Load, scale: str, of: Callable[..., Any]) -> None:
    (found,) = of(load(scale.replace('"reference.py:scale"', '"a * x"')), "compile")
    assert found.words == "multiply, from a * x"
