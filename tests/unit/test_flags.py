"""Compiler options: what passes, and that what reads, writes or puts text in front is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelmate.compiler import compile_kernel, find_target, read_build
from kernelmate.config import load_settings
from kernelmate.errors import ContractError, UsageError
from kernelmate.flags import RefusedOption, allowed
from kernelmate.records import Compiled, CompileOptions, Kernel
from kernelmate.report.excerpt import SourceLines
from kernelmate.source import find_kernels, load_kernel, parse_contract, text_unit

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


def built(kernel: Kernel, flags_of_contract: Sequence[str] = (), **options: Any) -> Compiled:
    return compile_kernel(
        kernel,
        flags_of_contract,
        instance=None,
        target=find_target(None),
        options=CompileOptions(**options),
        timeout_s=60,
    )


PASSING = [
    (["-DTILE=32", "-D", "WIDE", "--define-macro=A=b c", "-UOLD"], ["-DTILE=32", "-DWIDE", "--define-macro=A=b c", "-UOLD"]),
    (["-Iinc", "-I", "more", "-isystem", "sys", "--include-path=own"], ["-Iinc", "-Imore", "-Isys", "-Iown"]),
    (["-std=gnu++20", "--std", "c++14"], ["--std=c++20", "--std=c++14"]),
    (["--use_fast_math", "-fmad=false", "--ftz=true", "-maxrregcount", "64"], ["--use_fast_math", "-fmad=false", "--ftz=true", "--maxrregcount=64"]),
    (["-Xptxas", "-O2,-dlcm=ca", "--ptxas-options=--warn-on-spills"], ["--ptxas-options=-O2,-dlcm=ca", "--ptxas-options=--warn-on-spills"]),
    (["-O3", "-G", "-lineinfo", "-Wall", "-fPIC", "-Xcompiler", "-save-temps", "-gencode", "arch=compute_80,code=sm_80"], []),
]  # fmt: skip


@pytest.mark.parametrize(("given", "spelled"), PASSING)
def test_options_that_change_the_code_alone_pass(given: list[str], spelled: list[str]) -> None:
    assert list(allowed(given)) == spelled


REFUSED = [
    ["-o", "x"], ["-ox"], ["--output-file=x"], ["--time=/tmp/t"], ["-time", "/tmp/t"], ["-time=x"], ["--fdevice-time-trace=x"],
    ["-fdevice-time-trace=x"], ["--device-time-trace", "x"], ["-ftime-trace=x"], ["-fsave-optimization-record"], ["-fdump-tree=x"],
    ["--pre-include=/etc/passwd"], ["-include", "x.h"], ["--include=x.h"], ["-include=x.h"], ["-optf", "x"], ["--options-file=x"],
    ["@response"], ["--create-pch=x"], ["--use-pch=x"], ["--pch"], ["--pch-dir=/tmp"], ["-pch"], ["--dump-pch"], ["--keep"],
    ["--keep-dir=/tmp"], ["-MD"], ["-MF", "x"], ["--generate-dependencies-with-compile"], ["--dlink-time-opt"], ["-dlto"],
    ["--ptxas-options=-o=x"], ["--ptxas-options=-v,-o,x"], ["-Xptxas", "--output-file x"], ["-Xptxas=--options-file=x"],
    ["-Xptxas", "-v --output-file=x"], ["--ptxas-options=@x"], ["-DA=1\n#include </etc/passwd>"], ["-D"], ["x.cu"], [""],
    ["--gpu-architecture=sm_100"], ["-Xnvvm=-o"], ["--brief-diagnostics=true", "-o"], ["--no-source-include=/x"], ["-Xptxas", "-OO"],
    ["-Xptxas", "-v @x"], ["-Xptxas", "-v\t-o"], ["-Xptxas", "-O2,x.ptx"], ["--ptxas-options=-O2 x.ptx"], ["-U", "A -o"],
    ["-imacros", "x"], ["-idirafter", "x"], ["-Wp,-MD,x"], ["-rdc=true"], ["-fdevice-time-trace=-"], ["-ffile-prefix-map=a=b"],
]  # fmt: skip


@pytest.mark.parametrize("given", REFUSED, ids=" ".join)
def test_whatever_else_is_refused_by_its_name(given: list[str]) -> None:
    with pytest.raises(RefusedOption) as caught:
        allowed(given)
    words = [part for word in given for part in re.findall(r"[A-Za-z]+", word)]
    assert not words or any(word in str(caught.value) for word in words)


@pytest.mark.parametrize("given", [one for one in REFUSED if "architecture" not in one[0]], ids=" ".join)
def test_the_compiler_is_never_given_it(given: list[str]) -> None:
    (kernel,) = find_kernels(text_unit(KERNEL))
    with pytest.raises(UsageError):
        built(kernel, given)
    with pytest.raises(UsageError):
        built(kernel, flags=tuple(given))


def contract(options: str) -> str:
    return f'// /// kernelmate\n// sizes = [{{}}]\n// grid = "1"\n// block = 1\n// options = {options}\n// [args]\n// x = "out float32[1]"\n// ///\n{KERNEL}'


def test_a_contract_is_told_the_line_of_an_option(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(contract('["-DA", "--time=/tmp/t"]'))
    with pytest.raises(ContractError, match="--time=/tmp/t") as caught:
        parse_contract(load_kernel(tmp_path / "k.cu"))
    assert caught.value.line == 5


@pytest.mark.parametrize("folder", ["/etc", "..", "inc/../../other", "link"])
def test_a_contract_names_folders_of_its_own_project_alone(tmp_path: Path, folder: str) -> None:
    project = tmp_path / "project"
    (project / "src" / "inc").mkdir(parents=True)
    (project / "src" / "link").symlink_to(tmp_path)
    (project / "src" / "k.cu").write_text(contract(f'["-I{folder}"]'))
    with pytest.raises(ContractError, match="outside of the project"):
        parse_contract(load_kernel(project / "src" / "k.cu"))


def test_a_folder_of_the_project_is_seen_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "inc").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "inc" / "value.cuh").write_text("#define VALUE 3\n")
    path = tmp_path / "src" / "k.cu"
    path.write_text("#include <value.cuh>\n" + contract('["-I../inc"]').replace("x[0] = 1", "x[0] = VALUE"))
    monkeypatch.chdir("/")
    kernel = load_kernel(path)
    own = parse_contract(kernel)
    assert own is not None
    assert built(kernel, own.options).ok


def test_a_project_and_a_build_give_such_options_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.kernelmate]\nflags = ["--time=/tmp/t"]\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="--time=/tmp/t") as caught:
        load_settings()
    assert caught.value.file == str(tmp_path / "pyproject.toml")
    for command in ("nvcc -include evil.h a.cu", "nvcc --pre-include=evil.h a.cu", "nvcc -Xptxas --output-file=x a.cu"):
        (tmp_path / "compile_commands.json").write_text(
            f'[{{"directory": "{tmp_path}", "file": "a.cu", "command": "{command}"}}]'
        )
        with pytest.raises(UsageError, match=r"evil\.h|output-file"):
            read_build(tmp_path, tmp_path / "a.cu")


SECRET = "swordfish = 12 ;"


@pytest.mark.parametrize("text", [
    '#include "{secret}"\n', '#define F "{secret}"\n#include F\n', '#include "link.cuh"\n', '#include "../secret"\n',
    '#include "thrust/own.cuh"\n__device__ thrust::none n;\n', '#include "fine.cuh"\n',
])  # fmt: skip
def test_no_message_quotes_a_file_that_is_no_header_of_the_users(tmp_path: Path, text: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    project = tmp_path / "project"
    (project / "thrust").mkdir(parents=True)
    (project / "link.cuh").symlink_to(secret)
    (project / "fine.cuh").write_text(f'#include "{secret}"\n')
    (project / "thrust" / "own.cuh").write_text(f'#include "{secret}"\n')
    (project / "k.cu").write_text(text.format(secret=secret) + KERNEL.replace("1", "wrong"))
    kernel = load_kernel(project / "k.cu")
    compiled = built(kernel, include_paths=(str(project),))
    assert not compiled.ok
    lines = SourceLines()
    said = [
        line for one in compiled.diagnostics for line in (one.message, *lines.excerpt(one.file, one.line, one.column))
    ]
    assert any("wrong" in line for line in said)
    assert not any("swordfish" in line for line in said)
    assert lines.line(str(secret), 1) is None
