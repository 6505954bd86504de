"""Programs with one silent fallback each, which is found with its place, and sound programs without findings."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make train-tools"
)

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "trace"

FALLBACKS = {
    "asked_compiling": ("guard", "compilation is asked about", 0),
    "autocast": ("guard", "dtype, under autocast", 2),
    "cached": ("guard", "a cached result", 4),
    "caught_error": ("except", "an error that is caught", 2),
    "data_type": ("guard", "dtype", 4),
    "decomposed": ("decomposed", "a decomposition", 1),
    "evaluation_alone": ("guard", "training mode", 3),
    "gradients": ("guard", "gradients", 3),
    "graph_break": ("graph-break", "a graph break", 0),
    "left_by_replace": ("not-swapped", "a module that was not swapped", 2),
    "loop_return": ("guard", "gradients", 3),
    "single_dispatch": ("table", "a table of functions", 3),
    "table_lookup": ("table", "a table of functions", 2),
    "missing_formula": ("no-backward", "gradients", 3),
    "not_swapped": ("guard", "a class that is asked about", 2),
    "odd_columns": ("guard", "shape", 3),
    "overridden": ("replaced", "a later registration", 3),
    "patched_name": ("rebound", "a name with another value", 2),
    "replaced_method": ("rebound", "a name with another value", 0),
    "strides": ("guard", "strides or alignment", 3),
    "subset_of_layers": ("guard", "a condition", 4),
    "suppressed_error": ("except", "an error that is caught", 2),
    "switched_off": ("guard", "a switch of the program", 1),
}
"""By program: kind and cause of its finding, and how often; the line is marked `# HERE`."""

SOUND = sorted(one.stem for one in (DATA / "sound").glob("*.py"))


def traced(program: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, (program.parent, ROOT, ROOT / "pytorch", DATA))),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "kernelmate", "trace", "--json", "--", sys.executable, str(program)]
    done = subprocess.run(command, cwd=DATA, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "kernelmate trace:" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)["traced"]
    assert [note for note in document["notes"] if "still runs" not in note] == []
    return document


def test_there_are_programs_of_both_sorts() -> None:
    assert sorted(FALLBACKS) == sorted(one.stem for one in (DATA / "fallbacks").glob("*.py"))
    assert len(FALLBACKS) >= 12
    assert len(SOUND) >= 12


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", sorted(FALLBACKS))
def test_a_silent_fallback_is_found_with_its_place_and_cause(name: str) -> None:
    program = DATA / "fallbacks" / f"{name}.py"
    (here,) = (number for number, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# HERE"))
    document = traced(program)
    (process,) = document["processes"]
    found = [(one["file"], one["line"], one["kind"], one["cause"], one["count"]) for one in process["findings"]]
    assert found == [(str(program), here, *FALLBACKS[name])]


def test_a_program_in_a_folder_named_like_a_library_is_the_user_s(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "fallbacks"
    folder.mkdir(parents=True)
    for name in ("operators.py", "fallbacks/patched_name.py"):
        shutil.copy(DATA / name, folder)
    (process,) = traced(folder / "patched_name.py")["processes"]
    assert [one["kind"] for one in process["findings"]] == ["rebound"]


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_said_of_a_sound_program(name: str) -> None:
    document = traced(DATA / "sound" / f"{name}.py")
    assert [one for process in document["processes"] for one in process["findings"]] == []
    assert any(kernel["ran"] for process in document["processes"] for kernel in process["kernels"])


TRITON_OPERATOR = """\
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@torch.library.triton_op("my::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.library.wrap_triton(rows)[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y


class Block(torch.nn.Module):
    def forward(self, x):
        return double(x)


def step(model, x):
    return model(x)


torch.cuda._register_triton_kernels()
model = Block()
step(torch.compile(model, fullgraph=True, backend=lambda graph, inputs: lambda x: (x,)), torch.ones(4))
"""


def test_a_triton_operator_runs_as_its_functions_in_compiled_code(tmp_path: Path) -> None:
    """torch.compile puts the Triton functions of a `triton_op` in its place; launches of compiled code need a GPU and are written in."""
    pytest.importorskip("triton", reason="Triton is not installed: make train-tools")
    from kernelmate.cli.programs import run_program
    from kernelmate_torch.tracing.loading_records import read_records
    from kernelmate_torch.tracing.report import check_required, reports
    from kernelmate_torch.tracing.running import traced_environment

    (tmp_path / "step.py").write_text(TRITON_OPERATOR)
    folder = tmp_path / "records"
    folder.mkdir()
    environment = traced_environment(folder, os.environ)
    assert run_program([sys.executable, str(tmp_path / "step.py")], environment, example="kernelmate trace").status == 0
    (process,) = read_records(folder)
    rows = f"triton:{tmp_path / 'step.py'}:rows"
    assert set(process.kernels) == {rows, "operator:my::double"}, "operators that PyTorch registers late are its own"
    operator: dict[str, Any] = dict(process.kernels["operator:my::double"])
    assert (operator["file"], operator["line"], operator["inner"]) == (str(tmp_path / "step.py"), 12, [rows])
    (never,) = reports([process], [])
    assert [one.kind for one in never.findings] == ["decomposed"]
    process.kernels[rows]["launches"]["compiled forward"] = 7  # type: ignore[index]
    (ran,) = reports([process], [])
    assert ran.findings == ()
    assert {one.name: one.launches for one in ran.kernels} == {
        name: {"compiled forward": 7} for name in ("rows", "my::double")
    }
    assert check_required([ran], ["my::double"], 0.0)[0].met
