"""`kernelmate sass --object`: a kernel in what a build has made, beside its text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

pytestmark = pytest.mark.skipif(
    find_tool("nvdisasm") is None or find_tool("cuobjdump") is None,
    reason="needs nvdisasm and cuobjdump (nvidia-cuda-nvdisasm, nvidia-cuda-cuobjdump)",
)

SOURCE = """\
namespace {
__global__ void decay(float* y) { y[threadIdx.x] = expf(y[threadIdx.x]); }
}
template <int N> __global__ void shift(float* y) { y[threadIdx.x] += N; }
void launch(float* y) {
  decay<<<1, 32>>>(y);
  shift<3><<<1, 32>>>(y);
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "work.cu"
    path.write_text(SOURCE)
    return path


def cubin_of(source: Path, name: str) -> Path:
    with Session(load_settings(backend="emulator")) as session:
        (kernel,) = [one for one in load_kernels(source) if one.name == name]
        (prepared,) = session.prepare(kernel)
    path = source.with_suffix(".cubin")
    path.write_bytes(prepared.compiled.cubin)
    return path


def test_the_same_code_is_the_same(run, documents, source) -> None:
    built = cubin_of(source, "shift")
    result = run("sass", f"{source}::shift", "--object", str(built))
    assert result.exit_code == 0
    assert "The code is the same" in result.output
    assert "shift<3>" in result.output
    (diff,) = documents(run("sass", f"{source}::shift", "--object", str(built), "--json").output)["code_diffs"]
    assert diff["same"]
    assert diff["old"]["compiler"].startswith("ptxas ")
    assert diff["old"]["registers"] == diff["new"]["registers"]


def test_a_kernel_that_the_build_lacks_is_named_with_those_that_it_has(run, source) -> None:
    built = cubin_of(source, "shift")
    alone = run("sass", f"{source}::decay", "--object", str(built))
    assert alone.exit_code == 2
    assert "has no code of decay" in alone.output
    assert "It has shift" in alone.output
    both = run("sass", str(source), "--object", str(built))
    assert both.exit_code == 0
    assert "note: " in both.output
    assert "has no code of decay" in both.output


def test_code_for_another_architecture_is_refused_with_the_flag_to_build_it(run, source) -> None:
    built = cubin_of(source, "shift")
    result = run("sass", f"{source}::shift", "--object", str(built), "--target", "A100")
    assert result.exit_code == 2
    assert "has machine code for sm_90, and A100" in result.output
    assert "-gencode arch=compute_80,code=sm_80" in result.output


@pytest.mark.parametrize("content", [None, b"", b"no object\n" * 99, b"\x7fELF\x02\x01" + bytes(200)])
def test_a_file_without_code_is_refused(run, source, content) -> None:
    path = source.with_name("app")
    if content is not None:
        path.write_bytes(content)
    result = run("sass", str(source), "--object", str(path))
    assert result.exit_code == 2
    assert str(path) in result.output
    assert "hint:" in result.output


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_objects_and_libraries_of_nvcc_and_what_its_flags_change(run, documents, source) -> None:
    for flags, name in (["-c"], "work.o"), (["-shared", "-Xcompiler", "-fPIC", "-use_fast_math"], "libwork.so"):
        built = source.with_name(name)
        subprocess.run(["nvcc", "-arch=sm_90", *flags, source, "-o", built, "-cudart", "none"], check=True)
        diffs = documents(run("sass", str(source), "--object", str(built), "--json").output)["code_diffs"]
        assert [one["old"]["kernel"] for one in diffs] == ["decay", "shift"]
        assert [one["same"] for one in diffs] == [name == "work.o"] * 2, "-use_fast_math flushes subnormal numbers"
