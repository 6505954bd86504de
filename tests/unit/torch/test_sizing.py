"""Example inputs of many gigabytes: made smaller by the file's own numbers, without being made first."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make train-tools")

from kernelmate_torch.loading import made_smaller
from kernelmate_torch.module_process import ModuleProcess

LARGE = """
import torch
from torch import nn

batch, features, side = 4096, 48, 2048

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5) * self.scale[:, None]

def get_inputs():
    return [torch.rand(batch, features, side)]

def get_init_inputs():
    return [features]
"""


def file_of(text: str) -> types.ModuleType:
    file = types.ModuleType("large")
    exec(text, file.__dict__)
    return file


def test_numbers_that_only_inputs_have_are_halved_the_largest_first() -> None:
    file = file_of(LARGE)
    assert made_smaller(file, 1 << 20) == {"batch": 64, "side": 64}
    assert file.get_inputs()[0].shape == (64, 48, 64)
    assert file.features == 48


def test_inputs_that_fit_or_cannot_be_told_stay() -> None:
    assert made_smaller(file_of(LARGE), 1 << 40) == {}
    assert made_smaller(file_of("def get_inputs():\n    raise ValueError"), 1) == {}
    assert made_smaller(file_of("x = 1"), 1) == {}


def test_sizes_of_parameters_follow_where_nothing_else_is_left() -> None:
    text = LARGE.replace("batch, features, side = 4096, 48, 2048", "batch, features, side = 16, 65536, 16")
    assert made_smaller(file_of(text), 1 << 20) == {"features": 1024}


def test_a_file_whose_inputs_take_terabytes_is_ported_at_smaller_ones(tmp_path: Path) -> None:
    path = tmp_path / "36_Norm_.py"
    path.write_text(LARGE.replace("4096, 48, 2048", "1 << 20, 48, 1 << 14"))
    ran = subprocess.run(
        [sys.executable, "-m", "kernelmate", "port", str(path), "--backend", "emulator", "--to", str(tmp_path / "new")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "ported and compared with batch = " in " ".join(ran.stdout.split())
    assert "model_36_Norm__eager.batch = " in (tmp_path / "new" / "test_model_new.py").read_text()


EQUAL = """
import torch

rows, shape = 32768, (32768,)

class Model(torch.nn.Module):
    def forward(self, x, target):
        return torch.relu(1 - x * target).mean()

def get_inputs():
    return [torch.rand(rows, *shape), torch.rand(rows)]
"""


def test_a_module_that_needs_equal_sizes_is_exported_with_numbers_halved_together(tmp_path: Path) -> None:
    assert made_smaller(file_of(EQUAL), 1 << 22, together=True) == {"rows": 512, "shape": (512,)}
    (tmp_path / "hinge.py").write_text(EQUAL)
    with ModuleProcess(tmp_path, 100) as process:
        program = process.export(tmp_path / "hinge.py", "Model", "", 0)
    assert program.smaller == {"rows": 2048, "shape": (2048,)}
