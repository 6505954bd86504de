"""`kernelmate export --to torch` with the real compiler and emulator: what it writes, and what it refuses by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.report.schema import schema

TWICE = """\
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
#include "scale.h"
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * SCALE;  // by the header
}
"""
BACK = TWICE.replace("twice", "back").replace("x = ", "grad_y = ").replace("y = \"out", "grad_x = \"out").replace("x * 2", "grad_y * 2")  # fmt: skip
BACK = BACK.replace("(const float *x, float *y", "(const float *grad_y, float *grad_x").replace("y[i] = x[i]", "grad_x[i] = grad_y[i]")  # fmt: skip
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder with kernels and a header."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "twice.cu").write_text(TWICE)
    (tmp_path / "back.cu").write_text(BACK)
    (tmp_path / "scale.h").write_text("#pragma once\n#define SCALE 2.0f\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELMATE_BACKEND", "emulator")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return invoke


@pytest.mark.slow
def test_a_package_and_its_test_are_written_beside_nothing_else(run: Run) -> None:
    done = run("export", "twice.cu", "--to", "torch", "--quiet")
    assert done.exit_code == 0, done.output
    files = sorted(
        path.relative_to("twice_torch").as_posix() for path in Path("twice_torch").rglob("*") if path.is_file()
    )
    assert files == [
        "test_twice_op.py", "twice_op/__init__.py", "twice_op/judged/scale.h", "twice_op/judged/twice.cu",
        "twice_op/judged/twice.verdict.json", "twice_op/launching.py", "twice_op/nvcc_builtins.h", "twice_op/twice.cu",
    ]  # fmt: skip
    kernel = Path("twice_torch/twice_op/twice.cu").read_text()
    assert "#define SCALE 2.0f" in kernel
    assert "// by the header" in kernel
    assert "#include" not in kernel
    written = "".join(Path("twice_torch", name).read_text() for name in files)
    assert str(Path.cwd()) not in written


@pytest.mark.slow
def test_the_backward_kernel_is_judged_and_goes_along(run: Run) -> None:
    done = run("export", "twice.cu", "--to", "torch", "--backward", "back.cu", "--out", "made", "--json")
    assert done.exit_code == 0, done.output
    document: Any = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert [verdict["kernel"] for verdict in document["exported"]["verdicts"]] == ["twice", "back"]
    assert "made/twice_op/backward.py" in document["exported"]["files"]
    assert "from .backward import back\n" in Path("made/twice_op/__init__.py").read_text()

    Path("back.cu").write_text(BACK.replace("grad_y[i] * SCALE", "grad_y[i] * 3"))
    done = run("export", "twice.cu", "--to", "torch", "--backward", "back.cu", "--out", "other")
    assert done.exit_code == 1
    assert not Path("other").exists()


@pytest.mark.slow
def test_a_rejected_kernel_is_not_written_and_files_are_overwritten_by_force_alone(run: Run) -> None:
    assert run("export", "twice.cu", "--to", "torch", "--quiet").exit_code == 0
    Path("twice_torch/twice_op/__init__.py").write_text("changed")
    done = run("export", "twice.cu", "--to", "torch", "--quiet")
    assert done.exit_code == 2
    assert "--force" in done.stderr
    assert run("export", "twice.cu", "--to", "torch", "--quiet", "--force").exit_code == 0
    assert Path("twice_torch/twice_op/__init__.py").read_text() != "changed"
    Path("scale.h").write_text("#define SCALE 3.0f\n")
    done = run("export", "twice.cu", "--to", "torch", "--out", "wrong")
    assert done.exit_code == 1
    assert not Path("wrong").exists()


@pytest.mark.slow
def test_a_folder_of_the_name_torch_is_written_with_its_path(run: Run) -> None:
    assert run("export", "twice.cu", "--to", "./torch", "--quiet").exit_code == 0
    assert Path("torch/test_twice.py").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--to", "handover", "--out", "made"), "--out is for operators"),
        (("--to", "handover", "--backward", "back.cu"), "--backward is for operators"),
        (("--to", "torch", "--out", "pyproject.toml"), "is a file"),
        (("--to", "torch", "--backward", "twice.cu"), "its output y is not a gradient of an input"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: tuple[str, ...], words: str, run: Run) -> None:
    done = run("export", "twice.cu", *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not Path("twice_torch").exists()


def changed(old: str, new: str, *, text: str = TWICE) -> str:
    assert old in text
    return text.replace(old, new)


STRUCT = """\
struct Params { const float* x; float* y; int n; };
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x * 2"
// [args.p]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const Params p) { int i = blockIdx.x * 256 + threadIdx.x; if (i < p.n) p.y[i] = 2 * p.x[i]; }
"""
POINTERS = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x[0] * 2"
// [args]
// x = "in float32*[2][n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* const* x, float* y, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = 2 * x[0][i]; }
"""
SYMBOL = """\
__constant__ float factor[1];
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x * factor"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// [symbols]
// factor = "in float32[1]"
// ///
__global__ void twice(const float* x, float* y, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = factor[0] * x[i]; }
"""
TEMPLATE = changed("// [args]", '// instances = ["twice<1>", "twice<2>"]\n// [args]').replace("__global__", "template <int N> __global__")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STRUCT, "takes a struct by value (p)"),
        (POINTERS, "takes an array of pointers (x)"),
        (SYMBOL, "uses a variable of its module (factor)"),
        (TEMPLATE, "is a template of which the contract lists 2 instances"),
        (changed("// block = 256", "// block = 256\n// cluster = [1]"), "is launched in clusters"),
        (
            changed('"in float32[n]"', '"scratch float32[n] ~ zeros"').replace("const float *x", "float *x"),
            "reads no array",
        ),
        (changed('"out float32[n]"', '"in float32[n]"'), "writes no array"),
        (changed('"in float32[n]"', '"in float32[n ** 1]"'), "has the shape 'n ** 1' (x)"),
        (TWICE[TWICE.index("#include") :], "has no contract"),
    ],
    ids=["struct", "pointers", "symbol", "template", "cluster", "no-input", "no-output", "power", "no-contract"],
)
def test_what_cannot_be_an_operator_is_refused_by_name_before_anything_is_judged(
    text: str, words: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmate.session.operator_export.judged_again", None)
    Path("twice.cu").write_text(text)
    done = run("export", "twice.cu", "--to", "torch")
    assert done.exit_code == 2, done.output
    assert "twice cannot be a torch operator" in done.stderr
    assert words in " ".join(done.stderr.split())
    assert not Path("twice_torch").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed("grad_x", "other", text=BACK), "its output other is not a gradient of an input"),
        (changed("grad_y", "z", text=BACK), "its input z is unknown"),
        (changed('grad_y = "in float32[n]"', 'grad_y = "in float64[n]"', text=BACK).replace("const float *grad_y", "const double *grad_y"), "grad_y is float64, and y float32"),
        (changed('grad_x = "out float32[n]"', 'grad_x = "inout float32[n]"', text=BACK), "grad_x is `inout`"),
    ],
    ids=["output", "input", "dtype", "inout"],
)  # fmt: skip
def test_a_backward_kernel_that_does_not_fit_is_refused(text: str, words: str, run: Run) -> None:
    Path("back.cu").write_text(text)
    done = run("export", "twice.cu", "--to", "torch", "--backward", "back.cu")
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.split())
    assert not Path("twice_torch").exists()


def test_a_triton_kernel_is_refused_by_name(run: Run) -> None:
    Path("add.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef add(x, y, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(y + at, tl.load(x + at, at < n), at < n)\n"
    )
    done = run("export", "add.py::add", "--to", "torch")
    assert done.exit_code == 2, done.output
    assert "is a Triton kernel" in done.stderr


@pytest.mark.slow
def test_conditions_that_a_kernel_was_found_to_assume_become_guards(run: Run) -> None:
    text = changed("if (i < n) y[i]", "if (i < n - n % 4) y[i]")
    Path("twice.cu").write_text(changed("{ n = 1 }", "{ n = 64 }", text=text))
    done = run("export", "twice.cu", "--to", "torch", "--quiet")
    assert done.exit_code == 0, done.output
    assert 'KERNEL.require(n % 4 == 0, "n % 4 == 0", n=n)' in Path("twice_torch/twice_op/__init__.py").read_text()
