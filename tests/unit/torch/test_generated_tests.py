"""Operators of all kinds of kernels pass the tests that are written with them: opcheck, reference, guards, gradients."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make train-tools")

RunTest = Callable[[Path], subprocess.CompletedProcess[str]]


@pytest.mark.slow
@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize(
    "spec",
    [
        "rmsnorm.cu", "swiglu.cu", "matmul.cu::matmul_naive", "matmul.cu::matmul_tiled", "histogram.cu", "residual_half.cu",
        "adamw.cu", "guidance.cu", "bias_gelu_bf16.cu", "groupnorm_silu.cu", "transpose.cu", "spmv_csr.cu", "rope.cu",
        "packs.cu",
    ],
)  # fmt: skip
def test_an_exported_operator_passes_its_tests(spec: str, exported: Callable[..., Path], run_its_test: RunTest) -> None:
    done = run_its_test(exported(spec))
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "backward"),
    [("softmax.cu", "softmax_backward.cu"), ("scaled.cu::scaled", "scaled.cu::scaled_backward")],
)
def test_an_operator_with_a_backward_kernel_passes_gradcheck(
    spec: str, backward: str, exported: Callable[..., Path], run_its_test: RunTest
) -> None:
    folder = exported(spec, backward)
    (test,) = folder.glob("test_*.py")
    assert "torch.autograd.gradcheck(" in test.read_text()
    done = run_its_test(folder)
    assert done.returncode == 0, done.stdout


def test_a_wrong_gradient_fails_the_generated_test(
    exported: Callable[..., Path], run_its_test: RunTest, tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "wrong"
    shutil.copytree(exported("scaled.cu::scaled", "scaled.cu::scaled_backward"), folder)
    kernel = folder / "scaled_op" / "scaled_backward.cu"
    kernel.write_text(kernel.read_text().replace("dy[i] * x[i] * factor", "dy[i] * x[i]"))
    done = run_its_test(folder)
    assert "test_gradients_are_those_of_finite_differences" in done.stdout
    assert done.returncode == 1
    assert done.stdout.count("FAILED") == 1
