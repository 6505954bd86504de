"""The compiler's messages in the user's terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.diagnostics import Sources, demangled, inactive_under, read_log
from kernelmate.errors import UsageError
from kernelmate.records import Anchor, Compiled, CompileOptions, Unit
from kernelmate.source import find_kernels, text_unit

Compile = Callable[..., Compiled]


def errors(result: Compiled) -> list[tuple[int | None, int | None, str]]:
    return [(d.line, d.column, d.message) for d in result.diagnostics if d.severity == "error"]


def test_columns_count_characters_behind_letters_of_several_bytes(compiled: Compile) -> None:
    text = '__global__ void k(int* x) { printf("→é"); x[0] = nothing; }\n'
    assert errors(compiled(text)) == [(1, text.index("nothing") + 1, 'identifier "nothing" is undefined')]


def test_columns_count_tabs_as_one(compiled: Compile) -> None:
    assert errors(compiled("__global__ void k(int* x) {\n\t\tnothing = 1;\n}\n"))[0][:2] == (2, 3)


def test_a_lost_brace_is_placed_where_it_was_opened(compiled: Compile) -> None:
    ((line, column, message),) = errors(compiled("\n__global__ void k(int* x) { x[0] = 1;\n\nint main() { }\n"))
    assert (line, column) == (2, 27)
    assert message.startswith('expected a "}"')


def test_notes_belong_to_their_error(compiled: Compile) -> None:
    text = "__device__ void f(int);\n__device__ void f(float, int);\n__global__ void k(double d) { f(d, d, d); }\n"
    result = compiled(text)
    assert {d.severity for d in result.diagnostics} == {"error"}
    assert result.diagnostics[0].line == 3
    assert "(line 1)" in result.diagnostics[0].message
    assert "(line 2)" in result.diagnostics[0].message


def test_calling_a_host_function_says_so(compiled: Compile) -> None:
    ((_, _, message),) = errors(compiled("int h(int a) { return a; }\n__global__ void k(int* x) { *x = h(1); }\n"))
    assert "h is a host function" in message


def test_a_mistake_in_inline_assembly_is_placed_at_its_line(compiled: Compile) -> None:
    text = '__global__ void k(float* x) {\n  x[1] = 2;\n  asm("foo.bar %0;" : "=f"(x[0]));\n}\n'
    found = errors(compiled(text))
    assert {line for line, _, _ in found} == {3}
    assert any("foo" in message for _, _, message in found)


def test_hoppers_matrix_instructions_in_code_for_sm_90_name_the_target_that_has_them(compiled: Compile) -> None:
    found = errors(compiled('__global__ void k() {\n  asm volatile("wgmma.fence.sync.aligned;");\n}\n', target="sm_90"))
    assert [(line, message.endswith("--target sm_90a")) for line, _, message in found] == [(2, True)]


def test_too_much_static_shared_memory_is_told_at_the_kernel(compiled: Compile) -> None:
    text = "\n__global__ void big(float* x) { __shared__ float t[20000]; t[threadIdx.x] = *x; __syncthreads(); *x = t[3]; }\n"
    ((line, column, message),) = errors(compiled(text))
    assert (line, column) == (2, 17)
    assert "too much shared" in message
    assert "ptxas info" not in message


def test_an_option_that_is_not_on_the_list_is_told(compiled: Compile) -> None:
    with pytest.raises(UsageError, match="--no-such-thing"):
        compiled("__global__ void k(int* x) { *x = 1; }\n", "--no-such-thing")


def test_a_template_without_an_instance_says_how_to_name_one(compiled: Compile) -> None:
    result = compiled("template <int N> __global__ void k(int* x) { *x = N; }\n")
    (said,) = result.diagnostics
    assert not result.ok
    assert (said.severity, said.code, said.line) == ("note", "no-instance", 1)
    assert 'instances = ["k<1>"]' in said.message


def test_a_template_whose_launch_names_no_instance_is_not_called_unused(compiled: Compile) -> None:
    result = compiled(
        "template <typename T> __global__ void k(T* x) { *x = 1; }\n"
        "template <typename Config> void run(Config c) { k<<<1, 1>>>(c.data()); }\n"
    )
    (said,) = result.diagnostics
    assert "k is a template whose launch at line 2 does not say which instance it is" in said.message
    assert 'instances = ["k<float>"]' in said.message


def test_a_template_that_calls_a_parameter_says_which_class_it_needs_and_that_class_will_do(compiled: Compile) -> None:
    text = "template <class T, class F> __global__ void k(T* x, F f) { x[0] = f(x[1], x[2]); }\n"
    (said,) = compiled(text).diagnostics
    assert 'instances = ["k<float, Mine>"]' in said.message
    needed = said.message.partition("as the kernel does: ")[2]
    assert compiled(f"{needed}\n{text}", instance="k<float, Mine>").ok


def test_positions_go_through_the_anchors_of_a_string(cache_dir: object) -> None:
    text = "template <class T> __device__ T f(T v) { return v.no; }\n__global__ void k(int* x) { *x = f(1); bad; }\n"
    unit = Unit("app.py", text, "python", anchors=(Anchor(1, 1, 11, 9), Anchor(2, 1, 20, 5)))
    (kernel,) = find_kernels(unit)
    result = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    found = {(d.file, d.line, d.column) for d in result.diagnostics if d.severity == "error"}
    assert found == {("app.py", 11, 49 + 8), ("app.py", 20, 40 + 4)}
    assert any("at line 20" in d.message for d in result.diagnostics)


def test_each_message_is_told_once() -> None:
    log = 'kernel.cu(1): error: a thing\n  x\n  ^\n\nkernel.cu(1): error: a thing\n  x\n  ^\n\n1 error detected in the compilation of "kernel.cu".\n'
    found = read_log(log, Sources(text_unit("x"), {}))
    assert [(d.line, d.column, d.message) for d in found] == [(1, 1, "a thing")]


def test_a_path_with_parentheses_is_read_whole() -> None:
    (found,) = read_log("dir (1)/a(2).h(7): warning #177-D: unused\n", Sources(text_unit("x"), {}))
    assert (found.file, found.line, found.code, found.severity) == ("dir (1)/a(2).h", 7, "177-D", "warning")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z6matmulPf", "matmul"),
        ("_ZN2ab4copyIfEEvPT_", "ab::copy"),
        ("_ZN36_GLOBAL__N__00000000_4_k_cu_c0ffee001kEPf", "(anonymous namespace)::k"),
        ("_ZZ6matmulPfE4tile", "tile of matmul"),
        ("plain", "plain"),
        ("_Z", "_Z"),
    ],
)
def test_symbols_are_shown_as_names(symbol: str, name: str) -> None:
    assert demangled(symbol) == name


def test_the_assembler_names_kernels_as_the_source_does(compiled: Compile) -> None:
    text = "namespace n {\n__global__ void k(int* x) { __shared__ int a[99999]; a[0] = 1; x[0] = a[x[1]]; }\n}\n"
    ((_, _, message),) = errors(compiled(text))
    assert "n::k" in message
    assert "_Z" not in message


@pytest.mark.parametrize(
    ("text", "line", "options"),
    [
        ("#ifndef TILE\n#error TILE\n#else\nkernel\n#endif", 2, "-DTILE=..."),
        ("#ifndef TILE\n#error TILE\n#else\nkernel\n#endif", 4, "-DTILE=..."),
        ("#if REAL == 32\na\n#elif REAL == 64\nb\n#else\n#error REAL\n#endif", 6, "-DREAL=32 or -DREAL=64"),
        ("#ifdef HAVE_MPI\nkernel\n#endif", 2, "-DHAVE_MPI"),
        ("#if defined(ON) && !defined(OFF)\nkernel\n#endif", 2, "-DON"),
        ("#if FAST\nkernel\n#endif", 2, "-DFAST=1"),
        ("#ifndef G_H\n#define G_H\n#if LEVEL >= 3\nkernel\n#endif\n#endif", 4, "-DLEVEL=..."),
        ("#ifdef OLD\n#error OLD\n#endif", 2, "-D"),
        ("#ifndef OLD\nkernel\n#endif", 2, "-D"),
        ("#if __CUDA_ARCH__ >= 700\nkernel\n#endif", 2, "-D"),
    ],
)
def test_conditions_name_the_options_that_may_change_them(text: str, line: int, options: str) -> None:
    clause = inactive_under(text, line)
    assert clause.endswith(f"give {options} as the build does")
