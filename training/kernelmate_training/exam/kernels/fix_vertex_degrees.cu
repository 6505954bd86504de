// degree of every vertex of an undirected graph given by its edges

// /// kernelmate
// sizes = [{ edges = 5000, vertices = 300 }, { edges = 211, vertices = 17 }, { edges = 1, vertices = 1 }]
// grid = "cdiv(edges, block)"
// block = 128
// require = ["vertices > 0"]
// reference = "reference.py:vertex_degrees"
// [args]
// a = "in int32[edges] ~ integers(0, vertices)"
// b = "in int32[edges] ~ integers(0, vertices)"
// degree = "inout int32[vertices] ~ zeros"
// edges = "int32"
// ///
__global__ void degrees(const int *a, const int *b, int *degree, int edges)
{
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < edges) {
    degree[a[e]] += 1;
    degree[b[e]] += 1;
  }
}
