"""Options out of `compile_commands.json`, in nvcc's and clang's spellings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.compiler import read_build
from kernelmate.errors import UsageError
from kernelmate.records import CompileOptions


def build(folder: Path, *entries: dict[str, object]) -> Path:
    (folder / "compile_commands.json").write_text(json.dumps(list(entries)))
    return folder


def options(folder: Path, command: str) -> CompileOptions:
    entry = {"directory": str(folder), "file": "a.cu", "command": command}
    return read_build(build(folder, entry), folder / "a.cu")


def test_an_nvcc_command(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        "nvcc -forward-unknown-to-host-compiler -ccbin g++ -DFOO -D BAR=2 '-DTEXT=\"a b\"' -UOLD -I inc -Isub/x "
        "-isystem=/usr/sys -isystem /opt/y -Xcompiler -fPIC,-O2 -O3 --use_fast_math -std=c++20 -maxrregcount=64 "
        "--expt-relaxed-constexpr -gencode arch=compute_80,code=sm_80 -Xptxas -dlcm=ca -fmad=false -x cu -c a.cu -o a.o",
    )
    assert found.defines == ("FOO", "BAR=2", 'TEXT="a b"')
    assert found.include_paths == (str(tmp_path / "inc"), str(tmp_path / "sub/x"), "/usr/sys", "/opt/y")
    assert (found.std, found.fast_math, found.max_registers) == ("c++20", True, 64)
    assert found.flags == ("--undefine-macro=OLD", "--ptxas-options=-dlcm=ca", "-fmad=false")


def test_a_clang_command(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        "clang++ --cuda-gpu-arch=sm_80 -stdlib=libc++ -std=gnu++17 -ffast-math -ffp-contract=off -Iinc -c a.cu -o a.o",
    )
    assert found == CompileOptions(
        std="c++17", include_paths=(str(tmp_path / "inc"),), fast_math=True, flags=("--fmad=false",)
    )


def test_arguments_given_as_a_list(tmp_path: Path) -> None:
    entry = {"directory": str(tmp_path), "file": "a.cu", "arguments": ["nvcc", "-DA=b c", "a.cu"]}
    assert read_build(build(tmp_path, entry) / "compile_commands.json", tmp_path / "a.cu").defines == ("A=b c",)


def test_a_file_that_is_not_there_is_compiled_like_its_neighbour(tmp_path: Path) -> None:
    other = {"directory": str(tmp_path), "file": "x/far.cu", "command": "nvcc -DFAR x/far.cu"}
    near = {"directory": str(tmp_path), "file": "near.cu", "command": "nvcc -DNEAR near.cu"}
    assert read_build(build(tmp_path, other, near), tmp_path / "new.cu").defines == ("NEAR",)


MALFORMED = (
    "", "{", "[]", "3", "[3]", "[" * 100_000,
    '[{"file": "a.cpp", "directory": "/", "command": "g++ a.cpp"}]',
    '[{"file": 3, "command": "nvcc a.cu"}]',
    '[{"file": "a.cu", "directory": null, "command": "nvcc a.cu"}]',
    '[{"file": "a.cu", "arguments": ["nvcc", 3]}]',
    '[{"file": "a\\u0000.cu", "command": "nvcc a.cu"}]',
    '[{"file": "a.cu", "command": "nvcc -I\\u0000 a.cu"}]',
)  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_use_is_told_with_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "compile_commands.json").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_build(tmp_path, tmp_path / "a.cu")
    assert raised.value.file == str(tmp_path / "compile_commands.json")
    assert raised.value.hint


def test_a_command_that_no_shell_could_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a command line"):
        options(tmp_path, "nvcc 'a.cu")
