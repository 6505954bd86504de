"""Headers that no include path leads to: the nearest in the project is read, and said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelmate.compiler import project_headers
from kernelmate.compiler.nvrtc import missing_names
from kernelmate.compiler.preprocessor import Include, IncludeSearch
from kernelmate.compiler.project_headers import folders_of, nearest_header

HELPER = "__device__ float helper(float v) { return 2 * v; }\n"
KERNEL = "__global__ void k(float* x) { *x = helper(*x); }\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for folder in ("csrc/common", "csrc/kernels/cuda", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("included", "at"),
    [('"helper.cuh"', "csrc/common"), ("<common/helper.cuh>", "csrc"), ("<common/./helper.cuh>", "csrc")],
)
def test_the_nearest_header_of_the_project_is_read_and_a_note_names_its_folder(
    compiled, project: Path, included: str, at: str
) -> None:
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    result = compiled(f"#include {included}\n{KERNEL}", name="csrc/kernels/cuda/k.cu")
    assert result.ok, result.diagnostics
    (note,) = result.diagnostics
    assert (note.severity, note.line, note.code) == ("note", 1, "guessed-header")
    assert f"read from {project / at}," in note.message


def test_of_two_headers_the_nearer_is_taken_and_of_two_equally_near_none(compiled, project: Path) -> None:
    kernels = project / "csrc/kernels/cuda"
    (project / "tests/helper.cuh").write_text("#error of another folder\n")
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    assert nearest_header("helper.cuh", kernels) == project / "csrc/common/helper.cuh"
    (project / "csrc/other").mkdir()
    (project / "csrc/other/helper.cuh").write_text(HELPER)
    project_headers._LISTED.clear()
    assert nearest_header("helper.cuh", kernels) is None
    result = compiled(f'#include "helper.cuh"\n{KERNEL}', name="csrc/kernels/cuda/k.cu")
    assert not result.ok
    assert result.diagnostics[0].code == "missing-header"


def test_missing_headers_of_a_file_are_one_warning_that_gives_their_names_back(compiled, project: Path) -> None:
    result = compiled(f'#include "a/first.cuh"\n#include "second.cuh"\n{KERNEL}', name="csrc/kernels/cuda/k.cu")
    warning, error = result.diagnostics
    assert (warning.severity, warning.line, warning.code) == ("warning", 1, "missing-header")
    assert missing_names(warning.message) == ["a/first.cuh", "second.cuh"]
    assert error.message.endswith("headers that were not found: a/first.cuh, second.cuh")


def test_a_missing_header_that_the_preprocessor_skips_is_not_told(compiled, project: Path) -> None:
    (project / "csrc/kernels/cuda/own.cuh").write_text(
        '#ifdef __HIP__\n#include "hip.cuh"\n#endif\n#include "absent.cuh"\n'
    )
    skipping = f'#ifdef _WIN32\n#include <w.h>\n#elif 1\n#include "first.cuh"\n#endif\n#include "own.cuh"\n{KERNEL}'
    first, second, error = compiled(skipping, name="csrc/kernels/cuda/k.cu").diagnostics
    assert (missing_names(first.message), first.line) == (["first.cuh"], 4)
    assert (missing_names(second.message), second.line) == (["absent.cuh"], 4)
    assert error.message.endswith("headers that were not found: first.cuh, absent.cuh")


def test_a_list_that_took_long_to_read_is_kept_longer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 2.0, 99.0, 103.0, 103.5])
    monkeypatch.setattr(project_headers, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert nearest_header("helper.cuh", project / "csrc") is None
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    assert nearest_header("helper.cuh", project / "csrc") is None
    assert nearest_header("helper.cuh", project / "csrc") == project / "csrc/common/helper.cuh"


def test_an_include_path_comes_before_the_nearest_header(compiled, project: Path) -> None:
    (project / "csrc/common/helper.cuh").write_text("#error of the nearest folder\n")
    (project / "tests/helper.cuh").write_text(HELPER)
    result = compiled(
        f'#include "helper.cuh"\n{KERNEL}', name="csrc/kernels/cuda/k.cu", include_paths=(str(project / "tests"),)
    )
    assert result.ok, result.diagnostics
    assert result.diagnostics == ()


@pytest.mark.parametrize("name", ["helper.txt", "../helper.cuh", "/etc/helper.cuh", "other/helper.cuh"])
def test_other_names_than_those_of_headers_are_not_sought(project: Path, name: str) -> None:
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    (project / "csrc/common/helper.txt").write_text(HELPER)
    assert nearest_header(name, project / "csrc/kernels/cuda") is None


def test_a_header_of_the_project_does_not_break_a_kernel_that_needs_nothing_of_it(compiled, project: Path) -> None:
    (project / "csrc/common/helper.cuh").write_text(
        "#ifndef PRECISION\n#error PRECISION is not defined\n#endif\n" + HELPER
    )
    text = f'#include "helper.cuh"\n{KERNEL}'
    plain = compiled(text.replace("helper(*x)", "1"), name="csrc/kernels/cuda/k.cu")
    assert plain.ok
    assert [one.code for one in plain.diagnostics] == ["missing-header"]
    using = compiled(text, name="csrc/kernels/cuda/k.cu")
    assert not using.ok
    assert any("PRECISION is not defined" in one.message for one in using.diagnostics)


def test_a_host_library_in_the_project_stays_one(compiled, project: Path) -> None:
    (project / "csrc/json").mkdir()
    (project / "csrc/json/json.hpp").write_text("#error not for device code\n")
    result = compiled("#include <json/json.hpp>\n" + KERNEL.replace("helper(*x)", "1"), name="csrc/kernels/cuda/k.cu")
    assert result.ok
    assert [one.code for one in result.diagnostics] == ["host-header"]


@pytest.mark.parametrize("hidden", [".venv", "build", "node_modules", "environment"])
def test_hidden_folders_environments_and_folders_of_tools_are_passed_over(project: Path, hidden: str) -> None:
    (project / hidden / "include").mkdir(parents=True)
    (project / hidden / "include/helper.cuh").write_text(HELPER)
    (project / "environment").mkdir(exist_ok=True)
    (project / "environment/pyvenv.cfg").write_text("")
    assert nearest_header("helper.cuh", project / "csrc") is None


def test_without_a_mark_of_a_project_nothing_is_sought(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include/helper.cuh").write_text(HELPER)
    assert nearest_header("helper.cuh", tmp_path) is None


def test_a_link_out_of_the_project_is_not_read(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("float secret;\n")
    (project / "csrc/common/helper.cuh").symlink_to(secret)
    found = IncludeSearch((), ()).find(Include("helper.cuh", True, 0, 0), project / "csrc/kernels")
    assert found.fate == "missing"


def test_folders_that_another_machine_needs_are_those_outside_the_file_s_own(project: Path) -> None:
    own = project / "csrc/kernels"
    headers = [
        ("common/helper.cuh", str(project / "csrc/common/helper.cuh")),
        ("./near.cuh", str(own / "near.cuh")),
        ("./helper.cuh", str(project / "csrc/common/helper.cuh")),
        ("2/helper.cuh", str(project / "tests/helper.cuh")),
    ]
    assert folders_of(headers, own) == [project / "csrc", project / "csrc/common"]


@pytest.mark.parametrize("include_paths", [(), ("csrc",)])
def test_a_folder_of_the_project_may_have_the_name_of_a_library(
    compiled, project: Path, include_paths: tuple[str, ...]
) -> None:
    (project / "csrc/cuda").mkdir()
    (project / "csrc/cuda/helper.cuh").write_text(HELPER)
    paths = tuple(str(project / one) for one in include_paths)
    result = compiled(f'#include "cuda/helper.cuh"\n{KERNEL}', name="csrc/kernels/k.cu", include_paths=paths)
    assert result.ok, result.diagnostics
    result = compiled(f'#include "cuda/other.cuh"\n{KERNEL}', name="csrc/kernels/k.cu", include_paths=paths)
    assert "nvidia-cuda-cccl" not in result.diagnostics[0].message


def test_a_library_in_the_project_needs_no_include_path(compiled, project: Path) -> None:
    library = project / "third_party/cutlass/include/cutlass"
    library.mkdir(parents=True)
    (library / "twice.h").write_text('#include "cutlass/detail.h"\nnamespace cutlass { using detail::twice; }\n')
    detail = "namespace cutlass { namespace detail { __device__ float twice(float v) { return FACTOR * v; } } }\n"
    (library / "detail.h").write_text(detail.replace("FACTOR", "2"))
    text = "#include <cutlass/twice.h>\n__global__ void k(float* x) { *x = cutlass::twice(*x); }\n"
    first = compiled(text, name="csrc/kernels/cuda/k.cu")
    assert first.ok, first.diagnostics
    assert [one.code for one in first.diagnostics] == ["guessed-header"]
    assert f"read from {library.parent}," in first.diagnostics[0].message
    (library / "detail.h").write_text(detail.replace("FACTOR", "3"))
    assert compiled(text, name="csrc/kernels/cuda/k.cu").binary != first.binary


def test_a_submodule_finds_the_headers_of_its_sibling(project: Path) -> None:
    (project / "third_party/one/src").mkdir(parents=True)
    (project / "third_party/one/.git").write_text("gitdir: ../../.git/modules/third_party/one\n")
    (project / "third_party/two/include").mkdir(parents=True)
    (project / "third_party/two/include/helper.cuh").write_text(HELPER)
    assert (
        nearest_header("helper.cuh", project / "third_party/one/src") == project / "third_party/two/include/helper.cuh"
    )


@pytest.mark.parametrize(
    ("gitdir", "inside"),
    [
        ("../.git/modules/one", True),
        ("../.git/modules/one/modules/two", True),
        ("/elsewhere/main/.git/worktrees/tree/modules/one", True),
        ("/elsewhere/main/.git/worktrees/tree", False),
        ("/elsewhere/modules/main/.git/worktrees/tree", False),
        ("/elsewhere/main/.git/modules/one/worktrees/tree", False),
    ],
)
def test_only_a_submodule_searches_the_repository_around_it(project: Path, gitdir: str, inside: bool) -> None:
    (project / "one/src").mkdir(parents=True)
    (project / "one/.git").write_text(f"gitdir: {gitdir}\n")
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    assert (nearest_header("helper.cuh", project / "one/src") is not None) is inside


def test_a_home_folder_is_not_searched_even_if_it_is_a_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    assert nearest_header("helper.cuh", project / "csrc") is not None
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("USERPROFILE", str(project))
    assert nearest_header("helper.cuh", project / "csrc") is None


def test_another_checkout_of_a_repository_is_a_project_of_its_own(project: Path) -> None:
    (project / "tree/src").mkdir(parents=True)
    (project / "tree/.git").write_text("gitdir: ../.git/worktrees/tree\n")
    (project / "csrc/common/helper.cuh").write_text(HELPER)
    assert nearest_header("helper.cuh", project / "tree/src") is None


INCLUDED = "__global__ void k(float* x) { x[blockIdx.x * BLOCK + threadIdx.x] = twice(x[0]); }\n"


def test_a_file_that_does_not_compile_alone_is_compiled_behind_what_includes_it(compiled, project: Path) -> None:
    (project / "csrc/kernels/cuda/host.cu").write_text(
        '#ifndef HOST\n#define HOST\n#include "more.cuh"\n#define BLOCK 64\n#include "k.cu"\n'
        "int main() { k<<<1, BLOCK>>>(nullptr); }\n#endif\n"
    )
    (project / "csrc/kernels/cuda/more.cuh").write_text(
        "#pragma once\n__device__ float twice(float x) { return 2 * x; }\n"
    )
    result = compiled(INCLUDED, name="csrc/kernels/cuda/k.cu")
    assert result.ok, result.diagnostics
    (note,) = result.diagnostics
    assert (note.severity, note.line) == ("note", 1)
    assert f"behind the lines of {project / 'csrc/kernels/cuda/host.cu'}" in note.message


def test_the_errors_of_a_file_that_compiles_behind_nothing_are_its_own(compiled, project: Path) -> None:
    (project / "csrc/kernels/cuda/host.cu").write_text('namespace a {\n#include "k.cu"\n}\n')
    result = compiled(INCLUDED, name="csrc/kernels/cuda/k.cu")
    assert not result.ok
    assert [one.line for one in result.diagnostics if one.severity == "error"] == [1, 1]


@pytest.mark.parametrize("suffix", [".in", ".cmakein", ".cmake"])
def test_a_header_that_the_build_makes_from_a_template_is_missing_with_its_template(
    compiled, project: Path, suffix: str
) -> None:
    (project / f"csrc/config.h{suffix}").write_text("#define FACTOR @FACTOR@\n")
    result = compiled(f'#include "mine/config.h"\n{KERNEL}', name="csrc/kernels/cuda/k.cu")
    warning = result.diagnostics[0]
    assert warning.code == "missing-header"
    assert f"the build makes mine/config.h from {project / f'csrc/config.h{suffix}'}" in warning.message
