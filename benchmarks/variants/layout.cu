// variants of layout_structs: BLOCK=64 | BLOCK=256
// variants of layout_struct_vectors: BLOCK=64 | BLOCK=256
// variants of layout_arrays: BLOCK=64 | BLOCK=256 | BLOCK=1024
#ifndef BLOCK
#define BLOCK 256
#endif

// Particles of eight floats (position, mass, velocity, charge), one after the other.
// /// kernelmate
// sizes = [{ n = 262144, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// state = "in float32[n * 8]"
// moved = "out float32[n * 3]"
// step = "float32 = 0.01"
// n = "int32"
// ///
__global__ void layout_structs(const float* state, float* moved, float step, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float scale = step * state[i * 8 + 7] / state[i * 8 + 3];
  for (int axis = 0; axis < 3; ++axis) moved[i * 3 + axis] = state[i * 8 + axis] + scale * state[i * 8 + 4 + axis];
}

// /// kernelmate
// sizes = [{ n = 262144, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// state = "in float32[n * 8]"
// moved = "out float32[n * 3]"
// step = "float32 = 0.01"
// n = "int32"
// ///
__global__ void layout_struct_vectors(const float* state, float* moved, float step, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float4 place = reinterpret_cast<const float4*>(state)[i * 2];
  const float4 speed = reinterpret_cast<const float4*>(state)[i * 2 + 1];
  const float scale = step * speed.w / place.w;
  moved[i * 3] = place.x + scale * speed.x;
  moved[i * 3 + 1] = place.y + scale * speed.y;
  moved[i * 3 + 2] = place.z + scale * speed.z;
}

// The same eight floats, each in an array of its own: the same work on data laid out the other way.
// /// kernelmate
// sizes = [{ n = 262144, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// state = "in float32[n * 8]"
// moved = "out float32[n * 3]"
// step = "float32 = 0.01"
// n = "int32"
// ///
__global__ void layout_arrays(const float* state, float* moved, float step, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float scale = step * state[i + 7 * n] / state[i + 3 * n];
  for (int axis = 0; axis < 3; ++axis) moved[i + axis * n] = state[i + axis * n] + scale * state[i + (4 + axis) * n];
}
