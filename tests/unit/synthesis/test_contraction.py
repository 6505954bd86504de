"""Kernels of sums over products: right by the judge in every layout, with whole and ragged packs, and with wide accesses in SASS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.compiler.listing import read_listing
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.schedules import contraction
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

LEFT = {"@": "M, K", "T": "K, M"}
RIGHT = {"@": "K, N", "T": "N, K"}
INDEX = {"M, K": "m * K + k", "K, M": "k * M + m", "K, N": "k * N + n", "N, K": "n * K + k"}
SIZES = "{ M = 36, N = 20, K = 28 }, { M = 33, N = 37, K = 19 }, { M = 1, N = 1, K = 1 }"


def product(
    make: Any, left: str, right: str, dtype: str = "float32", *, result: str = "float32", more: str = ""
) -> Any:
    """A product of matrices in some layout, one thread for each result."""
    names = {
        name: f"in {dtype}[{shape}] ~ {'integers(-9, 9)' if 'int' in dtype else 'normal'}"
        for name, shape in (("a", left), ("b", right))
    }
    texts = [f"{name}.T" if shape in ("K, M", "N, K") else name for name, shape in (("a", left), ("b", right))]
    real = "double" if result == "float64" else "int" if result == "int32" else "float"
    values = [f"({real})a[{INDEX[left]}]", f"({real})b[{INDEX[right]}]"]
    body = f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  int m = i / N, n = i % N;
  {real} s = 0;
  for (int k = 0; k < K; ++k) s += {values[0]} * {values[1]};
  y[i] = s{" + bias[n]" if more else ""};"""
    beside = {"bias": "in float32[N] ~ normal"} if more else {}
    cast = ".astype(np.int32)" if result == "int32" and dtype != "int32" else ""
    return make(
        {**names, **beside, "y": f"out {result}[M, N]", "M": "int32", "N": "int32", "K": "int32"},
        f"{texts[0]}{cast} @ {texts[1]}{cast}{more}", sizes=SIZES, body=body, grid="cdiv(M * N, 128)",
    )  # fmt: skip


@pytest.mark.parametrize("left", LEFT.values())
@pytest.mark.parametrize("right", RIGHT.values())
def test_products_are_right_in_every_layout(left: str, right: str, make: Any, session: Session) -> None:
    kernel, _ = product(make, left, right, more=" + bias")
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert {one.candidate.author for one in found.candidates} >= {"synthesis:contraction-32x32"}, found.notes
    for one in found.candidates:
        assert one.verdict.correct, (one.candidate.author, one.verdict.findings, one.candidate.kernel.source)
        assert one.verdict.diagnostics == ()


@pytest.mark.parametrize("reference", ["a[:, None] * a[None]", "a[None] * a[:, None]"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_of_an_array_by_itself_are_products_along_its_last_axis_alone(
    reference: str, axis: int, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(
        {"a": "in float32[M, M]", "y": "out float32[M, M]", "M": "int32"},
        f"({reference}).sum(axis={axis})", sizes="{ M = 36 }, { M = 33 }, { M = 1 }", grid="cdiv(M * M, 128)",
    )  # fmt: skip
    written = kernels_for(trace(contract, tmp_path), kernel, contract)
    assert next(written).schedule.startswith("contraction" if axis == 2 else "staged-rows")


@pytest.mark.parametrize(
    ("shape", "reference", "values"),
    [
        ("M, K", "a @ a.T + bias", "a[m * K + k] * a[n * K + k]"),
        ("K, M", "np.einsum('km,kn->mn', a, a) + bias", "a[k * M + m] * a[k * M + n]"),
    ],
)
def test_products_of_an_array_with_itself_are_right(
    shape: str, reference: str, values: str, make: Any, session: Session
) -> None:
    body = f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * M) return;
  int m = i / M, n = i % M;
  float s = bias[n];
  for (int k = 0; k < K; ++k) s += {values};
  y[i] = s;"""
    kernel, _ = make(
        {"a": f"in float32[{shape}] ~ normal", "bias": "in float32[M]", "y": "out float32[M, M]", "M": "int32", "K": "int32"},
        reference, sizes="{ M = 36, K = 28 }, { M = 33, K = 19 }, { M = 1, K = 1 }", body=body, grid="cdiv(M * M, 128)",
    )  # fmt: skip
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for one in found.candidates:
        assert one.candidate.author.startswith("synthesis:contraction-")
        assert one.verdict.correct, (one.candidate.author, one.verdict.findings, one.candidate.kernel.source)
        assert one.verdict.diagnostics == ()


def test_tiles_of_both_sides_of_one_array_have_names_of_their_own(make: Any, tmp_path: Path) -> None:
    args = {"a": "in float16[M, K] ~ normal", "y": "out float32[M, M]", "M": "int32", "K": "int32"}
    sizes = "{ M = 512, K = 512 }, { M = 33, K = 19 }"
    kernel, contract = make(args, "a @ a.T", sizes=sizes, body="", grid="M", above="#include <cuda_fp16.h>\n")
    texts = [
        one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract) if "tensor" in one.schedule
    ]
    assert texts
    assert all("tile.a_columns_tile[" in text and "tile.a[" in text for text in texts)


@pytest.mark.parametrize(("dtype", "result"), [("float64", "float64"), ("int8", "int32"), ("float32", "float32")])
def test_large_tiles_are_right_for_types_of_every_width(dtype: str, result: str, make: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    kernel, _ = product(make, "M, K", "K, N", dtype, result=result)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    authors = {one.candidate.author for one in found.candidates}
    assert authors == {"synthesis:contraction-128x128", "synthesis:contraction-64x64"}, found.notes
    assert all(one.verdict.correct for one in found.candidates), [one.verdict.findings for one in found.candidates]
    if dtype == "float64":
        assert all("__launch_bounds__(kThreads)" in one.candidate.kernel.source for one in found.candidates)


def test_large_tiles_use_wide_accesses_and_two_blocks_fit(make: Any, tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    kernel, contract = product(make, "M, K", "K, N")
    graph = trace(contract, tmp_path)
    first = next(iter(kernels_for(graph, kernel, contract)))
    assert first.schedule == "contraction-128x128"
    assert re.search(r"= y_pack\[j / kPack\];", first.definition), "whole packs are stored after their elements"
    kernel, _ = placed(kernel, contract, first)
    (prepared,) = session.prepare(kernel, None)
    listing = read_listing(prepared.compiled, kernel.unit)
    opcodes = {line.opcode for line in listing.sass}
    assert listing.registers <= 128
    assert not listing.spill_bytes
    for wanted in ("LDG.E.128", "LDS.128", "STS.128", "STG.E.128"):
        assert any(wanted in one for one in opcodes), wanted
