"""Instances of templates that the code around them uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Unit
from kernelmate.source import find_kernels, infer_contract
from kernelmate.source.template_parameters import example_instance, guessed_instances, index_types, template_parameters
from kernelmate.source.template_uses import inferred_instances

KERNEL = "template <typename T, int N> __global__ void k(T *x, const T *y) { x[0] = y[N]; }\n"


def instances(text: str, path: str = "<cell>") -> list[str]:
    (kernel, *_) = find_kernels(Unit(path, text))
    return [one.text for one in inferred_instances(kernel)]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("void f() { k<float, 4><<<1, 1>>>(a, b); }", ["k<float, 4>"]),
        ("void f() { auto p = &k<double, 2>; cudaLaunchKernel((void*)k<double, 2>, g, b, a, 0, s); }", ["k<double, 2>"]),
        ("template __global__ void k<half, 8>(half*, const half*);", ["k<half, 8>"]),
        ("void f() { using T = float; constexpr int n = 32 / 2; k<T, n><<<1, 1>>>(a, b); }", ["k<float, 32 / 2>"]),
        ("template <class U> void f(U *a) { k<U, 4><<<1, 1>>>(a, a); }\nvoid g() { f<int>(a); }", ["k<int, 4>"]),
        ("template <class U> void f(U *a) { k<U, 4><<<1, 1>>>(a, a); }\nvoid g(double *p) { f(p); }", ["k<double, 4>"]),
        ("template <class U> void f(U *a) { k<U, 4><<<1, 1>>>(a, a); }\ntemplate void f(half *a);", ["k<half, 4>"]),
        (
            "template <class U, int n = 128> void f(U *a) { k<U, n><<<1, 1>>>(a, a); }\nvoid g() { f<int>(a); f<int, 64>(a); }",
            ["k<int, 128>", "k<int, 64>"],
        ),
        (
            "template <class U> void Layer<U>::run(U *a) { k<U, 4><<<1, 1>>>(a, a); }\ntemplate class Layer<float>;",
            ["k<float, 4>"],
        ),
        (
            "#define INSTANTIATE(name) char guard_##name; template class name<float>; template class name<double>\n"
            "template <class U> void Layer<U>::run(U *a) { k<U, 4><<<1, 1>>>(a, a); }\nINSTANTIATE(Layer);",
            ["k<float, 4>", "k<double, 4>"],
        ),
        ("void f() { k<float, true><<<1, 1>>>(a, b); k<true, 2><<<1, 1>>>(a, b); k<float, 3><<<1, 1>>>(a, b); }", ["k<float, 3>"]),
        (
            "#define LAUNCH(n) k<float, n><<<1, 1>>>(a, b)\nvoid f(int n) { if (n == 1) LAUNCH(1); else LAUNCH(2); }",
            ["k<float, 1>", "k<float, 2>"],
        ),
        (
            "#define ALL ONE(1)\n#define ONE(n) k<U, n><<<1, 1>>>(a, b)\n"
            "template <class U> void f() { ALL }\nvoid g() { f<float>(); }",
            ["k<float, 1>"],
        ),
        (
            "#define WITH(name, ...) { constexpr int name = 3; __VA_ARGS__(); }\n"
            "void f() { WITH(D, [&] { k<float, D><<<1, 1>>>(a, b); }) }",
            ["k<float, 3>"],
        ),
        (
            '#define SWITCH(level, ...) { using scalar_##level = double; __VA_ARGS__; }\n'
            'void f() { SWITCH(0, using t = scalar_0; k<t, 1><<<1, 1>>>(a, b);) }',
            ["k<double, 1>"],
        ),
        (
            'void f() { AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "k", [&] { k<scalar_t, 1><<<1, 1>>>(a, b); }); }',
            ["k<float, 1>", "k<double, 1>"],
        ),
    ],
)  # fmt: skip
def test_uses_give_the_arguments(host: str, found: list[str]) -> None:
    assert instances(KERNEL + host) == found


def test_the_most_used_come_first() -> None:
    text = KERNEL + "void f() { k<int, 1><<<1, 1>>>(a, b); k<float, 2><<<1, 1>>>(a, b); k<float, 2><<<1, 1>>>(a, b); }"
    assert instances(text) == ["k<float, 2>", "k<int, 1>"]


@pytest.mark.parametrize(
    "launch",
    [
        "void f(float *p) { k<<<1, 1>>>(p); }",
        "void f() { float *p, *q; k<<<1, 1>>>(q); }",
        "void f() { k<<<1, 1>>>(x.data_ptr<float>()); }",
        "void f() { k<<<1, 1>>>((float *)p); }",
        "void f() { auto q = static_cast<float *>(p); k<<<1, 1>>>(q); }",
    ],
)
def test_arguments_of_a_launch_give_the_types(launch: str) -> None:
    assert instances("template <class T> __global__ void k(T *x) { *x = 1; }\n" + launch) == ["k<float>"]


@pytest.mark.parametrize(
    "launch",
    [
        "#define LAUNCH(kernel, grid, ...) kernel<<<grid, 1>>>(__VA_ARGS__)\nvoid f(float *p) { LAUNCH(k, 4, p, 9); }",
        "void f(float *p) { launch(&config, k, p, 9); }",
    ],
)
def test_arguments_behind_a_kernel_that_is_passed_on_give_the_types(launch: str) -> None:
    assert instances("template <class T> __global__ void k(T *x, int n) { *x = n; }\n" + launch) == ["k<float>"]


def test_a_macro_of_another_file_may_define_what_the_file_itself_does_not(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "dispatch.h").write_text(
        "#define WITH_MODE(mode, ...) [&] { if (mode) { static constexpr int MODE = 1; return __VA_ARGS__(); } }()\n"
        "#define TYPE_SWITCH(kind, name, ...) if (kind) { using name = half; { __VA_ARGS__ } }\n"
    )
    path = tmp_path / "k.cu"
    text = KERNEL + "void f() { TYPE_SWITCH(t, type, WITH_MODE(m, [&] { k<type, MODE><<<1, 1>>>(a, b); });) }"
    path.write_text(text)
    assert instances(text, str(path)) == ["k<half, 1>"]


def test_run_time_values_give_nothing() -> None:
    assert instances(KERNEL + "void f(int n) { k<float, n><<<1, 1>>>(a, b); }") == []


def test_defaults_are_enough() -> None:
    text = "template <typename T = float, int N = 4> __global__ void k(T *x) { x[0] = N; }\n"
    assert instances(text) == ["k<>"]


def test_other_files_of_the_project_are_read_and_the_nearest_first(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "run.cu").write_text("void f() { k<float, 16><<<1, 1>>>(a, b); }")
    (tmp_path / "other.cu").write_text("void g() { k<int, 8><<<1, 1>>>(a, b); }")
    path = tmp_path / "src" / "k.cuh"
    path.write_text(KERNEL)
    assert instances(KERNEL, str(path)) == ["k<float, 16>", "k<int, 8>"]


def test_a_template_that_calls_itself_in_circles_ends() -> None:
    text = (
        KERNEL
        + "template <class A> void f() { g<A>(); k<A, 1><<<1, 1>>>(a, b); }\ntemplate <class A> void g() { f<A>(); }"
    )
    assert instances(text) == []


def test_guesses_follow_kind_and_name() -> None:
    text = (
        "template <typename T, typename index_t, int BLOCK_SIZE, bool causal, Mode mode, int... rest>\n"
        "__global__ void k(T *x) { x[0] = 1; }\n"
    )
    (kernel,) = find_kernels(Unit("<cell>", text))
    assert [one.kind for one in template_parameters(kernel)] == ["type", "type", "value", "value", "value", "pack"]
    assert next(one.text for one in guessed_instances(kernel)) == "k<float, int, 128, false, Mode(0)>"
    assert all(one.guessed for one in guessed_instances(kernel))


@pytest.mark.parametrize(
    ("text", "indexing"),
    [
        ("template <typename I> __global__ void k(float* x, const I* idx) { x[idx[threadIdx.x]] = 1; }", {"I"}),
        ("template <typename I> __global__ void k(float* x, const I n) { for (I i = 0; i < n; i++) x[i] = 1; }", {"I"}),
        ("template <typename T> __global__ void k(T* x, T a, int n) { x[n] = a & 3; }", {"T"}),
        ("template <typename T> __global__ void k(T* x, int n) { x[n] = x[n] % 7; }", {"T"}),
        ("template <typename T> __global__ void k(T* x, int n) { x[n] = x[n + 1] << 7; }", {"T"}),
        (
            "template <typename T> __global__ void k(T* x, T a, int n) { x[n] = a && f(&a) ? x[n & 3] : x[n % 4]; }",
            set(),
        ),
        ("template <typename T> __global__ void k(T* x, int n) { T m[4]; m[n] = x[0]; x[n] = m[n % 4]; }", set()),
        ("template <typename T> __global__ void k(T* x, int n) { T &a = x[n]; const T& b = x[0]; a += b; }", set()),
        ("template <typename T, typename V> __global__ void k(T* x, V* w, int n) { x[n] = (T)w[n]; }", set()),
    ],
)
def test_a_type_whose_values_are_subscripts_is_integral(text: str, indexing: set[str]) -> None:
    (kernel,) = find_kernels(Unit("<cell>", text))
    assert index_types(kernel) == indexing
    first = guessed_instances(kernel)[0].text
    assert first.startswith("k<int" if indexing else "k<float")


def test_an_instance_with_a_floating_point_index_is_left_out() -> None:
    text = (
        "template <typename I> __global__ void k(float* x, const I* idx) { x[idx[threadIdx.x]] = 1; }\n"
        "template <typename V> void f(float* x, V* i) { k<V><<<1, 1>>>(x, i); }\n"
        "template void f<float>(float* x, float* i);\ntemplate void f<long>(float* x, long* i);\n"
    )
    assert instances(text) == ["k<long>"]


FUNCTORS = """
template <typename T> struct Square { __device__ T operator()(T a) const { return a * a; } };
struct Sum { float bias; __host__ __device__ float operator()(float a, float b) const { return a + b + bias; } };
struct Host { int operator()(int a, int b, int c) { return a; } };
struct Policy { static __device__ float apply(const float& a) { return a; } };
// struct Removed { __device__ float operator()(float a) const { return a; } };
struct Pairs : Base<int, float> { template <class T> __device__ T operator()(Pair<T, 2> a, T b, T c, T d) { return b; } };
"""


@pytest.mark.parametrize(
    ("kernel", "instance"),
    [
        (
            "template <typename T, typename F> __global__ void k(T* x, F f) { x[0] = f(x[1]); }",
            "k<float, Square<float>>",
        ),
        ("template <class Op> __global__ void k(float* x, const Op op) { x[0] = op(x[1], g(x[2], 3)); }", "k<Sum>"),
        ("template <class Op> __global__ void k(float* x) { x[0] = Op()(x[1], x[2]); }", "k<Sum>"),
        (
            "template <class Op> __global__ void k(float* x, Op& op) { /* op(1) */ x[0] = op(h<int, 2>(1), 2, 3, 4); }",
            "k<Pairs>",
        ),
        (
            "template <class P, int kThreads> __global__ void k(float* x) { x[0] = P::apply(x[kThreads]); }",
            "k<Policy, 128>",
        ),
    ],
)
def test_a_parameter_that_is_called_is_guessed_as_a_class_that_can_be(only, kernel: str, instance: str) -> None:
    found = guessed_instances(only(FUNCTORS + kernel))
    assert found[0].text == instance
    assert "can be called so" in found[0].origin


def test_the_example_of_an_instance_has_the_class_that_it_needs(only) -> None:
    text = "template <class T, class F, int kBlock> __global__ void k(T* x, F f) { x[kBlock] = f(x[0], x[1]); }"
    assert example_instance(only(text)) == (
        "k<float, Mine, 128>", "struct Mine { __device__ float operator()(float a, float b) const { return a; } };"
    )  # fmt: skip
    assert example_instance(only("template <int N> __global__ void k(int* x) { x[0] = N; }")) == ("k<1>", "")


def test_the_hint_for_a_template_that_nothing_uses_has_the_class_that_it_calls(only) -> None:
    with pytest.raises(ContractError) as caught:
        infer_contract(only("template <class T, class F> __global__ void k(T* x, F f) { x[0] = f(x[1]); }"))
    assert 'instances = ["k<float, Mine>"]' in (caught.value.hint or "")
    assert "struct Mine { __device__ float operator()(float a) const { return a; } };" in (caught.value.hint or "")


STEPS = """
template <class T> struct Rows { T* data; int pitch; };
template <class T> __global__ void fill(Rows<T> rows, T value) { rows.data[threadIdx.x] = value; }
template <class T> void run(Rows<T> rows) { fill<<<1, 32>>>(rows, 1); }
template <class T> void start(Rows<char> bytes) { run<T>(static_cast<Rows<T>>(bytes)); }
template void start<float>(Rows<char>);
template void start<short>(Rows<char>);
"""


def test_a_parameter_within_a_type_is_what_stands_there_in_the_argument() -> None:
    assert instances(STEPS) == ["fill<float>", "fill<short>"]


def test_the_element_of_a_container_whose_address_is_passed_is_its_first_argument() -> None:
    text = """
    namespace my { template <class F, class T> __global__ void apply(T* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); } }
    template <class F, class T> void all(thrust::device_vector<T>& x, F f) {
      my::apply<<<1, 32>>>(thrust::raw_pointer_cast(x.data()), f);
    }
    template void all<thrust::negate<double>, double>(thrust::device_vector<double>& x, thrust::negate<double> f);
    """
    assert instances(text) == ["my::apply<thrust::negate<double>, double>"]


def test_deduced_arguments_follow_defaults() -> None:
    text = """
    template <int N = 4, class T> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
    void f(std::vector<int>& unused) { double* x = nullptr; scale<<<1, 32>>>(x); }
    """
    assert instances(text) == ["scale<4, double>"]


MEMBERS = """\
template <typename T> struct Worker {
  void early() { fill<<<1, 32>>>(data, count); }
  T *data; int count;
  void run();
};
template <typename T> void Worker<T>::run() { use<<<1, 32>>>(*this, this->data); }
template struct Worker<double>;
struct Grid { short *cells; float *values() { long cells; return 0; } };
void wipe(Grid &grid, Grid *other) { clear<<<1, 64>>>(grid.cells, other->cells); }
"""


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("template <typename T> __global__ void fill(T *x, int n) {}", ["fill<double>"]),
        (
            "template <typename W, typename T> __global__ void use(W w, T *x) { x[0] = w.data[0]; }",
            ["use<Worker<double>, double>"],
        ),
        ("template <typename A, typename B> __global__ void clear(A *a, B *b) {}", ["clear<short, short>"]),
    ],
)
def test_members_of_classes_give_the_types(kernel: str, found: list[str]) -> None:
    assert instances(f"{kernel}\n{MEMBERS}") == found


def test_a_launch_in_a_macro_takes_the_types_of_variables_at_its_calls() -> None:
    text = """\
    struct Codec { int bits; };
    template <typename K, typename T> __global__ void decode(K codec, T *out) {}
    #define RUN(to) do { decode<<<1, 32>>>(codec, to); } while (0)
    void go(float *x, short *y, int kind) {
      if (kind) { Codec codec{3}; RUN(x); } else { long codec = 4; RUN(y); }
    }
    """
    assert instances(text) == ["decode<Codec, float>", "decode<long, short>"]


def test_a_macro_that_is_passed_to_another_one_is_called_by_it() -> None:
    text = """\
    template <int ranks, typename T> __global__ void gather(T *out) {}
    #define CASE(ranks) gather<ranks><<<1, 32>>>(out); break
    #define SWITCH(case_macro) switch (count) { case 2: case_macro(2); case 4: case_macro(4); default: break; }
    void go(float *out, int count) { SWITCH(CASE); }
    """
    assert instances(text) == ["gather<2, float>", "gather<4, float>"]


BY_TYPE = "template <class F> void by_type(int t, F f) { if (t) f(float{}); else f(double()); }\n"
BY_NUMBER = """template <class F> void by_number(int n, F f) {
  if (n == 1) std::forward<F>(f)(std::integral_constant<int, 1>{}); else f(std::integral_constant<int, 2>());
}
"""
OPERATION = "template <typename T, class Op> __global__ void k(T *x) { x[0] = Op::of(x[0]); }\n"


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("void f() { enum { N = 4 }; k<float, N><<<1, 1>>>(a, b); }", ["k<float, 4>"]),
        ("void f() { enum Size : int { A, B = 3, N }; k<float, N><<<1, 1>>>(a, b); }", ["k<float, 4>"]),
        ("void f() { enum { A, N }; k<float, N><<<1, 1>>>(a, b); }", ["k<float, 1>"]),
        ("template <class U> class S { enum { N = 8 }; void f(U *a) { k<U, N><<<1, 1>>>(a, a); } };\ntemplate class S<int>;", ["k<int, 8>"]),
        ("void f() { static const int M = 16, N = 4; k<float, N><<<1, 1>>>(a, b); k<float, M><<<1, 1>>>(a, b); }", ["k<float, 4>", "k<float, 16>"]),
    ],
)  # fmt: skip
def test_enumerators_and_further_declarators_are_constants(host: str, found: list[str]) -> None:
    assert instances(KERNEL + host) == found


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (BY_TYPE + "void g(int t, void *a) { by_type(t, [&](auto v) { using T = decltype(v); k<T, 2><<<1, 1>>>((T*)a, (T*)a); }); }", ["k<float, 2>", "k<double, 2>"]),
        (BY_NUMBER + "void g(int n, float *a) { by_number(n, [&](auto c) { k<float, decltype(c)::value><<<1, 1>>>(a, a); }); }", ["k<float, 1>", "k<float, 2>"]),
        (BY_NUMBER + "void g(int n, float *a) { by_number(n, [&](auto c) { constexpr int m = c; k<float, m><<<1, 1>>>(a, a); }); }", ["k<float, 1>", "k<float, 2>"]),
        (
            "void g(int t, void *a) { auto go = [&](auto *p) { k<std::remove_pointer_t<decltype(p)>, 2><<<1, 1>>>(p, p); };\n"
            "if (t) go((float*)a); else go((int*)a); }",
            ["k<float, 2>", "k<int, 2>"],
        ),
        (
            "template <class F> void with(int n, F f) { if (n == 1) f.template operator()<1>(); else f.template operator()<2>(); }\n"
            "void g(int n, float *a) { with(n, [&]<int N>() { k<float, N><<<1, 1>>>(a, a); }); }",
            ["k<float, 1>", "k<float, 2>"],
        ),
    ],
)  # fmt: skip
def test_a_generic_lambda_has_the_types_of_its_calls(host: str, found: list[str]) -> None:
    assert instances(KERNEL + host) == found


@pytest.mark.parametrize(
    "dispatch",
    [
        "template <template <typename> class F> void dispatch(int t, void *a) { if (t) F<float>()(a); else F<double>()(a); }\n"
        "template <class U> struct Launch { void operator()(void *a) { k<U, Negate<U>><<<1, 1>>>((U*)a); } };\n"
        "void g(int t, void *a) { dispatch<Launch>(t, a); }",
        "template <template <class> class F> struct Dispatch { void run(int t, void *a) { t ? F<float>::go(a) : F<double>::go(a); } };\n"
        "template <class U> struct Launch { static void go(void *a) { k<U, Negate<U>><<<1, 1>>>((U*)a); } };\n"
        "void g(int t, void *a) { Dispatch<Launch>().run(t, a); }",
    ],
)  # fmt: skip
def test_a_template_that_is_a_template_argument_has_the_arguments_of_its_uses(dispatch: str) -> None:
    assert instances(OPERATION + dispatch) == ["k<float, Negate<float>>", "k<double, Negate<double>>"]


def test_a_recursive_template_gives_its_first_values_as_numbers() -> None:
    host = (
        "template <int N> void run(int n, float *a) { if (n == N) k<float, N><<<1, 1>>>(a, a); else run<N / 2>(n, a); }\n"
        "template <> void run<0>(int, float*) {}\nvoid g(int n, float *a) { run<64>(n, a); }"
    )
    assert instances(KERNEL + host)[:3] == ["k<float, 64>", "k<float, 32>", "k<float, 16>"]


def test_the_result_of_a_function_has_its_declared_type() -> None:
    kernel = "template <typename T> __global__ void k(T *x, int n) { x[0] = n; }\n"
    assert instances(kernel + "float *buffer(int n);\nvoid g() { k<<<1, 1>>>(buffer(3), 3); }") == ["k<float>"]
    assert instances(kernel + "auto buffer(int n);\nvoid g() { k<<<1, 1>>>(buffer(3), 3); }") == []


def test_the_place_of_a_use_in_another_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "field.cuh").write_text(
        "typedef prime_t field_t;\nvoid g(field_t *a) { k<field_t, 2><<<1, 1>>>(a, a); }\n"
    )
    file = tmp_path / "k.cu"
    file.write_text(KERNEL)
    (kernel,) = find_kernels(Unit(str(file), KERNEL))
    assert [one.origin for one in inferred_instances(kernel)] == ["its use at line 2 of field.cuh"]


def test_a_using_directive_of_the_function_qualifies_names() -> None:
    text = (
        "namespace modes { struct Mode { enum Id { plain, heavy }; }; constexpr int wide = 8; }\n"
        "template <modes::Mode::Id M, int N> __global__ void k(float *x) { x[N] = M; }\n"
        "void f(float *a) { using namespace modes; k<Mode::heavy, wide><<<1, 1>>>(a); }"
    )
    assert instances(text) == ["k<modes::Mode::heavy, modes::wide>"]
