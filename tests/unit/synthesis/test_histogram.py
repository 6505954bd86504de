"""Counts and sums by number written from references: right by the judge, and atomic on floats only where the kernel was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ n = 4099 }, { n = 8192 }, { n = 37 }, { n = 1 }"
ITEM = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n"
N = {"n": "int32"}
BYTES = {"s": "in uint8[n]", "c": "inout uint32[256] ~ zeros", **N}
BYTES_OF = "const unsigned char* s, unsigned int* c, int n"
KEYS = {"k": "in int32[n] ~ integers(0, 61)"}

CASES: dict[str, tuple[dict[str, str], str, str, str | None]] = {
    "bytes": (BYTES, "np.bincount(s, minlength=256).astype(np.uint32)", "  atomicAdd(&c[s[i]], 1u);", BYTES_OF),
    "bytes added to what was there": (
        {**BYTES, "c": "inout uint32[256] ~ integers(0, 9)"}, "c + np.bincount(s.astype(np.int64), minlength=256).astype(c.dtype)",
        "  atomicAdd(&c[s[i]], 1u);", BYTES_OF,
    ),
    "values by bin": (
        {"x": "in float32[n] ~ uniform(0, 1)", "c": "inout int32[64] ~ zeros", **N},
        "np.bincount(np.minimum((x * 64).astype(np.int64), 63), minlength=64)",
        "  atomicAdd(&c[min((int)(x[i] * 64), 63)], 1);", None,
    ),
    "weighted": (
        {**KEYS, "w": "in float32[n] ~ normal", "c": "inout float32[61] ~ zeros", **N}, "np.bincount(k, weights=w * w, minlength=61)",
        "  atomicAdd(&c[k[i]], w[i] * w[i]);", None,
    ),
    "added at": (
        {**KEYS, "w": "in float32[n] ~ normal", "c": "inout float32[61] ~ normal", **N},
        "def reference(c, k, w):\n    np.add.at(c, k, 2 * w)\n    return c", "  atomicAdd(&c[k[i]], 2 * w[i]);", None,
    ),
    "added in a loop": (
        {**KEYS, "w": "in float32[n] ~ normal", "c": "inout float32[61] ~ normal", **N},
        "def reference(c, k, w):\n    for i in range(len(k)):\n        c[k[i]] += 2 * w[i]\n    return c", "  atomicAdd(&c[k[i]], 2 * w[i]);", None,
    ),
    "subtracted at": (
        {"k": "in int32[n] ~ integers(0, 20011)", "w": "in float32[n] ~ normal", "c": "inout float32[20011] ~ normal", **N},
        "def reference(c, k, w):\n    np.subtract.at(c, k, w)\n    return c", "  atomicAdd(&c[k[i]], -w[i]);", None,
    ),
    "whole numbers added at": (
        {**KEYS, "w": "in int32[n] ~ integers(-5, 5)", "c": "inout int32[61] ~ zeros", **N},
        "def reference(k, w):\n    c = np.zeros(61, dtype=np.int64)\n    np.add.at(c, k, w)\n    return c", "  atomicAdd(&c[k[i]], w[i]);", None,
    ),
    "classes of rows by number": (
        {"t": "in int32[50] ~ integers(0, 7)", "k": "in int32[n] ~ integers(0, 50)", "c": "inout int32[7] ~ zeros", **N},
        "np.bincount(t[k], minlength=7)", "  atomicAdd(&c[t[k[i]]], 1);", None,
    ),
    "many bins": (
        {"k": "in int32[n] ~ integers(0, 20011)", "c": "inout int32[20011] ~ zeros", **N}, "np.bincount(k, minlength=20011)",
        "  atomicAdd(&c[k[i]], 1);", None,
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_counts_are_right_at_any_number_of_samples(name: str, make: Any, session: Session) -> None:
    args, reference, body, parameters = CASES[name]
    kernel, _ = make(args, reference, body=ITEM + body, grid="cdiv(n, block)", sizes=SIZES, parameters=parameters)
    assert_judged_right(session, kernel)


def test_counts_of_an_out_argument_are_written_for_one_block(make: Any, session: Session) -> None:
    body = """  for (int b = threadIdx.x; b < 61; b += blockDim.x) {
    float s = 0;
    for (int i = 0; i < n; ++i) s += k[i] == b;
    c[b] = s / n;
  }"""
    kernel, _ = make(
        {**KEYS, "c": "out int32[61]", **N},
        "np.bincount(k, minlength=61) * 3 + 1",
        body=body.replace("s / n", "3 * (int)s + 1"),
        grid="1",
        sizes=SIZES,
    )
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:histogram-block"], found.notes
    assert found.candidates[0].verdict.correct, found.candidates[0].candidate.kernel.source


@pytest.mark.parametrize(
    ("body", "more", "reason"),
    [
        ("  for (int i = 0; i < n; ++i) c[k[i]] += w[i];", "", "same order"),
        ("  atomicAdd(&c[k[0]], w[0]);", "deterministic = true", "same order"),
    ],
)
def test_floats_are_added_atomically_only_where_the_kernel_does(
    body: str, more: str, reason: str, make: Any, tmp_path: Any
) -> None:
    args, reference, *_ = CASES["added at"]
    kernel, contract = make(args, reference, body=body, more=more, grid="1", sizes=SIZES)
    with pytest.raises(Refused, match=reason):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


def test_counts_over_what_was_there_are_refused(make: Any, tmp_path: Any) -> None:
    args = {**KEYS, "c": "inout int32[61] ~ integers(0, 3)", **N}
    kernel, contract = make(args, "np.bincount(k, minlength=61)", sizes="{ n = 100000 }", grid="cdiv(n, block)")
    with pytest.raises(Refused, match="begin with zeros"):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


def test_counts_without_a_number_of_bins_are_not_traced(make: Any, tmp_path: Any) -> None:
    _, contract = make({**KEYS, "c": "out int32[61]", **N}, "np.bincount(k)", sizes=SIZES, grid="1")
    with pytest.raises(ReferenceFailed, match="without minlength"):
        trace(contract, tmp_path)


EXTREMES = {"ids": "in int32[n] ~ integers(0, 7)", "v": "in float32[n] ~ normal", "y": "inout float32[7] ~ normal", "n": "int32"}  # fmt: skip
BOUND = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < 7) for (int j = 0; j < n; ++j) if (ids[j] == i && v[j] {} y[i]) y[i] = v[j];"


@pytest.mark.parametrize(("name", "sign", "dtype"), [("maximum", ">", "float32"), ("minimum", "<", "float32"), ("maximum", ">", "int32")])  # fmt: skip
def test_extremes_by_number_are_right(name: str, sign: str, dtype: str, make: Any, session: Session) -> None:
    reference = f"def reference(ids, v, y):\n    np.{name}.at(y, ids, v)\n    return y"
    drawn = "~ normal" if dtype == "float32" else "~ integers(-99, 99)"
    args = {key: entry.replace("float32", dtype).replace("~ normal", drawn) for key, entry in EXTREMES.items()}
    sizes = "{ n = 1031 }, { n = 5 }, { n = 1 }"
    kernel, _ = make(args, reference, body=BOUND.format(sign), grid="cdiv(n, block)", sizes=sizes)
    assert assert_judged_right(session, kernel) == [f"synthesis:scatter-{name[:3]}"]


@pytest.mark.parametrize("argument", ["out float32[7]", "inout float32[7] ~ zeros"])
def test_extremes_by_number_need_results_to_bound(argument: str, make: Any, tmp_path: Path) -> None:
    reference = "def reference(ids, v):\n    y = np.full(7, -np.inf)\n    np.maximum.at(y, ids, v)\n    return y"
    args = EXTREMES | {"y": argument}
    kernel, contract = make(args, reference, grid="cdiv(n, block)", sizes="{ n = 1031 }")
    graph = trace(contract, tmp_path)
    with pytest.raises(Refused, match="does not hold what several blocks could bound"):
        list(kernels_for(graph, kernel, contract))
    (y,) = evaluate(graph, {"ids": np.array([2, 2]), "v": np.array([1.0, 3.0])}, {"n": 2})
    assert y.tolist() == [-np.inf, -np.inf, 3, -np.inf, -np.inf, -np.inf, -np.inf]
