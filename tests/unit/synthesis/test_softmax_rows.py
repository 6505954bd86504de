"""Softmax along rows: the maximum and the sum in one pass over long rows, and masked ends of rows that are not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Judged
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.schedules import rows
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
MATRIX = {"x": "in {0}[rows, cols] ~ normal", "y": "out {0}[rows, cols]", "rows": "int32", "cols": "int32"}
SIZES = "{ rows = 5, cols = 301 }, { rows = 9, cols = 64 }, { rows = 3, cols = 1 }"


def largest_and_sum(end: str, *, real: str = "float") -> str:
    """The statements of a thread that finds both of the first `end` elements of a row."""
    return (
        f"  {real} t = -INFINITY, s = 0;\n"
        f"  for (int c = 0; c < {end}; ++c) t = x[r * cols + c] > t ? x[r * cols + c] : t;\n"
        f"  for (int c = 0; c < {end}; ++c) s += exp(x[r * cols + c] - t);\n"
    )


def softmax(end: str = "cols", *, real: str = "float") -> str:
    stored = f"c < {end} ? exp(x[r * cols + c] - t) / s : 0"
    return f"{ROW}{largest_and_sum(end, real=real)}  for (int c = 0; c < cols; ++c) y[r * cols + c] = {stored};"


HALF = (
    f"{ROW}  float t = -INFINITY, s = 0;\n"
    "  for (int c = 0; c < cols; ++c) t = fmaxf(t, __half2float(x[r * cols + c]));\n"
    "  for (int c = 0; c < cols; ++c) s += expf(__half2float(x[r * cols + c]) - t);\n"
    "  for (int c = 0; c < cols; ++c) y[r * cols + c] = __float2half(expf(__half2float(x[r * cols + c]) - t) / s);"
)
WHOLE = (
    "def reference(x):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)"
)
CAUSAL = (
    "def reference(x):\n    x = np.where(np.tri(*x.shape, dtype=bool), x, -np.inf)\n"
    "    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)"
)
LENGTHS = (
    "def reference(x, n):\n    out = np.arange(x.shape[1]) >= n[:, None]\n    x = np.where(out, -np.inf, x)\n"
    "    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)"
)
GIVEN = {"x": "in float32[rows, cols] ~ normal", "n": "in int32[rows] ~ integers(1, cols + 1)"}
SUMMED = "def reference(x, n):\n    kept = np.arange(x.shape[1]) < n[:, None]\n    return (x * kept).sum(axis=1)"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3)) as opened:
        yield opened


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONG_ROW", 16)
    monkeypatch.setattr(rows, "LONGEST_KEPT", 16)


def built(make: Any, reference: str, body: str, args: dict[str, str], dtype: str = "float32", **more: Any) -> Any:
    args = {name: entry.format(dtype) for name, entry in args.items()}
    return make(
        args, reference, body=body, grid="cdiv(rows, block)", sizes=SIZES, more='require = ["cols > 0"]', **more
    )


def judged(session: Session, kernel: Any) -> tuple[Judged, ...]:
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for one in found.candidates:
        assert one.verdict.correct, (one.candidate.author, one.verdict.findings, one.candidate.kernel.source)
        assert one.verdict.diagnostics == ()
    return found.candidates


@pytest.mark.parametrize(("dtype", "real"), [("float32", "float"), ("float64", "double")])
def test_maximum_and_sum_of_long_rows_are_found_in_one_pass(
    dtype: str, real: str, make: Any, session: Session, online: None
) -> None:
    kernel, _ = built(make, WHOLE, softmax(real=real), MATRIX, dtype)
    for one in judged(session, kernel):
        assert "reads it twice" in one.candidate.why
        assert one.candidate.kernel.unit.text.count("for (int col = ") == 2


def test_a_weighted_sum_of_exponentials_joins_its_maximum(make: Any, session: Session, online: None) -> None:
    args = {"x": "in float32[rows, cols] ~ normal", "w": "in float32[rows, cols] ~ normal", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}  # fmt: skip
    reference = "def reference(x, w):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return (e * w).sum(axis=1) / e.sum(axis=1)"
    body = f"{ROW}{largest_and_sum('cols')}  float q = 0;\n  for (int c = 0; c < cols; ++c) q += exp(x[r * cols + c] - t) * w[r * cols + c];\n  y[r] = q / s;"
    kernel, _ = built(make, reference, body, args)
    assert all("reads it once" in one.candidate.why for one in judged(session, kernel))


def test_a_sum_that_needs_more_than_the_maximum_keeps_its_pass(make: Any, tmp_path: Path, online: None) -> None:
    reference = "def reference(x):\n    m = x.max(axis=1, keepdims=True)\n    return np.broadcast_to((np.exp(x - m) * m).sum(axis=1, keepdims=True) + x * 0, x.shape)"
    kernel, contract = built(make, reference, softmax(), MATRIX)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert "thread_max" not in text.helpers


def test_short_rows_are_read_again_from_the_cache(make: Any, tmp_path: Path) -> None:
    kernel, contract = built(make, WHOLE, softmax(), MATRIX)
    for text in kernels_for(trace(contract, tmp_path), kernel, contract):
        assert "thread_max" not in text.helpers


@pytest.mark.parametrize("long_row", [16, 8192])
def test_masked_ends_of_rows_are_neither_read_nor_computed(
    long_row: int, make: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LONG_ROW", long_row)
    monkeypatch.setattr(rows, "LONGEST_KEPT", 16)
    kernel, _ = built(make, CAUSAL, softmax("min(r + 1, cols)"), MATRIX)
    for one in judged(session, kernel):
        text = one.candidate.kernel.unit.text
        assert "const int end = min(cols, static_cast<int>(row) + 1);" in text
        assert "for (; col < end;" in text
        assert "for (; col < cols;" in text


def test_rows_that_are_kept_in_registers_are_loaded_once(make: Any, session: Session) -> None:
    kernel, _ = built(make, WHOLE, softmax(), MATRIX)
    for one in judged(session, kernel):
        text = one.candidate.kernel.unit.text
        assert one.candidate.author.endswith("-kept")
        assert text.count("x_packs[i] = *reinterpret_cast<const Pack<kPack>*>(x_row + col);") == 1
        assert text.count("body(*reinterpret_cast<const Pack<kPack>*>(row_data + col), col);") == 1


@pytest.mark.parametrize(("dtype", "cols"), [("float32", 40), ("float16", 41), ("float64", 300)])
def test_rows_longer_than_the_registers_are_loaded_again_part_by_part(
    dtype: str, cols: int, make: Any, session: Session
) -> None:
    args = {name: entry.format(dtype) for name, entry in MATRIX.items()}
    real = "double" if dtype == "float64" else "float"
    body = softmax(real=real) if dtype != "float16" else HALF
    sizes = f"{{ rows = 7, cols = {cols} }}, {{ rows = 3, cols = 2100 }}, {{ rows = 2, cols = 1 }}"
    above = "#include <cuda_fp16.h>\n" if dtype == "float16" else ""
    more = 'require = ["cols > 0"]'
    kernel, _ = make(args, WHOLE, body=body, grid="cdiv(rows, block)", sizes=sizes, more=more, above=above)
    assert all(one.candidate.author.endswith("-kept") for one in judged(session, kernel))


def test_masked_rows_in_registers_store_what_is_masked(make: Any, session: Session) -> None:
    kernel, _ = built(make, CAUSAL, softmax("min(r + 1, cols)"), MATRIX)
    for one in judged(session, kernel):
        text = one.candidate.kernel.unit.text
        assert text.count("(x_packs, x_row, end, [&]") == 2
        assert text.count("(x_packs, x_row, cols, [&]") == 1
        assert "if (col < end) {" in text


def test_lengths_of_rows_end_their_loops(make: Any, session: Session) -> None:
    args = {**GIVEN, "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
    kernel, _ = built(make, LENGTHS, softmax("n[r]"), args)
    for one in judged(session, kernel):
        assert "const int end = min(cols, n[row]);" in one.candidate.kernel.unit.text


def test_products_with_a_mask_end_loops_too(make: Any, session: Session) -> None:
    args = {**GIVEN, "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    body = f"{ROW}  float s = 0;\n  for (int c = 0; c < n[r]; ++c) s += x[r * cols + c];\n  y[r] = s;"
    kernel, _ = built(make, SUMMED, body, args)
    for one in judged(session, kernel):
        assert "col < end;" in one.candidate.kernel.unit.text, one.candidate.kernel.unit.text


def test_a_mask_with_a_value_that_counts_ends_nothing(make: Any, tmp_path: Path) -> None:
    args = {**GIVEN, "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    reference = "def reference(x, n):\n    return np.where(np.arange(x.shape[1]) < n[:, None], x, 1.0).sum(axis=1)"
    kernel, contract = built(make, reference, ROW, args)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert " end = " not in text.helpers


def test_distances_from_a_row_s_own_position_have_a_sign(make: Any, session: Session) -> None:
    args = {"x": "in float32[heads, rows, cols] ~ normal", "w": "in float32[heads]", "y": "out float32[heads, rows, cols]"}  # fmt: skip
    args |= {"heads": "int32", "rows": "int32", "cols": "int32"}
    reference = (
        "def reference(x, w):\n    _, rows, cols = x.shape\n    distance = np.arange(cols) - np.arange(rows)[:, None]\n"
        "    x = x + w[:, None, None] * distance\n    e = np.exp(x - x.max(axis=-1, keepdims=True))\n"
        "    return e / e.sum(axis=-1, keepdims=True)"
    )
    body = (
        "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= heads * rows) return;\n  int i = r % rows;\n"
        "  float k = w[r / rows], t = -INFINITY, s = 0;\n"
        "  for (int c = 0; c < cols; ++c) t = fmaxf(t, x[r * cols + c] + k * (c - i));\n"
        "  for (int c = 0; c < cols; ++c) s += exp(x[r * cols + c] + k * (c - i) - t);\n"
        "  for (int c = 0; c < cols; ++c) y[r * cols + c] = exp(x[r * cols + c] + k * (c - i) - t) / s;"
    )
    sizes = "{ heads = 2, rows = 5, cols = 65 }, { heads = 3, rows = 2, cols = 9 }, { heads = 1, rows = 1, cols = 1 }"
    kernel, _ = make(
        args, reference, body=body, grid="cdiv(heads * rows, block)", sizes=sizes, more='require = ["cols > 0"]'
    )
    assert judged(session, kernel)
