"""Kernels that do what no kernel should, in as many ways as they are asked for: what a session must outlive.

Every second variant of a kind holds a call of `free` that it never makes. The emulator refuses such code, so that these
go to the GPU as they are, where the emulator would have caught many of the others before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import FindingCode

HEAD = """// /// kernelmate
// sizes = [{ n = 400000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "2 * x"
// require = ["n >= 256"]
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
SIGNATURE = "__global__ void twice(const float* x, float* y, int n) {\n"
INDEX = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
RIGHT_LINE = "  if (i < n) y[i] = 2.0f * x[i];\n"
RIGHT = f"{HEAD}{SIGNATURE}{INDEX}{RIGHT_LINE}}}\n"

RECURSION = """__device__ __noinline__ float deep(volatile float* a, int n) {
  volatile float frame[64];
  frame[n & 63] = a[n & 63];
  return n <= 0 ? frame[0] : deep(frame, n - 1) + frame[n & 63];
}
"""
ASSERT = "#include <cassert>\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to be hostile.

    Attributes:
        name: of the kind. before: text before the kernel. body: of the kernel, `{v}` standing for the variant.
        codes: findings of which one must be the first error; empty where the kernel must be called right.
        hangs: it runs until it is killed.
    """

    name: str
    body: str
    codes: tuple[str, ...]
    before: str = ""
    hangs: bool = False


FAULT = (FindingCode.ILLEGAL_ADDRESS,)
WRONG = (
    FindingCode.WRONG_VALUES,
    FindingCode.WRONG_AT_SIZE,
    FindingCode.NONDETERMINISTIC,
    FindingCode.STALE_OUTPUT,
    FindingCode.NAN_HANDLING,
    FindingCode.PRECISION_LOSS,
)
GPU_ONLY = "  if (n < 0) free((void*)x);\n"
KINDS = (
    Kind("write far away", "y[i + ((size_t)({v} + 1) << 40)] = x[i];", FAULT),
    Kind("write far below", "y[i - ((ptrdiff_t)({v} + 1) << 38)] = x[i];", FAULT),
    Kind("read far away", "y[i] = x[i + ((size_t)({v} + 1) << 41)];", FAULT),
    Kind("one thread writes far away", "if (i == n - 1 - {v}) y[(size_t)1 << 44] = 1; y[i] = 2 * x[i];", FAULT),
    Kind("null pointer", "volatile float* p = y + n; if (n > 5) p = (float*)(size_t)(4 * {v}); p[i] = x[i];",
         (FindingCode.ILLEGAL_ADDRESS, FindingCode.TRAP)),
    Kind("writes over all memory", "for (size_t k = 0; k < (1ull << 42); k += 1 << 20) y[i + k] = {v};", (*FAULT, FindingCode.HANG)),
    Kind("shared memory out of bounds",
         "__shared__ float s[32]; s[(threadIdx.x + 1) * (n / 16 + {v})] = x[i]; __syncthreads(); y[i] = s[0];",
         (*FAULT, FindingCode.OUT_OF_BOUNDS_WRITE, FindingCode.TRAP, *WRONG)),
    Kind("misaligned", "*(double*)((char*)(y + (i & ~1)) + 4 + 0 * {v}) = x[i];",
         (FindingCode.MISALIGNED_ACCESS, FindingCode.OUT_OF_BOUNDS_WRITE)),
    Kind("trap", 'if (i == n / 2 + {v}) asm volatile("trap;"); y[i] = 2 * x[i];', (FindingCode.TRAP,)),
    Kind("every thread traps", 'y[i] = {v}; asm volatile("trap;");', (FindingCode.TRAP,)),
    Kind("failed assert", "assert(i < n / 2 + {v}); y[i] = 2 * x[i];", (FindingCode.TRAP,), before=ASSERT),
    Kind("stack overflow", "y[i] = deep((volatile float*)x, n + {v});", (FindingCode.ILLEGAL_ADDRESS, FindingCode.TRAP), before=RECURSION),
    Kind("deep recursion", "y[i] = 2 * x[i] + 0 * deep((volatile float*)x, 200 + {v});", (FindingCode.ILLEGAL_ADDRESS, FindingCode.TRAP),
         before=RECURSION),
    Kind("endless loop", "volatile float* p = y; while (p[0] != 7.0f + {v}) p[1] = x[0];", (FindingCode.HANG,), hangs=True),
    Kind("one thread never ends", "volatile float* p = y; y[i] = 2 * x[i]; if (i == {v}) while (p[n - 1] == p[n - 1]) p[0] = 1;",
         (FindingCode.HANG,), hangs=True),
    Kind("waits for a lock that nobody gives back",
         "__shared__ int lock; lock = 0; __syncthreads(); while (atomicCAS(&lock, 0, 1 + {v}) != 0) {{}} y[i] = 2 * x[i];",
         (FindingCode.HANG,), hangs=True),
    Kind("too much static shared memory",
         "__shared__ float s[{v} + 60000]; s[threadIdx.x] = x[i]; __syncthreads(); y[i] = 2 * s[threadIdx.x];",
         (FindingCode.COMPILE_ERROR, FindingCode.LAUNCH_FAILURE)),
    Kind("too much local memory",
         "volatile float a[130000 - {v}]; for (int k = 0; k < 9; k++) a[(i + k * 7919) % 130000] = x[i]; y[i] = 2 * a[i % 130000];",
         (FindingCode.OUT_OF_MEMORY, FindingCode.LAUNCH_FAILURE, FindingCode.COMPILE_ERROR)),
    Kind("a variable larger than the GPU", "pool[(size_t)i << 12] = {v}; y[i] = 2 * x[i] + 0 * pool[i];",
         (FindingCode.OUT_OF_MEMORY, FindingCode.COMPILE_ERROR), before="__device__ char pool[200ull << 30];\n"),
    Kind("allocates until nothing is left",
         "if (i == 0) {{ char* p; while ((p = (char*)malloc(65536 + {v})) != nullptr) p[0] = 1; }} if (i < n) y[i] = 2 * x[i];",
         ()),
    Kind("allocates and writes behind it",
         "if (i == {v}) {{ char* p = (char*)malloc(64); if (p) p[(size_t)1 << 42] = 1; }} if (i < n) y[i] = 2 * x[i];", FAULT),
    Kind("prints without end",
         'for (int k = 0; k < 40; k++) if (i % 97 == {v}) printf("thread %d prints line %d\\n", i, k); if (i < n) y[i] = 2 * x[i];',
         (FindingCode.OUTPUT_FLOOD,)),
    Kind("prints a megabyte a line", 'if (i < 64) printf("%1000000d\\n", i + {v}); if (i < n) y[i] = 2 * x[i];',
         (FindingCode.OUTPUT_FLOOD,)),
    Kind("writes next to its arrays", "if (i == 0) {{ y[-1 - {v}] = 3; y[n + {v}] = 3; }} if (i < n) y[i] = 2 * x[i];",
         (FindingCode.OUT_OF_BOUNDS_WRITE,)),
    Kind("writes its input", "if (i < n) {{ y[i] = 2 * x[i]; ((float*)x)[i] = {v}; }}", (FindingCode.INPUT_MUTATED,)),
    Kind("leaves the output", "if (i < n && i != n / 3 + {v}) y[i] = 2 * x[i];", WRONG),
    Kind("wrong only now and then", "if (i < n) y[i] = (clock64() % 997 == {v}) ? 7.0f : 2 * x[i];",
         WRONG),
    Kind("does not compile", "y[i] = no_such_thing_{v}(x[i]);", (FindingCode.COMPILE_ERROR,)),
    Kind("reads a secret of the host", "y[i] = sizeof(secret) + {v};", (FindingCode.COMPILE_ERROR, FindingCode.FORBIDDEN_SOURCE),
         before='#include "/etc/passwd"\n'),
    Kind("right", "if (i < n) y[i] = x[i] + x[i] + 0 * {v};", ()),
)  # fmt: skip


def hostile_kernels(count: int, hangs: int) -> Iterator[tuple[Kind, str]]:
    """So many kernels, kinds in turn, no two alike; at most `hangs` of them run until they are killed."""
    made = variant = 0
    while made < count:
        for kind in KINDS:
            if made >= count:
                return
            if kind.hangs:
                if hangs <= 0:
                    continue
                hangs -= 1
            made += 1
            index = INDEX if "i < n" in kind.body else INDEX + "  if (i >= n) return;\n"
            only = GPU_ONLY if variant % 2 else ""
            yield kind, f"{HEAD}{kind.before}{SIGNATURE}{only}{index}  {kind.body.format(v=variant)}\n}}\n"
        variant += 1
