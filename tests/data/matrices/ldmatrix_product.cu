// A product as libraries write it: copies to shared memory by cp.async, fragments by ldmatrix, results back by stmatrix.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ tiles = 3 }]
// grid = "tiles"
// block = 32
// reference = "a @ b"
// [args]
// a = "in float16[tiles, 16, 16]"
// b = "in float16[tiles, 16, 8]"
// d = "out float16[tiles, 16, 8]"
// tiles = "int32"
// ///
__device__ unsigned place_of(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

__device__ void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place_of(to)), "l"(from) : "memory");
}

__global__ void ldmatrix_product(const __half* a, const __half* b, __half* d, int tiles) {
  __shared__ __align__(16) __half left[16 * 16], right[16 * 8], out[16 * 8];
  const int lane = threadIdx.x;
  a += blockIdx.x * 256, b += blockIdx.x * 128, d += blockIdx.x * 128;
  copy16(left + lane * 8, a + lane * 8);
  if (lane < 16) copy16(right + lane * 8, b + lane * 8);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();

  unsigned x[4], y[2];
  const __half* row = left + (lane % 16) * 16 + (lane / 16) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(place_of(row)) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(y[0]), "=r"(y[1])
               : "r"(place_of(right + (lane % 16) * 8)) : "memory");
  float z[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  __half2 pairs[2] = {__floats2half2_rn(z[0], z[1]), __floats2half2_rn(z[2], z[3])};
  const unsigned* r = reinterpret_cast<const unsigned*>(pairs);
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(place_of(out + (lane % 16) * 8)),
               "r"(r[0]), "r"(r[1]) : "memory");
  __syncwarp();
  for (int i = lane; i < 128; i += 32) d[i] = out[i];
}
