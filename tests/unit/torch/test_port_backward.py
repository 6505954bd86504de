"""Modules ported with gradients: equal to eager's in float64, registered with torch.library, and refused where there are none."""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.errors import InputError
from kernelmate.session import Session
from kernelmate_torch import operations, porting
from kernelmate_torch.module_process import ModuleProcess
from kernelmate_torch.porting import PortedPart
from kernelmate_torch.program import Agreement
from tests.unit.torch.ported_modules import DATA, first_kernel, module_file, port_command, ported

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")
TorchDispatchMode: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
gradients_agree: Any = importlib.import_module("kernelmate_torch.comparing").gradients_agree

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

GELU_RESIDUAL = {
    "forward": "return x + F.gelu(F.linear(x, self.weight) + self.bias)",
    "init": "self.weight = nn.Parameter(torch.randn(32, 32) * 0.1)\nself.bias = nn.Parameter(torch.randn(32))",
    "inputs": "torch.randn(18, 32)",
}
RMS_LINEAR = {
    "forward": "return F.linear(F.rms_norm(x, (32,), self.scale, 1e-6), self.weight)",
    "init": "self.scale = nn.Parameter(torch.rand(32))\nself.weight = nn.Parameter(torch.randn(24, 32) * 0.1)",
    "inputs": "torch.randn(18, 32)",
}
MODULES: dict[str, dict[str, str]] = {
    "layer_norm_linear": {}, "swiglu": {}, "cross_entropy": {}, "attention": {}, "conv_batch_norm": {}, "embedding_sum": {},
    "gelu_bias_residual": GELU_RESIDUAL, "rms_norm_linear": RMS_LINEAR, "two_results": {},
}  # fmt: skip


PRODUCTS = {"aten.mm.default", "aten.bmm.default"}
"""Operations of gradients that a library computes as fast."""

EAGER = {"embedding_sum": {"aten.embedding_dense_backward.default"}}
"""Others that stay PyTorch's, by module."""


@pytest.fixture(scope="module")
def process() -> Iterator[ModuleProcess]:
    with ModuleProcess(DATA, 300) as process:
        yield process


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=300, backend="emulator", history=False)) as session:
        yield session


@pytest.fixture
def port(
    process: ModuleProcess, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], tuple[list[PortedPart], Agreement]]:
    """Ports a file with gradients, with the first kernel of each part in place of a judged one."""
    monkeypatch.setattr(porting, "write_kernel", first_kernel)

    def with_gradients(path: Path) -> tuple[list[PortedPart], Agreement]:
        return ported(process, session, path, tmp_path, backward=True)[1:]

    return with_gradients


def written_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns `model_new` of a folder as a program would import it."""
    monkeypatch.syspath_prepend(str(folder))
    for name in [one for one in sys.modules if one == "model_new" or one.endswith("_eager")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("model_new")


def pair(module: ModuleType) -> tuple[Any, Any, list[Any]]:
    """Returns the module, its new form with the same parameters, both in eval mode, and inputs."""
    initial = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    old, new = module.Model(*initial).eval(), module.ModelNew(*initial).eval()
    new.load_state_dict(old.state_dict())
    return old, new, module.get_inputs()


def loss(model: Any, inputs: list[Any]) -> Any:
    returned = model(*inputs)
    return sum(one.double().square().mean() for one in (returned if isinstance(returned, tuple) else (returned,)))


def kernels(parts: list[PortedPart]) -> list[PortedPart]:
    return [one for one in parts if one.kernel is not None]


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", MODULES)
def test_training_runs_through_kernels_with_the_gradients_of_float64(
    name: str, port: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = module_file(tmp_path, **MODULES[name]) if MODULES[name] else DATA / f"{name}.py"
    parts, agreement = port(path)
    assert agreement.wrong == ""
    assert agreement.compared >= 8
    steps = [one for part in parts if part.gradient is not None for one in part.gradient.steps]
    assert {one.nodes[0].target for one in steps if one.kernel is None} <= PRODUCTS | EAGER.get(name, set())
    assert name in EAGER or kernels(steps)
    module = written_module(tmp_path / "new", monkeypatch)
    old, new, inputs = pair(module)
    before = copy.deepcopy(list(old.parameters()))
    for model in (old, new):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if before else None
        loss(model, [one.requires_grad_(one.is_floating_point()) for one in inputs]).backward()
        if optimizer is not None:
            optimizer.step()
    assert all(one.grad is not None for one in inputs if one.is_floating_point())
    for one, want, was in zip(new.parameters(), old.parameters(), before, strict=True):
        torch.testing.assert_close(one - was, want - was, rtol=1e-4, atol=1e-6)
    assert any((one != was).any() for one, was in zip(new.parameters(), before, strict=True)) or not before


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", ["layer_norm_linear", "swiglu", "cross_entropy"])
def test_the_operators_pass_opcheck_and_compile_whole(
    name: str, port: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parts, _ = port(DATA / f"{name}.py")
    module = written_module(tmp_path / "new", monkeypatch)
    for part in kernels(parts):
        operator = getattr(module, f"{part.function.name}_kernel")
        torch.library.opcheck(operator, example_arguments(part))
    _, new, inputs = pair(module)
    found = []
    varying = [*new.parameters(), *(one.requires_grad_() for one in inputs if one.is_floating_point())]
    for model in (new, torch.compile(new, fullgraph=True, backend="aot_eager")):
        found.append(torch.autograd.grad(loss(model, inputs), varying))
    torch.testing.assert_close(found[1], found[0])


def example_arguments(part: PortedPart) -> list[Any]:
    """Returns tensors of the module's sizes for a part's operator, the floating ones with gradients."""
    sizes, made = part.function.size, []
    for one in part.function.arguments:
        shape = [sizes.get(side, int(side) if side.isdigit() else 1) for side in one.shape]
        floating = "float" in one.dtype
        made.append(torch.randn(shape).requires_grad_() if floating else torch.zeros(shape, dtype=getattr(torch, one.dtype)))  # fmt: skip
    return made


def test_gradients_in_float64_pass_gradcheck(port: Callable[[Path], Any], tmp_path: Path, monkeypatch: Any):
    path = module_file(
        tmp_path,
        "return F.layer_norm(torch.tanh(x) * self.scale, (6,), self.scale)",
        init="self.scale = nn.Parameter(torch.rand(6, dtype=torch.float64))",
        inputs="torch.randn(4, 6, dtype=torch.float64)",
    )
    parts, agreement = port(path)
    assert agreement.wrong == ""
    assert all(kernels(list(part.gradient.parts)) for part in kernels(parts))
    _, new, inputs = pair(written_module(tmp_path / "new", monkeypatch))
    assert torch.autograd.gradcheck(lambda x, scale: torch.func.functional_call(new, {"scale": scale}, (x,)), (
        inputs[0].requires_grad_(), new.scale
    ), nondet_tol=1e-12)  # fmt: skip


def test_a_second_derivative_through_a_kernel_raises(port: Callable[[Path], Any], tmp_path: Path, monkeypatch: Any):
    port(module_file(tmp_path, "return torch.exp(torch.tanh(x))"))
    _, new, (x,) = pair(written_module(tmp_path / "new", monkeypatch))
    (first,) = torch.autograd.grad(new(x.requires_grad_()).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        first.sum().backward()


# ------------------------------------------------------------------------------------------------- text and parts


def test_the_text_names_what_is_saved_and_registers_the_gradient(port: Callable[[Path], Any], tmp_path: Path):
    parts, _ = port(module_file(tmp_path, "return F.softmax(x, 1)"))
    (part,) = kernels(parts)
    assert [one.name for one in part.gradient.derived.saved] == ["softmax"]  # the result, not x
    text = (tmp_path / "new" / "model_new.py").read_text()
    assert "    softmax = output\n    ctx.save_for_backward(softmax)\n" in text
    assert "softmax_2_kernel.register_autograd(_softmax_2_backward, setup_context=_softmax_2_setup_context)" in text
    assert "no backward" not in text


def test_statistics_of_bfloat16_stay_in_float32(port: Callable[[Path], Any], tmp_path: Path):
    path = module_file(
        tmp_path,
        "return F.silu(F.layer_norm(x, (32,), self.scale))",
        init="self.scale = nn.Parameter(torch.rand(32, dtype=torch.bfloat16))",
        inputs="torch.randn(18, 32, dtype=torch.bfloat16)",
    )
    parts, agreement = port(path)
    assert agreement.wrong == ""
    (part,) = kernels(parts)
    first = part.gradient.steps[0]
    made = {one.name: one.dtype for one in first.kernel.contract.args if one.direction == "out"}
    assert made["rstd"] == "float32"
    assert made["rstd_bfloat16"] == made["grad_x"] == "bfloat16"


def test_products_are_not_computed_again_but_saved(port: Callable[[Path], Any], tmp_path: Path):
    parts, _ = port(module_file(tmp_path, **GELU_RESIDUAL))
    gelu = next(one for one in kernels(parts) if any(node.target == "aten.gelu.default" for node in one.nodes))
    assert [one.name for one in gelu.gradient.derived.saved] == ["add"]
    assert not {node.target for one in gelu.gradient.parts for node in one.nodes} & operations.HEAVY


def test_gradients_of_frozen_parameters_are_not_computed(
    port: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    port(module_file(tmp_path, **GELU_RESIDUAL))
    module = written_module(tmp_path / "new", monkeypatch)
    old, new, inputs = pair(module)
    for model in (old, new):
        model.weight.requires_grad_(False)
        with CountedProducts() as counted:
            loss(model, inputs).backward()
        assert model.weight.grad is None
    torch.testing.assert_close(new.bias.grad, old.bias.grad)
    assert counted.count == 0  # that of the new module's forward pass is a kernel


def test_a_kernel_of_several_gradients_has_its_inputs_although_one_is_not_needed(
    port: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = module_file(
        tmp_path,
        "return F.conv2d(x, self.weight, padding=1) + x * self.gate",
        init="self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))\nself.gate = nn.Parameter(torch.randn(2, 4, 8, 8))",
        inputs="torch.randn(2, 4, 8, 8)",
    )
    port(path)
    old, new, inputs = pair(written_module(tmp_path / "new", monkeypatch))
    for model in (old, new):
        loss(model, inputs).backward()
    for one, want in zip(new.parameters(), old.parameters(), strict=True):
        torch.testing.assert_close(one.grad, want.grad)


class CountedProducts(TorchDispatchMode):
    """Counts the matrix products that PyTorch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += str(func).split(".")[1] in ("mm", "addmm", "bmm")
        return func(*args, **(kwargs or {}))


def test_without_backward_the_files_are_those_of_before(
    process: ModuleProcess, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(porting, "write_kernel", first_kernel)
    _, parts, _ = ported(process, session, DATA / "layer_norm_linear.py", tmp_path)
    text = (tmp_path / "new" / "model_new.py").read_text()
    assert all(one.gradient is None for one in parts)
    assert "register_autograd" not in text
    assert "the kernels have no backward" in text
    assert not [one for one in (tmp_path / "new" / "kernels").iterdir() if "backward" in one.name]
    assert "gradients" not in (tmp_path / "new" / "test_model_new.py").read_text()


def test_dropout_keeps_training_mode_eager(port: Callable[[Path], Any], tmp_path: Path, monkeypatch: Any):
    path = module_file(tmp_path, "return F.dropout(torch.tanh(x * 2), 0.5, self.training)")
    _, agreement = port(path)
    assert agreement.wrong == ""  # the same numbers are drawn in both
    module = written_module(tmp_path / "new", monkeypatch)
    calls = []
    monkeypatch.setattr(module.Model, "forward", lambda self, x: calls.append(x) or x * 2)
    new = module.ModelNew()
    new.train()(torch.randn(4, 6))
    assert len(calls) == 1
    new.eval()(torch.randn(4, 6))
    assert len(calls) == 1


def test_a_wrong_gradient_is_found_and_stays_eager(
    port: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(operations.OPERATIONS, "aten.rsub.Scalar", lambda sizes, out, a, b: f"{b} - {a} * 1.0001")
    parts, agreement = port(module_file(tmp_path, "return torch.sigmoid(x) * x"))
    assert agreement.wrong == ""
    reasons = [one.why for part in parts if part.gradient for one in part.gradient.parts]
    assert any("is not what PyTorch computes" in one for one in reasons)


def test_the_comparison_finds_a_wrong_gradient(
    port: Callable[[Path], Any], process: ModuleProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    port(module_file(tmp_path, "return torch.exp(x)"))
    place = tmp_path / "new" / "model_new.py"
    place.write_text(re.sub(r"return (grad_\w+)\n", r"return \1 * 1.001\n", place.read_text()))
    assert "the gradient of input 0 deviates by" in process.verify(tmp_path / "new", 0, backward=True).wrong


def test_gradients_beside_a_parameter_of_whole_numbers_are_compared():
    x = torch.randn(4, 6)
    deviation, wrong = gradients_agree(Scaled(2.0), Scaled(2.0), [x], 0, random=False)
    assert (deviation, wrong) == (pytest.approx(0, abs=1e-6), "")
    _, wrong = gradients_agree(Scaled(2.01), Scaled(2.0), [x], 0, random=False)
    assert "the gradient of input 0 deviates by" in wrong
    assert gradients_agree(Scaled(2.0), Scaled(2.0), [x.long()], 0, random=False) == (0.0, "")
    assert gradients_agree(Scaled(2.0), Scaled(2.0), [x[:, :5]], 0, random=False) == (None, "")


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """Multiplies by a number and by whole numbers that are a parameter."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.levels = torch.nn.Parameter(torch.ones(6, dtype=torch.int8), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return x * self.factor * self.levels


def test_a_backward_of_the_module_s_own_is_not_replaced(port: Callable[[Path], Any], tmp_path: Path):
    path = module_file(tmp_path, "return Twice.apply(x) * 2")
    path.write_text(path.read_text().replace("class Model", f"{OWN_BACKWARD}class Model"))
    _, agreement = port(path)
    assert "the gradient of input 0 deviates by" in agreement.wrong


OWN_BACKWARD = """class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


"""


# ------------------------------------------------------------------------------------------------------- refusals

REFUSALS = {
    "whole numbers": ("return x.argmax(1)", "forward returns int64, which has no gradient", None),
    "a detached result": ("return torch.exp(x.detach())", "have a derivative", None),
    "a set": ("return {x * self.weight}", "returns a set", None),
    "no gradients": ("with torch.no_grad():\n    return torch.exp(x)", "have a derivative", None),
    "a leaf changed in place": (
        "self.weight.add_(1)\nreturn x * self.weight",
        "a leaf Variable that requires grad",
        12,
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_has_no_gradient_is_an_error_that_names_the_cause(case: str, process: ModuleProcess, tmp_path: Path):
    forward, said, line = REFUSALS[case]
    path = module_file(tmp_path, forward, init="self.weight = nn.Parameter(torch.rand(6))")
    with pytest.raises(InputError, match=said) as caught:
        process.export(path, "Model", "", 0, backward=True)
    assert caught.value.exit_code == 2
    assert Path(caught.value.file or "").name == "model.py"
    assert caught.value.line == line


@pytest.mark.slow
def test_nothing_is_written_for_a_module_without_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module_file(tmp_path, "return x.argmax(1)")
    result = port_command(tmp_path, monkeypatch, "model.py", "--backward")
    assert result.exit_code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["model.py"]


@pytest.mark.slow
def test_the_command_writes_judged_kernels_whose_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    frozen = "\nself.gain = nn.Parameter(torch.rand(24), requires_grad=False)"
    module_file(
        tmp_path,
        f"{RMS_LINEAR['forward']} * self.gain",
        init=f"{RMS_LINEAR['init']}{frozen}",
        inputs=RMS_LINEAR["inputs"],
    )
    result = port_command(tmp_path, monkeypatch, "model.py", "--backward")
    assert result.exit_code == 0, result.output
    assert "its gradients need x, scale" in result.output
    assert "its gradients agree with the module in float64" in result.output
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "model_new"]  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root / 'pytorch'}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
