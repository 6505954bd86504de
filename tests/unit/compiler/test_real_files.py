"""Files as people have them: host code is no business of the device compiler's, and positions are the user's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.device_part import device_part
from kernelmate.records import CompileOptions
from kernelmate.source import load_kernels

REAL = Path(__file__).resolve().parents[2] / "data" / "real"
FILES = sorted(REAL.glob("*.cu"), key=lambda path: path.name)
INSTANCES = {"gemm": "gemm<float, 16, 16, 16>", "scores": "scores<64>", "fused": "fused<float, 4>"}


def compile_file(path: Path):
    kernel = load_kernels(path)[0]
    return compile_kernel(
        kernel, (), instance=INSTANCES.get(kernel.name), target=find_target(None), options=CompileOptions()
    )


def test_there_are_ten() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_compiles_without_a_word(path) -> None:
    result = compile_file(path)
    assert result.ok
    assert [said for said in result.diagnostics if said.code != "host-header"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mistake_in_the_kernel_is_found_where_it_is(path, tmp_path) -> None:
    text = path.read_bytes().decode()
    kernel = load_kernels(path)[0]
    brace = re.search(r"\)\s*\{", text[text.index(kernel.name.rpartition("::")[2] + "(") :])
    place = text.index(kernel.name.rpartition("::")[2] + "(") + brace.end()
    broken = tmp_path / path.name
    broken.write_bytes((text[:place] + " undefined_thing = 1; " + text[place:]).encode())
    (tmp_path / "include").symlink_to(REAL / "include")
    result = compile_file(broken)
    line = text[:place].count("\n") + 1
    column = place - (text[:place].rfind("\n") + 1) + 2
    errors = [d for d in result.diagnostics if d.severity == "error"]
    assert [(d.file, d.line, d.column) for d in errors] == [(str(broken), line, column)]
    assert "undefined_thing" in errors[0].message


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_device_part_keeps_every_line_in_its_place(path) -> None:
    text = path.read_text()
    part = device_part(text, path.parent)
    assert part.text.count("\n") == text.count("\n")
    assert "<<<" not in part.text
    for kept, line in zip(part.text.splitlines(), text.splitlines(), strict=True):
        if not kept.startswith("#include"):
            assert all(character in (" ", line[column]) for column, character in enumerate(kept))


def test_mistakes_in_host_code_are_not_ours_to_find(tmp_path) -> None:
    path = tmp_path / "host.cu"
    path.write_text(
        "__global__ void k(int* x) { *x = 1; }\nint main() { this is no C++ at all<<<; }\nvoid f() { undefined(); }\n"
    )
    assert compile_file(path).ok
