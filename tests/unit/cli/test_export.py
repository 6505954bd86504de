"""`kernelmate export` with the real compiler, emulator and history; the test that it writes is itself run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.report.schema import schema
from kernelmate.session import read_carried

TWICE = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "../python/reference.py:twice"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
#include "scale.h"
__global__ void twice(const float *x, float *y, int n) {
    __shared__ float tile[512];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (i < n) y[i] = tile[threadIdx.x] * SCALE;
}
"""
Run = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a project whose kernel needs a header beside it and a reference in another folder."""
    project = tmp_path / "project"
    for folder in ("kernels", "python"):
        (project / folder).mkdir(parents=True)
    (project / "pyproject.toml").write_text("")
    (project / "kernels" / "twice.cu").write_text(TWICE.replace("tile[512]", "tile[256]"))
    (project / "kernels" / "old.cu").write_text(TWICE)
    (project / "kernels" / "scale.h").write_text("#define SCALE 2.0f\n")
    (project / "python" / "reference.py").write_text("from factors import two\n\ndef twice(x):\n    return x * two\n")
    (project / "python" / "factors.py").write_text("two = 2\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("KERNELMATE_BACKEND", "emulator")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return invoke


def judged_again(folder: Path) -> subprocess.CompletedProcess[str]:
    """The exported test, as somebody else would run it: from a folder of its own, with the installed package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
    environment |= {"PYTHONPATH": str(ROOT), "KERNELMATE_HISTORY_FILE": str(folder.parent / "other.db")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True, check=False)


def test_everything_that_the_kernel_needs_goes_along_and_the_test_passes_elsewhere(run: Run, tmp_path: Path) -> None:
    away = tmp_path / "away"
    done = run("export", "kernels/twice.cu", "--to", str(away), "--baseline", "kernels/old.cu")
    assert done.exit_code == 0, done.output
    files = sorted(path.relative_to(away).as_posix() for path in away.rglob("*") if path.is_file())
    assert files == [
        "kernels/scale.h", "kernels/twice.baseline.cu", "kernels/twice.cu", "python/factors.py", "python/reference.py",
        "test_twice.py", "twice.diff", "twice.verdict.json",
    ]  # fmt: skip
    assert "-    __shared__ float tile[512];\n+    __shared__ float tile[256];\n" in (away / "twice.diff").read_text()
    passed = judged_again(away)
    assert "6 passed" in passed.stdout, passed.stdout
    assert str(tmp_path / "project") not in (away / "test_twice.py").read_text()

    kernel = away / "kernels" / "twice.cu"
    kernel.write_text(kernel.read_text().replace("tile[256]", "tile[300]"))
    assert "test_it_takes_no_more_than_it_did" in judged_again(away).stdout
    (away / "python" / "factors.py").write_text("two = 3\n")
    failed = judged_again(away)
    assert failed.returncode == 1
    assert "test_it_is_right_at_every_size" in failed.stdout


def test_options_of_the_project_s_build_and_a_header_of_another_folder_go_along(run: Run, tmp_path: Path) -> None:
    project = Path.cwd()
    (project / "shared").mkdir()
    (project / "kernels/scale.h").rename(project / "shared/scale.h")
    (project / "shared/scale.h").write_text("#define SCALE FACTOR\n")
    command = {
        "directory": str(project),
        "file": "kernels/twice.cu",
        "command": "nvcc -DFACTOR=2.0f -c kernels/twice.cu",
    }
    (project / "compile_commands.json").write_text(json.dumps([command]))
    away = tmp_path / "away"
    done = run("export", "kernels/twice.cu", "--to", str(away))
    assert done.exit_code == 0, done.output
    assert (away / "shared/scale.h").is_file()
    passed = judged_again(away)
    assert passed.returncode == 0, passed.stdout


def test_the_verdict_is_what_confirm_takes(run: Run, tmp_path: Path) -> None:
    away = tmp_path / "away"
    run("export", "kernels/twice.cu", "--to", str(away), "--baseline", "kernels/old.cu", "--json")
    text = (away / "twice.verdict.json").read_text()
    jsonschema.Draft202012Validator(schema()).validate(json.loads(text))
    carried = read_carried(text, "twice.verdict.json")
    assert carried.given.kernel == "twice"
    assert "tile[512]" in carried.given.source
    assert "tile[256]" in carried.promises[0].source
    assert str(tmp_path) not in text


def test_nothing_is_overwritten_silently(run: Run, tmp_path: Path) -> None:
    away = tmp_path / "away"
    export = ("export", "kernels/twice.cu", "--to", str(away))
    assert run(*export).exit_code == 0
    (away / "kernels" / "scale.h").write_text("#define SCALE 7\n")
    done = run(*export)
    assert done.exit_code == 2
    assert "scale.h" in done.stderr
    assert "--force" in done.stderr
    assert (away / "kernels" / "scale.h").read_text() == "#define SCALE 7\n"
    assert run(*export, "--force").exit_code == 0
    assert (away / "kernels" / "scale.h").read_text() == "#define SCALE 2.0f\n"
    assert not list(away.rglob("*.new"))


def test_a_rejected_kernel_is_not_written(run: Run, tmp_path: Path) -> None:
    Path("kernels/scale.h").write_text("#define SCALE 3.0f\n")
    done = run("export", "kernels/twice.cu", "--to", str(tmp_path / "away"))
    assert done.exit_code == 1
    assert "nothing was written: the kernel was rejected" in done.stdout
    assert not (tmp_path / "away").exists()


def test_the_history_knows_what_the_present_version_was_made_from(run: Run, tmp_path: Path) -> None:
    Path("kernels/twice.cu").write_text(TWICE)
    assert (
        run("optimize", "kernels/twice.cu", "reduce memory usage", "--accept", "--max-candidates", "12").exit_code == 0
    )
    changed = Path("kernels/twice.cu").read_text()
    assert changed != TWICE
    away = tmp_path / "away"
    document: Any = json.loads(run("export", "kernels/twice.cu", "--to", str(away), "--json").stdout)
    jsonschema.Draft202012Validator(schema()).validate(document)
    exported = document["exported"]
    assert (away / "kernels" / "twice.cu").read_text() == changed
    assert (away / "kernels" / "twice.baseline.cu").read_text() == TWICE
    assert exported["verdicts"][0]["objective"]["name"] == "shared_bytes"
    assert exported["verdicts"][0]["accepted"] is True
    assert 'PROMPT = "reduce memory usage"' in (away / "test_twice.py").read_text().replace("'", '"')


def test_a_version_of_the_history_is_exported_and_the_file_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    run("bench", "kernels/twice.cu")
    before = Path("kernels/twice.cu").read_text()
    number = json.loads(run("history", "twice", "--json").stdout)["versions"][0]["version"]
    Path("kernels/twice.cu").write_text(TWICE)
    away = tmp_path / "away"
    assert run("export", "kernels/twice.cu", "--version", str(number), "--to", str(away)).exit_code == 0
    assert (away / "kernels" / "twice.cu").read_text() == before
    assert Path("kernels/twice.cu").read_text() == TWICE
    assert not (away / "twice.diff").exists()
    done = run("export", "kernels/old.cu", "--version", str(number), "--to", str(away))
    assert done.exit_code == 2
    assert run("export", "kernels/twice.cu", "--version", "999", "--to", str(away)).exit_code == 2


def test_a_folder_that_is_a_file_is_told_at_once(run: Run) -> None:
    done = run("export", "kernels/twice.cu", "--to", "pyproject.toml")
    assert done.exit_code == 2
    assert "is a file" in done.stderr


def test_the_help_has_examples_and_exit_codes() -> None:
    text = CliRunner().invoke(cli, ["export", "--help"]).stdout
    assert "kernelmate export softmax.cu --to handover --version 12" in text
    assert "Exit codes:" in text
