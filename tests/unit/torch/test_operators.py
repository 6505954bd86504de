"""Guards, gradients and strides of exported operators, in this process on the CPU."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelmate.session.torch_operator import GradientRegistration, gradient_registration

torch: Any = pytest.importorskip(
    "torch", reason="operators need torch: make train-tools, or pip install 'kernelmate[torch]'"
)

Operator = Callable[..., ModuleType]
ROOT = Path(__file__).resolve().parents[3]


def test_softmax_is_torchs_softmax_with_its_gradient(operator: Operator) -> None:
    softmax = operator("softmax.cu", "softmax_backward.cu").softmax
    x = torch.randn(5, 37, requires_grad=True)
    y = softmax(x)
    torch.testing.assert_close(y, torch.softmax(x, -1))
    weight = torch.randn(5, 37)
    (got,) = torch.autograd.grad((y * weight).sum(), x)
    (want,) = torch.autograd.grad((torch.softmax(x, -1) * weight).sum(), x)
    torch.testing.assert_close(got, want)


def test_a_gradient_that_reads_nothing_of_the_forward_pass_saves_nothing() -> None:
    gradient = GradientRegistration("twice", ("x",), ("y",), (), ("grad_y",), ("grad_x = 2 * grad_y",), ("grad_x",), reads_inputs=False)  # fmt: skip
    twice = torch.library.custom_op("kernelmate_test::twice", lambda x: 2 * x, mutates_args=(), schema="(Tensor x) -> Tensor")  # fmt: skip
    exec("\n".join(gradient_registration(gradient)), {"twice": twice})
    x = torch.randn(3, requires_grad=True)
    twice(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_the_second_derivative_is_refused_and_not_zero(operator: Operator) -> None:
    softmax = operator("softmax.cu", "softmax_backward.cu").softmax
    x = torch.randn(2, 3, requires_grad=True)
    (first,) = torch.autograd.grad(softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="softmax_backward has no backward kernel"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: (torch.zeros(3, 4, dtype=torch.float64), torch.zeros(4)), r"x is torch\.float64, and torch\.float32 is needed"),
        (lambda: (torch.zeros(3, 4), torch.zeros(4, dtype=torch.float16)), r"weight is torch\.float16"),
        (lambda: (torch.zeros(4, 3).t(), torch.zeros(4)), r"x has strides \(1, 3\), and a contiguous tensor is needed: pass x\.contiguous\(\)"),
        (lambda: (torch.zeros(3, 4).to_sparse(), torch.zeros(4)), r"x is torch\.sparse_coo, and a dense tensor is needed: pass x\.to_dense\(\)"),
        (lambda: (torch.zeros(3, 8)[:, ::2], torch.zeros(4)), r"x has strides \(8, 2\)"),
        (lambda: (torch.zeros(3, 4), torch.zeros(4, device="meta")), r"weight is on meta, and x on cpu: all tensors must be on one device"),
        (lambda: (torch.zeros(3, 4), torch.zeros(5)), r"weight has shape \(5,\), and \[cols\] = \(4,\) is needed"),
        (lambda: (torch.zeros(3, 4, 1), torch.zeros(4)), r"x has 3 dimensions, and \[rows, cols\] is needed"),
    ],
)  # fmt: skip
def test_what_the_kernel_cannot_take_is_refused_with_the_reason(
    bad: Callable[[], tuple[Any, ...]], reason: str, operator: Operator
) -> None:
    with pytest.raises(ValueError, match=f"^rmsnorm: {reason}"):
        operator("rmsnorm.cu").rmsnorm(*bad())


def test_a_violated_require_is_named_with_its_sizes(operator: Operator) -> None:
    packs = operator("packs.cu").packs
    with pytest.raises(ValueError, match=r"packs: n % 4 == 0 is needed, and does not hold for n = 6"):
        packs(torch.zeros(6))
    rope = operator("rope.cu").rope
    with pytest.raises(ValueError, match=r"context > 0 is needed"):
        rope(torch.zeros(2, 1, 4), torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(2, dtype=torch.int32))


@pytest.mark.parametrize("spec", ["packs.cu", "unpromised.cu"])
def test_an_address_off_its_alignment_is_refused_also_where_the_contract_does_not_promise_it(
    spec: str, operator: Operator
) -> None:
    packed = getattr(operator(spec), spec.removesuffix(".cu"))
    numbers = torch.arange(9, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"x begins at an address that is no multiple of 16 bytes.*pass x\.clone\(\)"):
        packed(numbers[1:])
    torch.testing.assert_close(packed(numbers[1:].clone()), 2 * numbers[1:])


def test_a_kernel_that_needs_no_alignment_takes_slices(operator: Operator) -> None:
    gate = torch.randn(9)
    torch.testing.assert_close(
        operator("swiglu.cu").swiglu(gate[1:], gate[:8]), torch.nn.functional.silu(gate[1:]) * gate[:8]
    )


def test_without_a_backward_kernel_a_gradient_is_refused_and_values_are_given(operator: Operator) -> None:
    rmsnorm = operator("rmsnorm.cu").rmsnorm
    x = torch.randn(3, 4, requires_grad=True)
    y = rmsnorm(x, torch.ones(4), eps=1e-3)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (4,), eps=1e-3))
    with pytest.raises(RuntimeError, match="rmsnorm has no backward kernel"):
        y.sum().backward()


def test_an_operator_that_writes_in_place_refuses_gradients_and_takes_parameters_without(operator: Operator) -> None:
    adamw = operator("adamw.cu").adamw
    parameter = torch.nn.Parameter(torch.ones(4))
    grad, first, second = torch.ones(4), torch.zeros(4), torch.zeros(4)
    with pytest.raises(RuntimeError, match="adamw writes to its arguments, so it has no gradient"):
        adamw(parameter, grad, first, second)
    with pytest.raises(RuntimeError, match="has no gradient"):
        torch.ops.kernelmate.adamw(parameter * 2, grad, first, second)
    with torch.no_grad():
        version = parameter._version
        adamw(parameter, grad, first, second)
    assert parameter._version > version
    assert bool((parameter < 1).all())
    assert bool((first > 0).all())


def test_a_missing_gradient_of_an_input_that_requires_one_is_refused(operator: Operator) -> None:
    scaled = operator("scaled.cu::scaled", "scaled.cu::scaled_backward").scaled
    x, weight = torch.randn(3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    scaled(x, weight, factor=0.75).sum().backward()
    torch.testing.assert_close(x.grad, (0.75 * weight).detach().expand(3, 5).contiguous())
    torch.testing.assert_close(weight.grad, 0.75 * x.detach().sum(0))


def test_empty_tensors_give_empty_results_without_a_launch(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    module = operator("softmax.cu", "softmax_backward.cu")
    monkeypatch.setattr(module.launching.CudaKernel, "launch", None)
    assert module.softmax(torch.zeros(0, 7)).shape == (0, 7)
    assert module.softmax(torch.zeros(7, 0)).shape == (7, 0)


def test_meta_tensors_give_the_shape_of_the_result(operator: Operator) -> None:
    transpose = operator("transpose.cu").transpose
    out = transpose(torch.empty(3, 5, device="meta"))
    assert (out.shape, out.stride(), out.device.type) == ((5, 3), (3, 1), "meta")


def test_numbers_that_do_not_fit_are_refused(operator: Operator) -> None:
    groupnorm = operator("groupnorm_silu.cu").groupnorm_silu
    given = (torch.zeros(1, 4, 3), torch.ones(4), torch.zeros(4))
    with pytest.raises(
        ValueError, match=r"channels % groups == 0 is needed, and does not hold for channels = 4, groups = 3"
    ):
        groupnorm(*given, 3)
    with pytest.raises(ValueError, match="groups >= 0"):
        groupnorm(*given, -1)


def test_tensors_that_share_memory_are_refused_in_the_emulator(operator: Operator) -> None:
    adamw = operator("adamw.cu").adamw
    same = torch.ones(4)
    with torch.no_grad(), pytest.raises(RuntimeError, match="share memory"):
        adamw(same, torch.ones(4), same, torch.zeros(4))


def test_half_precision_and_bits_arrive_as_they_are(operator: Operator) -> None:
    bias_gelu = operator("bias_gelu_bf16.cu").bias_gelu
    x, bias = torch.randn(3, 5).bfloat16(), torch.randn(5).bfloat16()
    total = x.float() + bias.float()
    want = total * torch.sigmoid(1.702 * total)
    torch.testing.assert_close(bias_gelu(x, bias).float(), want, rtol=2e-2, atol=2e-2)


def test_compiled_for_one_shape_it_is_not_compiled_again_for_another(operator: Operator) -> None:
    rmsnorm = operator("rmsnorm.cu").rmsnorm
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x, w: rmsnorm(2 * x, w) + 1, fullgraph=True, dynamic=True, backend=backend)
    for rows, cols in ((3, 4), (5, 7), (6, 9)):
        x, weight = torch.randn(rows, cols), torch.randn(cols)
        torch.testing.assert_close(compiled(x, weight), rmsnorm(2 * x, weight) + 1)
    assert len(graphs) == 1


def test_the_package_needs_neither_kernelmate_nor_cupy_to_be_imported(exported: Callable[..., Path]) -> None:
    folder = exported("rmsnorm.cu")
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('kernelmate', 'kernelmate_torch', 'cupy')));"
        "import torch, rmsnorm_op\n"
        "print(rmsnorm_op.rmsnorm(torch.empty(3, 4, device='meta'), torch.empty(4, device='meta')).shape)\n"
        "try: rmsnorm_op.rmsnorm(torch.ones(3, 4), torch.ones(4))\n"
        "except RuntimeError as error: print(error)"
    )
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "torch.Size([3, 4])" in done.stdout, done.stderr
    assert "which is not installed" in done.stdout
    assert "pip install kernelmate" in done.stdout


def test_the_written_text_is_formatted_and_without_unused_names(exported: Callable[..., Path], tmp_path: Path) -> None:
    for spec in ("adamw.cu", "rope.cu", "groupnorm_silu.cu", "rmsnorm.cu"):
        folder = exported(spec)
        for path in folder.rglob("*_op/*.py"):
            ast.parse(path.read_text())
        command = [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--select",
            "F,E,W,I",
            "--line-length",
            "120",
            str(folder),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
