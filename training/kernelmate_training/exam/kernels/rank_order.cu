// rank of each score = how many are larger, plus equal ones before it

// /// kernelmate
// sizes = [{ n = 384 }, { n = 101 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 32
// reference = "reference.py:rank_order"
// [args]
// score = "in float32[n] ~ normal"
// rank = "out int32[n]"
// n = "int32"
// ///
__global__ void rank_order(const float* score, int* rank, int n) {
  int me = blockIdx.x * blockDim.x + threadIdx.x;
  if (me < n) {
    rank[me] = 0;
    for (int other = 0; other < n; ++other)
      if (score[other] > score[me] || (score[other] == score[me] && other < me)) rank[me]++;
  }
}
