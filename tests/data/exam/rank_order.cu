// rank of each score = how many are larger, plus equal ones before it

// /// kernelmate
// sizes = [{ n = 384 }, { n = 101 }, { n = 1 }]
// grid = "cdiv(n, 8)"
// block = 256
// reference = "reference.py:rank_order"
// [args]
// score = "in float32[n] ~ normal"
// rank = "out int32[n]"
// n = "int32"
// ///
__global__ void rank_order(const float* score, int* rank, int n) {
  int me = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (me >= n) return;
  float mine = score[me];
  int before = 0;
  for (int other = lane; other < n; other += 32) {
    float s = score[other];
    before += s > mine || (s == mine && other < me);
  }
  for (int d = 16; d; d >>= 1) before += __shfl_xor_sync(~0u, before, d);
  if (lane == 0) rank[me] = before;
}
