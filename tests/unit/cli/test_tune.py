"""`kernelmate tune` and `bench --sweep`: versions by size, where the choice changes, and the dispatch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.report.schema import schema

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

KERNEL = """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 512 }, { rows = 2, cols = 8 }]
// grid = "cdiv(rows, 32)"
// block = 32
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_sum(const float* x, float* y, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int c = 0; c < cols; ++c) sum += x[(size_t)row * cols + c];
  y[row] = sum;
}
"""
BY_WARPS = """\
// /// kernelmate
// grid = "rows"
// block = 32
// ///
__global__ void row_sum(const float* x, float* y, int rows, int cols) {
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 32) sum += x[(size_t)blockIdx.x * cols + c];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The kernel, and a version of it with one warp per row."""
    kernel, other = tmp_path / "row_sum.cu", tmp_path / "by_warps.cu"
    kernel.write_text(KERNEL)
    # The baseline's contract decides everything but the launch.
    other.write_text(BY_WARPS.replace("// grid", KERNEL.splitlines()[1] + "\n// grid").replace("// ///\n__", "\n".join(KERNEL.splitlines()[4:10]) + "\n// ///\n__"))  # fmt: skip
    return str(kernel), str(other)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--backend", "emulator", "--target", "H100 SXM"])


def test_a_sweep_times_versions_at_every_power_of_two_and_writes_the_dispatch(
    files: tuple[str, str], tmp_path: Path
) -> None:
    kernel, other = files
    dispatch = tmp_path / "dispatch.cuh"
    arguments = (
        "bench",
        kernel,
        "--size",
        "rows=4096,cols=1",
        "--sweep",
        "cols=24..128",
        "--with",
        other,
        "--seed",
        "7",
    )
    done = run(*arguments, "--json", "--dispatch", str(dispatch))
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema())
    tuned = document["tuned"]
    assert [size["cols"] for size in tuned["sizes"]] == [24, 32, 64, 128]
    assert {size["rows"] for size in tuned["sizes"]} == {4096}
    assert [one["author"] for one in tuned["versions"]] == [None, other]
    assert tuned["kind"] == "predicted"
    own, warps = (one["times_us"] for one in tuned["versions"])
    assert tuned["chosen"][-1] == 1
    assert own[-1] > warps[-1]
    assert tuned["chosen"][0] == 0
    assert tuned["rule"]["measure"] == "cols"
    text = dispatch.read_text()
    assert text.count("<<<") == len(tuned["rule"]["versions"])
    assert re.search(r"inline cudaError_t launch_row_sum\(const float\* x, float\* y, int rows, int cols, cudaStream_t stream\)", text)  # fmt: skip
    if shutil.which("nvcc"):
        main = tmp_path / "main.cu"
        main.write_text('#include "dispatch.cuh"\nint main() { return launch_row_sum(nullptr, nullptr, 1, 1, nullptr); }\n')  # fmt: skip
        subprocess.run(
            ["nvcc", "-arch=sm_90", "-c", str(main), "-o", str(tmp_path / "main.o")], check=True, timeout=300
        )


def test_a_wrong_version_is_left_out_of_a_sweep_with_the_reason(files: tuple[str, str]) -> None:
    kernel, other = files
    Path(other).write_text(Path(other).read_text().replace("c += 32", "c += 33"))
    done = run("bench", kernel, "--sweep", "cols=64..128", "--with", other)
    assert done.exit_code == 0, done.output
    # The path may be folded anywhere.
    assert "by_warps.cuisleftout:wrong" in "".join(done.stdout.split())
    assert "A is the best, or within 3 % of it, at every size." in done.stdout


def test_a_search_at_each_size_finds_the_version_for_each(files: tuple[str, str], tmp_path: Path) -> None:
    page = tmp_path / "tuned.html"
    done = run("tune", files[0], "--max-candidates", "2", "--html", str(page))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["size", "A"]
    assert "synthesis:" in done.stdout
    assert "Times are predicted for H100 SXM." in done.stdout
    html = page.read_text()
    assert html.count('class="chart"') == 1
    assert "row_sum by size" in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "depth=1..8"], "There is no size depth."),
        (["--sweep", "cols=8..1"], "contains no size"),
        (["--sweep", "cols"], "is not NAME=A..B"),
        (["--html", "x.html"], "belong to a sweep"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused_with_what_to_do(
    files: tuple[str, str], arguments: list[str], message: str
) -> None:
    done = run("bench", files[0], *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_dispatch_of_one_version_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    done = run("bench", files[0], "--sweep", "cols=4..8", "--dispatch", str(tmp_path / "d.cuh"))
    assert done.exit_code == 1
    assert "no dispatch was written: One version (the kernel itself) is the best" in done.stdout
    assert not (tmp_path / "d.cuh").exists()


def test_a_wrong_kernel_is_not_tuned(files: tuple[str, str]) -> None:
    Path(files[0]).write_text(KERNEL.replace("c < cols; ++c", "c + 1 < cols; ++c"))
    done = run("tune", files[0])
    assert done.exit_code == 2
    assert "row_sum itself is not right" in done.stderr
