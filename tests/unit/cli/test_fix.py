"""`kernelmate fix` on real broken files with the real compiler and emulator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.report.schema import schema

RIGHT = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f;
}
"""
Fix = Callable[..., Result]


@pytest.fixture
def fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fix:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELMATE_BACKEND", "emulator")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "pyproject.toml").write_text("")

    def run(text: str, *options: str, name: str = "twice.cu") -> Result:
        (tmp_path / name).write_text(text)
        return CliRunner().invoke(cli, ["fix", name, *options], catch_exceptions=False)

    return run


def test_the_diff_of_a_right_version_is_shown_and_nothing_written(fix: Fix, tmp_path: Path) -> None:
    broken = RIGHT.replace("threadIdx.x;", "threadIdx.x")
    done = fix(broken)
    assert done.exit_code == 0
    assert "+    int i = blockIdx.x * blockDim.x + threadIdx.x;" in done.stdout
    assert "recipe:missing-token  ready to accept" in done.stdout
    assert "nothing was written; --accept writes it into twice.cu" in done.stdout
    assert (tmp_path / "twice.cu").read_text() == broken


def test_accept_writes_it_and_keeps_what_was_there(fix: Fix, tmp_path: Path) -> None:
    broken = RIGHT.replace("if (i < n) ", "")
    assert fix(broken, "--accept").exit_code == 0
    assert "if (i >= n) return;" in (tmp_path / "twice.cu").read_text()
    assert (tmp_path / "twice.cu.kernelmate-backup").read_text() == broken


def test_a_right_kernel_exits_with_0_and_is_left_alone(fix: Fix, tmp_path: Path) -> None:
    done = fix(RIGHT, "--accept")
    assert done.exit_code == 0
    assert "The kernel is right as it is" in done.stdout
    assert (tmp_path / "twice.cu").read_text() == RIGHT
    assert re.fullmatch(r"twice  right at all \d+ sizes\n", fix(RIGHT, "--quiet").stdout)


def test_what_cannot_be_mended_exits_with_1_and_says_what_was_tried(fix: Fix, tmp_path: Path) -> None:
    done = fix(RIGHT.replace("* 2.0f", "* 3.0f"), "--accept")
    assert done.exit_code == 1
    assert "No candidate is worth taking" in done.stdout
    assert "wrong-values" in done.stdout
    assert not (tmp_path / "twice.cu.kernelmate-backup").exists()


def test_the_document_obeys_the_schema_and_says_what_was_looked_for(fix: Fix) -> None:
    done = fix(RIGHT.replace("if (i < n)", "if (i < qqqqqqqq)"), "--json")
    document: Any = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert document["objective"]["metric"] == "correct"
    assert document["best"] is None
    assert any("No repair applies to compile-error" in note for note in document["notes"])


def test_a_guessed_contract_writes_nothing_unless_that_is_asked_for(fix: Fix, tmp_path: Path) -> None:
    broken = RIGHT[RIGHT.index("__global__") :].replace("threadIdx.x;", "threadIdx.x")
    assert "nothing was written: it was judged with a guessed contract" in fix(broken, "--accept").stdout
    assert (tmp_path / "twice.cu").read_text() == broken
    assert fix(broken, "--accept-unproven").exit_code == 0
    assert "threadIdx.x;" in (tmp_path / "twice.cu").read_text()


def test_a_kernel_in_a_python_string_is_mended_in_its_file(fix: Fix, tmp_path: Path) -> None:
    lines = RIGHT.split("\n")
    contract = "\n".join("#" + line[2:] for line in lines[:10])
    body = "\n".join(lines[10:]).replace("threadIdx.x;", "threadIdx.x").replace("__global__", 'extern "C" __global__')
    text = f"import cupy\n{contract}\ntwice = cupy.RawKernel(r'''\n{body}''', 'twice')\n"
    assert fix(text, "--accept", name="twice.py").exit_code == 0
    assert (tmp_path / "twice.py").read_text() == text.replace("threadIdx.x\n", "threadIdx.x;\n")


def test_what_was_tried_is_in_the_history_as_a_fix(fix: Fix) -> None:
    fix(RIGHT.replace("if (i < n) ", ""))
    listed = json.loads(CliRunner().invoke(cli, ["history", "twice", "--json"], catch_exceptions=False).stdout)
    assert {one["command"] for one in listed["versions"]} == {"fix"}
    assert {one["author"] for one in listed["versions"]} >= {"user", "recipe:missing-guard"}


def test_what_is_beyond_the_emulator_is_a_finding_of_the_version_and_stops_nothing(fix: Fix) -> None:
    large = RIGHT.replace("{ n = 1000 }", "{ n = 2000000000 }")
    tried = fix(large.replace("threadIdx.x;", "threadIdx.x"), "--json")
    assert tried.exit_code == 1
    (mended,) = json.loads(tried.stdout)["candidates"]
    assert [one["code"] for one in mended["verdict"]["findings"]] == ["time-limit"]
    assert mended["verdict"]["compiled"] is True
    assert mended["verdict"]["correct"] is None
    itself = fix(large)
    assert itself.exit_code == 1
    assert "could not be judged (time-limit), so nothing was tried" in " ".join(itself.stdout.split())


def test_the_help_has_examples_and_exit_codes(fix: Fix) -> None:
    text = CliRunner().invoke(cli, ["fix", "--help"]).stdout
    assert "kernelmate fix softmax.cu --accept" in text
    assert "Exit codes:" in text
