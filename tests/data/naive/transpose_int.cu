/* matrix transpose, first version */
#define BX 16
#define BY 16

// /// kernelmate
// sizes = [{ h = 512, w = 384 }, { h = 77, w = 301 }, { h = 1, w = 1 }]
// grid = ["cdiv(w, 16)", "cdiv(h, 16)"]
// block = [16, 16]
// reference = "src.T"
// [args]
// dst = "out int32[w, h]"
// src = "in int32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void transpose_k(int* dst, const int* src, int h, int w)
{
	int x = blockIdx.x * BX + threadIdx.x;
	int y = blockIdx.y * BY + threadIdx.y;
	if (x < w && y < h)
		dst[x * h + y] = src[y * w + x];
}
