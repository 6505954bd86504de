// Declarations of the types and functions of ATen, c10 and torch that device code uses, written for KernelMate.
// They stand in for torch's own headers, which are made for host compilers. Layout and rounding are those of torch.
#pragma once
#include <cuda_fp16.h>
#include <cuda_bf16.h>

#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_ALWAYS_INLINE __inline__ __attribute__((always_inline))
#define C10_RESTRICT __restrict__
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#define C10_UNUSED __attribute__((__unused__))
#define C10_NOINLINE __attribute__((noinline))
#define C10_WARP_SIZE 32
#define C10_MAX_THREADS_PER_BLOCK(n) (n)
#define C10_MIN_BLOCKS_PER_SM(threads, blocks) (blocks)
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(n) __launch_bounds__(n)
#define C10_LAUNCH_BOUNDS_2(n, blocks) __launch_bounds__(n, blocks)
#define CUDA_KERNEL_ASSERT(condition)
#define CUDA_KERNEL_ASSERT2(condition)
#define CUDA_KERNEL_ASSERT_MSG(condition, message)
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                          \
  int64_t _i_n_d_e_x = ((int64_t)blockIdx.x) * blockDim.x + threadIdx.x;                  \
  for (index_type i = _i_n_d_e_x; _i_n_d_e_x < (n); _i_n_d_e_x += blockDim.x * gridDim.x, i = _i_n_d_e_x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#define AT_DEVICE __device__

namespace c10 {

struct alignas(2) Half {
  unsigned short x;
  Half() = default;
  __host__ __device__ Half(float value) : x(__half_as_ushort(__float2half_rn(value))) {}
  __host__ __device__ Half(const __half& value) : x(__half_as_ushort(value)) {}
  struct from_bits_t {};
  __host__ __device__ constexpr Half(unsigned short bits, from_bits_t) : x(bits) {}
  __host__ __device__ operator float() const { return __half2float(__ushort_as_half(x)); }
  __host__ __device__ operator __half() const { return __ushort_as_half(x); }
};

struct alignas(2) BFloat16 {
  unsigned short x;
  BFloat16() = default;
  __host__ __device__ BFloat16(float value) : x(__bfloat16_as_ushort(__float2bfloat16_rn(value))) {}
  __host__ __device__ BFloat16(const __nv_bfloat16& value) : x(__bfloat16_as_ushort(value)) {}
  struct from_bits_t {};
  __host__ __device__ constexpr BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  __host__ __device__ operator float() const { return __bfloat162float(__ushort_as_bfloat16(x)); }
  __host__ __device__ operator __nv_bfloat16() const { return __ushort_as_bfloat16(x); }
};

#define KERNELMATE_ARITHMETIC(T, op)                                                                        \
  __host__ __device__ inline T operator op(const T& a, const T& b) { return T(float(a) op float(b)); }      \
  __host__ __device__ inline float operator op(const T& a, float b) { return float(a) op b; }               \
  __host__ __device__ inline float operator op(float a, const T& b) { return a op float(b); }               \
  __host__ __device__ inline double operator op(const T& a, double b) { return double(float(a)) op b; }     \
  __host__ __device__ inline double operator op(double a, const T& b) { return a op double(float(b)); }     \
  __host__ __device__ inline T operator op(const T& a, int b) { return T(float(a) op float(b)); }           \
  __host__ __device__ inline T operator op(int a, const T& b) { return T(float(a) op float(b)); }           \
  __host__ __device__ inline T operator op(const T& a, int64_t b) { return T(float(a) op float(b)); }       \
  __host__ __device__ inline T operator op(int64_t a, const T& b) { return T(float(a) op float(b)); }       \
  __host__ __device__ inline T& operator op##=(T& a, const T& b) { return a = T(float(a) op float(b)); }
#define KERNELMATE_FLOATING(T)   \
  KERNELMATE_ARITHMETIC(T, +)    \
  KERNELMATE_ARITHMETIC(T, -)    \
  KERNELMATE_ARITHMETIC(T, *)    \
  KERNELMATE_ARITHMETIC(T, /)    \
  __host__ __device__ inline T operator-(const T& a) { return T(-float(a)); }
KERNELMATE_FLOATING(Half)
KERNELMATE_FLOATING(BFloat16)
#undef KERNELMATE_FLOATING
#undef KERNELMATE_ARITHMETIC

template <typename T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  T real_ = T(0), imag_ = T(0);
  constexpr complex() = default;
  __host__ __device__ constexpr complex(const T& re, const T& im = T()) : real_(re), imag_(im) {}
  __host__ __device__ constexpr T real() const { return real_; }
  __host__ __device__ constexpr T imag() const { return imag_; }
  __host__ __device__ constexpr complex& operator+=(const complex& o) { real_ += o.real_; imag_ += o.imag_; return *this; }
  __host__ __device__ constexpr complex& operator-=(const complex& o) { real_ -= o.real_; imag_ -= o.imag_; return *this; }
  __host__ __device__ constexpr complex& operator*=(const complex& o) {
    T re = real_ * o.real_ - imag_ * o.imag_;
    imag_ = real_ * o.imag_ + imag_ * o.real_;
    real_ = re;
    return *this;
  }
  __host__ __device__ constexpr complex& operator/=(const complex& o) {
    T n = o.real_ * o.real_ + o.imag_ * o.imag_;
    T re = (real_ * o.real_ + imag_ * o.imag_) / n;
    imag_ = (imag_ * o.real_ - real_ * o.imag_) / n;
    real_ = re;
    return *this;
  }
};
template <typename T> __host__ __device__ constexpr complex<T> operator+(complex<T> a, const complex<T>& b) { return a += b; }
template <typename T> __host__ __device__ constexpr complex<T> operator-(complex<T> a, const complex<T>& b) { return a -= b; }
template <typename T> __host__ __device__ constexpr complex<T> operator*(complex<T> a, const complex<T>& b) { return a *= b; }
template <typename T> __host__ __device__ constexpr complex<T> operator/(complex<T> a, const complex<T>& b) { return a /= b; }

}  // namespace c10

namespace at {

using c10::BFloat16;
using c10::Half;
using c10::complex;

template <typename T> struct OpMathType { using type = T; };
template <> struct OpMathType<Half> { using type = float; };
template <> struct OpMathType<BFloat16> { using type = float; };
template <typename T> using opmath_type = typename OpMathType<T>::type;

template <typename T, bool cuda> struct AccumulateType { using type = T; };
template <bool cuda> struct AccumulateType<Half, cuda> { using type = float; };
template <bool cuda> struct AccumulateType<BFloat16, cuda> { using type = float; };
template <> struct AccumulateType<float, false> { using type = double; };
template <bool cuda> struct AccumulateType<bool, cuda> { using type = bool; };
template <bool cuda> struct AccumulateType<char, cuda> { using type = int64_t; };
template <bool cuda> struct AccumulateType<int8_t, cuda> { using type = int64_t; };
template <bool cuda> struct AccumulateType<uint8_t, cuda> { using type = int64_t; };
template <bool cuda> struct AccumulateType<int16_t, cuda> { using type = int64_t; };
template <bool cuda> struct AccumulateType<int32_t, cuda> { using type = int64_t; };
template <typename T, bool cuda> using acc_type = typename AccumulateType<T, cuda>::type;

template <typename T> struct DefaultPtrTraits { typedef T* PtrType; };
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };

template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
class TensorAccessor {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  __host__ __device__ TensorAccessor(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
  __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
  __host__ __device__ PtrType data() { return data_; }
  __host__ __device__ const PtrType data() const { return data_; }
  __host__ __device__ TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  __host__ __device__ const TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) const {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 protected:
  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

template <typename T, template <typename U> class PtrTraits, typename index_t>
class TensorAccessor<T, 1, PtrTraits, index_t> {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  __host__ __device__ TensorAccessor(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
  __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
  __host__ __device__ PtrType data() { return data_; }
  __host__ __device__ const PtrType data() const { return data_; }
  __host__ __device__ T& operator[](index_t i) { return data_[strides_[0] * i]; }
  __host__ __device__ const T& operator[](index_t i) const { return data_[strides_[0] * i]; }

 protected:
  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
class GenericPackedTensorAccessor {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
  __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
  __host__ __device__ PtrType data() { return data_; }
  __host__ __device__ const PtrType data() const { return data_; }
  __device__ TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  __device__ const TensorAccessor<T, N - 1, PtrTraits, index_t> operator[](index_t i) const {
    return TensorAccessor<T, N - 1, PtrTraits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 protected:
  PtrType data_;
  index_t sizes_[N];
  index_t strides_[N];
};

template <typename T, template <typename U> class PtrTraits, typename index_t>
class GenericPackedTensorAccessor<T, 1, PtrTraits, index_t> {
 public:
  typedef typename PtrTraits<T>::PtrType PtrType;
  __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
  __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
  __host__ __device__ PtrType data() { return data_; }
  __host__ __device__ const PtrType data() const { return data_; }
  __device__ T& operator[](index_t i) { return data_[strides_[0] * i]; }
  __device__ const T& operator[](index_t i) const { return data_[strides_[0] * i]; }

 protected:
  PtrType data_;
  index_t sizes_[1];
  index_t strides_[1];
};

template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, PtrTraits, int32_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, PtrTraits, int64_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, PtrTraits, index_t>;

template <typename T, typename U> __host__ __device__ constexpr T ceil_div(T a, U b) { return (a + b - 1) / b; }

namespace cuda {
template <typename T> __host__ __device__ constexpr T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}  // namespace cuda

struct PhiloxCudaState {
  union Payload { uint64_t val; int64_t* ptr; };
  Payload seed_{};
  Payload offset_{};
  uint64_t offset_intragraph_ = 0;
  bool captured_ = false;
};

namespace cuda { using at::PhiloxCudaState; }

}  // namespace at

namespace torch {
using at::DefaultPtrTraits;
using at::GenericPackedTensorAccessor;
using at::PackedTensorAccessor;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
using at::RestrictPtrTraits;
using at::TensorAccessor;
namespace headeronly {
using at::DefaultPtrTraits;
using at::RestrictPtrTraits;
using c10::BFloat16;
using c10::Half;
template <typename T, size_t N, template <typename U> class PtrTraits = at::DefaultPtrTraits, typename index_t = int64_t>
using HeaderOnlyGenericPackedTensorAccessor = at::GenericPackedTensorAccessor<T, N, PtrTraits, index_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = at::DefaultPtrTraits, typename index_t = int64_t>
using HeaderOnlyTensorAccessor = at::TensorAccessor<T, N, PtrTraits, index_t>;
}  // namespace headeronly
}  // namespace torch

// section TensorInfo
namespace at { namespace cuda { namespace detail {
template <typename T, typename IndexType> struct TensorInfo {
  T* data;
  IndexType sizes[25];
  IndexType strides[25];
  int dims;
  __host__ __device__ bool isContiguous() const { return dims == 1 && strides[0] == 1; }
};
template <typename T, typename IndexType, int Dims> struct IndexToOffset {
  static __host__ __device__ IndexType get(IndexType linear, const TensorInfo<T, IndexType>& info) {
    IndexType offset = 0;
    for (int i = (Dims > 0 ? Dims : info.dims) - 1; i > 0; --i) {
      offset += linear % info.sizes[i] * info.strides[i];
      linear /= info.sizes[i];
    }
    return offset + linear * info.strides[0];
  }
};
}}}  // namespace at::cuda::detail
// section WARP_SHFL
template <typename T> __device__ __forceinline__ T WARP_SHFL(T v, int lane, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_sync(mask, v, lane, width);
}
// section WARP_SHFL_XOR
template <typename T> __device__ __forceinline__ T WARP_SHFL_XOR(T v, int lanes, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_xor_sync(mask, v, lanes, width);
}
// section WARP_SHFL_UP
template <typename T> __device__ __forceinline__ T WARP_SHFL_UP(T v, unsigned d, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_up_sync(mask, v, d, width);
}
// section WARP_SHFL_DOWN
template <typename T> __device__ __forceinline__ T WARP_SHFL_DOWN(T v, unsigned d, int width = 32, unsigned mask = 0xffffffff) {
  return __shfl_down_sync(mask, v, d, width);
}
// section WARP_BALLOT
__device__ __forceinline__ unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) { return __ballot_sync(mask, predicate); }
// section ACTIVE_MASK
__device__ __forceinline__ unsigned ACTIVE_MASK() { return __activemask(); }
// section getLaneId
__device__ __forceinline__ int getLaneId() { int lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane; }

// section atomicAdd
__device__ inline c10::Half atomicAdd(c10::Half* at, c10::Half v) { return c10::Half(atomicAdd(reinterpret_cast<__half*>(at), __half(v))); }
__device__ inline c10::BFloat16 atomicAdd(c10::BFloat16* at, c10::BFloat16 v) {
  return c10::BFloat16(atomicAdd(reinterpret_cast<__nv_bfloat16*>(at), __nv_bfloat16(v)));
}
__device__ inline int64_t atomicAdd(int64_t* at, int64_t v) {
  return static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(v)));
}
// section gpuAtomicAdd
template <typename T> __device__ __forceinline__ T gpuAtomicAdd(T* at, T v) { return atomicAdd(at, v); }
template <typename T> __device__ __forceinline__ void gpuAtomicAddNoReturn(T* at, T v) { atomicAdd(at, v); }
// section fastAtomicAdd
namespace at { namespace native {
using ::gpuAtomicAdd;
using ::gpuAtomicAddNoReturn;
template <typename T, class Index> __device__ __forceinline__ void fastAtomicAdd(T* tensor, Index index, const Index, T value, bool) {
  atomicAdd(tensor + index, value);
}
}}  // namespace at::native
// section unpack
#include <cuda/std/tuple>
namespace at { namespace cuda { namespace philox {
__host__ __device__ inline ::cuda::std::tuple<uint64_t, uint64_t> unpack(at::PhiloxCudaState state) {
  if (!state.captured_) return ::cuda::std::make_tuple(state.seed_.val, state.offset_.val);
  return ::cuda::std::make_tuple(
      static_cast<uint64_t>(*state.seed_.ptr), static_cast<uint64_t>(*state.offset_.ptr) + state.offset_intragraph_);
}
}}}  // namespace at::cuda::philox
