"""Chains of reductions and products per row: what is computed once, what blocks share, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel, parse_contract
from kernelmate.suggest.replacement import without_own_helpers
from kernelmate.synthesis.kernel_text import WrittenKernel
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right, schedules_for

ARGS = {
    "x": "in float32[rows, cols]", "w1": "in float32[cols, n]", "w2": "in float32[n, cols]", "y": "out float32[rows, cols]",
    "rows": "int32", "cols": "int32", "n": "int32",
}  # fmt: skip
SIZES = "{ rows = 1100, cols = 24, n = 40 }, { rows = 37, cols = 53, n = 7 }, { rows = 1, cols = 1, n = 1 }"
BODY = """\
for (int c = threadIdx.x; c < cols; c += blockDim.x) {
  float total = x[(size_t)blockIdx.x * cols + c];
  for (int j = 0; j < n; ++j) {
    float h = 0.0f;
    for (int k = 0; k < cols; ++k) h += x[(size_t)blockIdx.x * cols + k] * w1[(size_t)k * n + j];
    if (h > 0.0f) total += h * w2[(size_t)j * cols + c];
  }
  y[(size_t)blockIdx.x * cols + c] = total;
}"""
NETWORK = "def reference(x, w1, w2):\n    hidden = np.maximum(x @ w1, 0)\n    return x + hidden @ w2"


def first(kernel: Any, contract: Any, folder: Path) -> WrittenKernel:
    return next(kernels_for(trace(contract, folder), without_own_helpers(kernel), contract))


def test_a_network_keeps_what_it_computes_of_eight_rows_in_shared_memory(
    make: Any, tmp_path: Path, session: Session
) -> None:
    kernel, contract = make(ARGS, NETWORK, sizes=SIZES, body=BODY)
    found = first(kernel, contract, tmp_path)
    assert found.schedule == "staged-rows-8"
    assert "float* hidden = shared;  // n x kRows" in found.definition
    assert re.search(r"const float w1_i = w1\[static_cast<size_t>\(k\) \* n \+ col\];", found.definition), (
        "once for all rows"
    )
    assert found.definition.count("__syncthreads();") == 1
    assert found.shared == "32 * n"
    assert "synthesis:staged-rows-8" in assert_judged_right(session, kernel)


def test_shared_memory_and_launches_of_the_file_follow(make: Any, tmp_path: Path) -> None:
    make(ARGS, NETWORK, sizes=SIZES)
    path = tmp_path / "kernel.cu"
    path.write_text(
        path.read_text()
        + "\nvoid host(float* x, float* a, float* b, float* y, int m, int c, int h) {\n  work<<<m, 128>>>(x, a, b, y, m, c, h);\n}\n"
    )
    kernel = load_kernel(path)
    changed, _ = placed(kernel, contract_for(kernel), first(kernel, contract_for(kernel), tmp_path))
    assert parse_contract(changed).shared == "32 * n"
    assert re.search(r"work<<<\(m \+ kRows - 1\) / kRows, kThreads, 32 \* h>>>", changed.unit.text), changed.unit.text


def test_normalised_rows_are_computed_once_for_all_results(make: Any, tmp_path: Path) -> None:
    norm = "def reference(x, w1, w2):\n    mean = x.mean(axis=1, keepdims=True)\n    return ((x - mean) @ w1) @ w2"
    text = first(*make(ARGS, norm, sizes=SIZES), tmp_path).definition
    assert text.count("warp_sum(") == 1
    assert "values[col * kRows + r] = x[static_cast<size_t>(row) * cols + col] - mean[r];" in text


@pytest.mark.parametrize(
    ("reference", "schedules"),
    [
        ("def reference(x, w1, w2):\n    return (x @ w1) @ (w2 @ (x.T @ x))", []),
        ("def reference(x, w1, w2):\n    return x + (w1 @ w2).sum(axis=0)", ["staged-block"]),
        ("def reference(x, w1, w2):\n    return np.cumsum(x @ w1, axis=1) @ w2", ["staged-block"]),
    ],
)
def test_rows_that_need_each_other_have_other_schedules_or_none(
    reference: str, schedules: list[str], make: Any, tmp_path: Path
) -> None:
    assert schedules_for(*make(ARGS, reference, sizes=SIZES), tmp_path) == schedules


def test_rows_that_do_not_fit_into_shared_memory_are_refused(make: Any, tmp_path: Path) -> None:
    sizes = "{ rows = 8, cols = 24, n = 20000 }, { rows = 1, cols = 1, n = 1 }"
    with pytest.raises(Refused):
        first(*make(ARGS, NETWORK, sizes=sizes), tmp_path)


def test_rows_may_be_replaced_in_place(make: Any, tmp_path: Path) -> None:
    args = {name: entry for name, entry in ARGS.items() if name != "y"} | {"x": "inout float32[rows, cols]"}
    text = first(*make(args, NETWORK, sizes=SIZES), tmp_path).definition
    assert re.search(r"x\[static_cast<size_t>\(first_row \+ r\) \* cols \+ col\] =\s+x\[.*\] \+ sums\[r\];", text)
    other = "def reference(x, w1, w2):\n    return x[:, ::-1] + np.maximum(x @ w1, 0) @ w2"
    with pytest.raises(Refused):
        first(*make(args, other, sizes=SIZES), tmp_path)


def test_results_of_different_lengths_are_refused(make: Any, tmp_path: Path) -> None:
    args = ARGS | {"z": "out float32[n, n]"}
    with pytest.raises(Refused):
        first(
            *make(args, "def reference(x, w1, w2):\n    return np.maximum(x @ w1, 0) @ w2, w2 @ w1", sizes=SIZES),
            tmp_path,
        )


def test_values_that_are_used_twice_again_and_again_are_followed_once(make: Any, tmp_path: Path) -> None:
    twice = "def reference(x, w1, w2):\n    h = np.maximum(x @ w1, 0)\n    for _ in range(60):\n        h = h * h + h\n    return x + h @ w2"
    assert first(*make(ARGS, twice, sizes=SIZES), tmp_path).schedule.startswith("staged-rows-")


def test_a_result_that_is_also_an_operand_has_another_schedule(make: Any, tmp_path: Path) -> None:
    args = ARGS | {"z": "out float32[rows, n]"}
    masked = "def reference(x, w1, w2):\n    kept = np.where(x <= 0, 0, x @ w1 @ w2)\n    return kept, kept @ w1"
    assert schedules_for(*make(args, masked, sizes=SIZES), tmp_path) == ["staged-block"]
