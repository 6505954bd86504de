// The four best scores of each candidate list, best first (beam search). Short lists are filled with -1e30.

// /// kernelmate
// sizes = [{ lists = 192, length = 100 }, { lists = 31, length = 9 }, { lists = 1, length = 2 }]
// grid = "cdiv(lists, block)"
// block = 64
// reference = "reference.py:top_four"
// [args]
// score = "in float32[lists, length] ~ normal"
// best = "out float32[lists, 4]"
// lists = "int32"
// length = "int32"
// ///
__global__ void top_four(const float* score, float* best, int lists, int length) {
  const int list = blockIdx.x * blockDim.x + threadIdx.x;
  if (list >= lists) return;
  float kept[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
  for (int i = 0; i < length; ++i) {
    const float s = score[list * length + i];
    int place = 4;
    while (place > 0 && s > kept[place - 1]) --place;
    for (int move = 3; move > place; --move) kept[move] = kept[move - 1];
    if (place < 4) kept[place] = s;
  }
  for (int i = 0; i < 4; ++i) best[list * 4 + i] = kept[i];
}
