"""Tidying after rewrites: unused names, layout, and names for numbers."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.records import Kernel
from kernelmate.source import apply_edits, find_kernels, load_kernel, text_unit
from kernelmate.suggest.recipes.restructure import known, named, warps
from kernelmate.suggest.recipes.tidy import changed_lines, laid_out, tidied
from kernelmate.suggest.syntax import Tree, read_tree

KERNEL = """// Adds.
__global__ void k(float* x, int n) {
  int   unused_before = 3;
  int from = 0;
  int step = from + 1;
#pragma unroll 4
  for (int i = 0; i < n; i += step) {
      x[i] += 1.0f;
  }


}
"""


@pytest.fixture
def cleaned() -> Callable[..., str]:
    """`cleaned(text, old, new, ...)`: the text after replacing parts of it, and tidying that."""

    def run(text: str, *changes: str) -> str:
        return tidied(*rewritten(find_kernels(text_unit(text, "k.cu"))[0], *changes)).unit.text

    return run


@pytest.fixture
def styled() -> Callable[..., str]:
    """As `cleaned`, for the text of a CUDA file."""

    def run(text: str, *changes: str) -> str:
        unit = replace(text_unit(text, "k.cu"), language="cuda")
        return tidied(*rewritten(find_kernels(unit)[0], *changes)).unit.text

    return run


def rewritten(kernel: Kernel, *changes: str) -> tuple[Kernel, Kernel]:
    text = kernel.unit.text
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return kernel, apply_edits(kernel, [(0, len(kernel.unit.text), text)])


def test_locals_that_lost_their_last_use_go_and_what_only_they_needed(cleaned) -> None:
    text = cleaned(KERNEL, "i += step", "i += 1")
    assert "from" not in text
    assert "step" not in text
    assert "int   unused_before = 3;\n" in text


def test_a_written_kernel_has_the_braces_of_the_old_one() -> None:
    given = "__global__ void k(float* x, int n)\n{\n  x[0] = 1.0f;\n}\n"
    body = "  for (int i = 0; i < n;\n       ++i) {\n    x[i] = 1.0f;\n  }\n  each([&](int i) {\n    x[i] += 1.0f;\n  });\n"
    text = laid_out(*rewritten(find_kernels(text_unit(given, "k.cu"))[0], "  x[0] = 1.0f;\n", body)).unit.text
    assert "  for (int i = 0; i < n;\n       ++i)\n  {\n    x[i] = 1.0f;\n  }\n" in text
    assert "  each([&](int i) {\n" in text


def test_what_may_do_something_stays(cleaned) -> None:
    given = KERNEL.replace("from + 1", "atomicAdd(&from, 1)")
    assert "int step = atomicAdd(&from, 1);" in cleaned(given, "i += step", "i += 1")


def test_a_pragma_stands_before_its_loop_again(cleaned) -> None:
    text = cleaned(KERNEL, "  for (int i", "  float sum = x[0];\n  x[1] = sum;\n  for (int i")
    assert "  float sum = x[0];\n  x[1] = sum;\n#pragma unroll 4\n  for (int i = 0;" in text


def test_a_pragma_that_is_new_is_as_far_in_as_the_others(cleaned) -> None:
    given = KERNEL.replace("#pragma unroll 4", "  #pragma unroll 4").replace("}\n\n\n", "}\n  while (n > 0) --n;\n\n\n")
    assert "  #pragma unroll\n  while" in cleaned(given, "  while", "#pragma unroll\n  while")


def test_only_lines_that_changed_are_indented(cleaned) -> None:
    text = cleaned(KERNEL, "  int step = from + 1;", "int step = from + 1;\n      if (n > 4) {\n x[0] = 2.0f;\n      }")
    assert "  int step = from + 1;\n  if (n > 4) {\n    x[0] = 2.0f;\n  }\n" in text
    assert "\n      x[i] += 1.0f;\n" in text


def test_braces_stand_as_the_kernel_has_them(cleaned) -> None:
    given = KERNEL.replace("i += step) {", "i += step)\n  {").replace("int n) {", "int n)\n{")
    text = cleaned(
        given, "      x[i] += 1.0f;", "    if (i > 3) {\n      x[i] = 0;\n    } else {\n      x[i] = 1;\n    }"
    )
    assert "    if (i > 3)\n    {\n      x[i] = 0;\n    }\n    else\n    {\n      x[i] = 1;\n    }\n" in text
    attached = cleaned(KERNEL, "      x[i] += 1.0f;", "    if (i > 3) {\n      x[i] = 0;\n    }")
    assert "    if (i > 3) {\n" in attached


def test_blank_lines_are_single_where_something_changed_and_stay_elsewhere(cleaned) -> None:
    text = cleaned(KERNEL, "  int step = from + 1;\n", "\n\n  int step = from + 2;   \n")
    assert "  int from = 0;\n\n  int step = from + 2;\n" in text
    assert text.endswith("  }\n\n\n}\n")


CAMEL = """namespace app {

__global__ void scaleRows(float* inValues, int numRows) {
  int rowIndex = threadIdx.x;
  if (rowIndex >= numRows)
    return;
  // Reduce.
  inValues[rowIndex] *= 2.0f;  // ------------------------------------
}

}  // namespace app
"""


def test_new_locals_and_statements_are_as_the_file_writes_its_own(styled) -> None:
    pack = "  struct alignas(16) float_x4 { float at[4]; };\n"
    statement = (
        "  const float their_value = inValues[rowIndex];\n  if (their_value > 0) inValues[rowIndex] = their_value;\n"
    )
    text = styled(CAMEL, "  inValues[rowIndex] *=", f"{pack}{statement}  inValues[rowIndex] *=")
    assert "  const float theirValue = inValues[rowIndex];\n" in text
    assert "  if (theirValue > 0)\n    inValues[rowIndex] = theirValue;\n" in text
    assert pack in text


def test_lines_that_are_too_long_for_the_file_are_broken(styled) -> None:
    long = "  // Elements of this thread are loaded by whole vectors where their addresses permit that, and one by one elsewhere.\n"
    value = "inValues[rowIndex] * 2.0f + inValues[rowIndex] * 3.0f"
    text = styled(CAMEL, "  // Reduce.\n", f"{long}  const float sumOfAll = {value} + {value};\n")
    assert max(map(len, text.split("\n"))) <= 100
    assert " ".join(text.replace("//", "").split()).count(" ".join(long.replace("//", "").split())) == 1


def test_helpers_are_named_as_the_functions_of_the_file(styled) -> None:
    text = CAMEL.replace("scaleRows", "ScaleRows").replace(
        "namespace app {\n", "namespace app {\n\n__device__ int RowsOf(int count) {\n  return count;\n}\n"
    )
    helper = "__device__ float warp_sum(float value) {\n  return value;\n}\n\n"
    changed = styled(text, "__global__", f"{helper}__global__", "*= 2.0f", "= warp_sum(2.0f)")
    assert "__device__ float WarpSum(float value) {" in changed
    assert "inValues[rowIndex] = WarpSum(2.0f);" in changed


def test_no_blank_line_parts_a_comment_from_its_statement_and_one_follows_a_namespace(styled) -> None:
    text = styled(
        CAMEL, "  inValues[rowIndex] *= 2.0f;", "\n  inValues[rowIndex] *= 4.0f;", "app {\n\n", "app {\n\n// Scales.\n"
    )
    assert "  // Reduce.\n  inValues[rowIndex] *= 4.0f;" in text
    assert "namespace app {\n\n// Scales.\n" in text


def test_all_other_lines_stay_byte_for_byte(cleaned) -> None:
    odd = KERNEL.replace("x[i] += 1.0f;", "x[i]+=1.0f ;  \t")
    text = cleaned(odd, "from + 1", "from + 2")
    assert changed_lines(odd, text) == {4}


@pytest.fixture
def formatter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called clang-format that notes how it was called, and writes `float *` as the tests' style asks for."""
    program = tmp_path / "bin" / "clang-format"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/called"\nexec sed "s/float\\* p/float *p/"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program.parent / "called"


def test_clang_format_gets_the_changed_lines_where_a_style_is_found(tmp_path: Path, formatter: Path) -> None:
    path = tmp_path / "src" / "k.cu"
    path.parent.mkdir()
    path.write_text(KERNEL)
    pair = rewritten(load_kernel(str(path)), "  int step", "  float* p = x;\n  p[0] = 1;\n  int step")
    assert "  float* p = x;\n" in tidied(*pair).unit.text
    assert not formatter.exists()
    (tmp_path / ".clang-format").write_text("BasedOnStyle: LLVM\n")
    assert "  float *p = x;\n" in tidied(*pair).unit.text
    assert f"--style=file --assume-filename={path} --lines=5:5 --lines=6:6" in formatter.read_text()


def test_a_formatter_that_fails_changes_nothing(tmp_path: Path, formatter: Path) -> None:
    formatter.with_name("clang-format").write_text("#!/bin/sh\nexit 1\n")
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)
    (tmp_path / ".clang-format").write_text("BasedOnStyle: LLVM\n")
    pair = rewritten(load_kernel(str(path)), "  int step", "  float* p = x;\n  p[0] = 1;\n  int step")
    assert "  float* p = x;\n" in tidied(*pair).unit.text


NAMED_KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


def tree(head: str) -> Tree:
    found = read_tree(find_kernels(text_unit(head + NAMED_KERNEL, "k.cu"))[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("// Sets.\n", "constexpr int kBins = 16;  // why\n\n// Sets.\n"),
        ("constexpr int kBlock = 256;\n\n// Sets.\n", "constexpr int kBlock = 256;\nconstexpr int kBins = 16;  // why\n\n// Sets.\n"),
        ("#define TILE 8\n\n", "#define TILE 8\n#define BINS 16  // why\n\n"),
        ("const int WIDTH = 8;\nint f();\n\n", "const int WIDTH = 8;\nint f();\n\nconstexpr int BINS = 16;  // why\n\n"),
        ("int kBins;\n", "int kBins;\nconstexpr int kBins_ = 16;  // why\n\n"),
    ],
)  # fmt: skip
def test_a_constant_is_written_as_the_file_writes_its_own(head: str, text: str) -> None:
    of = tree(head)
    _, edit = named(of, "Bins", 16, "why")
    assert apply_edits(of.kernel, [edit]).unit.text == text + NAMED_KERNEL


def test_constants_are_known_by_value_and_word_where_they_stand_before_the_kernel() -> None:
    of = tree("constexpr int kTile = 32, kOther = 3;\n#define ROWS 32\n")
    assert known(of, 32, "rows") == "ROWS"
    assert known(of, 32, "bins") is None
    assert known(of, 16, "rows") is None


@pytest.mark.parametrize(
    ("head", "text"),
    [("constexpr int kThreads = 256;\n", "kThreads / 32"), ("#define WARPS 8\n", "WARPS"), ("", "8")],
)
def test_the_number_of_warps_is_told_by_the_files_constants(head: str, text: str) -> None:
    assert warps(tree(head), 256) == text


ALLMAN = """__global__ void k(float* x, int n)
{
    for (int i = 0; i < n; ++i)
    {
        if (x[i] > 0.0f)
        {
            x[i] += 1.0f;
        }
    }
}
"""


def test_a_statement_that_gets_braces_gets_them_on_lines_of_their_own(styled: Callable[..., str]) -> None:
    now = styled(ALLMAN, "x[i] += 1.0f;", "for (int k = 0; k < 2; ++k) x[i] += 1.0f;")
    assert not re.search(r"\) \{$", now, re.MULTILINE), now
    assert now.count("{") == now.count("}") == 4


def test_every_name_of_a_declaration_is_in_the_case_of_the_file(styled: Callable[..., str]) -> None:
    text = ALLMAN.replace("    for", "    float rowMax = 0.0f;\n    for", 1)
    now = styled(text, "float rowMax = 0.0f;", "float rowMax = 0.0f, own_max = fmaxf(rowMax, 1.0f), own_sum = 0.0f;")
    assert "float rowMax = 0.0f, ownMax = fmaxf(rowMax, 1.0f), ownSum = 0.0f;" in now
