"""Kernels of convolutions: right by the judge at odd sizes, in every form of the reference, and readable; pooled images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Contract, Kernel
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import schedules_for

LINE = {"x": "in float32[B, CI, L] ~ normal", "w": "in float32[CO, CI, 5] ~ normal", "y": "out float32[B, CO, L]", "CI": "int32", "CO": "int32", "L": "int32"}  # fmt: skip
LINE_SIZES = "{ B = 2, CI = 5, CO = 11, L = 150 }, { B = 1, CI = 17, CO = 3, L = 37 }, { B = 3, CI = 1, CO = 1, L = 1 }"
LINE_GRID = ("cdiv(L, block)", "CO", "B")
LINE_BODY = """  int l = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y, b = blockIdx.z;
  if (l >= L) return;
  float s = 0;
  for (int c = 0; c < CI; ++c)
    for (int k = 0; k < 5; ++k)
      if (l + k >= 2 && l + k - 2 < L) s += x[(b * CI + c) * L + l + k - 2] * w[(o * CI + c) * 5 + k];
  y[(b * CO + o) * L + l] = s;"""
IMAGE = {"x": "in float32[N, CI, H, W] ~ normal", "w": "in float32[CO, CI, 3, 3] ~ normal", "b": "in float32[CO] ~ normal", "y": "out float32[N, CO, H - 2, W - 2]", "CI": "int32", "CO": "int32", "H": "int32", "W": "int32"}  # fmt: skip
IMAGE_SIZES = "{ N = 2, CI = 5, CO = 11, H = 13, W = 21 }, { N = 1, CI = 9, CO = 3, H = 7, W = 39 }, { N = 3, CI = 1, CO = 1, H = 3, W = 3 }"
IMAGE_GRID = ("cdiv((H - 2) * (W - 2), block)", "CO", "N")
FROM_IMAGE = "  int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y, n = blockIdx.z;\n"


def image(rows: str, cols: str, tap: str, *, start: str = "0", end: str = "s", k: int = 3) -> str:
    """A kernel whose result has so many rows and columns, with the input at `r`, `c` for the taps `i`, `j`."""
    return f"""{FROM_IMAGE}  int R = {rows}, C = {cols};
  if (i >= R * C) return;
  int p = i / C, q = i % C;
  float s = {start};
  for (int d = 0; d < CI; ++d)
    for (int u = 0; u < {k}; ++u)
      for (int v = 0; v < {k}; ++v) {{
        {tap}
        if (r >= 0 && r < H && c >= 0 && c < W) s += x[((n * CI + d) * H + r) * W + c] * w[((o * CI + d) * {k} + u) * {k} + v];
      }}
  y[(n * CO + o) * R * C + i] = {end};"""


VALID = image("H - 2", "W - 2", "int r = p + u, c = q + v;", start="b[o]")
BY_TAP = "    for i in range(3):\n        for j in range(3):\n"
CASES: dict[str, tuple[dict[str, str], str, str, tuple[str, ...], str]] = {
    "a line, tap by tap": (
        LINE, "def reference(x, w):\n    B, CI, L = x.shape\n    p = np.pad(x, ((0, 0), (0, 0), (2, 2)))\n    y = np.zeros((B, w.shape[0], L))\n"
        "    for k in range(5):\n        y += np.einsum('oc,bcl->bol', w[:, :, k], p[:, :, k : k + L])\n    return y",
        LINE_BODY, LINE_GRID, LINE_SIZES,
    ),
    "a line, stacked": (
        LINE, "def reference(x, w):\n    L = x.shape[2]\n    p = np.pad(x, ((0, 0), (0, 0), (2, 2)))\n    cols = np.stack([p[:, :, k : k + L] for k in range(5)], axis=2)\n"
        "    return np.einsum('bckl,ock->bol', cols, w)", LINE_BODY, LINE_GRID, LINE_SIZES,
    ),
    "a line, by matrix products": (
        LINE, "def reference(x, w):\n    L = x.shape[2]\n    p = np.pad(x, ((0, 0), (0, 0), (2, 2)))\n    return sum(w[:, :, k] @ p[:, :, k : k + L] for k in range(5))",
        LINE_BODY, LINE_GRID, LINE_SIZES,
    ),
    "a line, dilated, reversed and causal": (
        LINE, "def reference(x, w):\n    L = x.shape[2]\n    p = np.pad(x, ((0, 0), (0, 0), (12, 0)))\n    y = 0\n    for k in range(5):\n"
        "        y = y + np.einsum('oc,bcl->bol', w[:, :, 4 - k], p[:, :, 3 * k : 3 * k + L])\n    return np.maximum(y, 0)",
        LINE_BODY.replace("if (l + k >= 2 && l + k - 2 < L)", "if (l >= 3 * k)").replace("l + k - 2", "l - 3 * k").replace("= s;", "= fmaxf(s, 0);"),
        LINE_GRID, LINE_SIZES,
    ),
    "rows of channels": (
        {**LINE, "x": "in float32[B, L, CI] ~ normal", "w": "in float32[5, CI, CO] ~ normal", "y": "out float32[B, L, CO]"},
        "def reference(x, w):\n    L = x.shape[1]\n    p = np.pad(x, ((0, 0), (2, 2), (0, 0)))\n    y = np.zeros((x.shape[0], L, w.shape[2]))\n    for k in range(5):\n"
        "        y += p[:, k : k + L] @ w[k]\n    return y",
        LINE_BODY.replace("x[(b * CI + c) * L + l + k - 2]", "x[(b * L + l + k - 2) * CI + c]").replace("w[(o * CI + c) * 5 + k]", "w[(k * CI + c) * CO + o]")
        .replace("y[(b * CO + o) * L + l]", "y[(b * L + l) * CO + o]"), LINE_GRID, LINE_SIZES,
    ),
    "an image, by tensordot": (
        IMAGE, f"def reference(x, w, b):\n    N, CI, H, W = x.shape\n    y = np.zeros((N, w.shape[0], H - 2, W - 2))\n{BY_TAP}"
        "            y += np.tensordot(x[:, :, i : i + H - 2, j : j + W - 2], w[:, :, i, j], axes=([1], [1])).transpose(0, 3, 1, 2)\n    return y + b[None, :, None, None]",
        VALID, IMAGE_GRID, IMAGE_SIZES,
    ),
    "an image, by sliding windows": (
        IMAGE, "def reference(x, w, b):\n    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))\n    return np.einsum('nchwij,ocij->nohw', v, w) + b[:, None, None]",
        VALID, IMAGE_GRID, IMAGE_SIZES,
    ),
    "an image, by sliding windows and tensordot": (
        IMAGE, "def reference(x, w, b):\n    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))\n"
        "    return np.moveaxis(np.tensordot(v, w, axes=((1, 4, 5), (1, 2, 3))), -1, 1) + b[:, None, None]",
        VALID, IMAGE_GRID, IMAGE_SIZES,
    ),
    "an image, from its bias": (
        IMAGE, f"def reference(x, w, b):\n    N, CI, H, W = x.shape\n    y = np.broadcast_to(b[:, None, None], (N, w.shape[0], H - 2, W - 2))\n{BY_TAP}"
        "            y = y + np.einsum('oc,nchw->nohw', w[:, :, i, j], x[:, :, i : H - 2 + i, j : W - 2 + j])\n    return y",
        VALID, IMAGE_GRID, IMAGE_SIZES,
    ),
    "an image of the same size, and a residual": (
        {**IMAGE, "b": "in float32[N, CO, H, W] ~ normal", "y": "out float32[N, CO, H, W]"},
        f"def reference(x, w, b):\n    N, CI, H, W = x.shape\n    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))\n    y = np.zeros(b.shape)\n{BY_TAP}"
        "            y += np.einsum('oc,nchw->nohw', w[:, :, i, j], p[:, :, i : i + H, j : j + W])\n    return b + y / (1 + np.exp(-y))",
        image("H", "W", "int r = p + u - 1, c = q + v - 1;", end="b[(n * CO + o) * R * C + i] + s / (1 + expf(-s))"), ("cdiv(H * W, block)", "CO", "N"), IMAGE_SIZES,
    ),
    "every second window": (
        {**IMAGE, "y": "out float32[N, CO, (H - 1) // 2, (W - 1) // 2]"},
        "def reference(x, w, b):\n    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]\n    return np.einsum('nchwij,ocij->nohw', v, w) + b[:, None, None]",
        image("(H - 1) / 2", "(W - 1) / 2", "int r = 2 * p + u, c = 2 * q + v;", start="b[o]"), ("cdiv(((H - 1) // 2) * ((W - 1) // 2), block)", "CO", "N"), IMAGE_SIZES,
    ),
    "patches of four, apart": (
        {**IMAGE, "x": "in float32[N, CI, 4 * H, 4 * W] ~ normal", "w": "in float32[CO, CI, 4, 4] ~ normal", "y": "out float32[N, CO, H, W]"},
        "def reference(x, w, b, N, CI, H, W):\n    return np.einsum('nchiwj,ocij->nohw', x.reshape(N, CI, H, 4, W, 4), w) + b[:, None, None]",
        image("H", "W", "int r = 4 * p + u, c = 4 * q + v;", start="b[o]", k=4).replace("r < H", "r < 4 * H").replace("c < W)", "c < 4 * W)").replace("* H + r) * W", "* 4 * H + r) * 4 * W"),
        ("cdiv(H * W, block)", "CO", "N"), IMAGE_SIZES,
    ),
    "every second window of the same size": (
        {**IMAGE, "y": "out float32[N, CO, (H + 1) // 2, (W + 1) // 2]"},
        "def reference(x, w, b):\n    N, C, H, W = x.shape\n    p = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])\n    R, S = (H + 1) // 2, (W + 1) // 2\n    y = np.zeros((N, w.shape[0], R, S))\n"
        f"{BY_TAP}            y += np.einsum('oc,nchw->nohw', w[:, :, i, j], p[:, :, i : i + 2 * R - 1 : 2, j : j + 2 * S - 1 : 2])\n    return y + b.reshape(1, -1, 1, 1)",
        image("(H + 1) / 2", "(W + 1) / 2", "int r = 2 * p + u - 1, c = 2 * q + v - 1;", start="b[o]"), ("cdiv(((H + 1) // 2) * ((W + 1) // 2), block)", "CO", "N"), IMAGE_SIZES,
    ),
    "one tap, every second pixel": (
        {**IMAGE, "x": "in float32[N, CI, 2 * H, 2 * W] ~ normal", "w": "in float32[CO, CI] ~ normal", "y": "out float32[N, CO, H, W]"},
        "def reference(x, w, b):\n    return np.einsum('oc,nchw->nohw', w, x[:, :, ::2, ::2]) * b[:, None, None]",
        image("H", "W", "int r = p, c = q;", end="s * b[o]", k=1).replace("* H + r) * W + c]", "* 2 * H + 2 * r) * 2 * W + 2 * c]"), ("cdiv(H * W, block)", "CO", "N"), IMAGE_SIZES,
    ),
    "down the columns alone": (
        {**IMAGE, "w": "in float32[CO, CI, 3] ~ normal", "y": "out float32[N, CO, H - 2, W]"},
        "def reference(x, w, b, H):\n    return sum(np.einsum('oc,nchw->nohw', w[:, :, k], x[:, :, k : k + H - 2]) for k in range(3)) + b[:, None, None]",
        image("H - 2", "W", "if (v) continue; int r = p + u, c = q;", start="b[o]").replace("* 3 + u) * 3 + v]", "* 3 + u)]"), ("cdiv((H - 2) * W, block)", "CO", "N"), IMAGE_SIZES,
    ),
    "an image of rows of channels": (
        {**IMAGE, "x": "in float32[N, H, W, CI] ~ normal", "w": "in float32[3, 3, CI, CO] ~ normal", "y": "out float32[N, H - 2, W - 2, CO]"},
        f"def reference(x, w, b):\n    N, H, W, C = x.shape\n    y = np.zeros((N, H - 2, W - 2, w.shape[3]))\n{BY_TAP}            y += x[:, i : i + H - 2, j : j + W - 2] @ w[i, j]\n    return y + b",
        VALID.replace("x[((n * CI + d) * H + r) * W + c]", "x[((n * H + r) * W + c) * CI + d]").replace("w[((o * CI + d) * 3 + u) * 3 + v]", "w[((u * 3 + v) * CI + d) * CO + o]")
        .replace("y[(n * CO + o) * R * C + i]", "y[(n * R * C + i) * CO + o]"), IMAGE_GRID, IMAGE_SIZES,
    ),
    "a volume": (
        {"x": "in float32[CI, D, H, W] ~ normal", "w": "in float32[CO, CI, 2, 3, 3] ~ normal", "y": "out float32[CO, D - 1, H - 2, W - 2]", "CI": "int32", "CO": "int32", "D": "int32", "H": "int32", "W": "int32"},
        "def reference(x, w):\n    v = np.lib.stride_tricks.sliding_window_view(x, (2, 3, 3), axis=(1, 2, 3))\n    return np.einsum('cdhwijk,ocijk->odhw', v, w)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y, z = blockIdx.z, R = H - 2, C = W - 2;
  if (i >= R * C) return;
  float s = 0;
  for (int c = 0; c < CI; ++c)
    for (int a = 0; a < 2; ++a)
      for (int u = 0; u < 3; ++u)
        for (int v = 0; v < 3; ++v) s += x[((c * D + z + a) * H + i / C + u) * W + i % C + v] * w[(((o * CI + c) * 2 + a) * 3 + u) * 3 + v];
  y[(o * (D - 1) + z) * R * C + i] = s;""", ("cdiv((H - 2) * (W - 2), block)", "CO", "D - 1"), IMAGE_SIZES.replace("N", "D").replace("D = 2", "D = 5").replace("D = 1", "D = 2"),
    ),
    "half precision": (
        {**IMAGE, **{name: IMAGE[name].replace("float32", "float16") for name in ("x", "w", "b", "y")}},
        "def reference(x, w, b):\n    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))\n    return np.einsum('nchwij,ocij->nohw', v, w) + b[:, None, None]",
        VALID.replace("= b[o]", "= __half2float(b[o])").replace("s += x[((n * CI + d) * H + r) * W + c] * w[", "s += __half2float(x[((n * CI + d) * H + r) * W + c]) * __half2float(w[")
        .replace("* 3 + v];", "* 3 + v]);").replace("= s;", "= __float2half(s);"), IMAGE_GRID, IMAGE_SIZES,
    ),
    "groups": (
        {"x": "in float64[B, G, CI, L] ~ normal", "w": "in float64[G, CO, CI, 3] ~ normal", "y": "out float64[B, G, CO, L - 2]", "G": "int32", "CI": "int32", "CO": "int32", "L": "int32"},
        "def reference(x, w, L):\n    return sum(np.einsum('goc,bgcl->bgol', w[..., k], x[..., k : k + L - 2]) for k in range(3))",
        """  int l = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y % CO, g = blockIdx.y / CO, b = blockIdx.z;
  if (l >= L - 2) return;
  double s = 0;
  for (int c = 0; c < CI; ++c)
    for (int k = 0; k < 3; ++k) s += x[((b * G + g) * CI + c) * L + l + k] * w[((g * CO + o) * CI + c) * 3 + k];
  y[((b * G + g) * CO + o) * (L - 2) + l] = s;""", ("cdiv(L - 2, block)", "G * CO", "B"),
        "{ B = 2, G = 3, CI = 5, CO = 4, L = 70 }, { B = 1, G = 2, CI = 17, CO = 5, L = 37 }, { B = 1, G = 1, CI = 1, CO = 1, L = 3 }",
    ),
}  # fmt: skip


def build(make: Any, name: str) -> tuple[Kernel, Contract]:
    args, reference, body, grid, sizes = CASES[name]
    least = (
        'require = ["D > 1", "H > 2", "W > 2"]'
        if "D" in args
        else 'require = ["H > 2", "W > 2"]'
        if "W" in args
        else 'require = ["L > 2"]'
        if "G" in args
        else ""
    )
    above = "#include <cuda_fp16.h>\n" if "float16" in args["x"] else ""
    parameters = ", ".join(f"{'const ' if entry.startswith('in ') else ''}{'__half' if 'float16' in entry else 'double' if 'float64' in entry else 'float'}* {one}" if "[" in entry else f"int {one}" for one, entry in args.items())  # fmt: skip
    made: tuple[Kernel, Contract] = make(args, reference, body=body, grid='", "'.join(grid), sizes=sizes, above=above, more=least, parameters=parameters)  # fmt: skip
    return made


@pytest.mark.exhaustive(share=0.15)
@pytest.mark.parametrize("name", CASES)
def test_written_convolutions_are_right(name: str, make: Any, session: Session) -> None:
    kernel, _ = build(make, name)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        verdict = judged.verdict
        assert judged.candidate.author.startswith("synthesis:convolution")
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert verdict.diagnostics == ()


PLANES = {"x": "in float32[N, C, H, W] ~ normal", "y": "out float32[N, C, H // 2, W // 2]", "H": "int32", "W": "int32"}
PLANE_GRID = ("cdiv(W // 2, 16)", "cdiv(H // 2, 16)", "N * C")
PLANE_SIZES = "{ N = 2, C = 3, H = 10, W = 14 }, { N = 1, C = 5, H = 22, W = 38 }, { N = 1, C = 1, H = 2, W = 2 }"
FROM_PLANE = """  int c = blockIdx.x * 16 + threadIdx.x % 16, r = blockIdx.y * 16 + threadIdx.x / 16;
  if (c >= W / 2 || r >= H / 2) return;
  const float* p = x + (size_t)blockIdx.z * H * W + 2 * r * W + 2 * c;
  y[((size_t)blockIdx.z * (H / 2) + r) * (W / 2) + c] = """
LARGEST = FROM_PLANE + "fmaxf(fmaxf(p[0], p[1]), fmaxf(p[W], p[W + 1]));"
GROUPS = {"x": "in float32[rows, 3 * cols] ~ normal", "y": "out float32[rows, cols]", "cols": "int32"}
POOLED: dict[str, tuple[dict[str, str], str, str, tuple[str, ...], str]] = {
    "the largest of squares": (
        PLANES, "def reference(x):\n    N, C, H, W = x.shape\n    return x.reshape(N, C, H // 2, 2, W // 2, 2).max(axis=(3, 5))", LARGEST, PLANE_GRID, PLANE_SIZES,
    ),
    "the largest of four slices": (
        PLANES, "def reference(x):\n    top = np.maximum(x[:, :, ::2, ::2], x[:, :, ::2, 1::2])\n    return np.maximum(top, np.maximum(x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2]))",
        LARGEST, PLANE_GRID, PLANE_SIZES,
    ),
    "means of squares": (
        PLANES, "def reference(x):\n    N, C, H, W = x.shape\n    return x.reshape(N, C, H // 2, 2, W // 2, 2).mean(5).mean(3)",
        FROM_PLANE + "(p[0] + p[1] + p[W] + p[W + 1]) / 4;", PLANE_GRID, PLANE_SIZES,
    ),
    "means of four neighbours": (
        {"x": "in float32[n] ~ normal", "y": "out float32[n // 4]", "n": "int32"}, "x.reshape(n // 4, 4).mean(1)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n / 4) y[i] = (x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3]) / 4;",
        ("cdiv(n // 4, block)",), "{ n = 4096 }, { n = 36 }, { n = 4 }",
    ),
    "the smallest of three neighbours": (
        GROUPS, "def reference(x):\n    return x.reshape(len(x), -1, 3).min(axis=-1)",
        "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  size_t i = (size_t)blockIdx.y * cols + c;\n  y[i] = fminf(x[3 * i], fminf(x[3 * i + 1], x[3 * i + 2]));",
        ("cdiv(cols, block)", "rows"), "{ rows = 6, cols = 70 }, { rows = 3, cols = 37 }, { rows = 1, cols = 1 }",
    ),
    "sums over three colours": (
        {"x": "in float32[n, 3] ~ normal", "y": "out float32[n]", "n": "int32"}, "np.sqrt((x * x).sum(axis=1))",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = sqrtf(x[3 * i] * x[3 * i] + x[3 * i + 1] * x[3 * i + 1] + x[3 * i + 2] * x[3 * i + 2]);",
        ("cdiv(n, block)",), "{ n = 4096 }, { n = 37 }, { n = 1 }",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.15)
@pytest.mark.parametrize("name", POOLED)
def test_pooled_images_and_short_groups_are_right(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid, sizes = POOLED[name]
    least = {"W": 'require = ["H % 2 == 0", "W % 2 == 0"]', "n // 4": 'require = ["n % 4 == 0"]'}
    more = next((text for name, text in least.items() if name in args or name in args["y"]), "")
    kernel, _ = make(args, reference, body=body, grid='", "'.join(grid), sizes=sizes, more=more, block=256)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        assert judged.candidate.author.startswith(("synthesis:windows", "synthesis:interleaved"))
        assert judged.verdict.correct, (judged.verdict.findings, judged.candidate.kernel.source)


def written(make: Any, tmp_path: Path, name: str) -> dict[str, str]:
    kernel, contract = build(make, name)
    return {one.schedule: one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)}


def test_every_form_of_a_convolution_gets_the_same_kernel(make: Any, tmp_path: Path) -> None:
    names = (
        "an image, by tensordot",
        "an image, by sliding windows",
        "an image, by sliding windows and tensordot",
        "an image, from its bias",
    )
    texts = [written(make, tmp_path, name) for name in names]
    assert all(list(one) == list(texts[0]) for one in texts)
    bodies = {tuple(text.replace("b[o] + sum[i][j]", "sum[i][j] + b[o]") for text in one.values()) for one in texts}
    assert len(bodies) == 1


def test_values_in_registers_serve_several_taps_and_channels(make: Any, tmp_path: Path) -> None:
    text = next(iter(written(make, tmp_path, "a line, tap by tap").values()))
    assert text.count("__shared__") == 2
    assert (
        text.index("line[j] = x_tile") < text.index("for (int kx = 0; kx < 5; ++kx)") < text.index("part[i] = w_tile")
    )
    assert "if (" not in text[text.index("line[j] = x_tile") : text.index("sum[i][j] +=")]


OTHERS = {
    "weights that differ from place to place": (
        {**LINE, "w": "in float32[CO, CI, L] ~ normal"},
        "def reference(x, w, L):\n    return sum(np.einsum('ocl,bcl->bol', w, np.pad(x, ((0, 0), (0, 0), (2, 2)))[:, :, k : k + L]) for k in range(5))",
    ),
    "taps that are left out": (
        LINE, "def reference(x, w, L):\n    p = np.pad(x, ((0, 0), (0, 0), (2, 2)))\n    return sum(np.einsum('oc,bcl->bol', w[:, :, k], p[:, :, k : k + L]) for k in (0, 1, 4))",
    ),
    "a border other than zero": (
        LINE, "def reference(x, w, L):\n    p = np.pad(x, ((0, 0), (0, 0), (2, 2)), constant_values=1)\n    return sum(np.einsum('oc,bcl->bol', w[:, :, k], p[:, :, k : k + L]) for k in range(5))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_sums_that_are_no_convolution_are_reductions_of_windows(name: str, make: Any, tmp_path: Path) -> None:
    args, reference = OTHERS[name]
    kernel, contract = make(args, reference, grid='", "'.join(LINE_GRID), sizes=LINE_SIZES)
    assert schedules_for(kernel, contract, tmp_path) == ["row-windows-block"]


def test_launches_divide_by_the_constants_of_a_blocks_part(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, w, b):\n    H, W = x.shape[2:]\n    y = np.zeros((x.shape[0], w.shape[0], H - 2, W - 2))\n"
    )
    reference += (
        f"{BY_TAP}            y += np.einsum('oc,nchw->nohw', w[:, :, i, j], x[:, :, i : i + H - 2, j : j + W - 2])\n"
    )
    reference += "    return y + b[:, None, None]"
    parameters = "const float* x, const float* w, const float* b, float* y, int CI, int CO, int H, int W, int N"
    args = {**IMAGE, "N": "int32"}
    make(
        args,
        reference,
        body=VALID,
        grid='", "'.join(IMAGE_GRID),
        sizes=IMAGE_SIZES,
        parameters=parameters,
        more='require = ["H >= 3", "W >= 3"]',
    )
    path = tmp_path / "kernel.cu"
    host = "void run(float* p, int c, int o, int h, int w, int n) {\n  work<<<dim3(1, o, n), 128>>>(p, p, p, p, c, o, h, w, n);\n}\n"
    path.write_text(f"{path.read_text()}\n{host}")
    kernel = load_kernel(str(path))
    contract = contract_for(kernel)
    text = placed(kernel, contract, next(kernels_for(trace(contract, tmp_path), kernel, contract)))[0].unit.text
    launch = " ".join(text[text.index("void run") :].split())
    for side, constant in (("h - 2", "kRows"), ("w - 2", "kCols"), ("o", "kOut")):
        assert f"(({side} + {constant} - 1) / {constant})" in launch
        assert text.count(f"constexpr int {constant} = ") == 1
