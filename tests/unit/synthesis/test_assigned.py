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
from tests.unit.synthesis.judging import assert_judged_right

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


CACHE = {
    "k": "in float32[b, h, d]",
    "at": "in int32[b] ~ integers(0, s)",
    "cache": "inout float32[{}, d]",
    **dict.fromkeys(("b", "h", "s", "d"), "int32"),
}


@pytest.mark.parametrize(
    ("layout", "lines", "place"),
    [
        pytest.param("b, h, s", "cache[np.arange(len(k)), :, at] = k", "(n * h + i / d) * s + at[n]", id="a row of each sequence"),
        pytest.param("s, h", "cache[at] = k", "at[n] * h + i / d", id="numbers that repeat"),
        pytest.param("h, s", "cache[:, at] = k.transpose(1, 0, 2)", "(i / d) * s + at[n]", id="heads first"),
        pytest.param(
            "b, h, s", "for i in range(len(k)): cache[i, :, at[i]] = k[i]", "(n * h + i / d) * s + at[n]", id="a loop over sequences"
        ),
        pytest.param("s, h", "for i in range(len(k)): cache[at[i]] = 2 * k[i]", "at[n] * h + i / d", id="a loop over numbers that repeat"),
    ],
)  # fmt: skip
def test_only_the_assigned_rows_of_an_argument_are_written(layout: str, lines: str, place: str, make: Any, session: Session) -> None:  # fmt: skip
    body = f"""  int n = blockIdx.x;
  for (int j = n + 1; j < b && {int(layout[0] != "b")}; ++j)
    if (at[j] == at[n]) return;
  for (int i = threadIdx.x; i < h * d; i += blockDim.x)
    cache[({place}) * d + i % d] = k[n * h * d + i]{" * 2" if "2 * k" in lines else ""};"""
    reference = f"def reference(k, at, cache):\n    cache = cache.copy()\n    {lines}\n    return cache"
    args = CACHE | {"cache": CACHE["cache"].format(layout)}
    parameters = "const float* k, const int* at, float* cache, int b, int h, int s, int d"
    sizes = "{ b = 6, h = 3, s = 5, d = 12 }, { b = 2, h = 1, s = 9, d = 5 }, { b = 1, h = 1, s = 1, d = 1 }"
    kernel, _ = make(args, reference, sizes=sizes, grid="b", block=32, body=body, parameters=parameters)
    authors = assert_judged_right(session, kernel)
    assert authors[0] == "synthesis:assign-places"


def test_an_array_that_a_loop_assigns_by_number_is_not_read_in_it(make: Any, tmp_path: Path) -> None:
    args = {"y": "in float32[n]", "at": "in int32[n] ~ integers(0, n)", "out": "out float32[n]", "n": "int32"}
    reference = """def reference(y, at):
    y, z = y.copy(), np.zeros_like(y)
    for i in range(len(y)):
        y[at[i]] = 2.0
        z[i] = y[at[i] // 2]
    return z"""
    _, contract = make(args, reference, sizes="{ n = 6 }, { n = 3 }, { n = 1 }", grid="n")
    with pytest.raises(ReferenceFailed, match="needs a value of another"):
        trace(contract, tmp_path)
