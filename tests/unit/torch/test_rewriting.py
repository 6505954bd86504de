"""Exported graphs as they are ported: updates in place, one-hot vectors, losses with weights, bags, lines, and autocast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from kernelmate_torch.parts import interface, part_function, reference_file
from kernelmate_torch.program import ModelProgram, ModuleFailure, PartToCheck
from tests.unit.torch.ported_modules import module_file

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")


def exported(path: Path) -> tuple[Any, Any]:
    """Returns a server, and its description of the file's module or the reason why there is none."""
    from kernelmate_torch.serving import ModuleServer

    server = ModuleServer()
    asked = {"name": "Model", "inputs": "", "seed": 0, "real_sizes": False, "backward": False}
    return server, server.answer({"do": "export", "path": str(path), **asked})


def compared(server: Any, program: ModelProgram, folder: Path, *without: str) -> Any:
    """Returns how a reference of all operations, but those of some names, agrees with the module's own values."""
    left = ("python.getitem", *without)
    nodes = [one for one in program.nodes if one.kind == "call" and not any(word in one.target for word in left)]
    function = part_function(program, nodes, set())
    path = folder / "whole.py"
    path.write_text(reference_file([function], "The module in NumPy."))
    inputs, outputs = interface(program, nodes)
    part = to_builtins(PartToCheck(function.name, inputs, outputs))
    (agreement,) = server.answer({"do": "check", "reference": str(path), "parts": [part], "seed": 0, "graph": None})
    return agreement


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        pytest.param("y = x * 2\ny[:, 0] = 0\ny[:, 1:3] += 1\ny[-1] = x[0]\ny[1:-1, -2:] *= 3\nreturn y", "", "torch.randn(4, 6)", id="pieces"),
        pytest.param("y = x + 1\ny[y > 1] = 2\ny[:, :].fill_(0.5)\nz = x * 1\nz[z < 0] = 0\nreturn y, z", "", "torch.randn(4, 6)", id="masks"),
        pytest.param("return torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0) * x", "", "torch.randn(4, 6)", id="one-hot"),
        pytest.param("return F.one_hot(x.argmax(1), 6).float() * x", "", "torch.randn(4, 6)", id="checked one-hot"),
        pytest.param(
            "return F.cross_entropy(x, y, weight=self.w, ignore_index=255), F.cross_entropy(x, y, reduction='sum')",
            "self.register_buffer('w', torch.linspace(0.5, 2, 5))",
            "torch.randn(2, 5, 4, 3), torch.randint(0, 5, (2, 4, 3))",
            id="classes of images",
        ),
        pytest.param(
            "return F.cross_entropy(x, y, weight=self.w), F.nll_loss(x, y, weight=self.w, ignore_index=1)",
            "self.register_buffer('w', torch.linspace(0.5, 2, 5))",
            "torch.randn(7, 5), torch.randint(0, 5, (7,))",
            id="weights of classes",
        ),
        *(
            pytest.param("return self.bag(x) * 2", f"self.bag = nn.EmbeddingBag(9, 4, mode={mode!r})", "torch.randint(0, 9, (3, 5))", id=f"bag of one length, {mode}")
            for mode in ("sum", "mean", "max")
        ),
    ],
)  # fmt: skip
def test_it_is_translated_as_a_whole_and_agrees(tmp_path: Path, forward: str, init: str, inputs: str) -> None:
    server, program = exported(module_file(tmp_path, forward, init=init, inputs=inputs))
    assert isinstance(program, ModelProgram), program
    joined = ("flatten", "reshape.default") if "reduction" in forward else ()
    agreement = compared(server, program, tmp_path, *joined)
    assert (agreement.wrong, agreement.compared > 0) == ("", True)


def test_what_only_a_check_of_values_needs_is_not_computed(tmp_path: Path) -> None:
    _, program = exported(module_file(tmp_path, "return F.one_hot(x, 6) * 2", inputs="torch.randint(0, 6, (4,))"))
    targets = [one.target for one in program.nodes if one.kind == "call"]
    assert not [one for one in targets if any(word in one for word in ("aten.all", "aten.ge", "aten.lt", "_assert"))]


def test_slices_of_all_elements_are_left_out(tmp_path: Path) -> None:
    _, program = exported(module_file(tmp_path, "return x[:, 1:] * x[:, :-1] + x[:][..., 1:]"))
    bounds = [one.args[1:] for one in program.nodes if one.target == "aten.slice.Tensor"]
    assert len(bounds) == 3
    assert all(axis == 1 for axis, *_ in bounds)


def test_bags_that_begin_at_offsets_are_compared_at_the_example(tmp_path: Path) -> None:
    """Offsets that are drawn do not ascend from 0, and PyTorch refuses them."""
    path = module_file(
        tmp_path,
        "return torch.tanh(self.bag(x, y)) * 2",
        init="self.bag = nn.EmbeddingBag(9, 4)",
        inputs="torch.randint(0, 9, (90,)), torch.tensor([0, 80, 80, 85])",
    )
    server, program = exported(path)
    agreement = compared(server, program, tmp_path, "embedding_bag")
    assert (agreement.wrong, agreement.compared) == ("", 4)


def test_lines_are_named_where_the_path_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_file(tmp_path, "y = x.exp()\nreturn y * 2")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    _, program = exported(Path("..") / "model.py")
    first, second = (one.line for one in program.nodes if one.kind == "call")
    assert 0 < first == second - 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, on which autocast for CUDA casts")
@pytest.mark.parametrize(
    "forward",
    ['with torch.autocast("cuda"):\n    return self.fc(x)', 'with torch.amp.autocast("cuda", dtype=torch.bfloat16):\n    x = x * 2\nreturn self.fc(x)'],
)  # fmt: skip
def test_autocast_for_cuda_is_refused_where_there_is_none(tmp_path: Path, forward: str) -> None:
    path = module_file(tmp_path, forward, init="self.fc = nn.Linear(6, 6)")
    _, answer = exported(path)
    assert isinstance(answer, ModuleFailure)
    assert "autocast for CUDA" in answer.message
    assert "autocast" in path.read_text().splitlines()[(answer.line or 0) - 1]


def test_autocast_for_cuda_that_is_disabled_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    path = module_file(tmp_path, 'with torch.autocast("cuda", enabled=False):\n    return x.float() * 2')
    _, program = exported(path)
    assert isinstance(program, ModelProgram), program
