"""Results from several sums along one axis: gated products, complex ones, and products over the norms of rows and columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.compiler.listing import read_listing
from kernelmate.session import Session
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules import contraction
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right
from tests.unit.synthesis.test_tensor_contraction import drawn, result, texts_of

SIZES = "{ M = 36, N = 20, K = 28 }, { M = 33, N = 37, K = 19 }, { M = 1, N = 1, K = 1 }"
LENGTHS = {"M": "int32", "N": "int32", "K": "int32"}
X = {"x": "in float32[M, K] ~ normal"}
TWO = X | {"w1": "in float32[K, N] ~ normal", "w2": "in float32[K, N] ~ normal"}
POINTS = {"a": "in float32[M, K] ~ normal", "b": "in float32[N, K] ~ normal"}
Y = {"y": "out float32[M, N]"}
SWISH = "g / (1 + np.exp(-g))"

CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "two weights": (TWO | Y, f"def reference(x, w1, w2):\n    g = x @ w1\n    return {SWISH} * (x @ w2)", "p += x[m * K + k] * w1[k * N + n]; q += x[m * K + k] * w2[k * N + n];", "y[i] = p / (1 + expf(-p)) * q;"),
    "weights by rows, with biases": (
        X | {"w1": "in float32[N, K] ~ normal", "w2": "in float32[N, K] ~ normal", "b1": "in float32[N] ~ normal", "b2": "in float32[N] ~ normal"} | Y,
        "def reference(x, w1, w2, b1, b2):\n    return np.maximum(x @ w1.T + b1, 0) * (x @ w2.T + b2)",
        "p += x[m * K + k] * w1[n * K + k]; q += x[m * K + k] * w2[n * K + k];", "p += b1[n]; y[i] = (p > 0 ? p : 0) * (q + b2[n]);",
    ),
    "halves of the columns of one matrix, with a bias": (
        X | {"w": "in float32[K, 2 * N] ~ normal", "bias": "in float32[2 * N] ~ normal"} | Y,
        "def reference(x, w, bias):\n    g, u = np.split(x @ w + bias, 2, axis=-1)\n    return np.tanh(g) * u",
        "p += x[m * K + k] * w[k * 2 * N + n]; q += x[m * K + k] * w[k * 2 * N + N + n];", "y[i] = tanhf(p + bias[n]) * (q + bias[N + n]);",
    ),
    "halves of the rows of one matrix": (
        X | {"w": "in float32[2 * N, K] ~ normal"} | Y, f"def reference(x, w, N):\n    h = x @ w.T\n    g, u = h[:, :N], h[:, N:]\n    return {SWISH} * u",
        "p += x[m * K + k] * w[n * K + k]; q += x[m * K + k] * w[(N + n) * K + k];", "y[i] = p / (1 + expf(-p)) * q;",
    ),
    "columns of one matrix in turn": (
        X | {"w": "in float32[K, 2 * N] ~ normal"} | Y, f"def reference(x, w):\n    h = x @ w\n    g, u = h[:, 0::2], h[:, 1::2]\n    return {SWISH} * u",
        "p += x[m * K + k] * w[k * 2 * N + 2 * n]; q += x[m * K + k] * w[k * 2 * N + 2 * n + 1];", "y[i] = p / (1 + expf(-p)) * q;",
    ),
    "rows of one matrix in turn": (
        X | {"w": "in float32[2 * N, K] ~ normal"} | Y, f"def reference(x, w):\n    g, u = x @ w[::2].T, x @ w[1::2].T\n    return {SWISH} * u",
        "p += x[m * K + k] * w[2 * n * K + k]; q += x[m * K + k] * w[(2 * n + 1) * K + k];", "y[i] = p / (1 + expf(-p)) * q;",
    ),
    "a stack of weights": (
        X | {"w": "in float32[2, K, N] ~ normal"} | Y, f"def reference(x, w):\n    g = x @ w[0]\n    return {SWISH} * (x @ w[1])",
        "p += x[m * K + k] * w[k * N + n]; q += x[m * K + k] * w[(K + k) * N + n];", "y[i] = p / (1 + expf(-p)) * q;",
    ),
    "three products": (
        TWO | {"w3": "in float32[K, N] ~ normal"} | Y, "(x @ w1) * (x @ w2) + np.sin(x @ w3)",
        "p += x[m * K + k] * w1[k * N + n]; q += x[m * K + k] * w2[k * N + n]; r += x[m * K + k] * w3[k * N + n];", "y[i] = p * q + sinf(r);",
    ),
    "products for two results": (TWO | Y | {"z": "out float32[M, N]"}, "def reference(x, w1, w2):\n    return x @ w1, 2 * (x @ w2)", "p += x[m * K + k] * w1[k * N + n]; q += x[m * K + k] * w2[k * N + n];", "y[i] = p; z[i] = 2 * q;"),
    "complex numbers in two arrays": (
        {"ar": "in float32[M, K] ~ normal", "ai": "in float32[M, K] ~ normal", "br": "in float32[K, N] ~ normal", "bi": "in float32[K, N] ~ normal"} | Y | {"z": "out float32[M, N]"},
        "def reference(ar, ai, br, bi):\n    return ar @ br - ai @ bi, ar @ bi + ai @ br",
        "p += ar[m * K + k] * br[k * N + n] - ai[m * K + k] * bi[k * N + n]; q += ar[m * K + k] * bi[k * N + n] + ai[m * K + k] * br[k * N + n];", "y[i] = p; z[i] = q;",
    ),
    "a sum of two products": (TWO | {"x2": "in float32[M, K] ~ normal"} | Y, "x @ w1 + x2 @ w2", "p += x[m * K + k] * w1[k * N + n] + x2[m * K + k] * w2[k * N + n];", "y[i] = p;"),
    "cosine similarity": (
        POINTS | Y, "def reference(a, b):\n    return (a @ b.T) / (np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None])",
        "p += a[m * K + k] * b[n * K + k]; q += a[m * K + k] * a[m * K + k]; r += b[n * K + k] * b[n * K + k];", "y[i] = p / (sqrtf(q) * sqrtf(r));",
    ),
    "products of normalised rows": (
        POINTS | Y, "def reference(a, b):\n    u = a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-6)\n    v = b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-6)\n    return u @ v.T",
        "p += a[m * K + k] * b[n * K + k]; q += a[m * K + k] * a[m * K + k]; r += b[n * K + k] * b[n * K + k];", "y[i] = p / fmaxf(sqrtf(q), 1e-6f) / fmaxf(sqrtf(r), 1e-6f);",
    ),
    "a linear layer behind a normalisation by the mean square": (
        POINTS | Y, "(a / np.sqrt((a * a).mean(axis=1, keepdims=True) + 1e-6)) @ b.T",
        "p += a[m * K + k] * b[n * K + k]; q += a[m * K + k] * a[m * K + k];", "y[i] = p / sqrtf(q / K + 1e-6f);",
    ),
    "Tanimoto coefficients": (
        {"a": "in float32[M, K] ~ uniform(0.5, 1)", "b": "in float32[N, K] ~ uniform(0.5, 1)"} | Y, "def reference(a, b):\n    d = a @ b.T\n    return d / ((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - d)",
        "p += a[m * K + k] * b[n * K + k]; q += a[m * K + k] * a[m * K + k]; r += b[n * K + k] * b[n * K + k];", "y[i] = p / (q + r - p);",
    ),
    "bytes with offsets": (
        {"a": "in int8[M, K] ~ integers(-128, 128)", "b": "in uint8[N, K] ~ integers(0, 256)", "y": "out int32[M, N]"},
        "def reference(a, b):\n    p, q = a.astype(np.int32), b.astype(np.int32)\n    return p @ q.T - 3 * p.sum(1)[:, None] - 5 * q.sum(1)",
        "s += a[m * K + k] * b[n * K + k] - 3 * a[m * K + k] - 5 * b[n * K + k];", "y[i] = s;",
    ),
}  # fmt: skip


def kernel_of(make: Any, name: str) -> Any:
    """The kernel of a case with its contract, a thread for each result."""
    args, reference, inner, last = CASES[name]
    body = f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  int m = i / N, n = i % N, s = 0;
  float p = 0, q = 0, r = 0;
  for (int k = 0; k < K; ++k) {{ {inner} }}
  {last}"""
    used = [one for one in ("s", "p", "q", "r") if re.search(rf"\b{one}\b", inner)]
    body = body.replace(", s = 0;", ", s = 0;" if "s" in used else ";")
    floats = ", ".join(f"{one} = 0" for one in used if one != "s")
    body = body.replace("  float p = 0, q = 0, r = 0;\n", f"  float {floats};\n" if floats else "")
    return make(args | LENGTHS, reference, sizes=SIZES, body=body, grid="cdiv(M * N, 128)")


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_results_of_several_sums_are_right(name: str, make: Any, session: Session) -> None:
    kernel, _ = kernel_of(make, name)
    authors = assert_judged_right(session, kernel)
    assert all(author.startswith("synthesis:contraction-") for author in authors), authors


@pytest.mark.parametrize("name", ["two weights", "columns of one matrix in turn", "cosine similarity", "bytes with offsets"])  # fmt: skip
def test_large_tiles_of_several_sums_are_right(
    name: str, make: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    kernel, _ = kernel_of(make, name)
    assert "synthesis:contraction-128x128" in assert_judged_right(session, kernel)


HEADERS = "#include <cuda_fp16.h>\n"
HALVES = X | {"w": "in float16[2 * N, K] ~ normal", "x": "in float16[M, K] ~ normal", "y": "out float16[M, N]"}
GATED = f"def reference(x, w):\n    g, u = np.split(x @ w.T, 2, axis=1)\n    return {SWISH} * u"


def test_products_of_halves_on_tensor_cores_are_right(make: Any, session: Session) -> None:
    body = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  int m = i / N, n = i % N;
  float p = 0, q = 0;
  for (int k = 0; k < K; ++k) {
    p += __half2float(x[m * K + k]) * __half2float(w[n * K + k]);
    q += __half2float(x[m * K + k]) * __half2float(w[(N + n) * K + k]);
  }
  y[i] = __float2half(p / (1 + expf(-p)) * q);"""
    kernel, _ = make(HALVES | LENGTHS, GATED, sizes=SIZES, body=body, grid="cdiv(M * N, 128)", above=HEADERS)
    assert any(author.startswith("synthesis:tensor-") for author in assert_judged_right(session, kernel))


def test_large_tiles_of_two_products_do_not_spill(
    make: Any, tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    sizes = "{ M = 4096, N = 11008, K = 4096 }, { M = 33, N = 37, K = 19 }"
    kernel, contract = make(HALVES | LENGTHS, GATED, sizes=sizes, grid="M", above=HEADERS)
    found = {one.schedule: one for one in kernels_for(trace(contract, tmp_path), kernel, contract)}
    assert next(iter(found)) == "tensor-128x128-w8s3k64"
    for schedule in ("tensor-128x128-w8s3k64", "contraction-128x128"):
        changed, _ = placed(kernel, contract, found[schedule])
        (prepared,) = session.prepare(changed, None)
        listing = read_listing(prepared.compiled, changed.unit)
        assert not listing.spill_bytes
        assert listing.registers > 128  # of which the sums of two products take 128


def test_three_arrays_that_are_copied_asynchronously_have_tiles_of_half_the_depth(make: Any, tmp_path: Path) -> None:
    reference = "(x @ w1) * (x @ w2)"  # exact in floats for small whole numbers
    kernel, contract = make(TWO | Y | LENGTHS, reference, sizes=SIZES, grid="cdiv(M * N, 128)")
    (written,) = texts_of(kernel, contract, tmp_path, "contraction-async-64").values()
    assert "constexpr int kTileK = 16;" in written.definition
    for size, misalign in (({"M": 40, "N": 48, "K": 72}, 0), ({"M": 37, "N": 29, "K": 53}, 4)):
        given = drawn(contract, size)
        found = result(kernel, contract, written, size, given, misalign)
        assert (found == (given["x"] @ given["w1"]) * (given["x"] @ given["w2"])).all()


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("(a - a.mean(axis=1, keepdims=True)) @ b.T", "sums what depends on other sums"),
        ("(a @ b.T) / (a.max(axis=1)[:, None] + b.max(axis=1))", "other than to sums"),
        ("(a @ b.T) * np.exp(a).sum(axis=1)[:, None]", "not zero where its arrays are"),
    ],
    ids=["centred rows", "maxima of rows", "sums that count zeros"],
)
def test_other_sums_beside_products_have_no_joint_schedule(
    reference: str, reason: str, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(POINTS | Y | LENGTHS, reference, sizes=SIZES, grid="cdiv(M * N, 128)")
    graph = trace(contract, tmp_path)
    with pytest.raises(Refused, match=reason):
        list(contraction.joint(graph, KernelText(kernel, contract)))
    found = [one.schedule for one in kernels_for(graph, kernel, contract)]
    # Rows share what is reduced along the columns of `b`, so a block computes several rows in stages.
    kind = "staged-block" if "b.max" in reference else "staged-rows-"
    assert found
    assert all(one.startswith(kind) for one in found)


def test_an_array_along_both_axes_is_read_under_two_names(make: Any, tmp_path: Path) -> None:
    args = {"a": "in float32[M, K] ~ normal", "y": "out float32[M, M]", "M": "int32", "K": "int32"}
    reference = "def reference(a):\n    n = np.sqrt((a * a).sum(axis=1))\n    return a @ a.T / n[:, None] / n"
    kernel, contract = make(args, reference, sizes="{ M = 36, K = 28 }, { M = 33, K = 19 }", grid="cdiv(M * M, 128)")
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert "row_sums[i] += a_part[i] * a_part[i];" in text
    assert "column_sums[i] += a_columns_part[i] * a_columns_part[i];" in text
    assert "const float n = sqrtf(row_sums[i]);" in text
