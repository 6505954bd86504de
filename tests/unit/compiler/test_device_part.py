"""The device part: what stays, what goes, and that what stays is where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.compiler import project
from kernelmate.compiler.device_part import device_part


def kept(text: str, **options: object) -> str:
    return device_part(text, Path("/nowhere"), **options).text  # type: ignore[arg-type]


KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"

HOST = {
    "a function": "static int helper(int a) { return a + 1; }",
    "a launch": "void go(float* x) { k<<<dim3(1, 2), 32, 0, 0>>>(x); }",
    "main": "int main(int argc, char** argv) { if (argc > 1) { return 1; } return 0; }",
    "a prototype": "void declared(const std::vector<int>& v);",
    "a C prototype": 'extern "C" void declared(int);',
    "a template": "template <typename T> T twice(const std::vector<T>& v) { return v[0] * 2; }",
    "a lambda": "auto add = [](int a, int b) { return a + b; };",
    "a global": "static std::vector<float> cache{1.f, 2.f};",
    "a plain global": "int verbose = 0;",
    "a launch shape": "const dim3 block(16, 16);",
    "a constant of the host": "const int threads = std::thread::hardware_concurrency();",
    "a class": "class Timer { std::chrono::nanoseconds t; public: Timer() : t{0} {} ~Timer() { stop(); } void stop(); };",
    "a method": "void Timer::stop() { cudaEventRecord(e); }",
    "a stream operator": "std::ostream& operator<<(std::ostream& o, int v) { return o; }",
    "a using declaration": "using std::vector;",
    "a host alias": "namespace fs = std::filesystem;",
    "a function try block": "void f() try { g(); } catch (...) { }",
    "a binding": 'PYBIND11_MODULE(name, m) { m.def("k", &go); }',
    "an instantiation": "template __global__ void t<float>(float*);",
    "another kernel": "__global__ void other(int* x) { broken }",
    "a pragma of the host": "void f(int n) {\n#pragma omp parallel for\nfor (int i = 0; i < n; i++) g(i);\n}",
    "uneven branches": "void f() {\n#ifdef A\nif (a) {\n#else\nif (b) {\n#endif\n}\n}",
    "strings with brackets": 'void f() { puts("}}}{{(("); char c = \'}\'; auto r = R"x(}} )" {)x"; }',
    "constructors": "struct H { int a, b; H(int v) : a(v), b{v} { std::cout << a; } };",
}

DEVICE = {
    "a device function": "__device__ float square(float v) { return v * v; }",
    "a function of both": "__host__ __device__ inline float square(float v) { return v * v; }",
    "constant memory": "__constant__ float table[64];",
    "a device global": "__device__ __managed__ int errors = 0;",
    "shared": "extern __shared__ float scratch[];",
    "a pragma of the device": "__device__ void f(int* x) {\n#pragma unroll\nfor (int i = 0; i < 4; i++) x[i] = i;\n}",
    "a macro": "#define TILE 32",
    "a macro over lines": "#define ADD(a, b) \\\n    ((a) + \\\n     (b))",
    "bounds behind a macro": "#define BOUNDS(n) __launch_bounds__(n)\n__device__ __noinline__ int BOUNDS2(int a) { return a; }",
    "a functor": "struct Plus { __device__ float operator()(float a, float b) const { return a + b; } };",
}

NAMED = {
    "a struct": ("struct Params { int n; float alpha; };", "Params p"),
    "an enumerator": ("enum Mode { kFast, kSlow };", "int m = kFast"),
    "a constant": ("static const int kTile = 1 << 5;", "int a[kTile]"),
    "a constexpr function": ("constexpr int half(int n) { return n / 2; }", "int a[half(8)]"),
    "an alias": ("using real = float;", "real r"),
    "a typedef": ("typedef unsigned int word;", "word w"),
    "a function pointer": ("typedef float (*op_t)(float);", "op_t o"),
    "a trait": ("template <class T> struct Traits { static constexpr int n = 1; };", "int a[Traits<int>::n]"),
    "an aligned struct": ("struct __align__(16) Vec { float x, y; };", "Vec v"),
}


@pytest.mark.parametrize("text", HOST.values(), ids=HOST)
def test_of_the_host_nothing_stays(text: str) -> None:
    found = kept(f"{text}\n{KERNEL}{text}\n", kernel="k")
    code = [line for line in found.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert code == [KERNEL.rstrip()]


@pytest.mark.parametrize("text", DEVICE.values(), ids=DEVICE)
def test_of_the_device_everything_stays(text: str) -> None:
    assert kept(f"{text}\n{KERNEL}", kernel="k") == f"{text}\n{KERNEL}"


@pytest.mark.parametrize(("text", "use"), NAMED.values(), ids=NAMED)
def test_what_a_kernel_names_stays_and_else_goes(text: str, use: str) -> None:
    user = f"__global__ void k(float* x) {{ {use}; }}\n"
    assert kept(f"{text}\n{user}", kernel="k") == f"{text}\n{user}"
    assert kept(f"{text}\n{KERNEL}", kernel="k").strip() == KERNEL.strip()


def test_what_a_macro_names_stays_where_the_macro_is_used() -> None:
    text = "struct Pair { int a; };\n#define MAKE Pair()\n__global__ void k(int* x) { *x = MAKE.a; }\n"
    assert "struct Pair { int a; };" in kept(text, kernel="k")


def test_what_only_a_pragma_of_a_kernel_names_stays() -> None:
    text = "constexpr int kSteps = 4;\nconstexpr int kOther = 5;\n"
    user = "__global__ void k(int* x) {\n#pragma unroll (kSteps / 2)\nfor (int i = 0; i < 8; i++) x[i] = i;\n}\n"
    assert "kSteps = 4" in kept(text + user, kernel="k")
    assert "kOther" not in kept(text + user, kernel="k")


def test_what_an_instance_names_stays() -> None:
    text = "struct Add { int v; };\ntemplate <class Op> __global__ void k(Op o) { }\n"
    assert "struct Add" in kept(text, kernel="k", named=("Add",))
    assert "struct Add" not in kept(text, kernel="k")


def test_methods_of_the_host_are_cut_out_of_a_struct_of_the_device() -> None:
    text = (
        "struct Vec {\n  float x;\n  Vec() = default;\n  Vec(float v) : x(v) { log(v); }\n"
        "  std::string text() const { return std::to_string(x); }\n  std::vector<int> extra;\n"
        "  __device__ float twice() const { return 2 * x; }\n};\n__global__ void k(Vec v, float* x) { *x = v.twice(); }\n"
    )
    lines = kept(text, kernel="k").splitlines()
    assert lines == [*text.splitlines()[:3], "", "", "", *text.splitlines()[6:]]


def test_a_kernel_made_by_a_macro_stays() -> None:
    text = "#define UNARY(op) __global__ void op##_kernel(float* x) { x[0] = op(x[0]); }\nUNARY(expf)\nREGISTER(x);\nUNARY(sinf)\n"
    assert kept(text).splitlines() == [*text.splitlines()[:2], "", text.splitlines()[3]]


def test_namespaces_and_linkage_blocks_stay_around_what_stays() -> None:
    text = 'namespace a { inline namespace b {\nvoid h() {}\n__global__ void k(int* x) { }\n} }\nextern "C" {\nvoid g();\n}\n'
    assert kept(text, kernel="a::b::k").splitlines() == [
        "namespace a { inline namespace b {", "", "__global__ void k(int* x) { }", "} }", 'extern "C" {', "", "}",
    ]  # fmt: skip


def test_an_unclosed_kernel_does_not_swallow_the_host_code_below() -> None:
    text = "__global__ void k(int* x) { if (1) { x[0] = 1; }\n\nint main() { std::vector<int> v; }\n"
    assert kept(text, kernel="k").strip() == "__global__ void k(int* x) { if (1) { x[0] = 1; }"


def test_a_stray_brace_stays_for_the_compiler_to_find() -> None:
    assert kept(KERNEL.rstrip() + " }\n", kernel="k").rstrip().endswith("} }")


def test_text_that_was_written_for_nvrtc_is_left_alone() -> None:
    text = "int helper(int a) { return a; }\n" + KERNEL
    assert kept(text, everything=True) == text


def test_headers_are_cut_too_and_served_each_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.cuh").write_bytes(b'#pragma once\r\n#include "sub/b.cuh"\r\n#include <vector>\r\nvoid host();\r\n')
    (tmp_path / "sub" / "b.cuh").write_text('#include "../a.cuh"\n__device__ int f() { return 1; }\nint main() {}\n')
    part = device_part('#include "a.cuh"\n#include "sub/b.cuh"\n' + KERNEL, tmp_path)
    assert dict(part.headers) == {
        "a.cuh": '#pragma once\n#include "sub/b.cuh"\n\n\n',
        "sub/b.cuh": '#include "a.cuh"\n__device__ int f() { return 1; }\n\n',
    }
    assert dict(part.paths) == {"a.cuh": str(tmp_path / "a.cuh"), "sub/b.cuh": str(tmp_path / "sub" / "b.cuh")}


def test_two_headers_of_one_name_stay_apart(tmp_path: Path) -> None:
    for folder, value in (("x", 1), ("y", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.cuh").write_text('#include "size.cuh"\n')
        (tmp_path / folder / "size.cuh").write_text(f"#define SIZE_{folder} {value}\n")
    part = device_part('#include "x/main.cuh"\n#include "y/main.cuh"\n' + KERNEL, tmp_path)
    headers = dict(part.headers)
    assert len(headers) == 4
    used = [headers[name].split('"')[1] for name in ("x/main.cuh", "y/main.cuh")]
    assert [headers[name].split()[1] for name in used] == ["SIZE_x", "SIZE_y"]


def test_a_header_that_is_not_there_is_told_and_left_out(tmp_path: Path) -> None:
    part = device_part('\n  #include "none.h"\n#include <vector>\n' + KERNEL, tmp_path)
    assert [(m.name, m.included_by, m.line, m.column) for m in part.missing] == [("none.h", None, 2, 3)]
    assert part.text.strip() == KERNEL.strip()


def test_a_slow_library_is_read_only_where_the_device_uses_it(tmp_path: Path) -> None:
    (tmp_path / "cooperative_groups.h").write_text("")
    include = "#include <cooperative_groups.h>\n"
    system = (tmp_path,)
    assert include not in kept(include + KERNEL, system=system)
    user = "__global__ void k(int* x) { cooperative_groups::this_grid().sync(); }\n"
    assert include in kept(include + user, system=system)


def test_host_functions_are_remembered_for_the_message_when_a_kernel_calls_one() -> None:
    part = device_part("int h(int a) { return a; }\n__global__ void k(int* x) { *x = h(1); }\n", Path("/nowhere"))
    assert "h" in part.host_functions


def test_comments_and_host_code_do_not_change_the_device_part() -> None:
    first = kept("// one\n" + KERNEL + "int main() { return 0; }\n", kernel="k")
    assert first == kept("// another\n" + KERNEL + "int main() { return 10000; }\n", kernel="k")


PIECES = st.sampled_from(
    [KERNEL, *HOST.values(), *DEVICE.values(), *(text for text, _ in NAMED.values()), "{", "}", "(", ")", ";", "<", '"',
     "#if X\n", "#else\n", "#endif\n", "template <", "struct ", "é", "/*", "*/", "//", "\\\n", "\n", "namespace a {", "using "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12))
def test_whatever_the_text_is_what_stays_is_where_it_was(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    lines, found = text.split("\n"), kept(text).split("\n")
    assert len(found) == len(lines)
    for line, was in zip(found, lines, strict=True):
        assert all(character in (" ", was[column]) for column, character in enumerate(line))


def test_headers_are_parsed_once_for_all_kernels_of_a_file_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cuh").write_text("#define TWICE(x) (2 * (x))\n__device__ int a(int x) { return TWICE(x); }\n")
    (tmp_path / "b.cuh").write_text('#include "a.cuh"\n__device__ int b(int x) { return a(x); }\n')
    text = '#include "b.cuh"\n__global__ void one(int* y) { *y = b(1); }\n__global__ void two(int* y) { *y = a(2); }\n'
    seen: list[str] = []
    plain = project.parse
    monkeypatch.setattr(project, "_LAST", [])
    monkeypatch.setattr(project, "parse", lambda text, functions: seen.append(text[:8]) or plain(text, functions))
    first = device_part(text, tmp_path, kernel="one")
    second = device_part(text, tmp_path, kernel="two")
    assert len(seen) == 3
    assert ("void one" in first.text, "void one" in second.text) == (True, False)
    (tmp_path / "a.cuh").write_text("__device__ int a(int x) { return x + 1; }\n")
    third = device_part(text, tmp_path, kernel="two")
    assert "x + 1" in dict(third.headers)["a.cuh"]
    assert len(seen) == 6  # a function-like macro is gone, by which every text is parsed


def test_headers_are_parsed_once_for_attempts_with_and_without_those_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "a.cuh").write_text("__device__ int a(int x) { return 2 * x; }\n")
    text = '#include "a.cuh"\n__global__ void one(int* y) { *y = a(1); }\n'
    seen: list[str] = []
    plain = project.parse
    monkeypatch.setattr(project, "_LAST", [])
    monkeypatch.setattr(project, "parse", lambda text, functions: seen.append(text) or plain(text, functions))
    for guess in (True, False, True, False):
        device_part(text, tmp_path / "src", kernel="one", guess=guess)
    assert len(seen) == 2
