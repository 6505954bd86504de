"""Contracts inferred from host code as projects write it: the whole of each, with what is not known marked as a guess."""

from __future__ import annotations

import pytest

from kernelmate.source import find_kernels, inference, render_contract, text_unit

PROJECTS = [
    (
        "a switch over head sizes",
        r"""
template <int HEAD, int THREADS> __global__ void attn(float* out, const float* q, const float* k, int heads, int seq) {
  extern __shared__ float s[]; out[(blockIdx.y * seq + blockIdx.x) * HEAD + threadIdx.x % HEAD] = q[0] + k[0];
}
#define LAUNCH_ATTN(HEAD) \
  attn<HEAD, NUM_THREADS><<<grid, block, shared_mem_size, stream>>>(out_ptr, q_ptr, k_ptr, num_heads, seq_len);
void run(torch::Tensor& out, torch::Tensor& query, torch::Tensor& key) {
  int num_seqs = query.size(0);
  int num_heads = query.size(1);
  int head_size = query.size(2);
  int seq_len = 128;
  constexpr int NUM_THREADS = 128;
  float* out_ptr = reinterpret_cast<float*>(out.data_ptr());
  float* q_ptr = reinterpret_cast<float*>(query.data_ptr());
  float* k_ptr = reinterpret_cast<float*>(key.data_ptr());
  int shared_mem_size = seq_len * sizeof(float);
  dim3 grid(seq_len, num_heads);
  dim3 block(NUM_THREADS);
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  switch (head_size) {
    case 32: LAUNCH_ATTN(32); break;
    case 64: LAUNCH_ATTN(64); break;
    case 80: LAUNCH_ATTN(80); break;
    case 96: LAUNCH_ATTN(96); break;
    case 128: LAUNCH_ATTN(128); break;
    case 256: LAUNCH_ATTN(256); break;
    case 512: LAUNCH_ATTN(512); break;
    default: TORCH_CHECK(false, "Unsupported head size: ", head_size); break;
  }
}
""",
        """
sizes = [  # inferred: lines 16 and 20, seq = 128 there, heads is a guess
  { head_size = 32, heads = 32, seq = 128 },
  { head_size = 64, heads = 32, seq = 64 },
  { head_size = 80, heads = 32, seq = 32 },
  { head_size = 96, heads = 32, seq = 32 },
  { head_size = 128, heads = 32, seq = 32 },
  { head_size = 256, heads = 16, seq = 32 },
  { head_size = 512, heads = 16, seq = 16 },
]
grid = ["seq", "heads"]  # inferred: lines 16 and 20
block = 128  # inferred: lines 17 and 20
shared = "seq * 4"  # inferred: lines 15 and 20
instances = ["attn<{head_size}, 128>"]  # inferred: lines 16 and 20
[args]
out = "inout float32[head_size, heads, seq]"  # a guess
q = "in float32[1]"  # inferred: its subscripts
k = "in float32[1]"  # inferred: its subscripts
heads = "int32"
seq = "int32"
""",
    ),
    (
        "a launch macro whose grid is computed by a function",
        r"""
#define CUDA_KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CUDA_NUM_THREADS 512
inline int CAFFE_GET_BLOCKS(const int N) { return (N + CUDA_NUM_THREADS - 1) / CUDA_NUM_THREADS; }
#define CUDA_KERNEL_LAUNCH(kernel, n, stream, ...) do { if ((n) > 0) { kernel<<<CAFFE_GET_BLOCKS(n), CUDA_NUM_THREADS, 0, stream>>>((n), __VA_ARGS__); CUDA_CHECK(cudaGetLastError()); } } while (0)
template <typename Dtype>
__global__ void relu(const int n, const Dtype* in, Dtype* out, Dtype slope) { CUDA_KERNEL_LOOP(i, n) { out[i] = in[i] > 0 ? in[i] : in[i] * slope; } }
template <typename Dtype> void Layer<Dtype>::Forward_gpu(const vector<Blob<Dtype>*>& bottom, const vector<Blob<Dtype>*>& top) {
  const Dtype* bottom_data = bottom[0]->gpu_data();
  Dtype* top_data = top[0]->mutable_gpu_data();
  const int count = bottom[0]->count();
  Dtype slope = this->layer_param_.relu_param().negative_slope();
  CUDA_KERNEL_LAUNCH(relu<float>, count, stream_, bottom_data, top_data, slope);
}
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block)"  # inferred: lines 2 and 12
block = 512  # inferred: lines 2 and 12
instances = ["relu<float>"]  # inferred: its use at line 12
[args]
n = "int32"
in = "in float32[n]"  # inferred: its subscripts
out = "out float32[n]"  # inferred: its subscripts
slope = "float32 = 1.0"  # a guess
""",
    ),
    (
        "a size that the command line may change, arrays of streams",
        r"""
__global__ void saxpy(int n, float a, const float* x, float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }
int main(int argc, char** argv) {
  int N = 1 << 22;
  if (argc > 1) N = atoi(argv[1]);
  const int kStreams = 4;
  int chunk = N / kStreams;
  cudaStream_t streams[kStreams];
  float *d_x[kStreams], *d_y[kStreams];
  float* h_x; cudaMallocHost(&h_x, N * sizeof(float));
  float* h_y; cudaHostAlloc((void**)&h_y, N * sizeof(float), cudaHostAllocDefault);
  for (int s = 0; s < kStreams; ++s) {
    cudaStreamCreate(&streams[s]);
    cudaMallocAsync(&d_x[s], chunk * sizeof(float), streams[s]);
    cudaMallocAsync(&d_y[s], chunk * sizeof(float), streams[s]);
    cudaMemcpyAsync(d_x[s], h_x + s * chunk, chunk * sizeof(float), cudaMemcpyHostToDevice, streams[s]);
    saxpy<<<(chunk + 255) / 256, 256, 0, streams[s]>>>(chunk, 2.0f, d_x[s], d_y[s]);
  }
}
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block)"  # inferred: line 16
block = 256  # inferred: line 16
[args]
n = "int32"
a = "float32 = 2.0"  # inferred: line 16
x = "in float32[n]"  # inferred: its subscripts
y = "inout float32[n]"  # inferred: its subscripts
""",
    ),
    (
        "vectors of thrust",
        r"""
__global__ void square(const int* in, int* out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = in[i] * in[i]; }
int main() {
  thrust::host_vector<int> h(32 << 10);
  thrust::generate(h.begin(), h.end(), rand);
  thrust::device_vector<int> d = h;
  thrust::device_vector<int> r(d.size());
  int n = d.size();
  int block = 256;
  square<<<(n + block - 1) / block, block>>>(thrust::raw_pointer_cast(d.data()), thrust::raw_pointer_cast(&r[0]), n);
}
""",
        """
sizes = [{ n = 32768 }]  # inferred: line 7
grid = "cdiv(n, block)"  # inferred: line 9
block = 256  # inferred: lines 8 and 9
[args]
in = "in int32[n] ~ integers(0, n)"  # inferred: lines 3 and 5
out = "out int32[n]"  # inferred: line 6
n = "int32"
""",
    ),
    (
        "a torch extension with a view of its input",
        r"""
__global__ void ln(const float* x, const float* w, const float* b, float* y, float* mean, int rows, int cols, float eps) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] * w[c] + b[c] + eps;
  if (threadIdx.x == 0) mean[blockIdx.x] = 0;
}
std::vector<torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b, double eps = 1e-5) {
  auto x2 = x.view({-1, x.size(-1)}).contiguous();
  const int64_t M = x2.size(0), N = x2.size(1);
  auto y = torch::empty({M, N}, x.options());
  auto mean = torch::zeros({M}, x.options().dtype(torch::kFloat32));
  int threads = std::min<int64_t>(1024, ((N + 31) / 32) * 32);
  ln<<<M, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(x2.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), mean.data_ptr<float>(), (int)M, static_cast<int>(N), static_cast<float>(eps));
  return {y, mean};
}
""",
        """
sizes = [{ rows = 256, cols = 256 }, { rows = 37, cols = 53 }]  # a guess
grid = "rows"  # inferred: line 11
block = "min(1024, cdiv(cols, 32) * 32)"  # inferred: lines 10 and 11
[args]
x = "in float32[rows, cols]"  # inferred: its subscripts
w = "in float32[cols]"  # inferred: its subscripts
b = "in float32[cols]"  # inferred: its subscripts
y = "out float32[rows, cols]"  # inferred: line 8
mean = "out float32[rows]"  # inferred: line 9
rows = "int32"
cols = "int32"
eps = "float32 = 1.0"  # a guess
""",
    ),
    (
        "a grid that a function returns, and copies of pitched images",
        r"""
__global__ void blur(const unsigned char* src, unsigned char* dst, int width, int height, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) dst[y * pitch + x] = src[y * pitch + x];
}
static inline int iDivUp(int a, int b) { return (a % b != 0) ? (a / b + 1) : (a / b); }
static dim3 gridFor(int w, int h, dim3 b) { return dim3(iDivUp(w, b.x), iDivUp(h, b.y)); }
void process(const std::vector<std::vector<unsigned char>>& frames, int w, int h) {
  unsigned char *src, *dst; size_t pitch;
  cudaMallocPitch((void**)&src, &pitch, w, h);
  cudaMallocPitch((void**)&dst, &pitch, w, h);
  dim3 block(16, 16, 1);
  for (const auto& frame : frames) {
    cudaMemcpy2D(src, pitch, frame.data(), w, w, h, cudaMemcpyHostToDevice);
    blur<<<gridFor(w, h, block), block>>>(src, dst, w, h, (int)pitch);
    cudaMemcpy2D(out.data(), w, dst, pitch, w, h, cudaMemcpyDeviceToHost);
  }
}
""",
        """
sizes = [{ height = 256, width = 256 }, { height = 37, width = 53 }]  # a guess
grid = ["cdiv(width, block_x)", "cdiv(height, block_y)"]  # inferred: line 14
block = [16, 16]  # inferred: lines 11 and 14
[args]
src = "in uint8[height, width]"  # inferred: lines 9 and 13
dst = "out uint8[height, width]"  # inferred: lines 10 and 15
width = "int32"
height = "int32"
pitch = "int32 = width"  # inferred: line 10
""",
    ),
    (
        "cudaLaunchKernel with casts of each address",
        r"""
__global__ void inc(float* x, int n, float a) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += a; }
void go(float* d_x, int n) {
  float alpha = 0.5f;
  void* args[] = {static_cast<void*>(&d_x), reinterpret_cast<void*>(&n), (void*)&alpha};
  dim3 grid((n + 127) / 128, 1, 1), block(128, 1, 1);
  cudaLaunchKernel(reinterpret_cast<const void*>(&inc), grid, block, args, 0, nullptr);
}
void go2(float* d_x, int n) {
  void* p[3]; p[0] = &d_x; p[1] = &n; p[2] = &n;
  cudaLaunchCooperativeKernel((void*)inc, 4, 64, p);
}
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block)"  # inferred: lines 5 and 6
block = 128  # inferred: lines 5 and 6
[args]
x = "inout float32[n]"  # inferred: its subscripts
n = "int32"
a = "float32 = 0.5"  # inferred: line 3
""",
    ),
    (
        "a class whose constant is declared behind its use",
        r"""
template <typename T, int BLOCK_SIZE>
__global__ void reduce(const T* in, T* out, unsigned int n) {
  __shared__ T s[BLOCK_SIZE]; unsigned int i = blockIdx.x * (BLOCK_SIZE * 2) + threadIdx.x; s[threadIdx.x] = i < n ? in[i] : 0; __syncthreads(); if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
class Reducer {
 public:
  Reducer(size_t n) : n_(n) { cudaMalloc(&d_in_, n_ * sizeof(float)); cudaMalloc(&d_out_, blocks() * sizeof(float)); }
  int blocks() const { return (n_ + kThreads * 2 - 1) / (kThreads * 2); }
  float run(const float* h) {
    cudaMemcpy(d_in_, h, n_ * sizeof(float), cudaMemcpyHostToDevice);
    unsigned int s = n_;
    reduce<float, kThreads><<<blocks(), kThreads>>>(d_in_, d_out_, n_);
    for (s = blocks(); s > 1; s = (s + 511) / 512) {
      reduce<float, kThreads><<<(s + 511) / 512, kThreads>>>(d_out_, d_out_, s);
    }
  }
 private:
  static constexpr int kThreads = 256;
  size_t n_; float* d_in_; float* d_out_;
};
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block * 2)"  # inferred: line 12
block = 256  # inferred: line 12
instances = ["reduce<float, kThreads>"]  # inferred: its use at line 12
[args]
in = "in float32[n]"  # inferred: lines 7 and 10
out = "out float32[cdiv(n, 512)]"  # inferred: line 7
n = "uint32"
""",
    ),
    (
        "a macro with variables of its own",
        r"""
__global__ void k(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1; }
#define RUN(KERNEL, n, ...) do { const int threads_per_block = 128; dim3 grid_dim(((n) + threads_per_block - 1) / threads_per_block); KERNEL<<<grid_dim, threads_per_block>>>(__VA_ARGS__); } while (0)
void f(float* x, int count) { RUN(k, count, x, count); }
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block)"  # inferred: line 3
block = 128  # inferred: line 3
[args]
x = "out float32[n]"  # inferred: its subscripts
n = "int32"
""",
    ),
    (
        "a pointer to an instance, within a lambda",
        r"""
template <int kHeadDim, bool Is_causal> __global__ void flash(float* o, const float* q, int b, int s) { o[blockIdx.x * kHeadDim + threadIdx.x] = q[s]; }
template <int kHeadDim> void run_mha(float* o, const float* q, int b, int s, bool causal, cudaStream_t stream) {
  const int num_m_block = (s + 64 - 1) / 64;
  dim3 grid(num_m_block, b);
  BOOL_SWITCH(causal, Is_causal, [&] {
    auto kernel = &flash<kHeadDim, Is_causal>;
    if (smem_size >= 48 * 1024) { cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_size); }
    kernel<<<grid, 128, smem_size, stream>>>(o, q, b, s);
  });
}
void run(Params& p) { if (p.d <= 32) { run_mha<32>(p.o, p.q, p.b, p.s, p.c, 0); } else if (p.d <= 64) { run_mha<64>(p.o, p.q, p.b, p.s, p.c, 0); } }
""",
        """
sizes = [{ b = 256, s = 256 }, { b = 37, s = 53 }]  # a guess
grid = ["cdiv(s, 64)", "b"]  # inferred: lines 3, 4 and 8
block = 128  # inferred: line 8
instances = ["flash<32, true>", "flash<32, false>", "flash<64, true>"]  # inferred: its use at line 6
[args]
o = "inout float32[b, s]"  # a guess
q = "in float32[b, s]"  # a guess
b = "int32"
s = "int32"
""",
    ),
    (
        "a block that the runtime chooses",
        r"""
__global__ void k(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
void f(float* x, int arrayCount) {
  int blockSize; int minGridSize; int gridSize;
  cudaOccupancyMaxPotentialBlockSize(&minGridSize, &blockSize, (void*)k, 0, arrayCount);
  gridSize = (arrayCount + blockSize - 1) / blockSize;
  k<<<gridSize, blockSize>>>(x, arrayCount);
}
""",
        """
sizes = [{ n = 65536 }, { n = 853 }]  # a guess
grid = "cdiv(n, block)"  # inferred: lines 5 and 6
block = 256  # a guess
[args]
x = "inout float32[n]"  # inferred: its subscripts
n = "int32"
""",
    ),
]


@pytest.mark.parametrize(
    ("text", "contract"), [project[1:] for project in PROJECTS], ids=[project[0] for project in PROJECTS]
)
def test_the_contract_of_a_project(text: str, contract: str) -> None:
    found = inference(find_kernels(text_unit(text.strip()))[0])
    lines = render_contract(found.contract, origins=found.origins).splitlines()[1:-1]
    assert [line[3:] for line in lines] == contract.strip().splitlines()
