// How many newlines are in each slice of a log file. A thread takes one slice of 256 bytes.

// /// kernelmate
// sizes = [{ slices = 768 }, { slices = 45 }, { slices = 1 }]
// grid = "cdiv(slices, block)"
// block = 128
// reference = "reference.py:count_lines"
// [args]
// text = "in uint8[slices * 256] ~ integers(0, 32)"
// lines = "out int32[slices]"
// slices = "int32"
// ///
__global__ void countLines(const unsigned char *text, int *lines, int slices)
{
  int slice = blockIdx.x * blockDim.x + threadIdx.x;
  if (slice < slices)
  {
    const unsigned char *c = text + slice * 256;
    const unsigned char *end = c + 256;
    int found = 0;
    while (c != end)
    {
      if (*c == '\n') found++;
      c++;
    }
    lines[slice] = found;
  }
}
