// How many newlines are in each slice of a log file. A thread takes one slice of 256 bytes.

// /// kernelmate
// sizes = [{ slices = 768 }, { slices = 45 }, { slices = 1 }]
// grid = "cdiv(slices, 4)"
// block = 128
// reference = "reference.py:count_lines"
// [args]
// text = "in uint8[slices * 256] ~ integers(0, 32)"
// lines = "out int32[slices]"
// slices = "int32"
// ///
__global__ void countLines(const unsigned char *text, int *lines, int slices)
{
  int slice = blockIdx.x * 4 + threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  if (slice >= slices) return;
  int found = 0;
  for (int i = lane; i < 256; i += 32) found += text[slice * 256 + i] == 10;
  for (int d = 16; d; d >>= 1) found += __shfl_xor_sync(~0u, found, d);
  if (lane == 0) lines[slice] = found;
}
