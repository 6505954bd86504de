"""What real files take from host headers and NVRTC does not have: fixed-width integers and limits, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterable

PRELUDE_NAME = "kernelmate_prelude.h"

PRELUDE_HEADERS = frozenset(
    [
        "cstdint",
        "stdint.h",
        "cfloat",
        "float.h",
        "climits",
        "limits.h",
        "cmath",
        "math.h",
        "cstddef",
        "stddef.h",
        "cassert",
        "assert.h",
        "cstdio",
        "stdio.h",
        "cstdlib",
        "stdlib.h",
        "cstring",
        "string.h",
        "cuda_runtime.h",
        "cuda_runtime_api.h",
        "cuda.h",
        "device_launch_parameters.h",
        "type_traits",
        "limits",
        "utility",
    ]
)
"""Headers whose device part the prelude or NVRTC itself provides; their include lines are blanked."""

HOST_HEADERS = frozenset(
    [
        "algorithm",
        "any",
        "array",
        "atomic",
        "bitset",
        "charconv",
        "chrono",
        "complex",
        "condition_variable",
        "deque",
        "exception",
        "execution",
        "filesystem",
        "format",
        "forward_list",
        "fstream",
        "functional",
        "future",
        "initializer_list",
        "iomanip",
        "ios",
        "iosfwd",
        "iostream",
        "istream",
        "iterator",
        "list",
        "locale",
        "map",
        "memory",
        "mutex",
        "new",
        "numeric",
        "optional",
        "ostream",
        "queue",
        "random",
        "ranges",
        "ratio",
        "regex",
        "set",
        "shared_mutex",
        "span",
        "sstream",
        "stack",
        "stdexcept",
        "streambuf",
        "string",
        "string_view",
        "strstream",
        "system_error",
        "thread",
        "tuple",
        "typeindex",
        "typeinfo",
        "unordered_map",
        "unordered_set",
        "valarray",
        "variant",
        "vector",
        "cctype",
        "cerrno",
        "cinttypes",
        "clocale",
        "csignal",
        "cstdarg",
        "ctime",
        "cwchar",
        "errno.h",
        "inttypes.h",
        "signal.h",
        "time.h",
        "unistd.h",
        "pthread.h",
        "sys/time.h",
        "sys/types.h",
        "sys/stat.h",
        "getopt.h",
        "omp.h",
        "mpi.h",
        "windows.h",
        "cublas_v2.h",
        "cublas.h",
        "cufft.h",
        "cusparse.h",
        "cusolverDn.h",
        "curand.h",
        "cudnn.h",
        "nccl.h",
        "nvToolsExt.h",
        "nvtx3/nvToolsExt.h",
        "cuda_profiler_api.h",
        "helper_cuda.h",
        "helper_functions.h",
        "torch/extension.h",
        "ATen/ATen.h",
        "c10/cuda/CUDAGuard.h",
        "ATen/cuda/CUDAContext.h",
        "pybind11/pybind11.h",
        "pybind11/numpy.h",
    ]
)
"""Headers that are the host's altogether."""

_CCCL = "#include <cuda/std/climits>\n#include <cuda/std/cfloat>\n#include <cuda/std/cstdint>\n"
_CCCL_USE = re.compile(r'#\s*include\s*[<"](?:cuda|cub|cooperative_groups|nv)/')


def prelude_for(texts: Iterable[str]) -> str:
    """The prelude of a unit with these texts.

    The CUDA C++ core libraries define the same limits under NVRTC, without asking whether they are there: where a text
    uses them, theirs come first. They cost compile time, so they are not taken where nothing needs them.
    """
    return (_CCCL if any(_CCCL_USE.search(text) for text in texts) else "") + _PRELUDE


_PRELUDE = """
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef INT_MAX
#define CHAR_BIT 8
#define SHRT_MAX 32767
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295U
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-9223372036854775807LL - 1)
#define ULLONG_MAX 18446744073709551615ULL
#endif
#ifndef INT32_MAX
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define UINT32_MAX 4294967295U
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615ULL
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_2_SQRTPI 1.12837916709551257390
#endif
"""
