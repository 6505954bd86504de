// 分段最大值：每个线程处理一个段的全部特征。空段写 0。

// /// kernelmate
// sizes = [{ segments = 192, features = 40, rows = 2000 }, { segments = 29, features = 7, rows = 120 }, { segments = 1, features = 1, rows = 1 }]
// grid = "cdiv(segments, block)"
// block = 32
// require = ["segments > 0"]
// inputs = "reference.py:make_segments"
// reference = "reference.py:segment_max"
// [args]
// start = "in int32[segments + 1]"
// data = "in float32[rows, features]"
// peak = "out float32[segments, features]"
// segments = "int32"
// features = "int32"
// ///
__global__ void segmentMax(const int* start, const float* data, float* peak, int segments, int features) {
  int seg = blockIdx.x * blockDim.x + threadIdx.x;
  if (seg < segments) {
    int lo = start[seg];
    int hi = start[seg + 1];
    for (int f = 0; f < features; ++f) {   // 逐个特征
      float m = lo < hi ? data[lo * features + f] : 0.0f;
      for (int r = lo + 1; r < hi; ++r) m = fmaxf(m, data[r * features + f]);
      peak[seg * features + f] = m;
    }
  }
}
