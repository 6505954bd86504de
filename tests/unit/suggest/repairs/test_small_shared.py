from __future__ import annotations

from kernelmate.suggest.repairs.small_shared import REPAIR

TURNED = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// shared = "block * 2"
// require = ["n % 128 == 0"]
// reference = "x.reshape(-1, 128)[:, ::-1].reshape(-1)"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
extern __shared__ float row[];
__global__ void turned(const float* x, float* y, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  row[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = row[127 - threadIdx.x];
}
"""


def test_the_launch_gives_each_thread_an_element(mended) -> None:
    best = mended(TURNED, REPAIR)
    assert best.candidate.contract.shared == "block * 4"
    assert '// shared = "block * 4"' in best.candidate.kernel.unit.text


def test_enough_shared_memory_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), REPAIR).candidates == ()
