"""Modules in KernelBench's form, ported: kernels judged right, ModelNew held against float64, and errors that say what to do."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kernelmate.config import load_settings
from kernelmate.errors import EnvironmentFailed, InputError
from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate_torch import operations, porting
from kernelmate_torch.module_process import ModuleProcess
from kernelmate_torch.porting import Porter, PortRequest
from kernelmate_torch.program import Agreement
from tests.unit.torch.ported_modules import DATA, HEAD, eager, first_kernel, module_file, port_command, ported

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")

_verified: Any = importlib.import_module("kernelmate_torch.serving")._verified
_loading: Any = importlib.import_module("kernelmate_torch.loading")

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS"),
]

MODULES = sorted(one.stem for one in DATA.glob("*.py"))

EAGER = {
    "mlp_gelu": ["linear"],
    "swiglu": ["linear"],
}
"""Parts that stay eager, by module: products that a library computes as fast."""


@pytest.fixture(scope="module")
def process() -> Iterator[ModuleProcess]:
    """One process for the modules of the data folder: importing PyTorch takes seconds."""
    with ModuleProcess(DATA, 300) as process:
        yield process


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=300, backend="emulator", history=False)) as session:
        yield session


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes each part's first kernel without a verdict; the comparison of ModelNew is left to find errors."""
    monkeypatch.setattr(porting, "write_kernel", first_kernel)


def test_there_are_twenty_modules_and_more():
    assert len(MODULES) >= 20


@pytest.mark.exhaustive(share=0.2)
@pytest.mark.parametrize("module", MODULES)
def test_each_part_gets_a_kernel_and_the_new_module_agrees(
    module: str, process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    _, parts, agreement = ported(process, session, DATA / f"{module}.py", tmp_path)
    assert agreement.wrong == ""
    assert agreement.compared >= 8
    assert eager(parts) == EAGER.get(module, [])
    assert any(one.kernel is not None for one in parts)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """`run("port", ...)` in a folder of the test's own, on the emulator."""
    return lambda *args: port_command(tmp_path, monkeypatch, *args)


@pytest.mark.slow
@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("module", MODULES)
def test_the_command_writes_a_module_whose_kernels_are_judged_right(
    module: str, run: Callable[..., Result], tmp_path: Path
):
    result = run(str(DATA / f"{module}.py"), "--to", "new", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)["ported"]
    assert document["agrees"]
    assert all(one["verdict"]["correct"] for one in document["parts"] if one["schedule"])
    assert {Path(one).name for one in document["files"]} >= {"model_new.py", "reference.py", "test_model_new.py"}
    for one in (tmp_path / "new" / "kernels").glob("*.cu"):
        assert "reference.py:" in (contract_for(load_kernel(str(one))).reference or "")


@pytest.mark.slow
def test_the_written_test_passes_and_a_second_run_refuses_to_overwrite(run: Callable[..., Result], tmp_path: Path):
    (tmp_path / "model.py").write_text((DATA / "buffers.py").read_text())
    assert run("model.py", "--quiet").exit_code == 0
    done = written_test(tmp_path, "model_new")
    assert done.returncode == 0, done.stdout + done.stderr
    before = (tmp_path / "model_new" / "model_new.py").read_bytes()
    again = run("model.py")
    assert again.exit_code == 2
    assert (tmp_path / "model_new" / "model_new.py").read_bytes() == before


def written_test(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Returns the run of the test that was written into a folder."""
    root = Path(__file__).resolve().parents[3]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        name,
    ]
    paths = f"{root}:{root}/pytorch"
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**_environment(), "PYTHONPATH": paths}
    )


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


# ------------------------------------------------------------------------------------------------------- faults


def test_a_wrong_translation_is_found_and_its_part_stays_eager(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(operations.OPERATIONS, "aten.tanh.default", lambda sizes, out, x: f"np.tanh({x} * 1.0001)")
    _, parts, agreement = ported(process, session, DATA / "buffers.py", tmp_path)
    assert eager(parts) == ["tanh"]
    assert any("is not what PyTorch computes" in one.why for one in parts)
    assert agreement.wrong == ""


def test_a_wrong_kernel_is_found_by_the_comparison_of_the_new_module(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(operations.OPERATIONS, "aten.tanh.default", lambda sizes, out, x: f"np.tanh({x} * 1.0001)")
    monkeypatch.setattr(ModuleProcess, "check", lambda *_: [Agreement(1, 0.0)])
    _, _, agreement = ported(process, session, DATA / "buffers.py", tmp_path)
    assert "deviates by" in agreement.wrong


def test_inputs_at_which_eager_itself_is_far_from_float64_are_no_evidence():
    x = torch.randn(4, 6)
    assert _verified(Cancelling(0.0), Cancelling(), (x,), 0, random=False) == (None, "")
    deviation, wrong = _verified(Cancelling(0.0), Cancelling(), (x.double(),), 0, random=False)
    assert (deviation, wrong[:18]) == (0.0, "result 0 deviates ")


class Cancelling(torch.nn.Module):  # type: ignore[misc]
    """Loses its input's digits to a large number, which float64 keeps."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return (x * self.factor + 1e9) - 1e9


# ------------------------------------------------------------------------------------------------- what is kept


def test_a_dtype_that_the_module_names_is_no_disagreement_with_float64(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(tmp_path, "return F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype) * x.float()")
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (eager(parts), agreement.wrong) == ([], "")


def test_tensors_are_made_on_the_device_of_the_inputs(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    body = "return torch.relu(y) * x, torch.arange(y.shape[0], dtype=y.dtype, device=y.device)"
    path = module_file(tmp_path, body, inputs="float(2), torch.randn(18, 32)")
    ported(process, session, path, tmp_path)
    text = (tmp_path / "new" / "model_new.py").read_text()
    assert "device=y.device" in text
    assert "torch.device(" not in text


def test_a_constant_gets_no_kernel(process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None):
    path = module_file(tmp_path, "return torch.relu(x), torch.cat([torch.arange(3), torch.arange(2)])")
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert {one.why for one in parts if one.kernel is None} == {"it reads no tensor: its result is a constant"}
    assert agreement.wrong == ""


def test_dropout_and_random_numbers_stay_eager_and_keep_their_sequence(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(tmp_path, "return F.dropout(torch.relu(x) * 2, 0.5) + torch.rand_like(x)")
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert agreement.wrong == ""
    assert any("random numbers" in one.why for one in parts)


def test_training_mode_stays_eager_where_it_computes_something_else(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    program, _, agreement = ported(process, session, DATA / "conv_batch_norm.py", tmp_path)
    assert not program.same_in_training
    assert agreement.wrong == ""  # running statistics are compared as well
    assert "if self.training:" in (tmp_path / "new" / "model_new.py").read_text()


def test_buffers_that_forward_changes_are_changed(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path, "self.calls += 1\nreturn torch.tanh(x * 2)", init='self.register_buffer("calls", torch.zeros(()))'
    )
    program, _, agreement = ported(process, session, path, tmp_path)
    assert list(program.written) == ["calls"]
    assert agreement.wrong == ""


def test_a_function_is_ported_with_described_inputs(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = tmp_path / "layers.py"
    path.write_text("import torch\n\n\ndef gated(x, w, scale):\n    return torch.sigmoid(x * w) * scale\n")
    described = "x=float32[6, 9], w=float32[9], scale=0.5"
    program, parts, agreement = ported(process, session, path, tmp_path, "gated", described)
    assert program.fixed == {"scale": "0.5"}
    assert agreement.wrong == ""
    assert "if scale != 0.5:" in (tmp_path / "new" / "model_new.py").read_text()
    assert [one.function.name for one in parts if one.function] == ["mul_sigmoid_mul"]


NESTED = """
from typing import NamedTuple


class Gated(NamedTuple):
    value: torch.Tensor
    rows: int


class Model(nn.Module):
    def forward(self, batch, state, *more, scale=2.0, mask=None):
        x, y = batch["x"], batch["y"]
        gate = torch.sigmoid(x + state[0]) * scale + more[0]
        if mask is not None:
            gate = gate * mask
        return Gated(gate * y, x.shape[0]), {"gate": [gate, None, batch["kind"]]}


def get_inputs():
    batch = {"x": torch.randn(4, 6), "y": torch.randn(4, 6), "kind": "gate"}
    return [batch, (torch.randn(4, 6), torch.randn(6)), torch.randn(6)]
"""


def test_nested_inputs_and_results_keep_their_structure_and_forward_its_parameters(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "nested.py"
    path.write_text(HEAD.replace("class Model(nn.Module):\n", "") + NESTED)
    program, _, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, agreement.compared) == ("", 8)
    assert program.inputs == ("batch['x']", "batch['y']", "batch['kind']", "state[0]", "state[1]", "more[0]")
    monkeypatch.syspath_prepend(tmp_path / "new")
    new = _loading.module_of(tmp_path / "new" / "model_new.py", "nested_model_new")
    inputs = new.get_inputs()
    (value, rows), results = new.ModelNew().eval()(*inputs, scale=2.0)
    assert (value.shape, rows, results["gate"][1:]) == ((4, 6), 4, [None, "gate"])
    for said, given, named in (
        ("more has to have 1 element, and it has 2", (*inputs, torch.randn(6)), {}),
        ("the keys 'x', 'y', 'kind', and it has 'x', 'y', 'kind', 'z'", ({**inputs[0], "z": 1}, *inputs[1:]), {}),
        ("ported for scale = 2.0, and it is 3.0", inputs, {"scale": 3.0}),
        ("ported for mask = None", inputs, {"mask": torch.ones(6)}),
        ("ported for batch['kind'] = 'gate', and it is up", ({**inputs[0], "kind": "up"}, *inputs[1:]), {}),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            new.ModelNew().eval()(*given, **named)
    done = written_test(tmp_path, "new")
    assert done.returncode == 0, done.stdout + done.stderr


def test_operations_of_complex_numbers_stay_eager(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path,
        "y = torch.fft.rfft(x) * self.w\nreturn torch.tanh(y.abs() * 2) + 1, y",
        init="self.w = nn.Parameter(torch.randn(4, dtype=torch.complex64))",
    )
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, eager(parts)) == ("", ["_fft_r2c", "mul", "abs"])


def test_an_eps_that_follows_from_the_dtype_is_the_module_s(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    """In float64, where parts are compared, `nn.RMSNorm` without eps would have another one."""
    path = module_file(
        tmp_path, "return self.norm(x), self.short(x.bfloat16())", init="self.norm, self.short = nn.RMSNorm(6), nn.RMSNorm(6).bfloat16()"
    )  # fmt: skip
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, eager(parts)) == ("", [])


def test_blocks_of_autocast_and_no_grad_are_ported_with_the_casts_that_they_make(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path,
        "with torch.no_grad():\n    y = torch.tanh(x)\n"
        'with torch.autocast("cpu", dtype=torch.bfloat16):\n    y = self.norm(F.silu(self.fc(x)) + y)\nreturn y',
        init="self.fc, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)",
    )
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, eager(parts)) == ("", [])


def test_results_keep_the_dtypes_that_the_module_converts_them_to(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(tmp_path, "z = x.bfloat16() * 2\nreturn z, z.half() + 1, x.double().mean(-1) * 2, x.max(-1)")
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, eager(parts)) == ("", [])


def test_a_module_that_keeps_tensors_computed_from_its_parameters_is_ported(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    """`torch.nn.utils.weight_norm` keeps such a weight, of which torch makes no copy."""
    path = module_file(
        tmp_path, "return torch.tanh(self.fc(x)) * 2", init="self.fc = torch.nn.utils.weight_norm(nn.Linear(6, 5))"
    )
    _, _, agreement = ported(process, session, path, tmp_path)
    assert agreement.wrong == ""


def test_a_rotation_stays_whole_and_remainders_of_sizes_are_python(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path, "return torch.roll(x.exp() + 1, 2, 0), torch.relu(x).repeat(2, 1)[: x.shape[0] % 3 + 1]"
    )
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert agreement.wrong == ""
    assert "roll" in eager(parts)
    assert "rows % 3" in (tmp_path / "new" / "model_new.py").read_text()


def test_layers_that_compute_the_same_have_one_kernel_and_numbers_of_sizes_are_arithmetic(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path,
        "for w in self.ws:\n    x = x @ w\n    y = (x * (1.0 / x.shape[0]) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1)).to(x.dtype)\n"
        "    a, b = y.chunk(2, -1)\n    x = torch.cat((-b, a), -1)\nreturn x",
        init="self.ws = nn.ParameterList([torch.randn(8, 8), torch.randn(8, 8)])",
        inputs="torch.randn(4, 8)",
    )
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert agreement.wrong == ""
    again = [one.again for one in parts if one.kernel is not None]
    assert again == [*[False] * (len(again) // 2), *[True] * (len(again) // 2)]
    text = (tmp_path / "new" / "model_new.py").read_text()
    assert len(list((tmp_path / "new" / "kernels").glob("*.cu"))) == text.count("operator(HERE") == len(again) // 2


def test_upsampling_and_groups_of_channels_are_kernels_and_losses_are_divided_in_them(
    process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None
):
    path = module_file(
        tmp_path,
        'u = F.interpolate(torch.relu(self.conv(x)), scale_factor=2, mode="bilinear")\n'
        "v = F.interpolate(x, scale_factor=2.0)\n"
        'k = F.kl_div(F.log_softmax(y, -1), torch.softmax(y * 2, -1), reduction="batchmean")\n'
        "return u + v, k, F.cross_entropy(y, z, label_smoothing=0.1)",
        init="self.conv = nn.Conv2d(6, 6, 3, padding=1, groups=2)",
        inputs="torch.randn(2, 6, 5, 7), torch.randn(9, 11), torch.randint(0, 11, (9,))",
    )
    _, parts, agreement = ported(process, session, path, tmp_path)
    assert (agreement.wrong, eager(parts)) == ("", [])


def test_exporting_uses_nothing_that_pytorch_has_deprecated(tmp_path: Path):
    path = module_file(tmp_path, "return torch.cat((x, x), 0).reshape(-1) * (1.0 / x.shape[1])")
    code = (
        "import warnings; warnings.filterwarnings('error', module='kernelmate_torch')\n"
        "from pathlib import Path; from kernelmate_torch.capture import capture; from kernelmate_torch.loading import load\n"
        f"print(capture(load(Path({str(path)!r}), 'Model', '', 0)).program.symbols)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0, done.stderr


def test_described_inputs_are_normal_uniform_or_whole() -> None:
    described = "x=float32[400], p=float32[400] ~ uniform(0.25, 0.75), ids=int64[400] ~ integers(3, 5), scale=-1e-3"
    x, p, ids, scale = _loading.described_inputs(described, ["x", "p", "ids", "scale"])
    assert x.min() < -1
    assert 0.25 <= p.min() < 0.3 < 0.7 < p.max() <= 0.75
    assert set(ids.tolist()) == {3, 4}
    assert scale == -1e-3
    with pytest.raises(_loading.Refusal, match="describes no input") as caught:
        _loading.described_inputs("x=float32[4] ~ gamma(1)", ["x"])
    assert "uniform(0, 1)" in (caught.value.failure.hint or "")


def test_the_budget_ends_further_parts(process: ModuleProcess, session: Session, tmp_path: Path, unjudged: None):
    program = process.export(DATA / "residual.py", "Model", "", 0)
    parts = list(Porter(session, process, program, PortRequest(tmp_path, until=0.0)).parts())
    assert {one.why for one in parts if one.computes} == {"the budget ended before its turn"}


# ------------------------------------------------------------------------------------------------------- errors

ERRORS = {
    "control flow on values": ("if x.sum() > 0:\n    return x\nreturn -x", "torch.randn(4, 6)", "control flow", 8),
    "a shape that depends on values": (
        "return F.gelu(x[x > 0] + 1)",
        "torch.randn(4, 6)",
        "a shape depends on the values",
        None,
    ),
    "a nested input": ("return x + x", "torch.nested.nested_tensor([torch.ones(3, 4)])", "The input x is nested", None),
    "a quantized input": (
        "return x + x",
        "torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)",
        "is quantized",
        None,
    ),
    "an input in place": ("x += 1\nreturn x * 2", "torch.randn(4, 6)", "changes its input x in place", 8),
    "a sparse input": ("return x + x", "torch.eye(6).to_sparse()", "sparse", None),
    "no elements": ("return x + 1", "torch.randn(0, 6)", "no elements", None),
    "two devices": ("return x + y", 'torch.randn(4, 6), torch.randn(4, 6, device="meta")', "several devices", None),
    "an exception": ("return x @ x", "torch.randn(4, 6)", "RuntimeError: mat1 and mat2", 8),
    "a set": ("return {x, x + 1}", "torch.randn(4, 6)", "returns a set", None),
    "an input too many": ("return x", "torch.randn(4, 6), 3, 4", "takes 2 positional inputs, and 3", None),
    "an object in a list": ("return x[0]", "[torch.randn(4, 6), object()]", "input x\\[1\\] is of type object", None),
    "no tensor": ("return x + 1", "3", "None of the inputs is a tensor", None),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_ported_is_an_error_that_names_the_cause_and_the_line(
    case: str, process: ModuleProcess, tmp_path: Path
):
    forward, inputs, said, line = ERRORS[case]
    with pytest.raises(InputError, match=said) as caught:
        process.export(module_file(tmp_path, forward, inputs=inputs), "Model", "", 0)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    assert Path(caught.value.file or "").name == "model.py"
    if line is not None:
        assert caught.value.line == line


def test_a_file_without_the_module_names_the_nearest_one(process: ModuleProcess, tmp_path: Path):
    path = module_file(tmp_path, "return x + 1")
    with pytest.raises(InputError, match="no Modle here") as caught:
        process.export(path, "Modle", "", 0)
    assert "Did you mean" in (caught.value.hint or "")


def test_a_file_without_inputs_shows_the_option_that_gives_them(process: ModuleProcess, tmp_path: Path):
    path = tmp_path / "model.py"
    path.write_text("import torch\n\n\ndef f(x, y):\n    return x + y\n")
    with pytest.raises(InputError, match="no get_inputs") as caught:
        process.export(path, "f", "", 0)
    assert '--inputs "x=float32[64, 128], y=float32[64, 128]"' in (caught.value.hint or "")


@pytest.mark.slow
def test_nothing_is_half_written_where_the_command_stops(run: Callable[..., Result], tmp_path: Path):
    path = module_file(tmp_path, "if x.sum() > 0:\n    return x\nreturn -x")
    assert run(path.name).exit_code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["model.py"]


def test_options_are_checked_before_anything_runs(run: Callable[..., Result], tmp_path: Path):
    (tmp_path / "taken").write_text("")
    (tmp_path / "model.py").write_text("class Model: ...\n")
    assert run("model").exit_code == 2
    assert run("missing.py").exit_code == 2
    assert run("model.py", "--to", "taken").exit_code == 2
    (tmp_path / "wrong.py").write_text("class Model(:\n")
    assert run("wrong.py").exit_code == 2


def test_without_pytorch_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch.py").write_text('raise ModuleNotFoundError("No module named torch", name="torch")\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        ModuleProcess(DATA, 60) as process,
        pytest.raises(EnvironmentFailed, match="PyTorch is not installed") as caught,
    ):
        process.export(DATA / "buffers.py", "Model", "", 0)
    assert caught.value.exit_code == 3
    assert "kernelmate[torch]" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_module_that_hangs_or_ends_its_process_is_an_error(tmp_path: Path):
    path = module_file(tmp_path, "import os\nos._exit(3)")
    with ModuleProcess(tmp_path, 120) as process, pytest.raises(InputError, match="ended its process"):
        process.export(path, "Model", "", 0)
    path = module_file(tmp_path, "while True:\n    pass")
    with ModuleProcess(tmp_path, 20) as process, pytest.raises(InputError, match="did not finish within 20 s"):
        process.export(path, "Model", "", 0)
