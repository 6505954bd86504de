"""Guards on a GPU: exploits and right controls that the emulator cannot execute, and the side effects of the guards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions, Finding, JudgeTask, LaunchShape, Verdict, Version
from kernelmate.session import Session
from kernelmate.source import contract_for, find_kernels, load_kernels, text_unit
from kernelmate.worker.nvidia.sanitizer import TOOLS, sanitize
from kernelmate.worker.nvidia.tool import ToolFailed, locate

ROOT = Path(__file__).resolve().parents[2]
EXPLOITS = ROOT / "tests" / "exploits" / "gpu"
WRONG = sorted((EXPLOITS / "wrong").glob("*.cu"))
RIGHT = sorted((EXPLOITS / "right").glob("*.cu"))
EXAMPLES = ROOT / "examples"
SEED = 20261121

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=SEED, backend="cuda", timeout_s=120)) as opened:
        yield opened


def said(path: Path, word: str) -> str | None:
    found = re.search(rf"^// {word}: (.+)$", path.read_text(), flags=re.MULTILINE)
    return found[1] if found else None


def verdict_of(session: Session, path: Path) -> Verdict:
    baseline = load_kernels((path.parent / (said(path, "baseline") or "")).resolve())[0]
    (verdict,) = session.compare(baseline, load_kernels(path)[0]).candidate
    return verdict


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_candidate_that_cheats_where_only_a_gpu_shows_it_is_rejected(session: Session, path: Path) -> None:
    verdict = verdict_of(session, path)
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    print(path.stem, [(finding.code, finding.message) for finding in verdict.findings], verdict.timing, verdict.speedup)
    assert verdict.accepted is False
    assert errors
    assert errors[0].code in (said(path, "expect") or "").split()


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_candidate_is_accepted(session: Session, path: Path) -> None:
    verdict = verdict_of(session, path)
    assert [finding for finding in verdict.findings if finding.severity == "error"] == []
    assert (verdict.correct, verdict.accepted) == (True, True), verdict.reasons
    assert verdict.timing is not None
    assert verdict.timing.kind == "measured"


def loaded(backend, text: str):
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return backend.load(compiled, find_target(None))


LEFT_OVER = """__global__ void look(unsigned int* y) {
  __shared__ unsigned int words[64];
  y[blockIdx.x * 64 + threadIdx.x] = static_cast<volatile unsigned int*>(words)[threadIdx.x];
}
"""
LEAVING = """__global__ void leave(unsigned int* y) {
  __shared__ unsigned int words[64];
  static_cast<volatile unsigned int*>(words)[threadIdx.x] = 0xC0FFEEu;
  y[blockIdx.x * 64 + threadIdx.x] = static_cast<volatile unsigned int*>(words)[threadIdx.x];
}
"""


def test_a_launch_finds_nothing_of_an_earlier_one_in_shared_memory(backend) -> None:
    from kernelmate.backends.cuda.initial_state import PATTERNS

    shape, arguments = LaunchShape((500, 1, 1), (64, 1, 1)), (ArrayArgument("y", np.zeros(32_000, np.uint32)),)
    look, leave = loaded(backend, LEFT_OVER), loaded(backend, LEAVING)
    for seed in (0, 1, 2, 7):
        left = leave.launch(Run(shape, arguments, schedule_seed=seed))
        assert set(left.arrays["y"].tolist()) == {0xC0FFEE}
        found = look.launch(Run(shape, arguments, schedule_seed=seed))
        # Blocks of the very launch that looks may leave nothing here: they only read. The driver clears shared memory
        # where other processes take turns on the GPU.
        assert set(found.arrays["y"].tolist()) <= {PATTERNS[seed % 2], 0}


def test_lines_that_were_to_persist_in_l2_are_released(backend) -> None:
    import ctypes

    with backend.device:
        assert ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache() == 0


SCALE = """__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""


@pytest.mark.parametrize("count", [1 << 12, 1 << 20, 1 << 25])
def test_an_honest_launch_takes_as_long_over_its_own_results_as_afresh(backend, count: int) -> None:
    from kernelmate.backends.cuda.repeating import repeat
    from kernelmate.checks.guards.repeated_launches import find

    x = np.arange(count, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False),
        ArrayArgument("y", np.full(count, -1, np.float32), output=True),
        ScalarArgument("n", np.int32(count)),
    )
    run = Run(LaunchShape((-(-count // 256), 1, 1), (256, 1, 1)), arguments)
    module = loaded(backend, SCALE)
    with backend.turns.alone(200):
        seen = repeat(module, run, frozenset())
    print(count, seen.launches, seen.over_own_us, seen.afresh_us, seen.scrubbed_us)
    assert find(seen) is None
    assert seen.over_own_us is not None
    assert seen.afresh_us is not None
    assert abs(seen.afresh_us - seen.over_own_us) < 2 + 0.2 * seen.over_own_us
    assert np.array_equal(seen.arrays["y"], 2 * x)


IN_PLACE = """__device__ int calls;
__global__ void grow(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) ++calls;
  if (i < n) y[i] += 1;
}
"""


def test_arrays_that_are_read_and_written_are_given_back_before_each_launch(backend) -> None:
    from kernelmate.backends.cuda.repeating import repeat

    run = Run(LaunchShape((4, 1, 1), (256, 1, 1)), (ArrayArgument("y", np.arange(1000, dtype=np.float32)), ScalarArgument("n", np.int32(1000))))  # fmt: skip
    seen = repeat(loaded(backend, IN_PLACE), run, frozenset({"y"}))
    assert seen.launches > 50
    assert np.array_equal(seen.arrays["y"], np.arange(1000, dtype=np.float32) + 1)


DETERMINISTIC = """// /// kernelmate
// sizes = [{ n = 200000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "x.sum(keepdims=True)"
// deterministic = true
// tolerance = { rtol = 1e-3, atol = 1e-2 }
// [args]
// x = "in float32[n] ~ uniform(0, 1)"
// y = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void total(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(y, x[i]);
}
"""


def test_an_order_of_additions_that_changes_is_seen_where_the_contract_forbids_it(session: Session) -> None:
    kernel = find_kernels(text_unit(DETERMINISTIC, "total.cu"))[0]
    (verdict,) = session.bench(kernel)
    assert "nondeterministic" in {f.code for f in verdict.findings if f.severity == "error"}, verdict.findings


def task_for(path: Path) -> JudgeTask:
    kernel = load_kernels(path)[0]
    target = find_target("sm_90")
    contract = contract_for(kernel)
    compiled = compile_kernel(kernel, contract.options, instance=None, target=target, options=CompileOptions())
    version = Version(compiled, contract, kernel.unit)
    return JudgeTask("cuda", target, version, None, None, (), SEED, str(path.parent))


FAULTY = {
    "write_past_end": "out-of-bounds-write",
    "misaligned_load": "misaligned-access",
    "shared_read_after_write": "shared-race",
    "sum_into_unset_output": "uninitialised-global",
    "barrier_in_a_branch": "divergent-barrier",
}
HONEST = sorted(EXAMPLES.glob("*.cu"))[0]


@pytest.fixture(scope="module")
def sanitized() -> dict[Path, tuple[tuple[Finding, ...], tuple[str, ...]]]:
    """Returns the sanitizer's findings on each kernel.

    All kernels run at once, since starting the tools takes most of the time.
    """
    if locate("compute-sanitizer") is None:
        pytest.skip("compute-sanitizer is not installed")
    paths = [*(ROOT / "tests" / "faulty" / f"{name}.cu" for name in FAULTY), HONEST]
    with ThreadPoolExecutor(len(paths)) as pool:
        found = pool.map(lambda path: sanitize(task_for(path), 0, lambda *_: None), paths)
        return dict(zip(paths, found, strict=True))


@pytest.fixture(scope="module")
def emulator() -> Iterator[Session]:
    with Session(load_settings(seed=SEED, backend="emulator", target="sm_90")) as opened:
        yield opened


@pytest.mark.parametrize(("name", "code"), FAULTY.items())
def test_the_sanitizer_names_the_line_that_the_emulator_names(sanitized, emulator, name: str, code: str) -> None:
    path = ROOT / "tests" / "faulty" / f"{name}.cu"
    findings, lines = sanitized[path]
    print(name, findings, lines)
    (verdict,) = emulator.bench(load_kernels(path)[0])
    (ours,) = (finding for finding in verdict.findings if (finding.code, finding.severity) == (code, "error"))
    theirs = [finding for finding in findings if finding.code == code]
    assert theirs
    # A race has two ends, of which the sanitizer has the other one in its message.
    ends = {finding.line for finding in theirs} | {
        int(line) for finding in theirs for line in re.findall(r"the other access is at line (\d+)", finding.message)
    }
    assert ours.line is None or ours.line in ends


def test_the_sanitizer_says_nothing_against_a_right_kernel(sanitized) -> None:
    findings, lines = sanitized[HONEST]
    assert findings == ()
    assert len(lines) == 1
    assert lines[0].startswith(f"compute-sanitizer finds nothing: {', '.join(TOOLS)}")


def test_hardware_counters_stand_beside_the_emulators(emulator) -> None:
    from kernelmate.worker.nvidia.profiler import profile

    path = sorted(EXAMPLES.glob("*.cu"))[0]
    try:
        hardware = profile(task_for(path), 0)
    except ToolFailed as reason:
        pytest.skip(str(reason))
    print(hardware)
    (verdict,) = emulator.bench(load_kernels(path)[0])
    assert verdict.counters is not None
    for name in ("global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors"):
        assert getattr(hardware.counters, name) == getattr(verdict.counters, name), name
    assert hardware.counters.source == "hardware"
    assert hardware.duration_us is not None
    assert hardware.duration_us > 0
    assert hardware.achieved_occupancy is not None
    assert 0 < hardware.achieved_occupancy <= 1


def test_a_verdict_carries_what_the_tools_say() -> None:
    with Session(load_settings(seed=SEED, backend="cuda", timeout_s=120, sanitize=True, profile=True)) as opened:
        (verdict,) = opened.bench(load_kernels(sorted(EXAMPLES.glob("*.cu"))[0])[0])
    assert verdict.accepted is True, verdict.reasons
    print(verdict.reasons, verdict.hardware)
    assert any(reason.startswith("compute-sanitizer") for reason in verdict.reasons)
    assert verdict.hardware is not None or any("no hardware counters" in reason for reason in verdict.reasons)
