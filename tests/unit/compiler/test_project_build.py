"""Options that a project's own build gives a file, where no setting names a build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.compiler.project_build import project_build


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel's file in a project."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "ops/csrc").mkdir(parents=True)
    (tmp_path / "ops/csrc/wkv.cu").write_text("__global__ void wkv(float* x) { x[0] = N; }\n")
    return tmp_path / "ops/csrc/wkv.cu"


def database(folder: Path, file: str, command: str) -> None:
    folder.mkdir(exist_ok=True)
    entry = {"directory": str(folder), "file": file, "command": command}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))


@pytest.mark.parametrize("place", [".", "build"])
def test_a_database_above_the_file_gives_its_options_and_include_paths_of_the_project(kernel: Path, place: str) -> None:
    root = kernel.parents[2]
    command = f"nvcc -DN=64 -I{root}/include -I/usr/include/secret -std=c++20 -include forced.h -c x.cu"
    database(root / place, str(kernel), command.replace("-include forced.h ", ""))
    found = project_build(kernel)
    assert found is not None
    assert (found.defines, found.include_paths, found.std) == (("N=64",), (str(root / "include"),), "c++20")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "[3]", '[{"file": 3}]', '[{"file": "other.cu", "directory": "/", "command": "nvcc other.cu"}]'],
)
def test_a_database_that_is_broken_or_has_other_folders_only_is_passed_over(kernel: Path, text: str) -> None:
    (kernel.parents[2] / "compile_commands.json").write_text(text)
    assert project_build(kernel) is None


def test_a_forced_header_or_an_output_option_is_never_taken(kernel: Path) -> None:
    database(kernel.parents[2], str(kernel), "nvcc -include forced.h -DN=1 -c x.cu")
    assert project_build(kernel) is None
    (kernel.parents[1] / "run.py").write_text(
        "load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=['-DN=2', '--keep-dir=/tmp', '-Xptxas', '--output-file=x'])\n"
    )
    found = project_build(kernel)
    assert found is not None
    assert (found.defines, found.flags) == (("N=2",), ())


LOADS = {
    "the sources name the file": """
HEAD = 64
wkv = load(name="wkv", sources=["csrc/wkv.cpp", f"csrc/{'wkv'}.cu"],
           extra_cuda_cflags=["-O3", f"-DN={HEAD}", "--use_fast_math"])
""",
    "options in a variable, another version of the file": """
from torch.utils import cpp_extension
HEAD = 32
HEAD = 64
flags = ["-O3", f"-DN={HEAD}"]
cpp_extension.load(name="wkv", sources=["csrc/wkv_v2.cu"], extra_cuda_cflags=flags + ["--use_fast_math"])
""",
    "the only extension of a setup.py": """
setup(ext_modules=[CUDAExtension("wkv", sources=glob("csrc/*.cu"), define_macros=[("N", "64"), ("WITH", None)],
      extra_compile_args={"cxx": ["-DHOST"], "nvcc": ["--use_fast_math"]})])
""",
}


@pytest.mark.parametrize("text", LOADS.values(), ids=LOADS)
def test_calls_of_torch_s_builders_give_their_constant_options(kernel: Path, text: str) -> None:
    (kernel.parents[1] / "setup.py").write_text(text)
    found = project_build(kernel)
    assert found is not None
    assert "N=64" in found.defines
    assert "HOST" not in found.defines
    assert found.fast_math


@pytest.mark.parametrize(
    "text",
    [
        "load('wkv', ['csrc/wkv.cu'])\n",
        "load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=[f'-DN={size()}'])\n",
        "load('other', ['other/other.cu'], extra_cuda_cflags=['-DN=64'])\n",
        "load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=['-DN=64'\n",
        "import os; os.abort()\n",
    ],
)
def test_a_call_without_constant_options_of_another_file_or_of_broken_text_gives_none(kernel: Path, text: str) -> None:
    (kernel.parents[1] / "run.py").write_text(text)
    assert project_build(kernel) is None


def test_an_older_standard_than_libcu_needs_is_raised(kernel: Path) -> None:
    database(kernel.parents[2], str(kernel), "nvcc -std=c++14 -DN=1 -c x.cu")
    found = project_build(kernel)
    assert found is not None
    assert found.std == "c++17"


DOUBLED = "".join(f"s{number} = s{number + 1} + s{number + 1}\n" for number in range(60))


@pytest.mark.parametrize(
    "text",
    [
        "own = own + ['-DM']\n",
        "own = f'{own}{own}'\n",
        f"own = {'[] + ' * 3000}[]\n",
        f"{DOUBLED}own = s0\n",
    ],
)
def test_values_that_contain_themselves_or_grow_without_end_are_no_constants(kernel: Path, text: str) -> None:
    (kernel.parents[1] / "run.py").write_text(f"{text}load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=own)\n")
    found = project_build(kernel)
    assert found is None or found.defines == ("M",) * len(found.defines)


def test_only_options_with_constant_values_are_taken(kernel: Path) -> None:
    (kernel.parents[1] / "run.py").write_text(
        "load('wkv', ['csrc/wkv.cu'], extra_include_paths=['a\\0b', 'inc'], extra_cuda_cflags=[f'-DA={3:04d}', '-DB=1'],\n"
        "     define_macros=[('C', width), ('D', None), ('E', '2')])\n"
    )
    found = project_build(kernel)
    assert found is not None
    assert found.include_paths == (str(kernel.parents[1] / "inc"),)
    assert found.defines == ("B=1", "D", "E=2")


def test_an_edited_builder_is_read_again(kernel: Path) -> None:
    run = kernel.parents[1] / "run.py"
    for size in ("32", "64"):
        run.write_text(f"load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=['-DN={size}', '-O3'])\n" + "#" * int(size))
        found = project_build(kernel)
        assert found is not None
        assert found.defines == (f"N={size}",)


def test_without_a_mark_of_a_project_nothing_is_read(kernel: Path) -> None:
    (kernel.parents[1] / "run.py").write_text("load('wkv', ['csrc/wkv.cu'], extra_cuda_cflags=['-DN=64'])\n")
    assert project_build(kernel) is not None
    (kernel.parents[2] / ".git").rmdir()
    assert project_build(kernel) is None
