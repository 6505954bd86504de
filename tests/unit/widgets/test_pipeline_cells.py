"""Pipelines in cells: judged and bound like a kernel, not called, and replaced by the one kernel that a search writes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernelmate.errors import UsageError
from kernelmate_widgets.error_display import InputRefused, KernelFailed

PIPELINE = """\
// /// kernelmate
// pipeline = "scale_then_add"
// sizes = [{ n = 512 }, { n = 37 }]
// reference = "2 * x + 1"
// [args]
// x = "in float32[n]"
// doubled = "scratch float32[n]"
// y = "out float32[n]"
// n = "int32"
// [[stages]]
// kernel = "scale"
// grid = "cdiv(n, block)"
// block = 128
// reference = "2 * x"
// [[stages]]
// kernel = "add"
// grid = "cdiv(n, block)"
// block = 128
// ///
__global__ void scale(const float* x, float* doubled, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) doubled[i] = 2 * x[i];
}

__global__ void add(const float* doubled, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = doubled[i] + 1;
}
"""


def test_a_pipeline_is_judged_and_bound_and_a_call_says_what_to_do(notebook) -> None:
    ran = notebook.run("%%kernelmate\n" + PIPELINE)
    bound = notebook.names["scale_then_add"]
    assert bound.verdict.correct is True
    assert [one.name for one in bound.verdict.stages] == ["scale", "add"]
    assert re.search(r"scale +4 x 128 +right", ran.text)
    assert "2 stages>" in repr(bound)
    for call in ("scale_then_add(1)", "scale_then_add[1, 2](1)", "scale_then_add.raw"):
        error = notebook.run(call, fails=True).error
        assert isinstance(error, UsageError)
        assert "is a pipeline of 2 stages" in str(error)


def test_the_kernel_that_replaces_a_pipeline_is_called_and_its_cell_keeps_it(notebook) -> None:
    notebook.run("%%kernelmate -q\n" + PIPELINE)
    notebook.run('%kernelmate optimize scale_then_add "make it faster" -q')
    bound = notebook.names["scale_then_add"]
    notebook.run(f"%kernelmate accept scale_then_add {1 if bound.optimization.best is None else ''} -q")
    assert bound.version.kernel.name == "scale_then_add_fused"
    notebook.run("import numpy as np; x = np.arange(37, dtype=np.float32); y = np.zeros_like(x)")
    notebook.run("scale_then_add(x, y, 37)")
    np.testing.assert_array_equal(notebook.names["y"], 2 * notebook.names["x"] + 1)
    from kernelmate_widgets.cell_writing import cell_of

    magics = notebook.shell.find_cell_magic("kernelmate").__self__
    text = cell_of(magics.notebook.known["scale_then_add"], bound, bound.version)
    assert text.startswith("%%kernelmate scale_then_add_fused")
    notebook.run(text)
    assert notebook.names["scale_then_add_fused"].verdict.correct is True


def test_a_wrong_pipeline_names_its_stage_and_offers_no_repair(notebook) -> None:
    error = notebook.run("%%kernelmate\n" + PIPELINE.replace("= 2 * x[i]", "= 3 * x[i]"), fails=True).error
    assert isinstance(error, KernelFailed)
    assert "stage scale: " in str(error)
    assert "%kernelmate fix" not in str(error)


@pytest.mark.parametrize("option", ["--args x,y,n", "--grid 4", "--ref total"])
def test_a_pipeline_takes_no_launch_from_the_magic_line(notebook, option: str) -> None:
    error = notebook.run(f"%%kernelmate {option}\n" + PIPELINE, fails=True).error
    assert not isinstance(error, InputRefused)
    assert "judged by its contract" in str(error)
