"""Functions that call themselves: each activation has its own registers, variables and way back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.frames import frame_of, recursive_cycles
from kernelmate.backends.emulator.program import Function, Variable
from kernelmate.backends.emulator.ptx import parse_program

Kernels = Callable[..., Any]


def launch(
    cuda: Kernels, run_cuda: Kernels, text: str, *arrays: np.ndarray, block: int = 64, **options: Any
) -> RunResult:
    arguments = tuple((f"p{index}", array) for index, array in enumerate(arrays))
    return run_cuda(cuda(text, "k"), *arguments, block=(block,), **options)


def test_a_function_that_calls_itself_twice(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    __global__ void k(int* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = fib(threadIdx.x % 11) + 100 * fib(3); }
    """
    result = launch(cuda, run_cuda, text, np.zeros(128, np.int32), grid=(2,))
    numbers = [0, 1]
    while len(numbers) < 11:
        numbers.append(numbers[-1] + numbers[-2])
    assert not result.findings
    assert result.arrays["p0"].tolist() == [numbers[thread % 64 % 11] + 200 for thread in range(128)]


def test_functions_that_call_each_other(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    __device__ int female(int n);
    __device__ __noinline__ int male(int n) { return n == 0 ? 0 : n - female(male(n - 1)); }
    __device__ __noinline__ int female(int n) { return n == 0 ? 1 : n - male(female(n - 1)); }
    __global__ void k(int* y) { y[threadIdx.x] = 100 * male(threadIdx.x % 9) + female(threadIdx.x % 9); }
    """

    def male(n: int) -> int:
        return 0 if n == 0 else n - female(male(n - 1))

    def female(n: int) -> int:
        return 1 if n == 0 else n - male(female(n - 1))

    result = launch(cuda, run_cuda, text, np.zeros(64, np.int32))
    assert not result.findings
    assert result.arrays["p0"].tolist() == [100 * male(t % 9) + female(t % 9) for t in range(64)]


def test_variables_in_memory_belong_to_their_activation(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    __device__ __noinline__ int walk(int* above, int depth) {
        int mine[3] = {depth, above[0], above[depth % 3]};
        if (depth == 0) return mine[1] + 10 * mine[2];
        int below = walk(mine, depth - 1);
        return below * 2 + mine[0] + above[2];
    }
    __global__ void k(int* y) { int a[3] = {1, (int)threadIdx.x, 3}; y[threadIdx.x] = walk(a, threadIdx.x % 5); }
    """

    def walk(above: list[int], depth: int) -> int:
        mine = [depth, above[0], above[depth % 3]]
        return mine[1] + 10 * mine[2] if depth == 0 else walk(mine, depth - 1) * 2 + mine[0] + above[2]

    result = launch(cuda, run_cuda, text, np.zeros(64, np.int32))
    assert not result.findings
    assert result.arrays["p0"].tolist() == [walk([1, t, 3], t % 5) for t in range(64)]


def test_a_tree_of_virtual_functions(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    struct Node { __device__ virtual double value(double x) = 0; };
    struct X : Node { __device__ double value(double x) override { return x; } };
    struct Sum : Node { Node *a, *b; __device__ Sum(Node* p, Node* q) : a(p), b(q) {}
        __device__ double value(double x) override { return a->value(x + 1) + b->value(x + 2); } };
    struct Product : Node { Node *a, *b; __device__ Product(Node* p, Node* q) : a(p), b(q) {}
        __device__ double value(double x) override { double left = a->value(x); return left * b->value(x - 1) + x; } };
    __global__ void k(double* y) {
        X x; Sum s(&x, &x); Product p(&s, &x); Sum q(&p, &s); Product r(&q, &q);
        Node* all[4] = {&x, &s, &p, &r};
        y[threadIdx.x] = all[threadIdx.x % 4]->value(threadIdx.x);
    }
    """
    x = lambda v: v  # noqa: E731
    total = lambda a, b: lambda v: a(v + 1) + b(v + 2)  # noqa: E731
    product = lambda a, b: lambda v: a(v) * b(v - 1) + v  # noqa: E731
    s = total(x, x)
    p = product(s, x)
    q = total(p, s)
    nodes = [x, s, p, product(q, q)]
    result = launch(cuda, run_cuda, text, np.zeros(64, np.float64))
    assert not result.findings
    assert result.arrays["p0"].tolist() == [float(nodes[t % 4](t)) for t in range(64)]


def test_structures_and_predicates_pass_through_calls(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    struct Pair { double x; int n; char tag; };
    __device__ __noinline__ Pair halve(Pair p, bool odd) {
        if (p.n == 0) return p;
        bool mine = p.n % 3 == 1;
        Pair next = {p.x * 0.5, p.n - 1, (char)(p.tag + 1)};
        Pair r = halve(next, mine);
        if (mine != odd) r.x += 1;
        r.n += 1;
        return r;
    }
    __global__ void k(double* y) { Pair r = halve({1024.0 + threadIdx.x, (int)(threadIdx.x % 7), 'a'}, threadIdx.x & 1);
        y[3 * threadIdx.x] = r.x; y[3 * threadIdx.x + 1] = r.n; y[3 * threadIdx.x + 2] = r.tag; }
    """

    def halve(x: float, n: int, tag: int, odd: bool) -> tuple[float, int, int]:
        if n == 0:
            return x, n, tag
        mine = n % 3 == 1
        x, n, tag = halve(x * 0.5, n - 1, tag + 1, mine)
        return x + (mine != odd), n + 1, tag

    result = launch(cuda, run_cuda, text, np.zeros(192, np.float64))
    assert not result.findings
    want = [halve(1024.0 + t, t % 7, ord("a"), bool(t & 1)) for t in range(64)]
    assert result.arrays["p0"].reshape(64, 3).tolist() == [list(map(float, row)) for row in want]


def test_a_recursive_function_may_print_loop_and_use_memory(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    #include <cstdio>
    __device__ void sort(int* a, int low, int high) {
        if (low >= high) return;
        int pivot = a[high], place = low;
        for (int i = low; i < high; ++i) if (a[i] < pivot) { int t = a[i]; a[i] = a[place]; a[place++] = t; }
        a[high] = a[place]; a[place] = pivot;
        if (high - low > 28) printf("%d..%d ", low, high);
        sort(a, low, place - 1);
        sort(a, place + 1, high);
    }
    __global__ void k(int* y) { sort(y + 32 * threadIdx.x, 0, 31); }
    """
    values = np.random.default_rng(3).permutation(32 * 8).astype(np.int32)
    result = launch(cuda, run_cuda, text, values, block=8)
    assert not result.findings
    assert np.array_equal(result.arrays["p0"].reshape(8, 32), np.sort(values.reshape(8, 32), axis=1))
    assert result.printed.count("0..31 ") == 8


@pytest.mark.parametrize("seed", [0, 1])
def test_endless_recursion_is_a_finding_that_says_what_to_do(cuda: Kernels, run_cuda: Kernels, seed: int) -> None:
    text = """
    __device__ __noinline__ int down(int n) { return n == 7777 ? 1 : down(n + 1) * 3 + n; }
    __global__ void k(int* y) {
        if (threadIdx.x == 40) y[40] = down(0);
        else y[threadIdx.x] = 1; }
    """
    result = launch(cuda, run_cuda, text, np.zeros(64, np.int32), schedule_seed=seed)
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.threads) == ("trap", "error", (40,))
    for part in ("down calls itself", "1024 bytes", "cudaLimitStackSize"):
        assert part in finding.message


def test_depth_that_a_gpu_has_room_for_is_allowed(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """
    __device__ __noinline__ int sum(int n) { return n == 0 ? 0 : sum(n - 1) * 2 % 1009 + n; }
    __global__ void k(int* y) { y[threadIdx.x] = sum(30 + threadIdx.x % 20); }
    """

    def total(n: int) -> int:
        return 0 if n == 0 else total(n - 1) * 2 % 1009 + n

    result = launch(cuda, run_cuda, text, np.zeros(64, np.int32))
    assert not result.findings
    assert result.arrays["p0"].tolist() == [total(30 + t % 20) for t in range(64)]


PTX = """.version 8.6
.target sm_90
.address_size 64
.func (.param .b32 out) f(.param .b32 in) {
.reg .b32 %r<5>; .reg .b64 %d<3>; .reg .pred %q<2>;
ld.param.u32 %r1, [in]; setp.eq.u32 %q1, %r1, 0; mov.u32 %r2, 5; mov.u64 %d1, 7; @%q1 bra END;
{ .param .b32 p; .param .b32 r; st.param.b32 [p], %r1; call.uni (r), CALLEE, (p); ld.param.b32 %r3, [r]; }
add.u32 %r2, %r3, %r1; cvt.u32.u64 %r4, %d1; add.u32 %r2, %r2, %r4;
END: st.param.b32 [out], %r2; ret; }
.func (.param .b32 out) g(.param .b32 in) { .reg .b32 %r<3>; ld.param.u32 %r1, [in];
{ .param .b32 p; .param .b32 r; st.param.b32 [p], %r1; call.uni (r), f, (p); ld.param.b32 %r2, [r]; }
st.param.b32 [out], %r2; ret; }
.visible .entry k(.param .u64 p0) { .reg .b32 %r<3>; .reg .b64 %d<2>;
{ .param .b32 p; .param .b32 r; st.param.b32 [p], 3; call.uni (r), f, (p); ld.param.b32 %r2, [r]; } ret; }
"""


@pytest.mark.parametrize(("callee", "expected"), [("f", {"f": {"f"}}), ("g", {"f": {"f", "g"}, "g": {"f", "g"}})])
def test_cycles_of_calls_are_found(callee: str, expected: dict[str, set[str]]) -> None:
    program = parse_program(PTX.replace("CALLEE", callee), "k")
    assert {name: set(others) for name, others in recursive_cycles(program, "k", frozenset()).items()} == expected


def test_only_what_is_read_after_a_call_is_kept() -> None:
    function: Function = parse_program(PTX.replace("CALLEE", "f"), "k").functions["f"]
    frame = frame_of(function, frozenset({"f"}))
    ((_, kept),) = frame.kept.items()
    assert [name for name, _ in kept] == ["%d1", "%r1"]
    places = sorted([*frame.slots.values(), *(slot for _, slot in kept)])
    assert places[0] == 8
    assert all(second - first >= 4 for first, second in pairwise(places))
    assert frame.cost == 8 + 8 + 8  # the return address, a double word and a word, whole double words
    assert all(isinstance(variable, Variable) for variable in function.parameters)
