"""Kernels found in CUDA text, and the lexer that reads it again after a change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import tree_sitter
import tree_sitter_cuda
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmate.records import Kernel, Parameter
from kernelmate.source import find_kernels, text_unit
from kernelmate.source.cuda import unclosed_heads
from kernelmate.source.tokens import LONG_TEXT, _lex_again, _Lexer, lex

Only = Callable[[str], Kernel]


def kernels(text: str) -> tuple[Kernel, ...]:
    return find_kernels(text_unit(text))


def names(text: str) -> list[str]:
    return [kernel.name for kernel in kernels(text)]


# ------------------------------------------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void k(int n)",
        "static __global__ void k(int n)",
        "__global__ static inline void k(int n)",
        "void __global__ k(int n)",
        'extern "C" __global__ void k(int n)',
        'extern "C" __global__ __launch_bounds__(256) void k(int n)',
        "__global__ void __launch_bounds__(256, 2) k(int n)",
        "__launch_bounds__(256) __global__ void k(int n)",
        "__global__ __attribute__((nv_weak)) void k(int n)",
        "[[maybe_unused]] __global__ void k([[maybe_unused]] int n)",
        "__global__ void BOUNDS(256) k(int n)",
        "__global__ EXPORT void FOO k(int n)",
        "MY_API __global__ void k(int n)",
        "__global__\nvoid\n/* why */ k // here\n(\nint n\n)",
        "__global__ void __cluster_dims__(2, 1, 1) __maxnreg__(64) k(int n)",
        "__global__ void k(int n) noexcept",
        "template <typename T, int N = (3 > 2)> __global__ void k(int n)",
        "template <typename T>\n#ifdef SMALL\n__launch_bounds__(128)\n#endif\n__global__ void k(int n)",
        "template <class T, class = std::enable_if_t<(sizeof(T) > 2)>>\n__global__ void k(int n)",
    ],
)
def test_a_definition_is_found_whatever_stands_around_its_name(only: Only, head: str) -> None:
    text = f"int before = 0;\n{head} {{ n; }}\nint after;\n"
    kernel = only(text)
    assert kernel.name == "k"
    assert kernel.source == f"{head} {{ n; }}"
    assert [(p.name, p.dtype) for p in kernel.signature.parameters] == [("n", "int32")]
    line = text.split("\n")[kernel.line - 1]
    assert line[kernel.column - 1 :].startswith("k")


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(int n);",
        "// __global__ void k(int n) {}",
        "/* __global__ void k(int n) {} */",
        'const char *s = "__global__ void k(int n) {}";',
        'auto s = R"x(__global__ void k(int n) {} )" )x";',
        "#define K(name) __global__ void name(int n) {}\n",
        "#if 0\n__global__ void k(int n) {}\n#endif\n",
        "#if 1\n#else\n__global__ void k(int n) {}\n#endif\n",
        "__device__ void k(int n) {}",
        "__global__",
        "__global__ void",
        "__global__ void k(",
        "__global__ void k(int n) = delete;",
        "#error don't __global__ void k() {}\n",
        "template <> __global__ void k<float>(float *x) {}",
        "template <> __global__ void k(const float *x) {}",
        "template __global__ void k<float>(float *x);",
        "",
        "\\",
    ],
)
def test_what_is_no_definition_is_not_found(text: str) -> None:
    assert names(text) == []


def test_names_carry_their_namespaces() -> None:
    text = (
        "namespace a::b { namespace { __global__ void one() {} }\n"
        "inline namespace v1 { __global__ void two() {} } }\n"
        'extern "C" { __global__ void three() {} }\n'
        "__global__ void ns::four() {}\n"
    )
    assert names(text) == ["a::b::one", "a::b::v1::two", "three", "ns::four"]
    assert [kernel.signature.extern_c for kernel in kernels(text)] == [False, False, True, False]


def test_braces_in_comments_strings_and_characters_do_not_count(only: Only) -> None:
    body = """{ "}"; '}'; '\\''; /* } */ // }\n R"(})"; 1'000'000; }"""
    assert only(f"__global__ void k() {body}\nint x;").source.endswith(body)


def test_each_branch_of_an_if_starts_with_the_braces_before_it() -> None:
    text = (
        "#ifdef A\n__global__ void one(int a) {\n#else\n__global__ void two(int a) {\n#endif\n  a;\n}\n"
        "#if X > 2\nnamespace x {\n#elif Y\nnamespace y {\n#endif\n__global__ void three() {}\n}\n"
        "__global__ void four() {}\n"
    )
    assert names(text) == ["one", "two", "x::three", "four"]


def test_an_unfinished_kernel_does_not_swallow_the_next_one() -> None:
    first, second = kernels("__global__ void a(float *x) {\n  if (x) {\n\n__global__ void b(int n) { n; }\n")
    assert first.source == "__global__ void a(float *x) {\n  if (x) {"
    assert second.source == "__global__ void b(int n) { n; }"


def test_a_macro_that_stands_for_global_is_seen_through() -> None:
    assert names("#define KERNEL static __global__ void\nKERNEL k(int n) {}\nKERNEL2 j(int n) {}\n") == ["k"]


def test_columns_count_characters_not_bytes(only: Only) -> None:
    kernel = only("/* größe — 大 */ __global__ void k(float *é) {}")
    assert (kernel.line, kernel.column) == (1, 33)
    assert (kernel.signature.parameters[0].name, kernel.signature.parameters[0].column) == ("é", 42)


def test_launch_bounds_are_literals_or_nothing(only: Only) -> None:
    assert only("__global__ void __launch_bounds__(256, 2) k() {}").signature.launch_bounds == (256, 2)
    assert only("__global__ void __launch_bounds__(0x100u) k() {}").signature.launch_bounds == (256,)
    assert only("__global__ void __launch_bounds__(N) k() {}").signature.launch_bounds == ()
    assert only("__global__ void k() {}").signature.launch_bounds == ()


def test_template_parameters_are_named_in_order(only: Only) -> None:
    text = "template <typename T, int N = 4, template <class> class C, typename... Ts>\n__global__ void k(T *x) {}"
    assert only(text).signature.template_parameters == ("T", "N", "C", "Ts")
    assert only("template <typename, int>\n__global__ void k() {}").signature.template_parameters == (
        "template0",
        "template1",
    )


# -------------------------------------------------------------------------------------------------- parameters


def parameter(declaration: str, before: str = "") -> Parameter:
    (kernel,) = kernels(f"{before}\n__global__ void k({declaration}) {{}}")
    (found,) = kernel.signature.parameters
    return found


@pytest.mark.parametrize(
    ("declaration", "base", "dtype", "vector", "traits"),
    [
        ("float *p", "float", "float32", 1, "pointer"),
        ("const float *p", "float", "float32", 1, "pointer const"),
        ("float const *p", "float", "float32", 1, "pointer const"),
        ("float *const p", "float", "float32", 1, "pointer"),
        ("const float *const __restrict__ p", "float", "float32", 1, "pointer const restrict"),
        ("const float* __restrict p", "float", "float32", 1, "pointer const restrict"),
        ("IN const float *RESTRICT p", "float", "float32", 1, "pointer const restrict"),
        ("volatile int *p", "int", "int32", 1, "pointer"),
        ("const __half p[]", "__half", "float16", 1, "pointer const"),
        ("float p[][4]", "float", "float32", 1, "pointer"),
        ("float (*p)[4]", "float", "float32", 1, "pointer"),
        ("float (&p)[4]", "float", None, 1, ""),
        ("const float &p", "float", None, 1, "const"),
        ("void (*p)(int, float)", "void", None, 1, ""),
        ("float **p", "float *", None, 1, "pointer"),
        ("const int *const *p", "int *", None, 1, "pointer const"),
        ("void *p", "void", None, 1, "pointer"),
        ("unsigned p", "unsigned", "uint32", 1, ""),
        ("const int p", "int", "int32", 1, "const"),
        ("int p = 3 + f(1, 2)", "int", "int32", 1, ""),
        ("unsigned long long p", "unsigned long long", "uint64", 1, ""),
        ("long unsigned int p", "long unsigned int", "uint64", 1, ""),
        ("short unsigned *p", "short unsigned", "uint16", 1, "pointer"),
        ("signed char p", "signed char", "int8", 1, ""),
        ("std::size_t p", "std::size_t", "uint64", 1, ""),
        ("cuda::std::int64_t *p", "cuda::std::int64_t", "int64", 1, "pointer"),
        ("::uint8_t p", "::uint8_t", "uint8", 1, ""),
        ("half2 *p", "half2", "float16", 2, "pointer"),
        ("const float4 *__restrict__ p", "float4", "float32", 4, "pointer const restrict"),
        ("__nv_bfloat16 *p", "__nv_bfloat16", "bfloat16", 1, "pointer"),
        ("__nv_bfloat162 *p", "__nv_bfloat162", "bfloat16", 2, "pointer"),
        ("__nv_fp8_e4m3 *p", "__nv_fp8_e4m3", "float8_e4m3fn", 1, "pointer"),
        ("__nv_fp8x4_e5m2 *p", "__nv_fp8x4_e5m2", "float8_e5m2", 4, "pointer"),
        ("thrust::complex<float> *p", "thrust::complex<float>", "complex64", 1, "pointer"),
        ("const __grid_constant__ Params p", "Params", None, 1, "const"),
        ("struct Params p", "Params", None, 1, ""),
        ("std::array<float, 3> p", "std::array<float, 3>", None, 1, ""),
        ("cudaTextureObject_t p", "cudaTextureObject_t", None, 1, ""),
        ("alignas(16) float *p", "float", "float32", 1, "pointer"),
        ("bool p", "bool", "bool", 1, ""),
    ],
)
def test_a_parameter_is_taken_apart(declaration: str, base: str, dtype: str | None, vector: int, traits: str) -> None:
    found = parameter(declaration)
    assert (found.name, found.base, found.dtype, found.vector) == ("p", base, dtype, vector)
    assert {trait for trait in ("pointer", "const", "restrict") if getattr(found, trait)} == set(traits.split())


def test_the_files_own_aliases_are_followed() -> None:
    before = "using real = double; typedef unsigned int u32; using twice = real;\n#define SCALAR __half\n"
    assert parameter("real *p", before).dtype == "float64"
    assert parameter("twice *p", before).dtype == "float64"
    assert parameter("u32 p", before).dtype == "uint32"
    assert parameter("SCALAR *p", before).dtype == "float16"
    assert parameter("a p", "using a = b; using b = a;").dtype is None


def test_template_types_have_no_dtype_and_no_parameters_are_none(only: Only) -> None:
    (pointer,) = only("template <typename T> __global__ void k(const T *x) {}").signature.parameters
    assert (pointer.base, pointer.dtype, pointer.type) == ("T", None, "const T *")
    assert only("__global__ void k(void) {}").signature.parameters == ()
    unnamed = only("__global__ void k(int, float *) {}").signature.parameters
    assert [(p.name, p.dtype, p.pointer) for p in unnamed] == [("arg0", "int32", False), ("arg1", "float32", True)]


# ---------------------------------------------------------------------------------------------------- launches


def test_every_launch_is_found_with_the_places_of_its_parts() -> None:
    text = (
        "namespace ns { template <typename T, int B> __global__ void k(T *x, int n) {} }\n"
        "#define GO(n) ns::k<float, 256><<<n, \\\n    256>>>(p, n)\n"
        "void f() {\n"
        "  ns::k<float, (3 > 2)><<<dim3(n / 4, f<1, 2>(n)), dim3{32, 8}, sizeof(float) * 32, stream>>>(p, (a, b));\n"
        "  CHECK((ns::k<int, 1><<<(n + 255) / 256, 256>>>(p, g(\")\", ')'))));\n"
        "  /* ns::k<int, 1><<<1, 2>>>(p, n); */ // ns::k<int, 1><<<1, 2>>>(p, n);\n"
        "  ::ns::k<int, 1> <<< 1 , a->b >>> (p, n);\n"
        "  other<<<1, 2>>>(p);\n"
        "  x = a <<< b;\n"
        "}\n"
    )
    (kernel,) = kernels(text)
    got = [(site.grid, site.block, site.shared, site.line) for site in kernel.launches]
    assert got == [
        ("n", "256", None, 2),
        ("dim3(n / 4, f<1, 2>(n))", "dim3{32, 8}", "sizeof(float) * 32", 5),
        ("(n + 255) / 256", "256", None, 6),
        ("1", "a->b", None, 8),
    ]
    for site in kernel.launches:
        assert text[slice(*site.grid_span)] == site.grid
        assert text[slice(*site.block_span)] == site.block
        assert site.shared_span is None or text[slice(*site.shared_span)] == site.shared
        assert text[site.end - 1] == ")"
        assert text[site.start :].lstrip(":").startswith("ns::k<")


def test_a_launch_belongs_to_the_kernel_of_its_name() -> None:
    text = (
        "namespace a { __global__ void k(int n) {} void f() { k<<<1, 1>>>(n); } }\n"
        "namespace b { __global__ void k(int n) {} }\n"
        "void g() { a::k<<<2, 2>>>(n); b::k<<<3, 3>>>(n); }\n"
    )
    first, second = kernels(text)
    assert [site.grid for site in first.launches] == ["1", "2"]
    assert [site.grid for site in second.launches] == ["1", "3"]


def test_an_unfinished_launch_is_left_alone() -> None:
    for launch in ("k<<<", "k<<<1", "k<<<1, 2", "k<<<1, 2>>>", "k<<<1, 2>>>(", "<<<1, 2>>>(x)", "k<<<1>>>(x)"):
        assert kernels(f"__global__ void k(int n) {{}}\nvoid f() {{ {launch}; }}")[0].launches == ()


# ----------------------------------------------------------------------------------------------------- whole


def by_tree(text: str) -> list[tuple[int, int]]:
    """Definitions as tree-sitter sees them, which is right where every macro is known to its grammar."""
    language = tree_sitter.Language(tree_sitter_cuda.language())
    data = text.encode()
    found = []
    pending = [tree_sitter.Parser(language).parse(data).root_node]
    while pending:
        node = pending.pop()
        if node.type == "function_definition" and any(child.type == "__global__" for child in node.children):
            found.append((len(data[: node.start_byte].decode()), len(data[: node.end_byte].decode())))
        pending.extend(node.children)
    return sorted(found)


PIECES = st.sampled_from(
    [
        "__global__ void one(const float *x, int n) { if (n) { x[0]; } }\n",
        "__global__ __launch_bounds__(64, 2) void two(float4 *v) { for (;;) { } }\n",
        "static __global__ void three() { auto f = [] { return '}'; }; }\n",
        "// __global__ void no() {\n",
        "/* { */\n",
        "#include <cstdio>\n",
        "#define M(x) { x\n",
        'int main() { two<<<1, 2>>>(nullptr); printf("{%d", 1); return 0; }\n',
        "struct S { int a; void f() { } };\n",
        "namespace q { __device__ int g() { return 1; } }\n",
        "__global__ void decl(int n);\n",
        "// ümläut\n",
        "constexpr int N = 1'000;\n",
        "#ifdef A\nint a = 1;\n#else\nint b = 2;\n#endif\n",
    ]
)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=12))
def test_on_code_without_unknown_macros_it_agrees_with_the_syntax_tree(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert [(kernel.start, kernel.end) for kernel in kernels(text)] == by_tree(text)


FRAGMENTS = [
    *"<>(){}[]#\\\"'/*,;:=k \n",
    "__global__ ",
    "void ",
    "template",
    "<<<",
    ">>>",
    "#if 0\n",
    "#endif\n",
    'R"(',
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=80).map("".join))
def test_no_text_makes_it_raise(text: str) -> None:
    for kernel in kernels(text):
        assert 0 <= kernel.start < kernel.end <= len(text)
        assert "__global__" in kernel.source


def test_a_long_file_is_read_whole() -> None:
    text = "".join(
        f"template <typename T>\n__global__ void k{i}(const T *x, T *y, int n) {{\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) {\n    y[i] = x[i];  // one\n  }\n}\n"
        f"void f{i}(float *x, float *y, int n) {{\n  k{i}<float><<<(n + 255) / 256, 256>>>(x, y, n);\n}}\n"
        for i in range(2000)
    )
    assert text.count("\n") == 20_000
    found = kernels(text)
    assert len(found) == 2000
    assert all(len(kernel.launches) == 1 for kernel in found)
    assert (found[-1].name, found[-1].line) == ("k1999", 19_992)


TOKENS_PIECES = (
    "float a = b * 1.5e-3f;\n", "#define MAX(a, b) ((a) > (b) ? \\\n  (a) : (b))\n", "// a note \\\n still a note\n",
    "/* a block\n # not a line\n */ int c;\n", 'auto s = R"x(raw // " text)x";\n', "k<<<1, 2>>>(a, b);\n", "#if 0 // no\n",
    "#endif\n", "const char* s = \"a \\\" b\";\n", "char c = '\\'';\n", "__global__ void k(int n) { if (n) { n = 1'000; } }\n",
    "\n", "  # pragma unroll\n", "#", '"', "/*", "*/", "//", "\\\n", "\\", "'", 'R"y(', ')y"', "<", "{", "x", " ", "\n\n",
)  # fmt: skip


def changed(text: str, draw: random.Random) -> str:
    """The text with one span replaced by pieces."""
    start = draw.randrange(len(text) + 1)
    end = min(len(text), start + draw.choice((0, 0, 1, 2, 30, 500)))
    return text[:start] + "".join(draw.choices(TOKENS_PIECES, k=draw.choice((0, 1, 1, 3)))) + text[end:]


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_text_has_the_tokens_of_the_whole_text(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choices(TOKENS_PIECES[:13], k=200))
    before = _Lexer(text).result()
    for _ in range(40):
        text = changed(text, draw)
        whole = _Lexer(text).result()
        assert _lex_again(text, before) == whole
        before = whole


def test_a_long_text_is_read_again_only_where_it_changed() -> None:
    text = "__device__ int f(int a) { return a; }  // one\n" * (LONG_TEXT // 40)
    middle = text.index("return a;", len(text) // 2)
    before, after = lex(text), lex(f"{text[:middle]}return ab;{text[middle + 9 :]}")
    kept = sum(one is other for one, other in zip(before.tokens, after.tokens, strict=True))
    assert kept > len(before.tokens) // 4
    assert after == _Lexer(after.text).result()


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("namespace EXPORTED a {", "a::k"),
        ('namespace [[gnu::visibility("default")]] a {', "a::k"),
        ('inline namespace __attribute__((visibility("default"))) a::b {', "a::b::k"),
        ("namespace a::inline b {", "a::b::k"),
        ("namespace {", "k"),
    ],
)
def test_the_name_of_a_namespace_follows_its_attributes_and_macros(head: str, name: str) -> None:
    (kernel,) = find_kernels(text_unit(f"#define EXPORTED\n{head} __global__ void k(int* x) {{}} }}\n", "k.cu"))
    assert kernel.name == name


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("__global__ void k(float* x { x[0] = 1; }\n", ((1, 1),)),
        ("__global__ void k(float* x) { }\n  __global__ void m(int (*f)(int) {\n}\n", ((2, 3),)),
        ("__global__ void k(float* x", ((1, 1),)),
        ("__global__ void k(float* x;\n__global__ void m() { }\n", ((1, 1),)),
        ("__global__ void k(float* x);\n__global__ void k(float* x) { }\n", ()),
        ("// __global__ void k(\n#define K __global__ void k(\n__global__ void m() { }\n", ()),
        ("template __global__ void k<int>(int*);\n", ()),
    ],
)
def test_a_parameter_list_that_is_not_closed_is_found(text: str, places: tuple[tuple[int, int], ...]) -> None:
    assert unclosed_heads(text) == places
