"""Device code as one text: the judged code, without headers of the project, with comments where they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.standalone import StandaloneText, compile_standalone, standalone_text
from kernelmate.errors import UsageError
from kernelmate.records import CompileOptions
from kernelmate.source import load_kernel

TEXT = """\
#include <cstdio>
#include "factors.h"
#include "more/again.h"
// Above the kernel.
__global__ void scale(float* x) {
  x[threadIdx.x] *= twice(FACTOR);  // beside code
  // between lines
  x[threadIdx.x] += 1.0f;
}
// Above the launch.
void launch(float* x) { scale<<<1, 32>>>(x); }
"""


def written(folder: Path, text: str) -> StandaloneText:
    (folder / "more").mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "factors.h").write_text(
        "#pragma once\n#define FACTOR 3.0f\nstatic __device__ float twice(float v) { return 2 * v; }\n"
    )
    (folder / "more" / "again.h").write_text('#include "../factors.h"\n')
    (folder / "scale.cu").write_text(text)
    kernel, target, options = load_kernel(str(folder / "scale.cu")), find_target(None), CompileOptions()
    judged = compile_kernel(kernel, (), instance=None, target=target, options=options)
    assert judged.ok, judged.diagnostics
    return standalone_text(kernel, (), instance=None, target=target, options=options, judged=judged, timeout_s=60)


def test_headers_of_the_project_are_pasted_once_and_comments_of_device_code_stay(tmp_path: Path) -> None:
    made = written(tmp_path, TEXT)
    assert made.text.count("#define FACTOR 3.0f") == 1
    assert "#include" not in made.text
    assert "// Above the kernel.\n__global__" in made.text
    assert "twice(FACTOR);  // beside code\n  // between lines\n" in made.text
    assert "launch" not in made.text
    assert "--std=c++17" in made.options
    assert not any("gpu-architecture" in option or str(tmp_path) in option for option in made.options)
    assert ".entry" in compile_standalone(made, find_target(None), timeout_s=60).ptx


def test_a_kernel_that_has_the_name_of_a_function_of_cuda_is_selected_by_its_type(tmp_path: Path) -> None:
    made = written(tmp_path, TEXT.replace("scale", "exp").replace("void launch", "void host"))
    assert made.expression == "static_cast<void (*)(float *)>(exp)"
    assert ".entry" in compile_standalone(made, find_target(None), timeout_s=60).ptx


def test_messages_count_the_lines_of_the_text(tmp_path: Path) -> None:
    made = written(tmp_path, TEXT)
    broken = StandaloneText("\n__global__ void scale(float* x) { x = y; }\n", made.builtins, "scale", made.options)
    with pytest.raises(UsageError, match=r"kernel\.cu\(2\): error"):
        compile_standalone(broken, find_target(None), timeout_s=60)


def test_what_comes_before_the_include_of_a_file_goes_along_with_it(tmp_path: Path) -> None:
    (tmp_path / "host.cu").write_text('#include "factors.h"\n#define MORE 4.0f\n#include "scale.cu"\n')
    made = written(tmp_path, "__global__ void scale(float* x) { x[threadIdx.x] *= twice(FACTOR) + MORE; }\n")
    assert "#define MORE 4.0f" in made.text
    assert ".entry" in compile_standalone(made, find_target(None), timeout_s=60).ptx
