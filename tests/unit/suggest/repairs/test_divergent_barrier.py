from __future__ import annotations

from kernelmate.suggest.repairs.divergent_barrier import REPAIR

CONTRACT = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// require = ["n % 128 == 0"]
// reference = "right"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
BRANCH = """\
__global__ void branch(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  if (threadIdx.x < 48) {
    __syncthreads();
    y[i] = row[47 - threadIdx.x];
  } else {
    y[i] = 0.0f;
    __syncthreads();
  }
}
"""
RIGHT = """\
__global__ void right(const float* x, float* y, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  y[i] = threadIdx.x < 48 ? x[blockIdx.x * 128 + 47 - threadIdx.x] : 0.0f;
}
"""


def test_the_branch_is_split_at_its_barrier(mended) -> None:
    text = mended(CONTRACT + BRANCH + RIGHT, REPAIR).candidate.kernel.source
    assert text.count("__syncthreads();") == 1
    assert "\n  __syncthreads();\n  if (threadIdx.x < 48) {\n    y[i] = row[47 - threadIdx.x];\n  }\n" in text


def test_a_condition_that_the_branch_changes_is_left_alone(search) -> None:
    broken = BRANCH.replace("const int i", "int t = threadIdx.x; const int i").replace("threadIdx.x < 48", "t < 48")
    found = search(CONTRACT + broken.replace("    y[i] = row[47", "    t = 90;\n    y[i] = row[47") + RIGHT, REPAIR)
    assert [finding.code for finding in found.baseline.findings][:1] == ["divergent-barrier"]
    assert found.candidates == ()
