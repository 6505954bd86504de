"""Candidates for KernelBench tasks on a GPU: timed beside eager and compiled baselines, and cheats that need a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate_torch.kernelbench.running import BenchmarkRunner, BenchmarkSettings
from kernelmate_torch.kernelbench.tasks import BenchmarkTask

torch: Any = pytest.importorskip("torch", reason="KernelBench tasks need torch: pip install 'kernelmate[torch]'")

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]

DATA = Path(__file__).resolve().parents[1] / "data"
TASK = BenchmarkTask(DATA / "kernelbench" / "level1" / "2_gelu.py", "level1/2_gelu.py")
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\nclass ModelNew(nn.Module):\n"
CHEATS = {
    "side_stream": (
        HEAD + "    def __init__(self):\n        super().__init__()\n        self.stream = torch.cuda.Stream()\n\n"
        "    def forward(self, x):\n        with torch.cuda.stream(self.stream):\n            torch.cuda._sleep(20_000_000)\n"
        "            y = F.gelu(x)\n        return y\n",
        {"side-stream", "wrong-values", "stateful", "partial-result", "aliased-output"},
    ),
    "tf32": (
        HEAD.replace("\n\n\nclass", "\n\ntorch.backends.cuda.matmul.allow_tf32 = True\n\n\nclass") + "    def forward(self, x):\n        return F.gelu(x)\n",
        {"flags-changed"},
    ),
    "kept_by_address": (
        HEAD + "    def __init__(self):\n        super().__init__()\n        self.kept = {}\n\n"
        "    def forward(self, x):\n        key = x.data_ptr()\n        if key not in self.kept:\n            self.kept[key] = F.gelu(x)\n"
        "        return self.kept[key].clone()\n",
        {"cached-result"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runner() -> Iterator[BenchmarkRunner]:
    with BenchmarkRunner(BenchmarkSettings(timeout_s=600)) as runner:
        yield runner


def test_a_right_candidate_is_timed_beside_the_baselines(runner: BenchmarkRunner) -> None:
    verdict = runner.judge(TASK, DATA / "kernelbench_candidates" / "right.py", runner.audit(TASK))
    assert verdict.right, verdict.findings
    assert verdict.device == torch.cuda.get_device_name()
    assert verdict.time_us is not None
    assert "eager" in verdict.speeds
    for speed in verdict.speeds.values():
        assert 0 < speed.low <= speed.ratio <= speed.high
    assert verdict.speeds["eager"].high < 1.0, "five eager operations are no faster than one"
    assert verdict.roof_share is not None
    assert 0 < verdict.roof_share < 1.1


def test_a_compiled_candidate_is_about_as_fast_as_the_compiled_baseline(
    runner: BenchmarkRunner, tmp_path: Path
) -> None:
    path = tmp_path / "compiled.py"
    # A compiled module, as the baseline is: a compiled function costs the host less for each call.
    inner = HEAD.replace("ModelNew", "Inner") + "    def forward(self, x):\n        return F.gelu(x)\n\n\n"
    path.write_text(inner + "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.inner = torch.compile(Inner())\n\n    def forward(self, x):\n        return self.inner(x)\n")  # fmt: skip
    verdict = runner.judge(TASK, path, runner.audit(TASK))
    assert verdict.right, verdict.findings
    assert "compile" in verdict.speeds, verdict.findings
    assert verdict.speeds["compile"].ratio == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("name", sorted(CHEATS))
def test_cheats_that_need_a_gpu_are_named(name: str, runner: BenchmarkRunner, tmp_path: Path) -> None:
    text, codes = CHEATS[name]
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    verdict = runner.judge(TASK, path, runner.audit(TASK))
    assert not verdict.right
    assert codes & {one.code for one in verdict.findings if one.severity == "error"}, verdict.findings
