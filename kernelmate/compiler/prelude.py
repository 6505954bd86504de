"""Declarations for NVRTC that nvcc adds to every .cu file, and parts of the standard library.

nvcc includes `cuda_runtime.h` before every file, and with it C headers: fixed-width integers, limits, `INFINITY` and
`M_PI` are always available. NVRTC has neither. A text gets the parts of `std::` that it names: small ones from this
module, others from libcu++, which takes a second or two to compile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator


def words_of(text: str) -> frozenset[str]:
    """Returns the whitespace-separated words of a text as a set, for tables of names."""
    return frozenset(text.split())


PRELUDE_NAME = "kernelmate_prelude.h"

_BASE = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef int64_t intptr_t; typedef uint64_t uintptr_t;
typedef int8_t int_least8_t; typedef int16_t int_least16_t; typedef int32_t int_least32_t;
typedef int64_t int_least64_t; typedef uint8_t uint_least8_t; typedef uint16_t uint_least16_t;
typedef uint32_t uint_least32_t; typedef uint64_t uint_least64_t;
typedef int64_t intmax_t; typedef uint64_t uintmax_t;
typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#define SHRT_MIN (-SHRT_MAX - 1)
#define SHRT_MAX 0x7fff
#define USHRT_MAX 0xffff
#define INT_MIN (-INT_MAX - 1)
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffff
#define LLONG_MIN (-LLONG_MAX - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define ULLONG_MAX 0xffffffffffffffffUL
#ifdef __LP64__
#define LONG_MAX LLONG_MAX
#define ULONG_MAX ULLONG_MAX
#else
#define LONG_MAX INT_MAX
#define ULONG_MAX UINT_MAX
#endif
#define LONG_MIN (-LONG_MAX - 1)
#define INT8_MIN SCHAR_MIN
#define INT16_MIN SHRT_MIN
#define INT32_MIN INT_MIN
#define INT64_MIN LLONG_MIN
#define INT8_MAX SCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT32_MAX INT_MAX
#define INT64_MAX LLONG_MAX
#define UINT8_MAX UCHAR_MAX
#define UINT16_MAX USHRT_MAX
#define UINT32_MAX UINT_MAX
#define UINT64_MAX ULLONG_MAX
#define SIZE_MAX UINT64_MAX
#define FLT_RADIX 2
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MIN 1.17549435082228750796873653722224568e-38f
#define FLT_MAX 3.40282346638528859811704183484516925e+38f
#define FLT_EPSILON 1.19209289550781250000000000000000000e-7f
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_MIN 2.22507385850720138309023271733240406e-308
#define DBL_MAX 1.79769313486231570814527423731704357e+308
#define DBL_EPSILON 2.22044604925031308084726333618164062e-16
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VALF __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000ULL)
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#define RAND_MAX 2147483647
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
namespace std {
using ::size_t; using ::ptrdiff_t; typedef decltype(nullptr) nullptr_t;
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t; using ::uintptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::intmax_t; using ::uintmax_t;
}
"""

_PLATFORM = """\
#define __CHAR_BIT__ 8
#define __INT_MAX__ 0x7fffffff
#define __LONG_LONG_MAX__ 0x7fffffffffffffffLL
#define __SIZEOF_INT__ 4
#define __SIZEOF_LONG_LONG__ 8
#define __SIZEOF_POINTER__ 8
#define __ORDER_LITTLE_ENDIAN__ 1234
#define __ORDER_BIG_ENDIAN__ 4321
#define __BYTE_ORDER__ __ORDER_LITTLE_ENDIAN__
#ifdef __LP64__
#define __linux__ 1
#define __linux 1
#define __unix__ 1
#define __unix 1
#define __ELF__ 1
#ifdef __aarch64__
#elif !defined(__x86_64__)
#define __x86_64__ 1
#define __x86_64 1
#define __amd64__ 1
#endif
#endif
#if __cplusplus >= 201703L
#define register
#endif
#define __asm asm
#define __asm__ asm
#define __volatile volatile
#define __const const
#define __const__ const
#define __signed signed
#define __signed__ signed
#define __alignof alignof
#define __extension__
"""
"""Macros and keywords of the host compiler that nvcc passes on and NVRTC does not know; on Windows there is no `__LP64__`.

NVRTC refuses `register` from C++17 on, nvcc does not.
"""

_DRIVER_TYPES = {
    "CUtensorMap": "typedef struct CUtensorMap_st { alignas(64) unsigned long long opaque[16]; } CUtensorMap;\n",
    **{
        name: f"typedef unsigned long long {name};\n"
        for name in ("CUdeviceptr", "CUtexObject", "CUsurfObject", "cuuint64_t")
    },
    "cuuint32_t": "typedef unsigned int cuuint32_t;\n",
}
DRIVER_TYPES = frozenset(_DRIVER_TYPES)
"""The types of `cuda.h` that device code uses; NVRTC cannot read `cuda.h`."""

_POSIX_TYPES = {
    **{name: f"typedef long {name};\n" for name in ("off_t", "off64_t", "ssize_t", "time_t", "suseconds_t")},
    **{f"u_int{bits}_t": f"typedef uint{bits}_t u_int{bits}_t;\n" for bits in (8, 16, 32, 64)},
    **{f"u_{kind}": f"typedef unsigned {kind} u_{kind};\n" for kind in ("char", "short", "int", "long")},
    "__int64": "#define __int64 long long\n",
}
POSIX_TYPES = frozenset(_POSIX_TYPES)
"""Integers of `sys/types.h`, which nvcc includes in every file, and the one that Windows' compiler has."""

_TYPEOF = {
    name: "#include <cuda/std/type_traits>\n"
    f"#define {name}(...) ::cuda::std::remove_reference_t<decltype(__VA_ARGS__)>\n"
    for name in ("typeof", "__typeof", "__typeof__")
}
TYPEOF = frozenset(_TYPEOF)
"""GCC's operator: `decltype` without the reference that an lvalue has."""

_CURAND_STATES = {
    "XORWOW": ("curandState", "curandState_t"), "MRG32k3a": (), "Philox4_32_10": (), "Mtgp32": (), "Sobol32": (),
    "ScrambledSobol32": (), "Sobol64": (), "ScrambledSobol64": (),
}  # fmt: skip
_CURAND_TYPES = {
    name: f"typedef struct curandState{generator} {name};\n"
    for generator, others in _CURAND_STATES.items()
    for name in (f"curandState{generator}_t", *others)
}
CURAND_TYPES = frozenset(_CURAND_TYPES)
"""States of generators, incomplete types here: they stand for `curand_kernel.h` in declarations, where it is not installed."""

_TOOLKIT = "(__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)"
_MACROS = {
    "__NVCC__": "1", "CUDA_VERSION": _TOOLKIT, "__CUDACC_EXTENDED_LAMBDA__": "1", "__CUDACC_RELAXED_CONSTEXPR__": "1",
}  # fmt: skip
_COMPILER = """\
#if __has_include(<cuda/std/__cccl/compiler.h>)
#include <cuda/std/__cccl/compiler.h>
#endif
"""
"""The header by which CUDA's C++ libraries distinguish compilers, read before `__NVCC__` is defined, so that they still detect NVRTC."""
MACROS = frozenset(_MACROS)
"""Macros by which projects distinguish compilers, toolkits and options. NVRTC defines none of them: it cannot read `cuda.h`, and
always compiles lambdas for the device, and here constant functions too."""

_RUNTIME = {
    name: f'static __device__ __forceinline__ void {name}(void) {{ asm volatile("griddepcontrol.{operation};" ::: "memory"); }}\n'
    for name, operation in (("cudaGridDependencySynchronize", "wait"), ("cudaTriggerProgrammaticLaunchCompletion", "launch_dependents"))
} | {
    "__assert_fail": "static __device__ __forceinline__ void __assert_fail(const char* text, const char* file, unsigned line, "
    "const char* function) { __assertfail(text, file, line, function, 1); }\n"
}  # fmt: skip
RUNTIME_NAMES = frozenset(_RUNTIME)
"""Functions of the device runtime that nvcc declares in every file (PTX ISA, griddepcontrol; crt/common_functions.h)."""

_BASE_NAMES = words_of(
    "size_t ptrdiff_t nullptr_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t "
    "intmax_t uintmax_t move forward initializer_list"
)
"""Names of `std::` that the prelude defines; NVRTC itself defines `move`, `forward` and `initializer_list`."""

_FUNCTIONS = words_of(
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma "
    "fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma llrint llround log log10 log1p log2 logb lrint "
    "lround modf nearbyint nextafter pow remainder remquo rint round scalbn signbit sin sinh sqrt tan tanh tgamma trunc "
    "fabsf sqrtf expf logf powf sinf cosf tanhf floorf ceilf fmaxf fminf fmodf "
    "memcpy memset malloc free printf clock"
)
"""Functions that NVRTC has in the global namespace, with C++ overloads."""

_WHOLE = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long",
    "unsigned long", "long long", "unsigned long long",
)  # fmt: skip
_PROMOTED = "".join(
    (
        "template <class T> struct _kernelmate_whole {};\n",
        *(f"template <> struct _kernelmate_whole<{one}> {{ typedef double type; }};\n" for one in _WHOLE),
        "template <class T> struct _kernelmate_real : _kernelmate_whole<T> {};\n",
        *(f"template <> struct _kernelmate_real<{one}> {{ typedef {one} type; }};\n" for one in ("float", "double")),
        "template <class T> using _kernelmate_real_t = typename _kernelmate_real<T>::type;\n",
    )
)
_OF_ONE = words_of(
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor lgamma log log10 log1p log2 "
    "logb nearbyint rint round sin sinh sqrt tan tanh tgamma trunc"
)
_OF_SEVERAL = {
    **dict.fromkeys(words_of("atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder"), "TU"),
    "fma": "TUV",
}
PROMOTING = _OF_ONE | _OF_SEVERAL.keys()
"""Functions that C++ defines for arguments of different arithmetic types too, as for integers: `pow(x, 0.5)` of a float is a double.

nvcc takes these overloads from the host's library; NVRTC has only those of equal types, and reports the others as ambiguous.
"""


def promotes(name: str) -> str:
    """Returns the name under which the prelude has the overloads of a function for different types."""
    return f"{name}(mixed)"


def _promoting(name: str) -> str:
    """Returns the overload of a function for integers, or for arguments of different types."""
    if name in _OF_ONE:
        return (
            f"template <class T> __host__ __device__ typename _kernelmate_whole<T>::type {name}(T x) "
            f"{{ return {name}(double(x)); }}\n"
        )
    types = _OF_SEVERAL[name]
    result = f"decltype({' + '.join(f'_kernelmate_real_t<{one}>()' for one in types)})"
    parameters, values = (
        ", ".join(f"{before}{one.lower()}{after}" for before, one, after in parts)
        for parts in ([(f"{one} ", one, "") for one in types], [("R(", one, ")") for one in types])
    )
    kinds = ", ".join(f"class {one}" for one in types)
    return (
        f"template <{kinds}> __host__ __device__ {result} {name}({parameters}) "
        f"{{ typedef {result} R; return {name}({values}); }}\n"
    )


_ALGORITHMS = """\
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& clamp(const T& x, const T& low, const T& high)
{ return x < low ? low : high < x ? high : x; }
template <class T> __host__ __device__ constexpr void swap(T& a, T& b)
{ T c = static_cast<T&&>(a); a = static_cast<T&&>(b); b = static_cast<T&&>(c); }
}
"""
EXTREMES_OF_LISTS = "min({...})"
_OF_LISTS = """\
namespace std {
template <class T> __host__ __device__ constexpr T min(initializer_list<T> of)
{ const T* at = of.begin(); T found = *at; while (++at != of.end()) found = *at < found ? *at : found; return found; }
template <class T> __host__ __device__ constexpr T max(initializer_list<T> of)
{ const T* at = of.begin(); T found = *at; while (++at != of.end()) found = found < *at ? *at : found; return found; }
}
"""
_ALGORITHM_NAMES = words_of("min max clamp swap")

_TRAITS = """\
namespace std {
template <class T, T v> struct integral_constant {
  static constexpr T value = v; using value_type = T; using type = integral_constant;
  __host__ __device__ constexpr operator T() const noexcept { return v; }
  __host__ __device__ constexpr T operator()() const noexcept { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>; using false_type = bool_constant<false>;
template <class T> struct type_identity { using type = T; };
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class T, class U> struct conditional { using type = T; };
template <class T, class U> struct conditional<false, T, U> { using type = U; };
template <bool b, class T, class U> using conditional_t = typename conditional<b, T, U>::type;
template <class...> using void_t = void;
template <class T, class U> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};
template <class T, class U> inline constexpr bool is_same_v = is_same<T, U>::value;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> struct remove_cv { using type = typename remove_const<typename remove_volatile<T>::type>::type; };
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> struct remove_cvref { using type = typename remove_cv<typename remove_reference<T>::type>::type; };
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T*> { using type = T; };
template <class T> struct remove_pointer<T* const> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_const : false_type {};
template <class T> struct is_const<const T> : true_type {};
template <class T> inline constexpr bool is_pointer_v = is_pointer<remove_cv_t<T>>::value;
template <class T> inline constexpr bool is_const_v = is_const<T>::value;
template <class T> inline constexpr bool is_void_v = is_same_v<remove_cv_t<T>, void>;
template <class T> struct is_void : bool_constant<is_void_v<T>> {};
template <class T, class... U> inline constexpr bool _kernelmate_one_of = (is_same_v<remove_cv_t<T>, U> || ...);
template <class T> inline constexpr bool is_floating_point_v = _kernelmate_one_of<T, float, double, long double>;
template <class T> inline constexpr bool is_integral_v = _kernelmate_one_of<T, bool, char, signed char, unsigned char,
  wchar_t, char16_t, char32_t, short, unsigned short, int, unsigned int, long, unsigned long, long long,
  unsigned long long>;
template <class T> inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T, bool = is_arithmetic_v<T>> inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T> inline constexpr bool is_signed_v<T, false> = false;
template <class T> inline constexpr bool is_unsigned_v = is_arithmetic_v<T> && !is_signed_v<T>;
template <class T> struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T> struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T> struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T> struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T> struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
}
"""
_TRAIT_NAMES = words_of(
    "integral_constant bool_constant true_type false_type type_identity enable_if enable_if_t conditional conditional_t "
    "void_t is_same is_same_v remove_const remove_volatile remove_cv remove_reference remove_cvref remove_pointer "
    "remove_const_t remove_volatile_t remove_cv_t remove_reference_t remove_cvref_t remove_pointer_t is_pointer "
    "is_pointer_v is_const is_const_v is_void is_void_v is_floating_point is_floating_point_v is_integral is_integral_v "
    "is_arithmetic is_arithmetic_v is_signed is_signed_v is_unsigned is_unsigned_v"
)

_LIBCUXX: dict[str, frozenset[str]] = {
    header: words_of(names)
    for header, names in {
        "limits": "numeric_limits",
        "type_traits": "decay decay_t is_convertible is_convertible_v is_class is_enum underlying_type underlying_type_t "
        "is_trivially_copyable is_trivially_copyable_v is_base_of is_base_of_v is_reference_v make_unsigned "
        "make_unsigned_t make_signed make_signed_t common_type common_type_t invoke_result invoke_result_t is_invocable_v "
        "conjunction conjunction_v disjunction disjunction_v negation negation_v add_const_t add_pointer_t is_array_v",
        "utility": "pair make_pair exchange declval index_sequence make_index_sequence integer_sequence in_place",
        "tuple": "tuple make_tuple tie get tuple_size tuple_element apply",
        "array": "array",
        "functional": "plus minus multiplies divides modulus negate equal_to not_equal_to greater less greater_equal "
        "less_equal logical_and logical_or logical_not bit_and bit_or bit_xor",
        "complex": "complex",
        "bit": "bit_cast popcount countl_zero countr_zero has_single_bit bit_ceil bit_floor bit_width rotl rotr",
        "optional": "optional nullopt",
        "variant": "variant visit",
        "span": "span",
        "atomic": "atomic memory_order memory_order_relaxed memory_order_acquire memory_order_release memory_order_seq_cst",
    }.items()
}
"""libcu++ headers (`cuda/std/...`), each with the names taken from it."""

_BYTE = """\
namespace std {
enum class byte : unsigned char {};
template <class T> __host__ __device__ constexpr T to_integer(byte b) { return T(b); }
__host__ __device__ constexpr byte operator|(byte a, byte b) { return byte((unsigned)a | (unsigned)b); }
__host__ __device__ constexpr byte operator&(byte a, byte b) { return byte((unsigned)a & (unsigned)b); }
__host__ __device__ constexpr byte operator^(byte a, byte b) { return byte((unsigned)a ^ (unsigned)b); }
__host__ __device__ constexpr byte operator~(byte a) { return byte(~(unsigned)a); }
template <class T> __host__ __device__ constexpr byte operator<<(byte a, T n) { return byte((unsigned)a << n); }
template <class T> __host__ __device__ constexpr byte operator>>(byte a, T n) { return byte((unsigned)a >> n); }
}
"""
"""A type of its own, as for nvcc: libraries overload functions for `std::byte` and `cuda::std::byte`."""
_BYTE_NAMES = frozenset({"byte", "to_integer"})

_DERIVED = {
    "numeric_limits": "template <typename T> class numeric_limits : public ::cuda::std::numeric_limits<T> {};",
    "common_type": "template <typename... T> struct common_type : ::cuda::std::common_type<T...> {};",
}
"""Templates that programs may specialise in `std::` for types of their own, which a using declaration would not allow."""

_IN_STD = frozenset({"tuple_size", "tuple_element"}) | _DERIVED.keys()
"""Names that libcu++ declares in `std::` itself, for structured bindings, and those that are derived from its own."""

STD_NAMES = frozenset().union(
    _BASE_NAMES, _FUNCTIONS, _ALGORITHM_NAMES, _TRAIT_NAMES, _BYTE_NAMES, *_LIBCUXX.values()
)  # fmt: skip
"""All names of `std::` that can be provided to device code."""


THRUST = "thrust"
"""Stands among names of `std::` for headers of Thrust, which NVRTC does not compile as they are."""

_THRUST_STD = (
    words_of(
        "declval move forward enable_if is_same is_convertible is_convertible_v numeric_limits decay remove_cv remove_reference swap min max "
        "abs sqrt exp log pow sin cos tan sinh cosh tanh atan atan2 hypot"
    )
    & STD_NAMES
)
_THRUST = """\
#undef __host__
#define __host__
#define THRUST_DEVICE_SYSTEM 4
#define DBL_MAX_EXP 1024
#define FLT_MAX_EXP 128
namespace std {
template <typename T> class allocator {
 public:
  typedef T value_type; typedef T* pointer; template <typename U> struct rebind { typedef allocator<U> other; };
};
template <typename T> struct allocator_traits { typedef typename T::value_type value_type; };
template <typename T, typename = void> struct iterator_traits;
template <typename T, typename A = allocator<T>> class vector;
template <typename C, typename T> class basic_ostream;
template <typename C, typename T> class basic_istream;
struct string { string(const char* = "") {} string& operator+=(const string&) { return *this; } const char* c_str() const { return ""; } };
struct exception { virtual ~exception() {} virtual const char* what() const noexcept { return ""; } };
struct runtime_error : exception { runtime_error(const string&) {} };
struct length_error : exception { length_error(const string&) {} };
struct bad_alloc : exception {};
template <typename T> struct add_lvalue_reference { typedef T& type; };
template <> struct add_lvalue_reference<void> { typedef void type; };
using ::malloc; using ::free;
}
"""
"""Declarations that Thrust's headers name for host code. The sequential system stands for the device's, whose headers launch kernels;
device code of both computes the same, since algorithms that a kernel calls run in its thread. With `__host__` empty, and unannotated
functions compiled for the device, host functions are templates that nothing instantiates."""


def prelude_for(names: Collection[str]) -> str:
    """Returns the prelude for device code that uses these names of `std::`, or types of `cuda.h`."""
    return "".join(_parts(frozenset(names)))


def _parts(names: frozenset[str]) -> Iterator[str]:
    yield _PLATFORM
    yield _BASE
    if THRUST in names:
        names |= _THRUST_STD
        yield _THRUST
        if "complex" not in names:
            yield "namespace std { template <typename T> class complex; }\n"
    if "__NVCC__" in names:
        yield _COMPILER
    yield from (f"#define {name} {value}\n" for name, value in _MACROS.items() if name in names)
    by_name = _POSIX_TYPES | _DRIVER_TYPES | _CURAND_TYPES | _TYPEOF
    yield from (text for name, text in by_name.items() if name in names)
    yield from (text for name, text in _RUNTIME.items() if name in names)
    promoting = sorted(name for name in PROMOTING if promotes(name) in names)
    if promoting:
        yield _PROMOTED
        yield from map(_promoting, promoting)
    functions = sorted(names & _FUNCTIONS)
    if functions:
        yield f"namespace std {{ {' '.join(f'using ::{name};' for name in functions)} }}\n"
    if names & _ALGORITHM_NAMES:
        yield _ALGORITHMS
    if EXTREMES_OF_LISTS in names:
        yield _OF_LISTS
    if names & _TRAIT_NAMES:
        yield _TRAITS
    if names & _BYTE_NAMES:
        yield _BYTE
    for header, provided in _LIBCUXX.items():
        taken = sorted(names & provided)
        if taken:
            yield f"#include <cuda/std/{header}>\n"
            yield f"namespace std {{ {' '.join(f'using ::cuda::std::{name};' for name in taken if name not in _IN_STD)} }}\n"
            yield from (f"namespace std {{ {_DERIVED[name]} }}\n" for name in taken if name in _DERIVED)
