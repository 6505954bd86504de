"""Ports modules for tests, with the first kernel of each part in place of a judged one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.cli.stopping import report_error
from kernelmate.session import Session, writing
from kernelmate.session.exporting import write_all
from kernelmate.source import contract_for, load_kernel
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.placing import placed
from kernelmate_torch.compiling import compiled_operator
from kernelmate_torch.model_text import new_files, read_file
from kernelmate_torch.module_process import ModuleProcess
from kernelmate_torch.porting import PortedPart, Porter, PortRequest
from kernelmate_torch.program import Agreement, ModelProgram

DATA = Path(__file__).resolve().parents[2] / "data" / "port"

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"


def module_file(folder: Path, forward: str, *, inputs: str = "torch.randn(4, 6)", init: str = "") -> Path:
    """Returns a file with a module of this forward."""
    made = "".join(f"        {line}\n" for line in init.splitlines())
    start = f"    def __init__(self):\n        super().__init__()\n{made}\n" if init else ""
    names = ", ".join("xyz"[: len(inputs.split("), "))])
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    path = folder / "model.py"
    path.write_text(
        f"{HEAD}{start}    def forward(self, {names}):\n{body}\n\ndef get_inputs():\n    return [{inputs}]\n"
    )
    return path


def first_kernel(session: Session, asked: KernelRequest, most: int = 1) -> Any:
    """Returns a part's first kernel, without a verdict, as `write_kernel` returns judged ones."""
    traced = writing._traced(session, asked)
    assert not isinstance(traced, writing.WriteOutcome), traced.notes
    kernel, contract, written = next(writing._schedules(asked, traced, new=True))
    new, in_force = placed(kernel, contract, written)
    made = writing.NewKernel(written.schedule, written.why, new, in_force, SimpleNamespace(timing=None))  # type: ignore[arg-type]
    return SimpleNamespace(right=(made,), notes=())


def ported(
    process: ModuleProcess, session: Session, path: Path, folder: Path, name: str = "Model", inputs: str = "", **asked: Any
) -> tuple[ModelProgram, list[PortedPart], Agreement]:  # fmt: skip
    """Returns a module's program, its parts and the comparison; the files are in `new` of the folder."""
    backward = bool(asked.get("backward"))
    program = process.export(path, name, inputs, 0, backward=backward)
    parts = list(Porter(session, process, program, PortRequest(folder / "staging", **asked)).parts())
    text = path.read_text()
    files = new_files(read_file(path, name, text), text, program, parts, folder / "new", backward=backward)
    write_all(folder / "new", files, force=True)
    for one in files:
        if one.endswith(".cu"):
            kernel = load_kernel(str(folder / "new" / one))
            compiled_operator(kernel, contract_for(kernel))
    return program, parts, process.verify(folder / "new", 0, backward=backward)


def eager(parts: list[PortedPart]) -> list[str]:
    """Returns the operations that stay eager."""
    return [one.nodes[0].target.split(".")[1] for one in parts if one.kernel is None and one.computes]


def port_command(folder: Path, monkeypatch: pytest.MonkeyPatch, *args: str) -> Result:
    """Returns the result of `kernelmate port` in a folder, on the emulator."""
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(cli, ["port", *args, "--backend", "emulator"], standalone_mode=False)
    code = result.return_value if result.exception is None else report_error(result.exception, list(args))
    result.exit_code = int(code or 0)
    return result
