"""The audit of tasks in KernelBench's form: what it says of each task of the data folder, and how it records a call."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate_torch.kernelbench.records import CODES, TaskAudit
from kernelmate_torch.kernelbench.running import BenchmarkRunner, BenchmarkSettings
from kernelmate_torch.kernelbench.tasks import BenchmarkTask, find_tasks

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make train-tools")  # fmt: skip

DATA = Path(__file__).resolve().parents[2] / "data" / "kernelbench"
TASKS = {one.name: one for one in find_tasks(DATA)}
FLAWED = {
    "flawed/1_wide_softmax.py": {"zeros-pass": 12},
    "flawed/2_sum_of_softmax.py": {"constant-passes": 12, "constant-work": 12},
    "flawed/3_mean_squared_error.py": {"answer-repeats": 13},
    "flawed/4_relu_of_positive.py": {"part-suffices": 13},
    "flawed/5_unused_input.py": {"input-unused": 11, "identity": 12, "constant-work": 12},
    "flawed/6_unused_layer.py": {"parameters-unused": 18, "unused-work": 19},
    "flawed/7_diagonal_product.py": {"structured-product": 11},
    "flawed/8_triangular_product.py": {"structured-product": 11},
    "flawed/9_gram_matrix.py": {"structured-product": 12},
    "flawed/10_computed_twice.py": {"repeated-work": 13},
    "flawed/11_idle_operations.py": {"identity": 13},
    "flawed/12_centred_single_column.py": {"zeros-pass": 20, "constant-work": 19, "identity": 20, "launch-bound": 0},
    "flawed/13_wide_type.py": {"wide-type": 12},
    "flawed/14_same_inputs.py": {"same-inputs": 15},
    "flawed/15_equal_elements.py": {"degenerate-inputs": 15, "part-suffices": 12},
    "flawed/16_tiny.py": {"launch-bound": 0},
    "flawed/17_mask_at_each_call.py": {"constant-work": 12},
    "flawed/18_small_correction.py": {"parameters-unused": 15, "part-suffices": 16},
    "flawed/19_unused_parameters.py": {"parameters-unused": 15, "identity": 16},
    "flawed/20_reductions_of_one.py": {"identity": 14, "launch-bound": 0},
}
"""Codes of severity `error` of each flawed task, with the last line that each is found in."""
SOUND = sorted(set(TASKS) - set(FLAWED))


@pytest.fixture(scope="module")
def audited() -> Iterator[Callable[[BenchmarkTask], TaskAudit]]:
    """Audits tasks; each folder's in one process, since importing PyTorch takes seconds."""
    with BenchmarkRunner(BenchmarkSettings(timeout_s=300)) as runner:
        yield runner.audit


def errors(audit: TaskAudit) -> dict[str, int]:
    return {one.code: one.line for one in audit.findings if one.severity == "error"}


def test_there_are_forty_tasks_of_which_thirty_are_sound():
    assert len(SOUND) >= 30
    assert set(FLAWED) <= set(TASKS)
    assert {code for codes in FLAWED.values() for code in codes} >= set(CODES) - {"symmetric-operand", "neutral-parameters", "partly-audited"}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", [*sorted(FLAWED), *SOUND])
def test_each_flaw_is_found_in_its_line_and_sound_tasks_have_none(
    name: str, audited: Callable[[BenchmarkTask], TaskAudit]
):
    audit = audited(TASKS[name])
    assert audit.failed == ""
    assert errors(audit) == FLAWED.get(name, {})
    assert all(one.code in CODES and one.message.endswith(".") for one in audit.findings)
    assert audit.full
    assert audit.operations >= 1


def written(folder: Path, body: str) -> BenchmarkTask:
    path = folder / "task.py"
    path.write_text("import torch\n\n\n" + body)
    return BenchmarkTask(path, "task.py")


def test_a_task_that_raises_is_flagged_with_the_line(audited: Callable[[BenchmarkTask], TaskAudit], tmp_path: Path):
    task = written(
        tmp_path,
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n\n\n"
        "def get_inputs():\n    return [torch.randn(3, 4)]\n\n\ndef get_init_inputs():\n    return []\n",
    )
    audit = audited(task)
    assert audit.flagged
    assert "RuntimeError" in audit.failed
    assert "(line 6)" in audit.failed


def test_a_task_that_reads_numbers_out_of_tensors_is_audited_without_its_parts(
    audited: Callable[[BenchmarkTask], TaskAudit], tmp_path: Path
):
    task = written(
        tmp_path,
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * (1.0 + x[0, 0].item())\n\n\n"
        "def get_inputs():\n    return [torch.randn(2048, 1024)]\n\n\ndef get_init_inputs():\n    return []\n",
    )
    audit = audited(task)
    assert [one.code for one in audit.findings if "depend on values" in one.message] == ["partly-audited"]


def test_the_tolerance_decides(tmp_path: Path):
    """A softmax of 512 columns is within 0.01 of zeros at most rows of small numbers, and not within 1e-4."""
    task = written(
        tmp_path,
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=1)\n\n\n"
        "def get_inputs():\n    return [torch.rand(2048, 1024)]\n\n\ndef get_init_inputs():\n    return []\n",
    )
    found = []
    for tolerance in ((1e-2, 1e-2), (1e-4, 1e-4)):
        with BenchmarkRunner(BenchmarkSettings(tolerance=tolerance, timeout_s=300)) as runner:
            found.append(errors(runner.audit(task)))
    assert found == [{"zeros-pass": 6}, {}]


def test_sizes_that_take_too_long_are_halved_and_named(audited: Callable[[BenchmarkTask], TaskAudit], tmp_path: Path):
    task = written(
        tmp_path,
        "n = 65536\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=1)\n\n\n"
        "def get_inputs():\n    return [torch.rand(n, n)]\n\n\ndef get_init_inputs():\n    return []\n",
    )
    audit = audited(task)
    assert not audit.full
    assert audit.smaller["n"] < 65536
    assert [one.code for one in audit.findings] == ["zeros-pass"]
    assert "(seen at n = " in audit.findings[0].message
    assert audit.roof_us is not None
    assert audit.roof_us > 10_000
