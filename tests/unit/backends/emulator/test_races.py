"""Synchronisation that orders two accesses, and synchronisation that does not: PTX ISA, memory consistency model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.emulator import access_monitor
from kernelmate.backends.emulator.access_history import AccessHistory
from kernelmate.backends.emulator.jit import access_stamps

Kernels = Callable[..., Any]
HEAD = "__global__ void k(int* data, int* flag, int* out) { const int t = threadIdx.x, b = blockIdx.x; "


def codes(
    cuda: Kernels, run_cuda: Kernels, body: str, *, grid: int = 2, block: int = 64, seeds: int = 3, head: str = HEAD
) -> set[str]:
    """Codes of the errors over several schedules: a race must show in at least one, order must hold in all."""
    code = cuda(head + body + "}")
    found = set()
    for seed in range(seeds):
        arrays = [(name, np.zeros(4096, np.int32)) for name in ("data", "flag", "out")]
        result = run_cuda(code, *arrays, grid=(grid,), block=(block,), schedule_seed=seed)
        found |= {(finding.code, finding.severity) for finding in result.findings}
    assert all(severity in {"error", "note"} for _, severity in found)
    return {code for code, severity in found if severity == "error"}


RACE = {"global-race"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("data[b * 64 + t] = t; out[b * 64 + t] = data[b * 64 + t];", set()),
        ("data[b * 64 + t] = t; out[b * 64 + t] = data[b * 64 + 63 - t];", RACE),
        ("data[b * 64 + t] = t; __syncthreads(); out[b * 64 + t] = data[b * 64 + 63 - t];", set()),
        ("data[b * 64 + t] = t; __syncthreads(); out[b * 64 + t] = data[127 - (b * 64 + t)];", RACE),
        ("data[b * 64 + t] = t; __syncwarp(); out[b * 64 + t] = data[b * 64 + (t ^ 1)];", set()),
        ("data[b * 64 + t] = t; __syncwarp(); out[b * 64 + t] = data[b * 64 + (t ^ 32)];", RACE),
        ("out[b * 64 + t] = data[b * 64 + (t ^ 1)]; data[b * 64 + t] = t;", RACE),
        ("out[b * 64 + t] = data[b * 64 + (t ^ 1)]; __syncwarp(); data[b * 64 + t] = t;", set()),
        ("data[0] = t;", RACE),
        ("data[0] = 7;", set()),
        ("if (t == 0) data[b * 64] = 1; __syncthreads(); if (t == 63) data[b * 64] = 2;", set()),
        ("out[b * 64 + t] = data[0];", set()),
    ],
)  # fmt: skip
def test_barriers_order_a_block_and_nothing_orders_blocks(cuda: Kernels, run_cuda: Kernels, body, expected) -> None:
    assert codes(cuda, run_cuda, body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("atomicAdd(data, t);", set()),
        ("atomicAdd_block(data + b, t);", set()),
        ("atomicAdd_block(data, t);", RACE),
        ("atomicAdd(data, t); if (t == 5) out[b] = data[0];", RACE),
        ("atomicAdd(data + b, t); __syncthreads(); if (t == 5) out[b] = data[b];", set()),
        ("atomicAdd(data, t); if (t == 5) out[b] = *(volatile int*)data;", set()),
        ("if (t == 0) *(volatile int*)(data + b) = 1; else out[b * 64 + t] = *(volatile int*)(data + b);", set()),
        ("if (t == 0) data[b] = 1; else out[b * 64 + t] = *(volatile int*)(data + b);", RACE),
    ],
)  # fmt: skip
def test_strong_accesses_do_not_race_within_their_scopes(cuda: Kernels, run_cuda: Kernels, body, expected) -> None:
    assert codes(cuda, run_cuda, body) == expected


SIGNAL = (
    "if (b == 0) {{ if (t == 0) {{ data[0] = 5; {fence} {store} }} }}"
    " else if (t == 0) {{ while ({load} == 0) {{}} {after} out[0] = data[0]; }}"
)
VOLATILE = {"store": "*(volatile int*)flag = 1;", "load": "*(volatile int*)flag"}
ATOMIC = {"store": "atomicExch(flag, 1);", "load": "atomicAdd(flag, 0)"}


@pytest.mark.parametrize("how", [VOLATILE, ATOMIC], ids=["volatile", "atomic"])
@pytest.mark.parametrize(
    ("fence", "after", "expected"),
    [
        ("__threadfence();", "__threadfence();", set()),
        ("__threadfence_system();", "__threadfence();", set()),
        ("", "__threadfence();", RACE),
        ("__threadfence();", "", RACE),
        ("__threadfence_block();", "__threadfence();", RACE),
        ("__threadfence();", "__threadfence_block();", RACE),
        ("__threadfence();", "__syncwarp(1);", set()),
    ],
)  # fmt: skip
def test_a_flag_orders_blocks_where_both_sides_fence_wide_enough(
    cuda: Kernels, run_cuda: Kernels, how, fence, after, expected
) -> None:
    assert codes(cuda, run_cuda, SIGNAL.format(fence=fence, after=after, **how)) == expected


def test_knowledge_is_passed_on_from_block_to_block(cuda: Kernels, run_cuda: Kernels) -> None:
    chain = (
        "if (t == 0) {{ if (b > 0) {{ while (*(volatile int*)(flag + b - 1) == 0) {{}} {fence} }}"
        " data[b] = b; if (b == gridDim.x - 1) for (int i = 0; i < b; ++i) out[0] += data[i];"
        " __threadfence(); *(volatile int*)(flag + b) = 1; }}"
    )
    assert codes(cuda, run_cuda, chain.format(fence="__threadfence();"), grid=8) == set()
    assert codes(cuda, run_cuda, chain.format(fence=""), grid=8) == RACE


def test_bytes_are_told_apart_whatever_the_width_of_the_accesses(cuda: Kernels, run_cuda: Kernels) -> None:
    head = "__global__ void k(unsigned char* data, int* flag, int* out) { const int t = threadIdx.x; "
    assert codes(cuda, run_cuda, "data[t] = t;", grid=1, head=head) == set()
    wide = "if (t == 0) *(int4*)data = make_int4(1, 2, 3, 4); else if (t < 32) data[t + {by}] = t;"
    assert codes(cuda, run_cuda, wide.format(by=15), grid=1, head=head) == set()
    assert codes(cuda, run_cuda, wide.format(by=14), grid=1, head=head) == RACE


def test_a_race_names_both_threads_both_blocks_both_lines_buffer_and_offset_once(
    cuda: Kernels, run_cuda: Kernels
) -> None:
    code = cuda(HEAD + "\ndata[b * 64 + t] = t;\n__syncthreads();\nout[b * 64 + t] = data[(b * 64 + t + 64) % 256]; }")
    arrays = [(name, np.zeros(256, np.int32)) for name in ("data", "flag", "out")]
    (finding,) = run_cuda(code, *arrays, grid=(4,), block=(64,)).findings
    assert (finding.code, finding.severity, finding.line, finding.buffer) == ("global-race", "error", 4, "data")
    assert finding.offset is not None
    assert 0 <= finding.offset < 1024
    assert len(finding.threads) == 2
    for part in ("of block (", "of data", "at line 2", "times in all", "no order"):
        assert part in finding.message


def test_the_same_value_from_several_threads_is_a_note(cuda: Kernels, run_cuda: Kernels) -> None:
    arrays = [(name, np.zeros(16, np.int32)) for name in ("data", "flag", "out")]
    (finding,) = run_cuda(cuda(HEAD + "data[0] = 7; }"), *arrays, block=(64,)).findings
    assert (finding.code, finding.severity) == ("global-race", "note")
    assert "the order does not show" in finding.message


def test_a_buffer_too_large_to_shadow_is_watched_in_part() -> None:
    ledger = AccessHistory(1 << 30, 4, 1 << 20)
    assert ledger.every > 1
    cells, owners = ledger.cells(np.arange(0, 1 << 26, 4, dtype=np.uint64), 4)
    assert owners is not None
    assert np.array_equal(ledger.offsets_of(cells), owners * 4)
    assert 0 < len(cells) <= len(ledger.writes)
    assert not ledger.covers_all
    assert AccessHistory(1 << 12, 4, 1 << 10).covers_all


def test_what_of_a_large_buffer_is_not_watched_is_said_by_its_name(
    cuda: Kernels, run_cuda: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_stamps, "MOST_SHADOW_BYTES", 1 << 20)  # so that neither way watches all of it
    monkeypatch.setattr(access_monitor, "_GLOBAL_SHADOW_BYTES", 3 << 20)
    code = cuda(HEAD + "const int i = b * 256 + t; out[i] = data[i] + 1; if (i == 0) flag[0] = 1; }")
    for elements, parts in ((1 << 10, 0), (1 << 20, 1)):
        arrays = [("data", np.ones(elements, np.int32)), ("flag", np.zeros(16, np.int32))]
        out = ("out", np.zeros(elements, np.int32))
        result = run_cuda(code, *arrays, out, grid=(elements // 256,), block=(256,), check=True)
        assert result.checked
        assert result.findings == ()
        named = [part for part in result.unwatched if "pages of out only, whose 4 MiB" in part]
        assert (len(named), len(result.unwatched)) == (parts, 2 * parts)
    unchecked = run_cuda(code, *arrays, out, grid=(4,), block=(256,), check=False)
    assert (unchecked.checked, unchecked.unwatched) == (False, ())


def test_splitting_the_cells_keeps_what_is_known_of_them() -> None:
    ledger = AccessHistory(64, 8)
    ledger.note_write(np.array([1]), np.array([77]), 3, 1)
    ledger.note_read(np.array([2]), np.array([88]), 4, 1)
    cells, owners = ledger.cells(np.array([8], np.uint64), 2)
    assert (ledger.granule, cells.tolist(), owners) == (2, [4], None)
    assert ledger.writes[3:9].tolist() == [0, 77, 77, 77, 77, 0]
    assert ledger.reads is not None
    assert ledger.reads[7:13].tolist() == [0, 88, 88, 88, 88, 0]


LOCAL = """__global__ void k(const int* keys, int* out) {{
  int seen[8];
  for (int i = 0; i < {filled}; ++i) seen[(i + keys[threadIdx.x]) % 8] = i;
  out[threadIdx.x] = seen[(keys[threadIdx.x + 32] + 7) % 8];
}}"""


@pytest.mark.parametrize(("filled", "expected"), [(8, []), (7, ["uninitialised-local"])])
def test_reading_a_local_array_that_the_thread_has_not_filled(
    cuda: Kernels, run_cuda: Kernels, filled, expected
) -> None:
    keys = np.arange(64, dtype=np.int32) % 8
    code = cuda(LOCAL.format(filled=filled))
    findings = run_cuda(code, ("keys", np.roll(keys, 1)), ("out", np.zeros(32, np.int32))).findings
    assert [finding.code for finding in findings] == expected
    if expected:
        assert "the thread's own memory" in findings[0].message


def test_what_calls_pass_in_local_memory_counts_as_written(cuda: Kernels, run_cuda: Kernels) -> None:
    text = """#include <cstdio>
struct Pair { char a; long long b; };
__device__ __noinline__ long long pick(Pair p, int which) { return which ? p.b : p.a; }
__global__ void k(int* out) {
  Pair p{1, 2};
  if (threadIdx.x == 0) printf("%d %f", 3, 2.5);
  out[threadIdx.x] = pick(p, threadIdx.x & 1);
}"""
    done = run_cuda(cuda(text), ("out", np.zeros(32, np.int32)))
    assert done.findings == ()
    assert done.arrays["out"].tolist() == [1, 2] * 16
    assert done.printed == "3 2.500000"


FENCES = [
    ("membar.gl;", set()), ("membar.sys;", set()), ("membar.cta;", RACE), ("fence.acq_rel.gpu;", set()),
    ("fence.sc.gpu;", set()), ("fence.sc.sys;", set()), ("fence.acq_rel.cta;", RACE), ("fence.acq_rel.cluster;", RACE),
    ("fence.acq_rel.sys;", set()), ("", RACE),
]  # fmt: skip


@pytest.mark.instruction("fence", "membar", "ld", "st")
@pytest.mark.parametrize(("fence", "expected"), FENCES)
def test_fences_of_every_spelling_order_what_their_scope_holds(launch, kernel, fence: str, expected: set[str]) -> None:
    body = f"""
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %q1, %r1, 0; @%q1 bra WAIT;
    st.global.u32 [%p0], 5; {fence} st.relaxed.gpu.global.u32 [%p1], 1; ret;
    WAIT: ld.relaxed.gpu.global.u32 %r2, [%p1]; setp.eq.u32 %q2, %r2, 0; @%q2 bra WAIT;
    {fence} ld.global.u32 %r3, [%p0]; st.global.u32 [%p2], %r3; ret;
    """
    arrays = [np.zeros(1, np.uint32) for _ in range(3)]
    for seed in (0, 1, 2):
        result = launch(kernel(body, 3), *arrays, grid=(2,), block=(1,), schedule_seed=seed)
        assert {finding.code for finding in result.findings} == expected
        assert result.arrays["a2"][0] == 5


@pytest.mark.parametrize(
    ("add", "load", "expected"),
    [
        ("__threadfence(); atomicAdd(flag, 1);", "*(volatile int*)flag", set()),
        ("__threadfence(); atomicAdd(flag, 1);", "atomicAdd(flag, 0)", set()),
        ("atomicAdd(flag, 1);", "*(volatile int*)flag", RACE),
    ],
)
def test_many_threads_that_count_up_one_word_are_all_seen_by_who_waits_for_the_count(
    cuda: Kernels, run_cuda: Kernels, add: str, load: str, expected: set[str]
) -> None:
    body = (
        f"data[b * 64 + t] = t; {add} while ({load} < 256) {{}} __threadfence();"
        " out[b * 64 + t] = data[255 - b * 64 - t];"
    )
    assert codes(cuda, run_cuda, body, grid=4) == expected


def test_a_race_with_a_read_that_nothing_uses_is_a_note(cuda: Kernels, run_cuda: Kernels) -> None:
    code = cuda(
        HEAD + "data[b * 64 + t] = t; const volatile int* all = data; all[b * 64 + (t ^ 33)]; out[b * 64 + t] = t; }"
    )
    result = run_cuda(
        code, *((name, np.zeros(4096, np.int32)) for name in ("data", "flag", "out")), grid=(2,), block=(64,)
    )
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("global-race", "note")
    assert "nothing uses what is read" in finding.message


CHECKED = {
    "the guide's loop": """unsigned long long* a = (unsigned long long*)y; unsigned long long old = *a, assumed;
  do { assumed = old; old = atomicCAS(a, assumed, __double_as_longlong(1.0 + __longlong_as_double(assumed)));
  } while (assumed != old);""",
    "a maximum by compare-and-swap": """int old = y[0], assumed;
  do { assumed = old; old = atomicCAS(y, assumed, max(assumed, (int)threadIdx.x)); } while (assumed != old);""",
    "a maximum looked at first": "if (y[0] < (int)threadIdx.x) atomicMax(y, (int)threadIdx.x);",
    "a claim looked at first": "if (y[0] == 0) atomicCAS(y, 0, 1 + (int)threadIdx.x);",
    "one attempt with its outcome": "int old = y[0]; if (atomicCAS(y, old, old | 1) != old) atomicAdd(y + 1, 1);",
    "in shared memory": """__shared__ int s; if (threadIdx.x == 0) s = 0; __syncthreads(); int old = s, assumed;
  do { assumed = old; old = atomicCAS(&s, assumed, assumed + 1); } while (assumed != old);""",
}
UNCHECKED = {
    "check, then add": "if (y[0] < 10) atomicAdd(y, 1);",
    "add, then look": "atomicAdd(y, 1); y[1 + threadIdx.x] = y[0];",
    "one attempt of a compare-and-swap": "int old = y[0]; atomicCAS(y, old, max(old, (int)threadIdx.x));",
    "another place": "int seen = y[1]; atomicAdd(y + 1, 1); atomicMax(y, seen);",
}


def errors(cuda: Kernels, run_cuda: Kernels, body: str) -> list[tuple[str, str]]:
    code = cuda("__global__ void k(int* y) {\n  " + body + "\n}\n")
    done = run_cuda(code, ("y", np.zeros(66, np.int32)), grid=(2,), block=(64,))
    return [(finding.code, finding.severity) for finding in done.findings]


@pytest.mark.parametrize("body", CHECKED.values(), ids=CHECKED)
def test_a_read_that_an_atomic_checks_again_is_a_note(cuda: Kernels, run_cuda: Kernels, body: str) -> None:
    found = errors(cuda, run_cuda, body)
    assert found
    assert {severity for _, severity in found} == {"note"}


@pytest.mark.parametrize("body", UNCHECKED.values(), ids=UNCHECKED)
def test_any_other_read_beside_an_atomic_is_an_error(cuda: Kernels, run_cuda: Kernels, body: str) -> None:
    assert ("global-race", "error") in errors(cuda, run_cuda, body)
