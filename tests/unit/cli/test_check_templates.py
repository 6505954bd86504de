"""`check` on templates, kernels of one name and Python strings as projects have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Run = Callable[..., Result]
Documents = Callable[[str], Any]

USED = (
    "template <typename T, int N> __global__ void k(T *x) { x[0] = N; }\nvoid f() { k<float, 4><<<1, 1>>>(nullptr); }\n"
)
UNUSED = "template <typename T, int N> __global__ void k(T *x) { x[0] = N; }\n"
NEITHER = "template <typename T> __global__ void k(T *x) { x->run(); }\n"


def verdicts(run: Run, documents: Documents, folder: Path, text: str) -> tuple[int, list[dict[str, Any]]]:
    (folder / "k.cu").write_text(text)
    done = run("check", "k.cu", "--json")
    return done.exit_code, documents(done.stdout)["verdicts"]


def test_instances_that_the_file_uses_are_compiled_and_named(run: Run, documents: Documents, folder: Path) -> None:
    code, (verdict,) = verdicts(run, documents, folder, USED)
    assert (code, verdict["compiled"], verdict["instance"]) == (0, True, "k<float, 4>")
    (said,) = verdict["diagnostics"]
    assert (said["severity"], said["code"]) == ("note", "inferred-instance")
    assert "its use at line 2" in said["message"]


def test_an_unused_template_is_compiled_as_a_guess(run: Run, documents: Documents, folder: Path) -> None:
    code, (verdict,) = verdicts(run, documents, folder, UNUSED)
    assert (code, verdict["compiled"], verdict["instance"]) == (0, True, "k<float, 1>")
    assert "a guess" in verdict["diagnostics"][0]["message"]


def test_a_template_that_no_guess_fits_asks_for_instances_in_a_note(
    run: Run, documents: Documents, folder: Path
) -> None:
    code, (verdict,) = verdicts(run, documents, folder, NEITHER)
    assert (code, verdict["compiled"], verdict["accepted"]) == (0, False, None)
    assert [(one["severity"], one["code"]) for one in verdict["diagnostics"]] == [
        ("note", "no-instance"),
        ("note", "inferred-instance"),
    ]
    assert verdict["diagnostics"][1]["message"].startswith("k<float>, a guess, does not compile: ")
    assert "k  not compiled" in run("check", "-q", "k.cu").stdout


def test_a_used_instance_that_does_not_compile_is_an_error(run: Run, documents: Documents, folder: Path) -> None:
    code, (verdict,) = verdicts(run, documents, folder, NEITHER + "void f() { k<float><<<1, 1>>>(nullptr); }\n")
    assert (code, verdict["compiled"], verdict["instance"]) == (1, False, "k<float>")
    assert verdict["diagnostics"][0]["severity"] == "error"


def test_kernels_of_one_name_have_labels(run: Run, documents: Documents, folder: Path) -> None:
    text = "__global__ void k(int *x) { *x = 1; }\n__global__ void k(float *x) { *x = 1; }\n"
    code, found = verdicts(run, documents, folder, text)
    assert code == 0
    assert [one["kernel"] for one in found] == ["k(int *)", "k(float *)"]
    assert run("check", "-q", "k.cu::k(float*)").exit_code == 0


def test_strings_that_are_not_read_are_named_beside_those_that_are(run: Run, folder: Path) -> None:
    (folder / "k.py").write_text(
        "import cupy as cp\nfrom torch.utils.cpp_extension import load_inline\n"
        "a = cp.RawKernel('extern \"C\" __global__ void a(int *x) { *x = 1; }', 'a')\n"
        "b = cp.RawKernel('__global__ void {}() {{}}'.format('b'), 'b')\n"
        "SRC = '#include <torch/extension.h>\\n__global__ void c(at::Half *x) { *x = 1.f; }\\nvoid go() { c<<<1, 1>>>(nullptr); }'\n"
        "m = load_inline('m', [''], cuda_sources=[SRC])\n"
    )
    done = run("check", "-q", "k.py")
    assert done.exit_code == 0
    assert "a  compiles" in done.stdout
    assert "c  compiles" in done.stdout
    assert "k.py:4:18: the code of b is not read: it is made by .format()" in done.stderr


def test_what_is_not_compiled_by_a_note_is_not_judged(run: Run, documents: Documents, folder: Path) -> None:
    text = "__global__ void child(float *x) { x[0] = 1; }\n__global__ void parent(float *x) { child<<<1, 32>>>(x); }\n"
    code, found = verdicts(run, documents, folder, text)
    assert (code, [one["compiled"] for one in found]) == (0, [True, False])
    judged = run("bench", "k.cu::parent")
    assert judged.exit_code == 3
    assert "parent  not judged" in judged.stdout
    assert "dynamic parallelism is not supported" in judged.stdout
    assert "does not compile" not in judged.stdout


BOUND = """// /// kernelmate
// sizes = [{ rows = 6, n = 32 }, { rows = 3, n = 64 }]
// grid = "rows"
// block = "n"
// instances = ["row_sum<float, {n}>"]
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, n]"
// y = "out float32[rows]"
// rows = "int32"
// n = "int32"
// ///
template <typename T, int N> __global__ void row_sum(const T* x, T* y, int rows, int n) {
  __shared__ T s[N];
  s[threadIdx.x] = x[blockIdx.x * N + threadIdx.x];
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < N; ++i) sum += s[i];
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""


def test_an_instance_that_follows_a_size_is_judged_at_that_size(run: Run, documents: Documents, folder: Path) -> None:
    (folder / "k.cu").write_text(BOUND)
    done = run("bench", "k.cu", "--json")
    found = documents(done.stdout)["verdicts"]
    assert done.exit_code == 0
    assert [one["instance"] for one in found] == ["row_sum<float, 32>", "row_sum<float, 64>"]
    for verdict, n in zip(found, (32, 64), strict=True):
        assert verdict["correct"]
        assert {case["size"]["n"] for case in verdict["cases"]} == {n}
    assert "launch: 3 blocks of 64 threads" in run("check", "k.cu").stdout
