"""Results computed ahead of a verdict are those that it needs, and nobody waits for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.backends.base import Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.judge import judge
from kernelmate.checks.prefetch import begin_glance, work_ahead
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import Compiled, CompileOptions, JudgeTask, Target, Version
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract

KERNEL = """// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "ref.py:twice"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
CALLS = Path("/dev/shm", f"kernelmate-calls-{os.getpid()}")
"""Counts calls: a reference in its own process may write there, and nowhere near its file."""
REFERENCE = f"""def twice(x):
    with open({str(CALLS)!r}, 'a') as calls:
        calls.write('.')
    return 2 * x
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "ref.py").write_text(REFERENCE)
    (tmp_path / "twice.cu").write_text(KERNEL)
    CALLS.unlink(missing_ok=True)
    yield tmp_path / "twice.cu"
    CALLS.unlink(missing_ok=True)


def calls() -> int:
    return CALLS.stat().st_size if CALLS.exists() else 0


def task_of(file: Path, seed: int) -> JudgeTask:
    kernel, target = load_kernels(file)[0], find_target(None)
    contract = parse_contract(kernel)
    assert contract is not None
    compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
    version = Version(compiled, contract, kernel.unit)
    return JudgeTask("emulator", target, version, None, None, (), seed, str(file.parent))


def judged(task: JudgeTask):
    return judge(task, EmulatorBackend(), lambda *_: None, lambda *_: None)


def test_a_verdict_finds_every_answer_there_whatever_the_kernel_is_now(file: Path) -> None:
    assert work_ahead(task_of(file, 11), lambda: False) > 10
    before = calls()
    assert before > 0
    file.write_text("\n\n" + KERNEL.replace("block = 128", "block = 64").replace("2 * x[i]", "x[i] + x[i]"))
    assert judged(task_of(file, 11)).correct is True
    assert calls() == before


def test_another_seed_or_another_reference_finds_nothing(file: Path) -> None:
    work_ahead(task_of(file, 12), lambda: False)
    before = calls()
    judged(task_of(file, 13))
    assert calls() > before
    work_ahead(task_of(file, 14), lambda: False)
    (file.parent / "ref.py").write_text(REFERENCE.replace("return 2", "return 3"))
    os.utime(file.parent / "ref.py", ns=(1, 1))
    assert judged(task_of(file, 14)).correct is False


def test_it_ends_as_soon_as_somebody_waits(file: Path) -> None:
    work_ahead(task_of(file, 18), lambda: False)
    whole, asked = calls(), []

    def soon() -> bool:
        asked.append(None)
        return len(asked) > 8

    work_ahead(task_of(file, 15), soon)
    assert 0 < calls() - whole < whole / 8


def test_a_reference_that_fails_is_left_for_the_verdict_to_tell(file: Path) -> None:
    (file.parent / "ref.py").write_text("def twice(x):\n    raise ValueError\n")
    assert work_ahead(task_of(file, 16), lambda: False) == 0
    (file.parent / "ref.py").write_text("not Python\n")
    assert work_ahead(task_of(file, 17), lambda: False) == 0


def test_where_the_reference_is_a_kernel_nothing_is_done(file: Path) -> None:
    task = task_of(file, 18)
    contract = replace(task.candidate.contract, reference="other", reference_kind="kernel")
    assert work_ahead(replace(task, candidate=replace(task.candidate, contract=contract)), lambda: False) == 0


@pytest.fixture
def settled(file: Path) -> Callable[[], int]:
    """Calls of the reference, once there are no more for a while."""

    def count() -> int:
        seen, since = calls(), time.monotonic()
        while time.monotonic() - since < 1.0:
            time.sleep(0.05)
            if calls() != seen:
                seen, since = calls(), time.monotonic()
        return seen

    return count


def test_a_session_works_ahead_for_a_seed_that_it_has_not_told(file: Path, settled: Callable[[], int]) -> None:
    with Session(load_settings(backend="emulator")) as session:
        (first,) = session.bench(load_kernels(file)[0])
        before = settled()
        file.write_text(KERNEL.replace("2 * x[i]", "x[i] + x[i]"))
        (second,) = session.bench(load_kernels(file)[0])
        # Before: a verdict and what was worked ahead. Since: only the work ahead of a third.
        assert second.correct is True
        assert first.seed != second.seed
        assert settled() - before < 0.75 * before


def test_a_reference_that_hangs_ahead_is_the_references_fault(file: Path) -> None:
    from kernelmate.errors import ReferenceFailed

    (file.parent / "ref.py").write_text(
        "import os, time\nstop = os.path.join(os.path.dirname(__file__), 'stop')\n"
        "def twice(x):\n    if os.path.exists(stop): time.sleep(1000)\n    return 2 * x\n"
    )
    with Session(load_settings(backend="emulator", reference_timeout_s=1.0)) as session:
        (verdict,) = session.bench(load_kernels(file)[0])
        assert verdict.correct is True
        session.bench(load_kernels(file)[0])
        (file.parent / "stop").write_text("")
        time.sleep(0.05)
        with pytest.raises(ReferenceFailed, match=r"did not return in 1 s"):
            session.bench(load_kernels(file)[0])


def test_nothing_is_done_ahead_with_a_reference_that_takes_long(file: Path, settled: Callable[[], int]) -> None:
    (file.parent / "ref.py").write_text(
        REFERENCE.replace("    return", "    import time; time.sleep(0.6 * (x.size == 1000))\n    return")
    )
    file.write_text(KERNEL.replace("// [args]", "// tolerance = { rtol = 1e-6, atol = 1e-9 }\n// [args]"))
    with Session(load_settings(backend="emulator")) as session:
        assert session.bench(load_kernels(file)[0])[0].correct is True
        before = calls()
        assert settled() == before


class Beginning(EmulatorBackend):
    """The emulator, noting what is begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Run] = []
        self.made: list[Run] = []

    def begin(self, compiled: Compiled, target: Target, run: Run) -> None:
        self.begun.append(run)

    def load(self, compiled: Compiled, target: Target):
        module, made = super().load(compiled, target), self.made

        class Noting:
            def run(self, run: Run):
                made.append(run)
                return module.run(run)

        return Noting()


def test_the_launch_of_a_glance_is_begun_as_the_glance_makes_it(file: Path) -> None:
    alone = task_of(file, 15)
    judged(alone)  # what the baseline's longest thread takes is known
    task = replace(
        alone, baseline=alone.candidate, sizes=alone.candidate.contract.sizes[:1], own_sizes=False, glance=True
    )
    backend = Beginning()
    begin_glance(task, backend)
    judge(task, backend, lambda *_: None, lambda *_: None)
    (begun,), (made,) = backend.begun, backend.made
    assert repr(begun) == repr(made)
    assert begun.count
    assert begun.step_limit < alone.step_limit


def test_nothing_is_begun_that_only_a_reference_kernel_could_judge(file: Path) -> None:
    task = replace(task_of(file, 16), glance=True)
    backend = Beginning()
    begin_glance(replace(task, reference_version=task.candidate), backend)
    begin_glance(replace(task, reference_version=None), EmulatorBackend())
    assert backend.begun == []
