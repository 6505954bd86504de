from __future__ import annotations

from kernelmate.suggest.repairs.missing_barrier import REPAIR

REUSED = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 256"
// block = 128
// require = ["n % 256 == 0"]
// reference = "x.reshape(-1, 128)[:, ::-1].reshape(-1)"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void turned(const float* x, float* y, int n) {
  __shared__ float row[128];
  for (int start = blockIdx.x * 256; start < (blockIdx.x + 1) * 256; start += 128) {
    row[threadIdx.x] = x[start + threadIdx.x];
    __syncthreads();
    y[start + threadIdx.x] = row[127 - threadIdx.x];
  }
}
"""


def test_a_barrier_comes_between_a_store_and_the_loads_after_it(texts, mended) -> None:
    stored = "    part[threadIdx.x] = s;\n    __syncthreads();\n"
    broken = texts["row"].replace(stored, "    part[threadIdx.x] = s;\n")
    best = mended(broken, REPAIR)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "Nothing orders" in best.candidate.why


def test_a_barrier_comes_at_the_end_of_each_turn_where_turns_race(texts, mended) -> None:
    broken = texts["row"].replace("part[threadIdx.x + k];\n        __syncthreads();\n", "part[threadIdx.x + k];\n")
    assert mended(broken, REPAIR).candidate.kernel.unit.text == texts["row"]


def test_shared_memory_that_is_used_again_is_waited_for(mended) -> None:
    best = mended(REUSED, REPAIR)
    assert best.candidate.kernel.source.count("__syncthreads();") == 2


def test_races_between_blocks_are_not_met_with_a_barrier(search) -> None:
    source = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// require = ["n % 128 == 0"]
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// z = "out float32[n]"
// n = "int32"
// ///
__global__ void next(const float* x, float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  z[i] = x[i];
  __syncthreads();
  y[i] = z[(i + 1) % n];
}
"""
    found = search(source, REPAIR)
    assert [finding.code for finding in found.baseline.findings][:1] == ["global-race"]
    assert found.candidates == ()
