"""A part's operations give the same results by themselves as within the module."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelmate.records import Argument  # noqa: E402
from kernelmate_torch import loading  # noqa: E402
from kernelmate_torch.capture import capture  # noqa: E402
from kernelmate_torch.loading import load  # noqa: E402
from kernelmate_torch.part_timing import _of_scalars, _symbols, eager_part  # noqa: E402
from kernelmate_torch.parts import MANY_ROWS, MOST_ELEMENTS, PartFunction, judged_size  # noqa: E402
from kernelmate_torch.porting import _slower  # noqa: E402
from kernelmate_torch.program import PartTimes, PartToTime  # noqa: E402
from kernelmate_torch.serving import ModuleServer  # noqa: E402

MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        y = self.linear(x)
        y = y.reshape(x.shape[0], 2, 4) * self.scale + torch.arange(4, device=x.device)
        return torch.softmax(y, -1).flatten(1)


def get_inputs():
    return [torch.randn(12, 6)]


def get_init_inputs():
    return []
"""


def test_operations_of_a_part_compute_the_modules_values_at_other_sizes(tmp_path: Path):
    path = tmp_path / "model.py"
    path.write_text(MODULE)
    loaded = load(path, "Model", "", 0)
    captured = capture(loaded)
    nodes = {one.name: one for one in captured.exported.graph.nodes}
    linear = next(one for one in captured.program.nodes if one.target.startswith("aten.linear"))
    scale = next(one for one in captured.program.nodes if one.kind == "parameter" and one.target == "scale")
    outputs = tuple(one for one in captured.program.outputs if one)
    part = PartToTime("", (linear.name, scale.name), outputs, ((5, 8), (1,)))
    symbols = _symbols(nodes, {name: torch.Size(shape) for name, shape in zip(part.inputs, part.shapes, strict=True)})
    function = _of_scalars(
        eager_part(captured.exported.graph_module, nodes, part, symbols, torch.device("cpu")), [False, True]
    )
    x = torch.randn(5, 6)
    with torch.no_grad():
        (got,) = function(loaded.model.linear(x), loaded.model.scale.reshape(1))
        torch.testing.assert_close(got, loaded.model(x))


def test_a_part_whose_values_are_no_inputs_is_refused(tmp_path: Path):
    path = tmp_path / "model.py"
    path.write_text(MODULE)
    captured = capture(load(path, "Model", "", 0))
    nodes = {one.name: one for one in captured.exported.graph.nodes}
    linear = next(one for one in captured.program.nodes if one.target.startswith("aten.linear"))
    part = PartToTime("", (linear.name,), tuple(one for one in captured.program.outputs if one), ((5, 8),))
    symbols = _symbols(nodes, {linear.name: torch.Size((5, 8))})
    with pytest.raises(ValueError, match="is not an input of the part"):
        eager_part(captured.exported.graph_module, nodes, part, symbols, torch.device("cpu"))


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        (("rows", "cols"), {"rows": 4096, "cols": 393216}, {"rows": 512, "cols": 49152}),
        (("rows", "cols"), {"rows": 1024, "cols": 1024}, {"rows": 1024, "cols": 1024}),
        (("n",), {"n": 1 << 30}, {"n": 1 << 25}),
    ],
)
def test_large_parts_are_judged_at_sizes_that_fit_a_gpu(shape: tuple[str, ...], size: dict[str, int], expected):
    argument = Argument("x", "float32", "in", shape)
    function = PartFunction("f", ("out",), ("x",), ("out",), (argument,), size, (), "return x", (), 0)
    found = judged_size(function, gpu=True)
    assert found == expected
    assert torch.Size([found[side] for side in shape]).numel() <= MOST_ELEMENTS
    assert min(found.values()) >= min(MANY_ROWS, *size.values())


def test_a_size_that_the_export_fixes_is_not_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """torch.export fixes the length that max_pool1d pools."""
    monkeypatch.setattr(loading, "MOST_BYTES", 64 << 10)
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\nbatch_size = 64\nlength = 1024\n\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return nn.functional.max_pool1d(x, 3, 1)\n\n"
        "def get_inputs():\n    return [torch.rand(batch_size, 2, length)]\n"
    )
    request = {"do": "export", "path": str(path), "name": "Model", "inputs": "", "seed": 0}
    program = ModuleServer().answer(request | {"real_sizes": False, "backward": False})
    assert program.smaller == {"batch_size": 16}
    assert program.node("x").tensor.shape[-1] == 1024


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (None, ""),
        (PartTimes(why="RuntimeError: out of memory"), ""),
        (PartTimes(20.0, 20.0), ""),
        (PartTimes(12.0, 20.0), "PyTorch takes 12 us for it, and the kernel 20 us"),
    ],
)
def test_a_part_stays_eager_where_pytorch_is_measured_faster(times: PartTimes | None, why: str):
    assert _slower(times) == why
