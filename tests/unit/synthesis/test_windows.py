"""Kernels of windows: right by the judge at sizes of one, odd and prime, with the border decided once, and readable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Contract, Kernel
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules import windows
from kernelmate.synthesis.size_text import size_text
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.window_plan import laid_out, walked
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import schedules_for

SIZES = {"rows": "int32", "cols": "int32"}
SLIDING = "from numpy.lib.stride_tricks import sliding_window_view\n\n\n"
AT = "  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;\n  if (c >= cols) return;\n  int i = r * cols + c;\n"
BY_AT = ("cdiv(cols, block)", "rows")
ALL = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= rows * cols) return;\n  int r = i / cols, c = i % cols;\n"
BY_ALL = ("cdiv(rows * cols, block)",)


def matrix(dtype: str = "float32", shape: str = "rows, cols", **more: str) -> dict[str, str]:
    return {"x": f"in {dtype}[rows, cols] ~ normal", **more, "y": f"out {dtype}[{shape}]", **SIZES}


CASES: dict[str, tuple[dict[str, str], str, str, tuple[str, ...]]] = {
    "box blur": (
        matrix(), "def reference(x, rows, cols):\n    p = np.pad(x, 1, mode='edge')\n    total = np.zeros_like(x)\n"
        "    for a in range(3):\n        for b in range(3):\n            total += p[a : a + rows, b : b + cols]\n    return total / 9",
        f"""{AT}  float s = 0;
  for (int a = -1; a <= 1; ++a)
    for (int b = -1; b <= 1; ++b) s += x[min(max(r + a, 0), rows - 1) * cols + min(max(c + b, 0), cols - 1)];
  y[i] = s / 9;""", BY_AT,
    ),
    "sobel": (
        matrix(), "def reference(x):\n    y = np.zeros_like(x)\n    left = x[:-2, :-2] + 2 * x[1:-1, :-2] + x[2:, :-2]\n    right = x[:-2, 2:] + 2 * x[1:-1, 2:] + x[2:, 2:]\n"
        "    above = x[:-2, :-2] + 2 * x[:-2, 1:-1] + x[:-2, 2:]\n    below = x[2:, :-2] + 2 * x[2:, 1:-1] + x[2:, 2:]\n"
        "    y[1:-1, 1:-1] = np.sqrt((right - left) ** 2 + (below - above) ** 2)\n    return y",
        f"""{AT}  if (r == 0 || c == 0 || r == rows - 1 || c == cols - 1) {{
    y[i] = 0;
    return;
  }}
  float a = x[i - cols - 1], b = x[i - cols], d = x[i - cols + 1], e = x[i - 1], f = x[i + 1], g = x[i + cols - 1], h = x[i + cols], k = x[i + cols + 1];
  float u = d + 2 * f + k - (a + 2 * e + g), v = g + 2 * h + k - (a + 2 * b + d);
  y[i] = sqrtf(u * u + v * v);""", BY_AT,
    ),
    "median of neighbours": (
        matrix(), "def reference(x, rows, cols):\n    p = np.pad(x, 1, mode='edge')\n    return np.median([p[a : a + rows, b : b + cols] for a in range(3) for b in range(3)], axis=0)",
        f"""{AT}  float v[9];
  int n = 0;
  for (int a = -1; a <= 1; ++a)
    for (int b = -1; b <= 1; ++b) {{
      float one = x[min(max(r + a, 0), rows - 1) * cols + min(max(c + b, 0), cols - 1)];
      int at = n++;
      for (; at > 0 && v[at - 1] > one; --at) v[at] = v[at - 1];
      v[at] = one;
    }}
  y[i] = v[4];""", BY_AT,
    ),
    "interior with a special case": (
        matrix(), "def reference(x):\n    y = x.copy()\n    if min(x.shape) > 2:\n        y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])\n    return y",
        f"""{AT}  float v = x[i];
  if (c > 0 && r > 0 && c < cols - 1 && r < rows - 1) v = 0.25f * (x[i - 1] + x[i + 1] + x[i - cols] + x[i + cols]);
  y[i] = v;""", BY_AT,
    ),
    "heat in three dimensions": (
        {"x": "in float32[depth, rows, cols] ~ normal", "y": "out float32[depth, rows, cols]", "depth": "int32", **SIZES, "k": "float32 = 0.1"},
        "def reference(x, k):\n    y = x.copy()\n    m = x[1:-1, 1:-1, 1:-1]\n    y[1:-1, 1:-1, 1:-1] += k * (x[2:, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1] + x[1:-1, 2:, 1:-1]\n"
        "        + x[1:-1, :-2, 1:-1] + x[1:-1, 1:-1, 2:] + x[1:-1, 1:-1, :-2] - 6 * m)\n    return y",
        """  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y, d = blockIdx.z;
  if (c >= cols) return;
  int i = (d * rows + r) * cols + c;
  float v = x[i];
  if (c > 0 && r > 0 && d > 0 && c < cols - 1 && r < rows - 1 && d < depth - 1)
    v += k * (x[i - 1] + x[i + 1] + x[i - cols] + x[i + cols] + x[i - rows * cols] + x[i + rows * cols] - 6 * v);
  y[i] = v;""", ("cdiv(cols, block)", "rows", "depth"),
    ),
    "periodic stencil": (
        matrix(), "np.roll(x, 1, axis=0) + np.roll(x, -1, axis=0) + np.roll(x, 1, axis=1) + np.roll(x, -1, axis=1) - 4 * x",
        f"""{ALL}  y[i] = x[(r + rows - 1) % rows * cols + c] + x[(r + 1) % rows * cols + c] + x[r * cols + (c + cols - 1) % cols]
         + x[r * cols + (c + 1) % cols] - 4 * x[i];""", BY_ALL,
    ),
    "far periodic shifts": (
        matrix(), "np.roll(x, (3, -4), axis=(0, 1)) + np.pad(x, ((0, 0), (0, 2)), mode='wrap')[:, 2:]",
        f"{ALL}  y[i] = x[((r - 3) % rows + rows) % rows * cols + (c + 4) % cols] + x[r * cols + (c + 2) % cols];", BY_ALL,
    ),
    "convolution in one dimension": (
        {"x": "in float32[rows, cols] ~ normal", "w": "in float32[5] ~ normal", "y": "out float32[rows, cols]", **SIZES},
        f"{SLIDING}def reference(x, w):\n    return sliding_window_view(np.pad(x, ((0, 0), (2, 2))), 5, axis=1) @ w",
        f"{AT}  float s = 0;\n  for (int k = 0; k < 5; ++k) if (c + k >= 2 && c + k - 2 < cols) s += x[i + k - 2] * w[k];\n  y[i] = s;", BY_AT,
    ),
    "average pooling": (
        {"x": "in float32[rows, 2 * cols] ~ normal", "y": "out float32[rows, cols]", **SIZES}, "(x[:, ::2] + x[:, 1::2]) * 0.5",
        f"{AT}  y[i] = (x[2 * i] + x[2 * i + 1]) * 0.5f;", BY_AT,
    ),
    "average pooling by windows": (
        {"x": "in float32[2 * rows, 2 * cols] ~ normal", "y": "out float32[rows, cols]", **SIZES}, "x.reshape(rows, 2, cols, 2).mean(axis=(1, 3))",
        f"{AT}  y[i] = (x[4 * r * cols + 2 * c] + x[4 * r * cols + 2 * c + 1] + x[(4 * r + 2) * cols + 2 * c] + x[(4 * r + 2) * cols + 2 * c + 1]) / 4;", BY_AT,
    ),
    "maximum of windows": (
        matrix(shape="rows, cols"), f"{SLIDING}def reference(x):\n    return sliding_window_view(np.pad(x, ((0, 0), (1, 1)), constant_values=-np.inf), 3, axis=1).max(axis=-1)",
        f"{AT}  float m = x[i];\n  for (int d = -1; d <= 1; ++d) if (c + d >= 0 && c + d < cols && !(x[i + d] <= m) && !isnan(m)) m = x[i + d];\n  y[i] = m;", BY_AT,
    ),
    "causal depthwise convolution": (
        {"x": "in float32[rows, cols] ~ normal", "w": "in float32[cols, 4] ~ normal", "b": "in float32[cols] ~ normal", "y": "out float32[rows, cols]", **SIZES},
        "def reference(x, w, b, rows):\n    p = np.pad(x, ((3, 0), (0, 0)))\n    y = sum(p[k : k + rows] * w[:, k] for k in range(4)) + b\n    return y / (1 + np.exp(-y))",
        f"{AT}  float s = b[c];\n  for (int k = 0; k < 4; ++k) if (r + k >= 3) s += x[i + (k - 3) * cols] * w[c * 4 + k];\n  y[i] = s / (1 + expf(-s));", BY_AT,
    ),
    "central differences": (
        matrix(), "def reference(x):\n    y = np.empty_like(x)\n    y[:, 1:-1] = (x[:, 2:] - x[:, :-2]) / 2\n    y[:, 0] = x[:, 1] - x[:, 0]\n    y[:, -1] = x[:, -1] - x[:, -2]\n    return y",
        f"{AT}  y[i] = c == 0 ? x[i + 1] - x[i] : c == cols - 1 ? x[i] - x[i - 1] : (x[i + 1] - x[i - 1]) / 2;", BY_AT,
    ),
    "differences": (
        {"x": "in float32[rows, cols + 1] ~ normal", "y": "out float32[rows, cols]", **SIZES}, "np.diff(x, axis=1)",
        f"{AT}  y[i] = x[r * (cols + 1) + c + 1] - x[r * (cols + 1) + c];", BY_AT,
    ),
    "reversed copy": (matrix(), "x[::-1, ::-1]", f"{AT}  y[i] = x[(rows - 1 - r) * cols + cols - 1 - c];", BY_AT),
    "every third column": (
        {"x": "in float32[rows, 3 * cols] ~ normal", "y": "inout float32[rows, 3 * cols] ~ normal", **SIZES},
        "def reference(x, y):\n    z = y.copy()\n    z[:, 1::3] = x[:, 1::3] * 2\n    return z",
        f"{AT}  y[3 * i + 1] = x[3 * i + 1] * 2;", BY_AT,
    ),
    "concatenation": (
        matrix(shape="rows, 2 * cols + 1", z="in float32[rows, cols + 1] ~ normal"), "np.concatenate([x, z], axis=1)",
        f"{AT}  y[r * (2 * cols + 1) + c] = x[i];\n  for (int k = c; k < cols + 1; k += cols) y[r * (2 * cols + 1) + cols + k] = z[r * (cols + 1) + k];", BY_AT,
    ),
    "gates of two halves": (
        {"x": "in float32[rows, 2 * cols] ~ normal", "y": "out float32[rows, cols]", **SIZES}, "x[:, :cols] / (1 + np.exp(-x[:, cols:]))",
        f"{AT}  y[i] = x[2 * r * cols + c] / (1 + expf(-x[2 * r * cols + cols + c]));", BY_AT,
    ),
    "pairs that are rotated in place": (
        {"x": "inout float32[rows, 2 * cols] ~ normal", "a": "in float32[rows, cols]", "b": "in float32[rows, cols]", **SIZES},
        "def reference(x, a, b, cols):\n    u, v = x[:, :cols], x[:, cols:]\n    return np.concatenate([u * a - v * b, u * b + v * a], axis=1)",
        f"{AT}  float u = x[2 * r * cols + c], v = x[2 * r * cols + cols + c];\n  x[2 * r * cols + c] = u * a[i] - v * b[i];\n  x[2 * r * cols + cols + c] = u * b[i] + v * a[i];", BY_AT,
    ),
    "halves by tables, sizes in the grid": (
        {"x": "inout float32[depth, rows, 2 * cols] ~ normal", "a": "in float32[9, cols]", "t": "in int32[depth] ~ integers(0, 9)", "cols": "int32"},
        "def reference(x, a, t, cols):\n    k = a[t][:, None, :]\n    u, v = x[:, :, :cols], x[:, :, cols:]\n    return np.concatenate([u * k - v, v * k + u], axis=2)",
        """  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    size_t i = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * 2 * cols + c;
    float k = a[t[blockIdx.x] * cols + c], u = x[i], v = x[i + cols];
    x[i] = u * k - v;
    x[i + cols] = v * k + u;
  }""", ("depth", "rows"),
    ),
    "five by five taps": (
        matrix(w="in float32[5, 5] ~ normal"),
        "def reference(x, w, rows, cols):\n    p = np.pad(x, 2)\n    y = np.zeros((rows, cols))\n    for a in range(5):\n        for b in range(5):\n"
        "            y += w[a, b] * p[a : a + rows, b : b + cols]\n    return y",
        f"""{AT}  float s = 0;
  for (int a = -2; a <= 2; ++a)
    for (int b = -2; b <= 2; ++b)
      if (r + a >= 0 && r + a < rows && c + b >= 0 && c + b < cols) s += x[i + a * cols + b] * w[a * 5 + b + 12];
  y[i] = s;""", BY_AT,
    ),
    "twenty taps and a bias": (
        matrix(w="in float32[20] ~ normal", b="in float32[cols] ~ normal"),
        "def reference(x, w, b, cols):\n    p = np.pad(x, ((0, 0), (19, 0)))\n    y = np.broadcast_to(b, x.shape)\n    for k in range(20):\n        y = y + w[k] * p[:, k : k + cols]\n    return y",
        f"{AT}  float s = b[c];\n  for (int k = 0; k < 20; ++k) if (c + k >= 19) s += w[k] * x[i + k - 19];\n  y[i] = s;", BY_AT,
    ),
    "rows of zeros and ones before and behind": (
        matrix(shape="rows + 2, cols"), "def reference(x, cols):\n    return np.concatenate([np.zeros((1, cols)), x, np.ones((1, cols))])",
        f"{AT}  y[i + cols] = x[i];\n  if (r == 0) y[c] = 0;\n  if (r == rows - 1) y[i + 2 * cols] = 1;", BY_AT,
    ),
    "means of stacked shifts": (
        matrix(), "def reference(x, cols):\n    p = np.pad(x, ((0, 0), (1, 1)), mode='edge')\n    return np.stack([p[:, k : k + cols] for k in range(3)]).max(axis=0)",
        f"{AT}  float a = x[max(c - 1, 0) + r * cols], b = x[i], d = x[min(c + 1, cols - 1) + r * cols];\n"
        "  y[i] = isnan(a) || isnan(b) || isnan(d) ? NAN : fmaxf(a, fmaxf(b, d));", BY_AT,
    ),
    "neighbours that are interleaved": (
        matrix(shape="rows, 2 * cols"), "np.stack([x, -x], axis=-1).reshape(rows, 2 * cols)",
        f"{AT}  y[2 * i] = x[i];\n  y[2 * i + 1] = -x[i];", BY_AT,
    ),
    "moving average of whole numbers": (
        {"x": "in int32[rows, cols + 2] ~ integers(0, 100)", "y": "out int32[rows, cols]", **SIZES}, "x[:, :-2] + x[:, 1:-1] + x[:, 2:]",
        f"{AT}  y[i] = x[i + 2 * r] + x[i + 2 * r + 1] + x[i + 2 * r + 2];", BY_AT,
    ),
    "a vector": (
        {"x": "in float64[cols] ~ normal", "y": "out float64[cols]", "cols": "int32"},
        "def reference(x):\n    y = x.copy()\n    y[1:-1] = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]\n    return y",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= cols) return;\n  y[i] = i == 0 || i == cols - 1 ? x[i] : 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1];",
        ("cdiv(cols, block)",),
    ),
    "half precision": (
        matrix("float16"), "def reference(x):\n    y = x.copy()\n    y[:, 1:] -= x[:, :-1]\n    return y",
        f"{AT}  y[i] = c == 0 ? x[i] : __float2half(__half2float(x[i]) - __half2float(x[i - 1]));", BY_AT,
    ),
}  # fmt: skip


def build(make: Any, name: str, **changes: Any) -> tuple[Kernel, Contract]:
    args, reference, body, grid = CASES[name]
    sizes = [(6, 70), (13, 31), (1, 1), (2, 3), (37, 129)]
    if name == "central differences":
        sizes = [(6, 70), (13, 31), (1, 2), (37, 129)]
    depth = "depth = 5, " if "depth" in "".join(args.values()) else ""
    listed = ", ".join(f"{{ {depth}rows = {rows}, cols = {cols} }}" for rows, cols in sizes)
    if "rows" not in "".join(args.values()):
        listed = ", ".join(f"{{ cols = {cols} }}" for _, cols in sizes)
    least = 2 if name == "central differences" else 0
    more = f'require = ["cols >= {least}"]'
    above = "#include <cuda_fp16.h>\n" if "float16" in args["x"] else ""
    made: tuple[Kernel, Contract] = make(args, reference, body=body, grid='", "'.join(grid), sizes=listed, above=above, more=more, **changes)  # fmt: skip
    return made


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_written_windows_are_right_and_keep_the_signature(name: str, make: Any, session: Session) -> None:
    kernel, _ = build(make, name)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        verdict = judged.verdict
        assert judged.candidate.author.startswith(
            ("synthesis:windows", "synthesis:interleaved", "synthesis:permutation")
        )
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert verdict.diagnostics == ()
        mine, theirs = judged.candidate.kernel.signature.parameters, kernel.signature.parameters
        assert [(p.name, p.base, p.pointer) for p in mine] == [(p.name, p.base, p.pointer) for p in theirs]


def written(make: Any, tmp_path: Path, name: str, **changes: Any) -> dict[str, str]:
    kernel, contract = build(make, name, **changes)
    return {one.schedule: one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)}


def test_a_border_is_decided_once_and_the_inside_written_once(make: Any, tmp_path: Path) -> None:
    text = written(make, tmp_path, "heat in three dimensions")["windows"]
    assert text.count("if (") == 2
    assert text.count("* (x_at[") == 1


def test_many_taps_are_loops_and_few_are_written_out(make: Any, tmp_path: Path) -> None:
    many = written(make, tmp_path, "five by five taps")["windows"]
    assert "for (int dy = 0; dy < 5; ++dy)" in many
    assert "for (int dx = 0; dx < 5; ++dx)" in many
    few = written(make, tmp_path, "causal depthwise convolution")["windows"]
    assert "for (" not in few


def test_rows_of_a_thread_share_their_windows_and_taps(make: Any, tmp_path: Path) -> None:
    text = written(make, tmp_path, "five by five taps")["windows-rows"]
    assert "float x_window[kRows + 4][5];" in text
    assert text.count("x[") == 1
    assert text.count("= w[") == 1


def test_positions_have_the_names_that_the_kernel_gave_them(make: Any, tmp_path: Path) -> None:
    text = written(make, tmp_path, "sobel")["windows"]
    assert "const int c = blockIdx.x * blockDim.x + threadIdx.x;" in text
    assert "const int r = blockIdx.y * blockDim.y + threadIdx.y;" in text


def test_a_grid_of_one_side_stays_one(make: Any, tmp_path: Path) -> None:
    kernel, contract = build(make, "periodic stencil")
    grids = {len(one.grid) for one in kernels_for(trace(contract, tmp_path), kernel, contract)}
    assert grids == {1}


REFUSED = {
    "a shift in place": ({"x": "inout float32[rows, cols]", **SIZES}, "def reference(x):\n    y = x.copy()\n    y[:, 1:] = x[:, :-1]\n    return y", "another thread may have written"),
    "outputs of two shapes": (
        {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "z": "out float32[rows]", **SIZES},
        "def reference(x):\n    return x[:, ::-1], x[:, 0]", "different shapes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_windows_that_are_not_written_are_refused_with_the_reason(name: str, make: Any, tmp_path: Path) -> None:
    args, reference, reason = REFUSED[name]
    kernel, contract = make(args, reference)
    with pytest.raises(Refused, match=reason):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


def test_a_softmax_of_a_part_has_stages_in_a_block(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    y = x.copy()\n    e = np.exp(x[:, 1:])\n    y[:, 1:] = e / e.sum(axis=1, keepdims=True)\n    return y"
    assert schedules_for(*make(matrix(), reference), tmp_path) == ["staged-block"]


def test_whole_numbers_of_stacked_parts_keep_their_type(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x):\n    sign = np.array([1, -1, 2])\n"
        "    return np.stack([np.roll(x, one, 0) for one in range(3)]) * sign[:, None, None]"
    )
    kernel, contract = make(matrix(shape="3, rows, cols"), reference, body=AT, grid=BY_AT[0])
    (written, *_) = kernels_for(trace(contract, tmp_path), kernel, contract)
    factors = re.findall(r"\* \(?(-?[\d.f]+)\)?;", written.definition)
    assert factors == ["1", "-1", "2"]


@pytest.mark.parametrize(
    ("own", "array", "domain"),
    [
        (("n", "4", "4"), ("n", "16"), ("n", "4", "4")),
        (("4 * n", "4"), ("n", "4", "4"), ("4 * n", "4")),
        (("n", "4"), ("n", "4"), ("n", "4")),
        (("1", "4"), ("n", "4"), ("n", "4")),
    ],
)
def test_a_result_that_groups_its_array_otherwise_is_laid_out_by_itself(
    own: tuple[str, ...], array: tuple[str, ...], domain: tuple[str, ...]
) -> None:
    source = Node("input", (), own, "float32", ("x",), "x", 0)
    graph = Graph((source, Node("map", (0,), own, "float32", ("negative",), "", 0)), (1,))
    plan = laid_out(graph, ({"n": 3},), ("y",), (array,))
    assert plan.domain == domain
    assert [len(index) for _, index in walked(plan)] == [len(domain)] * 2


@pytest.mark.parametrize(("length", "unrolled"), [(64, True), (65, False)])
def test_loops_of_many_iterations_are_not_unrolled(length: int, unrolled: bool, make: Any, tmp_path: Path) -> None:
    args = {"x": f"in float32[rows, {length}]", "y": "out float32[rows]", "rows": "int32"}
    kernel, contract = make(args, "x.sum(1)", sizes="{ rows = 6 }")
    (written, *_) = windows.written(trace(contract, tmp_path), KernelText(kernel, contract))
    assert f"< {length}; " in written.definition
    assert ("#pragma unroll" in written.definition) is unrolled


def test_reductions_that_each_element_of_another_one_repeats_are_refused(make: Any, tmp_path: Path) -> None:
    """The mean of rectified products is a sum of sums, which a thread for each result would compute again."""
    args = {"x": "in float32[rows, 128]", "w": "in float32[64, 128]", "y": "out float32[rows, 64]", "rows": "int32"}
    reference = "def reference(x, w):\n    p = np.maximum(x @ w.T, 0)\n    return p - p.mean(1, keepdims=True)"
    kernel, contract = make(args, reference, sizes="{ rows = 6 }")
    with pytest.raises(Refused, match="computed again for each of the 64 elements of another one"):
        list(windows.written(trace(contract, tmp_path), KernelText(kernel, contract)))


def test_a_strided_result_whose_extents_round_up_is_written_with_one_name_for_each(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n, c, h, w]", "k": "in float32[c, 3, 3]", "y": "out float32[n, c, cdiv(h, 2), cdiv(w, 2)]"}
    reference = (
        "def reference(x, k):\n    n, c, h, w = x.shape\n    a, b = (h + 1) // 2, (w + 1) // 2\n    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))\n"
        "    return sum(p[:, :, i : i + 2 * a - 1 : 2, j : j + 2 * b - 1 : 2] * k[None, :, i, j, None, None] for i in range(3) for j in range(3))"
    )
    kernel, contract = make(
        {**args, "n": "int32", "c": "int32", "h": "int32", "w": "int32"}, reference,
        sizes="{ n = 2, c = 3, h = 12, w = 20 }, { n = 1, c = 2, h = 7, w = 9 }",
        grid='cdiv(cdiv(w, 2), 16)", "cdiv(cdiv(h, 2), 16)", "n * c', body="  int plane = blockIdx.z;",
    )  # fmt: skip
    found = next(iter(kernels_for(trace(contract, tmp_path), kernel, contract)))
    assert "const int columns = (w + 1) / 2;" in found.definition
    assert found.definition.count("(w + 1) / 2") == found.definition.count("(h + 1) / 2") == 1
    assert "y[(static_cast<size_t>(plane) * rows + row) * columns + col]" in found.definition


@pytest.mark.parametrize(
    ("size", "text"), [("cdiv(h, 2)", "(n + 1) / 2"), ("cdiv(h * 3, b)", "(n * 3 + k - 1) / k"), ("4 * cdiv(h + 1, 4)", "4 * ((n + 1 + 3) / 4)")]
)  # fmt: skip
def test_a_size_that_rounds_up_has_a_text(size: str, text: str) -> None:
    assert size_text(size, {"h": "n", "b": "k"}) == text
