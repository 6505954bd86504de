"""Elements and rows that are assigned by index: the last of several values for one place counts, as in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.trace import trace

NUMBERS = 'number: "int32[n=300] ~ integers(0, rows)"'


@pytest.mark.parametrize(
    ("signature", "lines"),
    [
        pytest.param(
            f'y: "float32[rows=600]", {NUMBERS}, x: "float32[n]"', "y = y.copy(); y[number] = x * 2; return y", id="elements"
        ),
        pytest.param(
            f'y: "float16[rows=100, 2, 12]", {NUMBERS}, x: "float16[n, 2, 12]"', "y = y.copy(); y[number] = x; return y",
            id="rows of several axes",
        ),
        pytest.param(
            f'y: "float32[rows=20, cols=200]", {NUMBERS}, x: "float32[n, cols]"', "y = y.copy(); y[number, ...] = x; return y",
            id="rows that a warp shares",
        ),
        pytest.param(
            f'y: "float32[rows=100, 4]", {NUMBERS}, column: "int32[n] ~ integers(0, 4)"',
            "y = y.copy(); y[number, column] = -1.0; return y",
            id="a number at pairs of indices",
        ),
        pytest.param(
            f'y: "float32[rows=100, 5]", {NUMBERS}', "y = y.copy(); y[number] += 1.0; return y", id="once for indices that repeat"
        ),
        pytest.param(
            f'y: "int32[rows=600]", {NUMBERS}',
            "y = np.zeros_like(y); y[(number + 3) % len(y) - len(y)] = np.arange(len(number)); return y",
            id="places by indices from the end",
        ),
        pytest.param(
            f'keys: "float32[rows=100, 8]", values: "float32[rows, 8]", {NUMBERS}, k: "float32[n, 8]", v: "float32[n, 8]"',
            "keys = keys.copy(); keys[number] = k; values = values.copy(); values[number] = v; return keys, values",
            id="two arrays by one index",
        ),
    ],
)  # fmt: skip
def test_an_assignment_by_index_becomes_a_right_kernel(
    signature: str, lines: str, tmp_path: Path, session: Session
) -> None:
    body = "\n".join(f"    {one.strip()}" for one in lines.split(";"))
    (tmp_path / "assigning.py").write_text(f"import numpy as np\n\n\ndef assigning({signature}):\n{body}\n")
    function = load_python_function(f"{tmp_path / 'assigning.py'}:assigning")
    asked = KernelRequest(function, read_examples(function, "", {}), tmp_path / "assigning.cu", "assigning")
    outcome = write_kernel(session, asked)
    assert outcome.best is not None, outcome.notes
    assert [(one.schedule, one.right) for one in outcome.kernels] == [("assign", True)], outcome.notes
    assert outcome.best.verdict.diagnostics == ()


def test_the_number_of_elements_of_several_axes_has_64_bits(tmp_path: Path, session: Session) -> None:
    (tmp_path / "marking.py").write_text("""import numpy as np


def marking(y: "float32[rows=30, cols=40]", row: "int32[n=50] ~ integers(0, rows)", column: "int32[n] ~ integers(0, cols)"):
    y = y.copy()
    y[row, column] = 1.0
    return y
""")
    function = load_python_function(f"{tmp_path / 'marking.py'}:marking")
    outcome = write_kernel(
        session, KernelRequest(function, read_examples(function, "", {}), tmp_path / "marking.cu", "marking")
    )
    assert outcome.best is not None, outcome.notes
    assert outcome.best.verdict.correct
    assert "static_cast<long long>(rows) * cols - first" in outcome.best.kernel.source


def test_an_index_behind_an_ellipsis_is_none_of_the_first_axis(make: Any, tmp_path: Path) -> None:
    args = {"y": "in float32[n, n]", "at": "in int32[n] ~ integers(0, n)", "out": "out float32[n, n]", "n": "int32"}
    reference = "def reference(y, at):\n    y = y.copy()\n    y[..., at] = 3.0\n    return y"
    _, contract = make(args, reference, sizes="{ n = 6 }, { n = 3 }, { n = 1 }", grid="n")
    with pytest.raises(ReferenceFailed, match="chosen by an array"):
        trace(contract, tmp_path)
