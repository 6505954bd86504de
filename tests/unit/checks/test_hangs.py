"""A launch that does not end uses up one limit of the emulator: it ends the verdict, and no launch follows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from kernelmate.backends.base import EmulationTooLarge
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.judge import judge
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, JudgeTask, Version
from kernelmate.source import contract_for, find_kernels, text_unit

HEAD = """// /// kernelmate
// sizes = [{ n = 256 }, { n = 100 }, { n = 64 }]
// grid = "cdiv(n, block)"
// block = 64
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__device__ int launches = 0;
__global__ void twice(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  %s
  if (i < n) y[i] = 2.0f * x[i];
}
"""
FOREVER = "for (float v = x[0]; v != 12345.0f; v = v * 0.5f + 1.0f) y[0] = v;"
ENDLESS = {
    "at every size": FOREVER,
    "at one listed size": f"if (n == 100) {FOREVER}",
    "at sizes of our own": f"if (n < 64 && n > 2) {FOREVER}",
    "for inputs that are not finite": f"if (i < n && !(fabsf(x[i]) < 1e30f)) {FOREVER}",
    "in a later launch": f"if (i == 0 && atomicAdd(&launches, 1) == 2) {FOREVER}",
}


@dataclass
class Counting:
    """The emulator, with the launches that it did not get to the end of."""

    inner: EmulatorBackend = field(default_factory=EmulatorBackend)
    name: str = "emulator"
    poisoned: bool = False
    launched: int = 0
    endless: list[int] = field(default_factory=list)

    def load(self, compiled, target):
        module, outer = self.inner.load(compiled, target), self

        class Module:
            def run(self, run):
                outer.launched += 1
                try:
                    result = module.run(run)
                except EmulationTooLarge:
                    outer.endless.append(outer.launched)
                    raise
                if any(finding.code == "hang" for finding in result.findings):
                    outer.endless.append(outer.launched)
                return result

        return Module()


def version(text: str) -> Version:
    kernel = find_kernels(text_unit(text, "twice.cu"))[0]
    contract = contract_for(kernel)
    compiled = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    return Version(compiled, contract, kernel.unit)


@pytest.fixture(scope="module")
def baseline() -> Version:
    return version(HEAD % "")


def judged(candidate, baseline, tmp_path, **limits):
    backend = Counting()
    task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(tmp_path), step_limit=100_000)
    return judge(replace(task, **limits), backend, lambda *_: None, lambda *_: None), backend


@pytest.mark.parametrize("compared", [True, False], ids=["optimize", "fix"])
@pytest.mark.parametrize("where", ENDLESS)
def test_the_first_hang_ends_the_verdict(baseline, tmp_path, where, compared) -> None:
    judgement, backend = judged(version(HEAD % ENDLESS[where]), baseline if compared else None, tmp_path)
    assert len(backend.endless) == 1
    assert backend.launched == backend.endless[0]
    assert "hang" in {finding.code for finding in judgement.findings}
    assert judgement.correct is not True or not compared


def test_a_launch_beyond_the_limit_of_all_threads_is_not_made_at_another_size(baseline, tmp_path) -> None:
    limits = {"instruction_limit": 300_000, "step_limit": 20_000_000}
    judgement, backend = judged(version(HEAD % FOREVER), baseline, tmp_path, **limits)
    assert len(backend.endless) == 1
    assert judgement.correct is not True


def test_a_size_of_our_own_beyond_the_limit_is_the_last_that_is_tried(baseline, tmp_path) -> None:
    limits = {"instruction_limit": 300_000, "step_limit": 20_000_000}
    judgement, backend = judged(version(HEAD % ENDLESS["at sizes of our own"]), None, tmp_path, **limits)
    assert len(backend.endless) == 1
    assert any("nor at the sizes of our own after it" in reason for reason in judgement.reasons)


def test_many_threads_that_spin_on_a_counter_stop_at_the_limit_of_all_together(tmp_path) -> None:
    crowd = HEAD.replace("n = 256", "n = 16384")
    spinning = version(crowd % "while (atomicAdd(&launches, 1) % 3 != 7) {}")
    judgement, backend = judged(spinning, version(crowd % ""), tmp_path, step_limit=20_000_000)
    assert backend.launched == backend.endless[0] == 2  # after the baseline
    assert "hang" in {finding.code for finding in judgement.findings}


def test_many_threads_that_swap_one_place_until_they_succeed_end(tmp_path) -> None:
    crowd = HEAD.replace("n = 256", "n = 4096")
    swap = (
        "int old = launches, seen; do { seen = old; old = atomicCAS(&launches, seen, seen + 2); } while (old != seen);"
    )
    judgement, _ = judged(version(crowd % swap), version(crowd % ""), tmp_path, own_sizes=False)
    assert judgement.cases[0].correct
    assert all(finding.code != "hang" for finding in judgement.findings)
