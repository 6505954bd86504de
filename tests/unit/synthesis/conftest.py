"""Kernels with references, written to a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Contract, Kernel
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from tests.sampling import sweep_of

pytest_itemcollected = sweep_of("session", share=0.15)

Make = Callable[..., tuple[Kernel, Contract]]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session on the emulator for the tests of a module."""
    with Session(load_settings(seed=7, timeout_s=300, backend="emulator")) as session:
        yield session


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(args, reference, ...)`: a kernel with an empty body, or the given one, and its contract."""

    def written(
        args: dict[str, str],
        reference: str,
        *,
        sizes: str = "{ rows = 6, cols = 40 }, { rows = 3, cols = 7 }, { rows = 1, cols = 1 }",
        parameters: str | None = None,
        body: str = "",
        grid: str = "rows",
        block: int = 128,
        more: str = "",
        above: str = "",
    ) -> tuple[Kernel, Contract]:
        expression = "return" not in reference
        if not expression:
            (tmp_path / "reference.py").write_text(f"import numpy as np\n\n\n{reference}\n")
        named = f'"{reference}"' if expression else '"reference.py:reference"'
        lines = [f"sizes = [{sizes}]", f'grid = ["{grid}"]', f"block = {block}", f"reference = {named}", more, "[args]"]
        lines += [f'{name} = "{entry}"' for name, entry in args.items()]
        contract = "\n".join(f"// {line}" for line in ["/// kernelmate", *filter(None, lines), "///"])
        declared = parameters or ", ".join(_parameter(name, entry) for name, entry in args.items())
        path = tmp_path / "kernel.cu"
        path.write_text(f"{above}{contract}\n__global__ void work({declared}) {{\n{body}\n}}\n")
        kernel = load_kernel(path)
        return kernel, contract_for(kernel)

    return written


def _parameter(name: str, entry: str) -> str:
    kind, *rest = entry.split()
    if kind not in ("in", "out", "inout"):
        return f"{'int' if kind == 'int32' else 'float'} {name}"
    dtype = rest[0].partition("[")[0]
    types = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16", "int32": "int", "int8": "signed char", "uint8": "unsigned char", "uint32": "unsigned int"}  # fmt: skip
    return f"{'const ' if kind == 'in' else ''}{types[dtype]}* {name}"
