"""A session with its real compiler, worker, judge and emulator, and files that do their worst."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernelmate
from kernelmate.config import load_settings
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Kernel
from kernelmate.session import Session

Load = Callable[..., Kernel]

RIGHT = "def scale(x, a):\n    return x * a\n"


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=60, reference_timeout_s=2, memory_limit_mb=1500)) as session:
        yield session


@pytest.fixture
def reference() -> Callable[[str], None]:
    """Write the reference file that the contract names."""

    def write(text: str) -> None:
        Path("reference.py").write_text(text)

    return write


def test_a_right_kernel_is_accepted_with_its_figures(
    session: Session, load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    reference(RIGHT)
    (verdict,) = session.bench(load(scale))
    assert (verdict.correct, verdict.accepted) == (True, True), verdict.reasons
    assert {tuple(case.size.items()) for case in verdict.cases if case.origin == "contract"} == {
        (("n", 1024),),
        (("n", 1),),
    }
    assert any(case.origin == "own" for case in verdict.cases)
    assert verdict.timing is not None
    assert verdict.timing.kind == "predicted"
    assert verdict.counters is not None
    assert verdict.counters.source == "emulated"
    assert verdict.counters.global_load_sectors == 1024 * 4 // 32
    assert verdict.roofline is not None
    assert verdict.roofline.kind == "predicted"
    assert verdict.roofline.work.dram_bytes == 2 * 1024 * 4
    assert verdict.roofline.work.flops == {"fp32": 1024}
    assert 0 < verdict.roofline.warm < 1
    assert verdict.predicted is None


def test_equal_seeds_give_equal_verdicts_from_different_workers(
    load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    reference(RIGHT)
    kernel = load(scale)
    assert kernelmate.bench(kernel, seed=11) == kernelmate.bench(kernel, seed=11)


def test_a_wrong_candidate_is_rejected_and_a_right_one_accepted(
    session: Session, load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    reference(RIGHT)
    baseline = load(scale)
    wrong = session.compare(baseline, load(scale.replace("a * x[i]", "a + x[i]"), "wrong.cu")).candidate[0]
    right = session.compare(baseline, load(scale.replace("a * x[i]", "x[i] * a"), "right.cu")).candidate[0]
    assert (wrong.correct, wrong.accepted) == (False, False)
    assert (right.correct, right.accepted) == (True, True), right.reasons
    assert right.speedup is not None
    assert right.speedup.kind == "predicted"


WORST = {
    "raises": ("def scale(x, a):\n    raise ValueError('no')\n", "no"),
    "returns the wrong shape": ("def scale(x, a):\n    return x[:0]\n", "shape"),
    "never returns": ("def scale(x, a):\n    while True: pass\n", "did not return in 2 s"),
    "aborts": ("import os\ndef scale(x, a):\n    os.abort()\n", "SIGABRT"),
    "segfaults": ("import ctypes\ndef scale(x, a):\n    ctypes.string_at(8)\n", "SIGSEGV"),
    "leaves": ("import os\ndef scale(x, a):\n    os._exit(0)\n", "exit status 0"),
    "eats memory": ("def scale(x, a):\n    return bytearray(1 << 34)\n", "emory"),
    "prints for ever": ("def scale(x, a):\n    while True: print('x' * 1000)\n", "did not return in 2 s"),
    "floods": ("import os\ndef scale(x, a):\n    while True: os.write(1, b'x' * 4096)\n", "output-flood"),
    "never loads": ("while True: pass\n", "did not return in 2 s"),
}


@pytest.mark.parametrize(("text", "said"), WORST.values(), ids=WORST)
def test_a_reference_that_does_its_worst_is_named_and_the_next_verdict_is_right(
    session: Session, load: Load, scale: str, reference: Callable[[str], None], text: str, said: str
) -> None:
    kernel = load(scale)
    reference(text)
    with pytest.raises(ReferenceFailed) as caught:
        session.bench(kernel)
    assert said in str(caught.value)
    reference(RIGHT)
    assert session.bench(kernel)[0].accepted is True


def test_a_reference_that_prints_disturbs_nothing(
    session: Session, load: Load, scale: str, reference: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    reference("import os\ndef scale(x, a):\n    print('hello'); os.write(1, b'\\xff\\xfe'); return x * a\n")
    assert session.bench(load(scale))[0].accepted is True
    assert capfd.readouterr() == ("", "")


def test_a_kernel_that_never_ends_is_a_hang_and_the_next_verdict_is_right(
    session: Session, load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    reference(RIGHT)
    baseline = load(scale)
    endless = scale.replace("if (i < n)", "volatile int stay = 1; while (stay) {}\n    if (i < n)")
    (verdict,) = session.compare(baseline, load(endless, "endless.cu")).candidate
    assert [finding.code for finding in verdict.findings] == ["hang"]
    assert (verdict.correct, verdict.accepted) == (False, False)
    assert session.compare(baseline, baseline).candidate[0].accepted is True


LONG = """\
// /// kernelmate
// sizes = [{ n = 32 }]
// grid = "cdiv(n, block)"
// block = 32
// reference = "x + 1"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void long_way(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned h = i;
    for (int turn = 0; turn < 3200000; ++turn) h = h * 1664525u + (h >> 16);
    y[i] = x[i] + (h == 4026531839u ? 2.0f : 1.0f);
}
"""


def test_ten_million_instructions_of_every_thread_are_judged_in_time(load: Load, session: Session) -> None:
    (verdict,) = session.bench(load(LONG))
    assert (verdict.correct, verdict.accepted, verdict.findings) == (True, True, ())
    assert verdict.cases[0].size == {"n": 32}


def test_a_time_limit_too_short_for_the_emulator_is_named_and_says_nothing_of_the_kernel(
    load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    reference(RIGHT)
    with Session(load_settings(seed=7, timeout_s=1.5)) as session:
        stay = "volatile int stay = 1; for (int k = 0; k < 19000000; ++k) stay += k;"
        (verdict,) = session.bench(load(scale.replace("if (i < n)", f"{stay}\n    if (i < n)")))
    assert [finding.code for finding in verdict.findings] == ["time-limit"]
    assert (verdict.correct, verdict.accepted) == (None, False)
    assert "1.5 s" in verdict.findings[0].message
    assert "0 of" in verdict.findings[0].message


PARENT = """
import sys
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernel

session = Session(load_settings(seed=1), lambda *step: print(session._worker.pid, *step, flush=True))
session.bench(load_kernel(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_session_that_is_interrupted_or_killed_leaves_no_process(
    load: Load, scale: str, reference: Callable[[str], None], number: int
) -> None:
    reference("def scale(x, a):\n    while True: pass\n")
    kernel = load(scale)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, kernel.unit.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    worker = next(int(line.split()[0]) for line in parent.stdout if line.split()[1] == "reference")
    os.killpg(parent.pid, number)
    parent.communicate()
    until = time.monotonic() + 20
    while _lives(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(worker)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_optimize_finds_what_a_suggester_proposes(
    session: Session, load: Load, scale: str, reference: Callable[[str], None]
) -> None:
    from kernelmate.records import Candidate
    from kernelmate.source import change_launch, contract_for

    class Smaller:
        name = "smaller"

        def propose(self, request: Any) -> Iterator[Candidate]:
            kernel = change_launch(request.kernel, block="128")
            yield Candidate(
                "test:smaller", "Half a block.", kernel, replace(request.contract, block=("128",), shared="0")
            )

    reference(RIGHT)
    kernel = load(scale.replace("block = 256", 'block = 256\n// shared = "block * 4"'))
    assert contract_for(kernel).shared == "block * 4"
    result = session.optimize(kernel, "use less shared memory", suggesters=[Smaller()])
    assert result.best == 0
    verdict = result.candidates[0].verdict
    assert verdict.objective is not None
    assert (verdict.objective.before, verdict.objective.after, verdict.objective.met) == (1024.0, 0.0, True)
    assert verdict.accepted is True, verdict.reasons


RELATED = """\
__global__ void joined(const float* x, // (rows, left)
                       float* y, int rows, int left, int right) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * left) y[i] = x[i + right];
}
"""
POINTER = """\
__device__ const float* table;
__global__ void look(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = table[i]; }
"""


LETTERS = """\
__global__ void letters(const char* text, int* counts, int n) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int letter = i < n ? text[i] - 'a' : 0;
  if (i < n) atomicAdd(&bins[letter / 4], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}
"""
SCATTER = """\
__global__ void add(const int* members, float* force, int count, int first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) force[members[first + i]] += 1.0f;
}
"""

SECTIONS = """\
__global__ void cascade(const float* rows, float* y, int sections, int width) {
  extern __shared__ float buffer[];
  float* own = buffer + sections;
  if (threadIdx.x < sections) buffer[threadIdx.x] = 0.0f;
  for (int i = 0; i < width; ++i) own[threadIdx.x * width + i] = rows[threadIdx.x * width + i];
  __syncthreads();
  y[threadIdx.x] = own[threadIdx.x * width] + buffer[threadIdx.x % sections];
  if (threadIdx.x >= sections) buffer[threadIdx.x] = 1.0f;
}
"""


@pytest.mark.parametrize(
    ("text", "code", "guess"),
    [
        (RELATED, "out-of-bounds-read", "the sizes rows, left and right"),
        (SECTIONS, "shared-race", "the sizes sections and width"),
        (POINTER, "illegal-address", "the size n"),
        (LETTERS, "out-of-bounds-write", "the size n, the integers in subscripts of bins"),
        (
            SCATTER,
            "global-race",
            "the shape force[count, first], the sizes count and first, the integers in subscripts of force",
        ),
    ],
)
def test_what_a_guessed_contract_may_have_caused_is_not_held_against_a_kernel(
    session: Session, load: Load, text: str, code: str, guess: str
) -> None:
    (verdict,) = session.bench(load(text))
    assert (verdict.correct, verdict.accepted) == (None, None), verdict.reasons
    found = [one for one in verdict.findings if one.code == code]
    assert {one.severity for one in found} == {"warning"}
    assert any(f"the contract is a guess ({guess})" in one.message for one in found), found
    assert not any("if such sizes are not meant" in one.message for one in found), found


def test_a_written_contract_is_no_guess_at_sizes_that_it_does_not_list(session: Session, load: Load) -> None:
    text = """\
// /// kernelmate
// sizes = [{ n = 256 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// y = "out float32[n]"
// n = "int32"
// ///
__device__ const float* table;
__global__ void look(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = n < 256 ? table[threadIdx.x] : 1.0f; }
"""
    (verdict,) = session.bench(load(text))
    smaller = [one for one in verdict.cases if one.size["n"] < 256]
    assert smaller
    assert {one.correct for one in smaller} == {False}
    assert not any("guess" in one.message for one in verdict.findings)


def test_an_access_beyond_an_array_of_the_host_code_stays_an_error(session: Session, load: Load) -> None:
    text = """\
__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x + 1]; }
int main() {
  float *x, *y, host[64] = {};
  cudaMalloc(&x, 64 * sizeof(float));
  cudaMalloc(&y, 64 * sizeof(float));
  cudaMemcpy(x, host, 64 * sizeof(float), cudaMemcpyHostToDevice);
  copy<<<1, 64>>>(x, y);
}
"""
    (verdict,) = session.bench(load(text))
    assert (verdict.correct, verdict.accepted) == (False, False)
    assert [(one.code, one.severity) for one in verdict.findings] == [("out-of-bounds-read", "error")]
