"""Files built by nvcc: its code is judged instead of NVRTC's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kernelmate.compiler import nvcc
from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.config import load_settings
from kernelmate.errors import CompilerUnavailable, CompileTimeout, UsageError
from kernelmate.records import Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernel

KERNEL = """// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "x * 2"
// options = ["-DEXTRA=0", "-Ibeside"]
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i] + EXTRA;
}
"""
HOST = "#include <cstdio>\nint main() { twice<<<1, 1>>>(nullptr, nullptr, 0); return HOST; }\n"

needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not installed")


def judged(folder: Path, text: str, name: str = "k.cu") -> Verdict:
    (folder / "beside").mkdir(exist_ok=True)
    (folder / "beside" / "two.h").write_text("#pragma once\nconstexpr float kTwo = 2.0f;\n")
    (folder / name).write_text(text)
    with Session(load_settings(backend="emulator"), nvcc=True) as session:
        (verdict,) = session.bench(load_kernel(folder / name))
    return verdict


@needs_nvcc
def test_host_code_options_and_headers_are_taken_as_in_the_users_build(tmp_path: Path) -> None:
    text = '#include "two.h"\n' + KERNEL.replace("FACTOR", "kTwo") + HOST.replace("HOST", "0")
    verdict = judged(tmp_path, text)
    assert verdict.correct is True
    assert verdict.compiler.startswith("nvcc 1")
    assert verdict.resources is not None
    assert verdict.resources.registers > 3


@needs_nvcc
def test_code_that_tells_nvcc_from_nvrtc_is_judged_as_nvcc_builds_it(tmp_path: Path) -> None:
    told = "#ifdef __CUDACC_RTC__\n#define FACTOR 2\n#else\n#define FACTOR 3\n#endif\n"
    assert judged(tmp_path, told + KERNEL).correct is False


@needs_nvcc
def test_errors_in_host_code_are_placed_in_the_users_file(tmp_path: Path) -> None:
    text = KERNEL.replace("FACTOR", "2") + HOST.replace("HOST", "nothing")
    verdict = judged(tmp_path, text)
    assert not verdict.compiled
    error = next(one for one in verdict.diagnostics if one.severity == "error")
    assert (Path(error.file or "").name, error.line) == ("k.cu", text.count("\n"))
    assert "nothing" in error.message


@needs_nvcc
def test_a_kernel_that_nvcc_leaves_out_is_said(tmp_path: Path) -> None:
    text = (
        KERNEL.replace("FACTOR", "2").replace("__global__", "#ifdef __CUDACC_RTC__\n__global__").rstrip() + "\n#endif\n"
    )
    verdict = judged(tmp_path, text)
    assert not verdict.compiled
    assert "nvcc built no code of" in verdict.diagnostics[0].message


def test_without_nvcc_what_to_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find_tool", lambda _: None)
    with pytest.raises(CompilerUnavailable) as failed:
        judged(tmp_path, KERNEL.replace("FACTOR", "2"))
    assert "leave out --nvcc" in (failed.value.hint or "")


def test_a_kernel_in_a_python_string_is_no_file_of_nvccs(tmp_path: Path) -> None:
    contract, _, body = KERNEL.replace("FACTOR", "2").partition("__global__")
    block = contract.replace("// /// kernelmate", "# /// kernelmate").replace("\n// ", "\n# ")
    text = f'import cupy\n{block}k = cupy.RawKernel(r"""extern "C" __global__{body}""", "twice")\n'
    with pytest.raises(UsageError, match="Python file"):
        judged(tmp_path, text, "k.py")


def test_an_nvcc_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvcc"
    tool.write_text("#!/bin/sh\nsleep 600\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(nvcc, "find_tool", lambda _: tool)
    monkeypatch.setattr(nvcc, "_version", lambda _: "0")
    (tmp_path / "k.cu").write_text(KERNEL.replace("FACTOR", "2"))
    with Session(load_settings(backend="emulator")) as session:
        session.check(load_kernel(tmp_path / "k.cu"))  # NVRTC's part is in the cache then, whatever it took
    settings = load_settings(backend="emulator", compile_timeout_s=5)
    with Session(settings, nvcc=True) as session, pytest.raises(CompileTimeout, match="nvcc did not end"):
        session.bench(load_kernel(tmp_path / "k.cu"))
