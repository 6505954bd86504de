"""CUDA C++ as people write it, compiled by NVRTC and run: the libraries, the language, and what a kernel asks of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.emulator.host_calls import MOST_PRINTED

Kernels = Callable[..., Any]
GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
T = np.arange(128)
"""Threads of the grid: two blocks of 64 where nothing else is said."""
TID = T % 64
COMPILED: dict[str, Any] = {}
"""The same text is compiled once for both ways of running it."""

CODE: dict[str, tuple[str, Any]] = {
    "virtual functions": (
        """struct Shape { __device__ virtual int area(int x) const = 0; __device__ virtual ~Shape() {} };
        struct Square : Shape { __device__ int area(int x) const override { return x * x; } };
        struct Strip : Shape { int w; __device__ Strip(int v) : w(v) {} __device__ int area(int x) const override { return x * w; } };
        __global__ void k(const int* x, int* y) { Square a; Strip b(blockIdx.x + 2); const Shape* s = threadIdx.x % 2 ? (Shape*)&a : (Shape*)&b;
            y[blockIdx.x * 64 + threadIdx.x] = s->area(threadIdx.x); }""",
        np.where(TID % 2, TID * TID, TID * (T // 64 + 2)),
    ),
    "function pointers": (
        """typedef int (*Step)(int);
        __device__ __noinline__ int twice(int v) { return 2 * v; }
        __device__ __noinline__ int next(int v) { return v + 1; }
        __device__ Step steps[2] = {twice, next};
        __device__ __noinline__ int both(Step f, Step g, int v) { return g(f(v)); }
        __global__ void k(const int* x, int* y) { int t = threadIdx.x; y[blockIdx.x * 64 + t] = both(steps[t & 1], steps[t >> 1 & 1], t); }""",
        [(lambda u: 2 * u if not t >> 1 & 1 else u + 1)(2 * t if not t & 1 else t + 1) for t in TID],
    ),
    "lambdas and templates": (
        """template <class F> __device__ int apply(F f, int v) { return f(f(v)); }
        template <int N> struct Power { static __device__ int of(int v) { return v * Power<N - 1>::of(v); } };
        template <> struct Power<0> { static __device__ int of(int) { return 1; } };
        __global__ void k(const int* x, int* y) { int t = threadIdx.x; y[blockIdx.x * 64 + t] = apply([=](int v) { return v + t; }, 3) + Power<3>::of(t); }""",
        3 + 2 * TID + TID**3,
    ),
    "switch, goto and early exits": (
        """__global__ void k(const int* x, int* y) { int t = threadIdx.x, n = 0, i = t + 1;
        again: if (i != 1) { i = i & 1 ? 3 * i + 1 : i / 2; ++n; goto again; }
        switch (t % 5) { case 0: n += 1000; break; case 1: n = -n; case 2: n *= 2; break; default: if (t > 50) return; }
        y[blockIdx.x * 64 + t] = n; }""",
        "collatz",
    ),
    "cub block reduce": (
        """#include <cub/block/block_reduce.cuh>
        __global__ void k(const int* x, int* y) { typedef cub::BlockReduce<int, 64> R; __shared__ typename R::TempStorage s;
            int total = R(s).Sum(x[blockIdx.x * 64 + threadIdx.x]); __syncthreads();
            int most = R(s).Reduce(x[blockIdx.x * 64 + threadIdx.x], [](int a, int b) { return a > b ? a : b; });
            if (threadIdx.x == 0) { y[2 * blockIdx.x] = total; y[2 * blockIdx.x + 1] = most; } }""",
        "reduce",
    ),
    "cub block scan": (
        """#include <cub/block/block_scan.cuh>
        __global__ void k(const int* x, int* y) { typedef cub::BlockScan<int, 64> S; __shared__ typename S::TempStorage s;
            int i = blockIdx.x * 64 + threadIdx.x, v; S(s).InclusiveSum(x[i], v); y[i] = v; }""",
        "scan",
    ),
    "cub warp reduce": (
        """#include <cub/warp/warp_reduce.cuh>
        __global__ void k(const int* x, int* y) { typedef cub::WarpReduce<int> R; __shared__ typename R::TempStorage s[2];
            int i = blockIdx.x * 64 + threadIdx.x; int v = R(s[threadIdx.x / 32]).Sum(x[i]); if (threadIdx.x % 32 == 0) y[i] = v; }""",
        "warp sums",
    ),
    "cub radix sort": (
        """#include <cub/block/block_radix_sort.cuh>
        __global__ void k(const int* x, int* y) { typedef cub::BlockRadixSort<int, 64, 1> R; __shared__ typename R::TempStorage s;
            int v[1] = {x[blockIdx.x * 64 + threadIdx.x]}; R(s).Sort(v); y[blockIdx.x * 64 + threadIdx.x] = v[0]; }""",
        "sorted",
    ),
    "cub transposing load and store": (
        """#include <cub/block/block_load.cuh>
        #include <cub/block/block_store.cuh>
        __global__ void k(const int* x, int* y) { typedef cub::BlockLoad<int, 64, 1, cub::BLOCK_LOAD_TRANSPOSE> L;
            typedef cub::BlockStore<int, 64, 1, cub::BLOCK_STORE_TRANSPOSE> S;
            __shared__ union { typename L::TempStorage load; typename S::TempStorage store; } s; int v[1];
            L(s.load).Load(x + blockIdx.x * 64, v); __syncthreads(); v[0] += 5; S(s.store).Store(y + blockIdx.x * 64, v); }""",
        lambda x: x + 5,
    ),
    "groups: reduce": (
        GROUPS + """#include <cooperative_groups/reduce.h>
        __global__ void k(const int* x, int* y) { auto tile = cg::tiled_partition<16>(cg::this_thread_block()); int i = blockIdx.x * 64 + threadIdx.x;
            y[i] = cg::reduce(tile, x[i], cg::plus<int>()) - cg::reduce(tile, x[i], cg::less<int>()); }""",
        lambda x: np.repeat(x.reshape(-1, 16).sum(1) - x.reshape(-1, 16).min(1), 16),
    ),
    "groups: scans": (
        GROUPS + """#include <cooperative_groups/scan.h>
        __global__ void k(const int* x, int* y) { auto tile = cg::tiled_partition<32>(cg::this_thread_block()); int i = blockIdx.x * 64 + threadIdx.x;
            y[i] = cg::inclusive_scan(tile, x[i]) + cg::exclusive_scan(tile, 1000); }""",
        lambda x: x.reshape(-1, 32).cumsum(1).ravel() + 1000 * (T % 32),
    ),
    "groups: who is together": (
        GROUPS + """__global__ void k(const int* x, int* y) { int t = threadIdx.x; int* out = y + blockIdx.x * 64 + t;
            if (t % 3 == 0) { auto g = cg::coalesced_threads(); *out = g.thread_rank() + 100 * g.size() + 10000 * g.shfl(t, 1); }
            else { auto g = cg::labeled_partition(cg::coalesced_threads(), t % 4); *out = -(int)(g.thread_rank() + 100 * g.size()); } }""",
        "together",
    ),
    "groups: an atomic for a whole group": (
        GROUPS + """__global__ void k(const int* x, int* y) { int t = threadIdx.x;
            if (x[blockIdx.x * 64 + t] % 2) { auto g = cg::coalesced_threads(); int first;
                if (g.thread_rank() == 0) first = atomicAdd(y, g.size()); (void)g.shfl(first, 0); } }""",
        lambda x: np.concatenate(([int((x % 2).sum())], np.zeros(127, int))),
    ),
    "groups: one of many": (
        GROUPS + """__global__ void k(const int* x, int* y) { auto tile = cg::tiled_partition<32>(cg::this_thread_block());
            cg::invoke_one(tile, [&] { atomicAdd(y + blockIdx.x * 64 + threadIdx.x / 32, 1 + (int)tile.size()); }); }""",
        np.where(TID < 2, 33, 0),
    ),
    "pipeline of a thread": (
        """#include <cuda/pipeline>
        __global__ void k(const int* x, int* y) { __shared__ int s[2][64]; int t = threadIdx.x, i = blockIdx.x * 64 + t;
            auto pipe = cuda::make_pipeline();
            for (int n = 0; n < 2; ++n) { pipe.producer_acquire(); cuda::memcpy_async(&s[n][t], x + i, sizeof(int), pipe); pipe.producer_commit(); }
            int v = 0; for (int n = 0; n < 2; ++n) { pipe.consumer_wait(); v += s[n][t]; pipe.consumer_release(); } y[i] = v; }""",
        lambda x: 2 * x,
    ),
    "pipeline of a block": (
        GROUPS + """#include <cuda/pipeline>
        __global__ void k(const int* x, int* y) { __shared__ int s[2][64]; __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
            auto block = cg::this_thread_block(); auto pipe = cuda::make_pipeline(block, &state); int v = 0;
            for (int n = 0; n < 4; ++n) { if (n == 0) { pipe.producer_acquire(); cuda::memcpy_async(block, s[0], x + blockIdx.x * 64, 256, pipe); pipe.producer_commit(); }
                if (n < 3) { pipe.producer_acquire(); cuda::memcpy_async(block, s[n + 1 & 1], x + blockIdx.x * 64, 256, pipe); pipe.producer_commit(); }
                pipe.consumer_wait(); v += (n + 1) * s[n & 1][63 - threadIdx.x]; pipe.consumer_release(); }
            y[blockIdx.x * 64 + threadIdx.x] = v; }""",
        lambda x: 10 * x.reshape(-1, 64)[:, ::-1].ravel(),
    ),
    "atomics of the standard library": (
        """#include <cuda/atomic>
        __global__ void k(const int* x, int* y) { int i = blockIdx.x * 64 + threadIdx.x;
            cuda::atomic_ref<int, cuda::thread_scope_device> sum(y[0]), most(y[1]), bits(y[2]), tried(y[3]);
            sum.fetch_add(x[i], cuda::memory_order_relaxed); most.fetch_max(x[i]); bits.fetch_or(1 << i % 31);
            int seen = tried.load(cuda::memory_order_relaxed); while (!tried.compare_exchange_weak(seen, seen + 2)) {}
            cuda::atomic_ref<float, cuda::thread_scope_device> real(*(float*)(y + 4)); real.fetch_add(0.5f); }""",
        "atomics",
    ),
    "the standard library": (
        """#include <cuda/std/algorithm>
        #include <cuda/std/array>
        #include <cuda/std/bit>
        #include <cuda/std/complex>
        #include <cuda/std/limits>
        #include <cuda/std/optional>
        #include <cuda/std/span>
        #include <cuda/std/tuple>
        #include <cuda/std/variant>
        __global__ void k(const int* x, int* y) { int t = threadIdx.x;
            cuda::std::array<int, 4> a{1, 2, 3, 4}; cuda::std::complex<float> c(1, 2); c *= c; auto pair = cuda::std::make_tuple(t, 2.5f);
            cuda::std::optional<int> maybe; if (t & 1) maybe = 5; cuda::std::variant<int, float> either = 2.5f; if (t > 9) either = t;
            cuda::std::span<const int> part(x, 8); int s = 0; for (int v : part) s += v;
            y[blockIdx.x * 64 + t] = a[t % 4] + (int)c.real() + cuda::std::get<0>(pair) + maybe.value_or(7) + cuda::std::popcount((unsigned)t)
                + cuda::std::max(3, t) + cuda::std::visit([](auto v) { return (int)v; }, either) + s - cuda::std::numeric_limits<signed char>::max(); }""",
        "library",
    ),
    "latches and semaphores": (
        """#include <cuda/semaphore>
        #include <cuda/latch>
        #include <new>
        __global__ void k(const int* x, int* y) { __shared__ alignas(8) char room[64]; __shared__ int seen;
            auto* gate = reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(room);
            auto* door = reinterpret_cast<cuda::binary_semaphore<cuda::thread_scope_block>*>(room + 32);
            if (threadIdx.x == 0) { new (gate) cuda::latch<cuda::thread_scope_block>(64); new (door) cuda::binary_semaphore<cuda::thread_scope_block>(1); seen = 0; }
            __syncthreads(); gate->arrive_and_wait();
            if (threadIdx.x % 8 == 0) { door->acquire(); seen += threadIdx.x; door->release(); }
            __syncthreads(); if (threadIdx.x == 0) y[blockIdx.x] = seen; }""",
        np.where(T < 2, 8 * sum(range(8)), 0),
    ),
    "clocks go on": (
        """__global__ void k(const int* x, int* y) { long long a = clock64(); unsigned long long g, h;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g)); __nanosleep(100); asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(h));
            y[blockIdx.x * 64 + threadIdx.x] = (clock64() > a) + (h > g) + (clock() != 0); }""",
        np.full(128, 3),
    ),
    "constants, statics and strings": (
        """__constant__ int table[4] = {10, 20, 30, 40}; __device__ int bias = 7; __device__ const char* names[3] = {"ab", "cde", "f"};
        struct Box { int v[4]; };
        __global__ void k(const int* x, int* y) { int t = threadIdx.x; Box b; memset(&b, 0, sizeof b); b.v[t % 4] = t; Box c; memcpy(&c, &b, sizeof b);
            const char* s = names[t % 3]; int n = 0; while (s[n]) n += 1; y[blockIdx.x * 64 + t] = table[t % 4] + bias + n * 1000 + c.v[t % 4]; }""",
        [10 * (t % 4 + 1) + 7 + 1000 * [2, 3, 1][t % 3] + t for t in TID],
    ),
}  # fmt: skip

REFERENCES: dict[str, Callable[[np.ndarray], Any]] = {
    "reduce": lambda x: np.concatenate((np.stack((x.reshape(2, 64).sum(1), x.reshape(2, 64).max(1)), 1).ravel(), np.zeros(124))),
    "scan": lambda x: x.reshape(2, 64).cumsum(1).ravel(),
    "warp sums": lambda x: np.where(T % 32, 0, np.repeat(x.reshape(-1, 32).sum(1), 32)),
    "sorted": lambda x: np.sort(x.reshape(2, 64), axis=1).ravel(),
    "collatz": lambda x: [_after_switch(t) for t in TID],
    "together": lambda x: [_together(t) for t in TID],
    "atomics": lambda x: np.concatenate(
        ([x.sum(), x.max(), np.bitwise_or.reduce(1 << T % 31), 256, np.float32(64).view(np.int32)], np.zeros(123))
    ),
    "library": lambda x: [
        t % 4 + 1 - 3 + t + (5 if t & 1 else 7) + int(t).bit_count() + max(3, t) + (t if t > 9 else 2) + int(x[:8].sum()) - 127
        for t in TID
    ],
}  # fmt: skip


def _after_switch(t: int) -> int:
    n, i = 0, t + 1
    while i != 1:
        i = 3 * i + 1 if i & 1 else i // 2
        n += 1
    case = t % 5
    if case == 0:
        return n + 1000
    if case in {1, 2}:
        return 2 * (-n if case == 1 else n)
    return 0 if t > 50 else n


def _together(t: int) -> int:
    warp = range(t // 32 * 32, t // 32 * 32 + 32)
    if t % 3 == 0:
        mates = [other for other in warp if other % 3 == 0]
        return mates.index(t) + 100 * len(mates) + 10000 * mates[1]
    mates = [other for other in warp if other % 3 and other % 4 == t % 4]
    return -(mates.index(t) + 100 * len(mates))


def compiled(cuda: Kernels, text: str, **options: Any) -> Any:
    if text not in COMPILED:
        COMPILED[text] = cuda(text, "k", **options)
    return COMPILED[text]


@pytest.mark.parametrize("name", sorted(CODE))
def test_code_gives_what_it_says(name: str, cuda: Kernels, run_cuda: Kernels, rng: np.random.Generator) -> None:
    text, wanted = CODE[name]
    x = rng.integers(0, 100, 128).astype(np.int32)
    arrays = ("x", x), ("y", np.zeros(128, np.int32))
    result = run_cuda(compiled(cuda, text), *arrays, grid=(2,), block=(64,), schedule_seed=len(name) % 3)
    assert not [finding for finding in result.findings if finding.severity != "note"]
    want = REFERENCES[wanted](x) if isinstance(wanted, str) else wanted(x) if callable(wanted) else wanted
    assert result.arrays["y"].tolist() == np.asarray(want).astype(np.int64).tolist()


def test_all_blocks_meet_in_a_cooperative_launch(cuda: Kernels, run_cuda: Kernels) -> None:
    text = (
        GROUPS
        + """__global__ void k(int* y) { auto grid = cg::this_grid(); y[grid.thread_rank()] = grid.thread_rank();
        for (int round = 0; round < 3; ++round) { grid.sync(); int v = y[grid.size() - 1 - grid.thread_rank()]; grid.sync(); y[grid.thread_rank()] = v + 1; } }"""
    )
    for seed in (0, 1):
        result = run_cuda(
            compiled(cuda, text),
            ("y", np.zeros(512, np.int32)),
            grid=(8,),
            block=(64,),
            cooperative=True,
            schedule_seed=seed,
        )
        assert not result.findings
        assert result.arrays["y"].tolist() == [514 - t for t in range(512)]


def test_every_format_of_printf(cuda: Kernels, run_cuda: Kernels) -> None:
    text = r"""#include <cstdio>
    __global__ void k(const int* x) { if (threadIdx.x) return;
        printf("%d %i %u %o %x %X %#x %c %s %%\n", -3, 4, 5u, 8, 255, 255, 255, 'c', "text");
        printf("%5d|%-5d|%05d|%+d|% d|%.3d|%*d\n", 42, 42, 42, 42, 42, 7, 6, 42);
        printf("%f %.2f %8.3f %-8.1f| %e %E %g %G %a\n", 2.5, 3.14159, 2.71828, 1.25, 12345.678, 0.00012, 1e-5, 1e20, 1.5);
        printf("%ld %lld %lu %llu %zu %hd %hhd %hu\n", -1l, 1ll << 40, 1ul << 35, ~0ull, sizeof(int), (short)-2, (signed char)-3, (unsigned short)65535);
        printf("%s|%10s|%-6s|%.2s\n", "a", "right", "left", "cut"); printf("no arguments\n");
        printf("%p\n", (void*)x); printf("%d %f %s %d\n", 1, (double)2.0f, "mixed", 3); }"""
    printed = run_cuda(compiled(cuda, text), ("x", np.zeros(1, np.int32))).printed
    lines = printed.splitlines()
    assert lines[:6] == [
        "-3 4 5 10 ff FF 0xff c text %",
        "   42|42   |00042|+42| 42|007|    42",
        "2.500000 3.14    2.718 1.2     | 1.234568e+04 1.200000E-04 1e-05 1E+20 0x1.8p+0",
        f"-1 {1 << 40} {1 << 35} {(1 << 64) - 1} 4 -2 -3 65535",
        "a|     right|left  |cu",
        "no arguments",
    ]
    assert lines[6].startswith("0x")
    assert lines[7] == "1 2.000000 mixed 3"


def test_a_flood_of_output_is_cut_and_ends_the_launch(cuda: Kernels, run_cuda: Kernels) -> None:
    text = '#include <cstdio>\n__global__ void k(int* y) { for (int i = 0; i < 9000; ++i) printf("%d %d\\n", threadIdx.x, i); }'
    result = run_cuda(compiled(cuda, text), ("y", np.zeros(1, np.int32)))
    assert [finding.code for finding in result.findings] == ["output-flood"]
    assert len(result.printed) <= MOST_PRINTED


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('assert(t < 40 && "small");', "t < 40"),
        ("if (t == 45) __trap();", "trap"),
        ("if (t == 45) __brkpt();", "brkpt"),
    ],
)
def test_what_ends_a_launch_names_its_line_and_threads(
    statement: str, words: str, cuda: Kernels, run_cuda: Kernels
) -> None:
    text = f"#include <cassert>\n__global__ void k(int* y) {{\n int t = threadIdx.x;\n {statement}\n y[t] = 1; }}"
    (finding,) = run_cuda(compiled(cuda, text), ("y", np.zeros(64, np.int32)), block=(64,)).findings
    assert (finding.code, finding.line) == ("trap", 4)
    assert words in finding.message
    assert finding.threads[0] in {40, 45}


REFUSED = {
    "malloc": ("int* p = (int*)malloc(16); y[0] = p != nullptr; free(p);", "allocate the memory before the launch"),
    "new": ("struct A { int v; }; A* a = new A{3}; y[0] = a->v; delete a;", "allocate the memory before the launch"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_run_is_refused_with_what_to_do_instead(name: str, cuda: Kernels, run_cuda: Kernels) -> None:
    body, instead = REFUSED[name]
    with pytest.raises(UnsupportedInstruction) as caught:
        run_cuda(compiled(cuda, f"__global__ void k(int* y) {{ {body} }}"), ("y", np.zeros(4, np.int32)))
    assert instead in caught.value.finding.message
    assert caught.value.finding.line == 1


@pytest.mark.parametrize(
    "body",
    [
        "y[threadIdx.x] = tex1Dfetch<int>(0, threadIdx.x);",
        "surf1Dwrite<int>(3, 0, 4);",
    ],
    ids=["texture", "surface"],
)
def test_a_handle_that_no_object_has_is_an_illegal_address(body: str, cuda: Kernels, run_cuda: Kernels) -> None:
    result = run_cuda(compiled(cuda, f"__global__ void k(int* y) {{ {body} }}"), ("y", np.zeros(32, np.int32)))
    assert [(one.code, one.line) for one in result.findings] == [("illegal-address", 1)]
