"""The command line, a notebook's cell and the editor say the same of a kernel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.client import ROOT, editor, run

pytest.importorskip("IPython", reason="IPython is not installed: pip install 'kernelmate[notebook]'")

SEED = 7
BODY = """\
// /// kernelmate
// sizes = [{ rows = 33, cols = 70 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 64
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void total(const float* x, float* y, int cols) {
    __shared__ float part[64];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < 64; ++t) sum += part[t];
        y[blockIdx.x] = sum;
    }
}
"""
RACY = BODY.replace("    __syncthreads();\n", "")
BROKEN = BODY.replace("y[blockIdx.x] = sum;", "y[blockIdx.x] = total;")
MAGIC_LINES = 1
"""Lines of a cell above its kernel's text; places in a cell are counted with them."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "lsp"), str(ROOT / "widgets")])
    return {**os.environ, "PYTHONPATH": path, "KERNELMATE_HISTORY_FILE": str(tmp_path / "history.db")}


def by_command(file: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    options = ["bench", file.name, "--json", "--seed", str(SEED), "--backend", "emulator"]
    done = subprocess.run(
        [sys.executable, "-m", "kernelmate", *options], cwd=file.parent, env=environment, capture_output=True, check=False
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)["verdicts"]
    return found


def by_cell(text: str, folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """In an IPython of its own; a failing kernel's verdict is the exception's."""
    code = f"""
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from kernelmate.report.json import verdicts_json
shell = InteractiveShell.instance()
shell.run_cell("%load_ext kernelmate")
with capture_output():
    result = shell.run_cell("%%kernelmate -o --seed {SEED} --backend emulator\\n" + sys.argv[1])
error = result.error_in_exec
print(json.dumps(verdicts_json(result.result.verdicts if error is None else (error.verdict,))["verdicts"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, text], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def by_editor(file: Path, text: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []

    async def scenario() -> None:
        async with editor(file.parent, settings={"seed": SEED}, environment=environment) as it:
            uri = it.open(file, text)
            await it.problems(uri)
            answers.append(await it.command("kernelmate.benchmark", uri=uri))

    run(scenario())
    found: list[dict[str, Any]] = answers[0]["verdicts"]
    return found


def written(verdicts: list[dict[str, Any]], above: int = 0) -> bytes:
    """As JSON, byte for byte, predicted times too; but for what a file or a cell is called, and lines above the kernel's text."""

    def placed(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\bat line (\d+)", lambda found: f"at line {int(found[1]) - above}", value)
        if isinstance(value, dict):
            changed = {key: placed(one) for key, one in value.items()}
            changed |= {"file": "FILE"} if value.get("file") else {}
            return changed | ({"line": value["line"] - above} if value.get("line") else {})
        return [placed(one) for one in value] if isinstance(value, list) else value

    return json.dumps(placed(verdicts)).encode()


@pytest.mark.parametrize(("body", "code"), [(BODY, None), (RACY, "shared-race"), (BROKEN, "compile-error")])
def test_one_kernel_has_one_verdict_whoever_shows_it(
    tmp_path: Path, environment: dict[str, str], body: str, code: str | None
) -> None:
    file = tmp_path / "total.cu"
    file.write_text(body)
    command = by_command(file, environment)
    assert [one["seed"] for one in command] == [SEED]
    assert [one["code"] for one in command[0]["findings"] if one["severity"] == "error"][:1] == ([code] if code else [])
    assert written(by_cell(body, tmp_path, environment), MAGIC_LINES) == written(command)
    assert written(by_editor(file, body, environment)) == written(command)
