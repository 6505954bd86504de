"""Comments of a kernel that was written anew: the text around it, its parameter list, and reasons inside it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kernelmate.records import Kernel
from kernelmate.source import contract_for, load_kernels
from kernelmate.suggest.recipes.comments import without_stale_comments
from kernelmate.suggest.recipes.techniques import REWRITTEN
from kernelmate.suggest.replacement import with_kept_comments, without_own_helpers
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

BLOCK = """\
// /// kernelmate
// kernel = "rms"
// sizes = [{ rows = 64, cols = 1024 }, { rows = 3, cols = 37 }]
// grid = "rows"
// block = 32
// reference = "x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
"""
HEAD = 'extern "C" __global__ void rms(const float* x, float* y, int rows, int cols) {\n'
BODY = """\
  if (threadIdx.x != 0) return;
  float s = 0.0f;
  for (int c = 0; c < cols; ++c) s += x[blockIdx.x * cols + c] * x[blockIdx.x * cols + c];
  for (int c = 0; c < cols; ++c) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] / sqrtf(s / cols + 1e-6f);
}
"""


def rewritten(path: Path) -> Kernel:
    kernel = next(one for one in load_kernels(path) if one.name == "rms")
    contract, bare = contract_for(kernel), without_own_helpers(kernel)
    new, _ = placed(bare, contract, next(kernels_for(trace(contract, path.parent), bare, contract)))
    return with_kept_comments(kernel, without_stale_comments(kernel, new, REWRITTEN))


def of(folder: Path, text: str) -> str:
    (folder / "kernel.cu").write_text(text)
    return rewritten(folder / "kernel.cu").unit.text


@pytest.mark.parametrize(
    "comment",
    [
        "// RMS norm of each row.\n//   x  activations\n",
        "/*\n * RMS norm of each row.\n *\n * Params: x activations, y result.\n */\n",
        "/** RMS norm of each row. */\n",
        "/// RMS norm of each row.\n/// @param x activations\n",
    ],
)
@pytest.mark.parametrize(
    "before", ["", "#include <cmath>\n\n", "__global__ void other(float* x) {\n  x[0] = 1.0f;\n}\n\n"]
)
def test_the_comment_above_a_kernel_stays_directly_above_it(comment: str, before: str, tmp_path: Path) -> None:
    text = of(tmp_path, before + comment + BLOCK + HEAD + BODY)
    above, _, _ = text.partition("// /// kernelmate")
    assert above.endswith(f"\n{comment}")
    assert "warp_sum" in above, "helpers go above the comment"


def test_a_licence_at_the_top_stays_there(tmp_path: Path) -> None:
    licence = "// SPDX-License-Identifier: MIT\n// Copyright 2026 the authors\n"
    assert of(tmp_path, licence + BLOCK + HEAD + BODY).startswith(licence + "\n")


def test_a_comment_between_contract_and_kernel_stays(tmp_path: Path) -> None:
    note = "/* Called once for each layer; eps is the checkpoint's. */\n"
    assert f"// ///\n{note}extern" in of(tmp_path, BLOCK + note + HEAD + BODY)


def test_notes_on_parameters_stay_beside_them(tmp_path: Path) -> None:
    head = """\
    __global__ void rms(const float* x,  // activations [rows, cols]
                        // Written in full.
                        float* y, int rows,
                        int cols  // at most 65535
    ) {
    """
    text = of(tmp_path, BLOCK + textwrap.dedent(head) + BODY)
    now = """\
    __global__ void __launch_bounds__(kThreads)
    rms(const float* __restrict__ x,  // activations [rows, cols]
        // Written in full.
        float* __restrict__ y,
        int rows,
        int cols) {                   // at most 65535
    """
    assert textwrap.dedent(now) in text


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("// eps must stay 1e-6: the checkpoint was trained with it.", True),
        ("// One thread does all. eps must stay 1e-6.", False),
        ("/* See the paper, section 3. */", True),
        ("// TODO: half precision", True),
        ("// sum of squares", False),
        ("// s must be reset for each iteration", False),
        ("// y[0] = 1.0f; // never", False),
    ],
)
def test_only_reasons_that_still_hold_stay_inside(comment: str, kept: bool, tmp_path: Path) -> None:
    text = of(tmp_path, BLOCK + HEAD + f"  {comment}\n" + BODY)
    assert (comment in text) == kept
    assert "One thread does all" not in text


def test_a_reason_stands_beside_the_number_that_it_names(tmp_path: Path) -> None:
    text = of(tmp_path, BLOCK + HEAD + "  // One thread does all. eps must stay 1e-6.\n" + BODY)
    line = text.split("  // eps must stay 1e-6.\n")[1].split("\n")[0]
    assert "1e-6f" in line


def test_comments_stay_in_a_python_file_with_several_kernels(tmp_path: Path) -> None:
    add = 'extern "C" __global__ void add(float* x) {\n  x[0] += 1.0f;  // one\n}\n'
    texts = ["// RMS norm of each row.", BLOCK + HEAD + BODY, "/* Adds one. */", add]
    code = "\n".join(texts)
    (tmp_path / "host.py").write_text(
        f'import cupy as cp\n\n# The module.\nMODULE = cp.RawModule(code=r"""\n{code}""")\n'
    )
    text = rewritten(tmp_path / "host.py").unit.text
    assert "\n// RMS norm of each row.\n// /// kernelmate" in text
    assert f"/* Adds one. */\n{add}" in text
