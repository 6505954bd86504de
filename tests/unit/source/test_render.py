from __future__ import annotations

import tomllib
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Tolerance
from kernelmate.source import find_kernels, parse_contract, render_contract, text_unit
from kernelmate.source.python import read_python
from kernelmate.source.toml_positions import toml_spans

KERNEL = "template <typename T, int B> __global__ void k(const T *x, float *y, int n, float alpha) {}\n"

EXPRESSIONS = st.sampled_from(["n", "m", "n * m", "cdiv(n, 2)", "max(n, 1)", "n + 1", "7", "min(n, m)"])
OPTIONS = ("-DX=1", '-DTEXT="a \\\\ b\'c"', "--use_fast_math", "-Iinc", "--ptxas-options=-O2", "-DÄ=ß")
TEXTS = st.text(alphabet="ab \"\\'#é\t大=[]{}", min_size=1, max_size=12).map(lambda t: f"-D{t}".strip())


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    args = (
        Argument(
            "x",
            "in",
            draw(st.sampled_from(["float32", "int32"])),
            tuple(draw(st.lists(EXPRESSIONS, min_size=1, max_size=3))),
            draw(st.sampled_from([None, "normal", "uniform(-1, n)", "integers(0, n)", "file('a b.npz')"])),
            align=draw(st.sampled_from([None, 4, 16, 256])),
        ),
        Argument("y", draw(st.sampled_from(["out", "inout"])), "float32", ("n", "m")),
        Argument("n", None, "int32", value=draw(st.sampled_from([None, "n * 2"]))),
        Argument(
            "alpha",
            None,
            "float32",
            value=draw(st.sampled_from(["0.5", "-inf", "1 / n", "1e-05"])),
            fixed=draw(st.booleans()),
        ),
    )
    small = st.integers(1, 40)
    sizes = tuple(draw(st.lists(st.fixed_dictionaries({"n": small, "m": small}), min_size=1, max_size=9)))
    weighted = st.lists(st.floats(0, 1e6), min_size=len(sizes), max_size=len(sizes)).filter(any)
    return Contract(
        kernel="k",
        sizes=sizes,
        grid=tuple(draw(st.lists(EXPRESSIONS | st.just("cdiv(n, block)"), min_size=1, max_size=3))),
        block=tuple(draw(st.lists(st.sampled_from(["1", "4", "8"]), min_size=1, max_size=3))),
        args=args,
        shared=draw(st.sampled_from(["0", "1024", "block * 4"])),
        reference=draw(st.sampled_from([None, "np.exp(x) * 'a\"b'.count('a')"])),
        tolerance=draw(st.none() | st.builds(Tolerance, st.floats(0, 1), st.floats(0, 1))),
        instances=("k<float, 4>",) if args[0].dtype == "float32" else ("k<int, 4>", "k<int, 8>"),
        options=tuple(draw(st.lists(st.sampled_from(OPTIONS), max_size=3))),
        require=tuple(draw(st.lists(st.sampled_from(["n >= 1", "n % 1 == 0 and m < 99"]), max_size=2))),
        inputs=draw(st.sampled_from([None, "a b/ref.py:make"])),
        accumulate=draw(st.sampled_from([None, "float64", "bfloat16"])),
        deterministic=draw(st.booleans()),
        cooperative=draw(st.booleans()),
        cluster=draw(st.sampled_from([None, (1,), (1, 1, 1)])),
        weights=tuple(draw(st.just([]) | weighted)),
        slowdown=draw(st.sampled_from([0.1, 0.0, 0.25, 3.0])),
    )


def expected(contract: Contract) -> Contract:
    return replace(contract, reference_kind="expression" if contract.reference else None, line=1)


@given(contracts())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_rendered_contract_parses_to_itself(contract: Contract) -> None:
    (kernel,) = find_kernels(text_unit(render_contract(contract) + KERNEL))
    assert parse_contract(kernel) == expected(contract)
    (named,) = find_kernels(text_unit(KERNEL + render_contract(contract, named=True, indent="\t")))
    assert parse_contract(named) == replace(expected(contract), line=2)


@given(contracts())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_contract_rendered_for_python_parses_to_itself(contract: Contract) -> None:
    text = "import cupy\nif 1:\n" + render_contract(contract, "python", indent="    ")
    (unit,) = read_python("k.py", f"{text}    k = cupy.RawModule(code={KERNEL!r})\n")
    (kernel,) = find_kernels(unit)
    assert parse_contract(kernel) == replace(expected(contract), line=3)


def test_defaults_are_left_out_and_long_sizes_get_lines_of_their_own() -> None:
    contract = Contract("k", ({"n": 1},), ("1",), ("32",), ())
    assert (
        render_contract(contract) == "// /// kernelmate\n// sizes = [{ n = 1 }]\n// grid = 1\n// block = 32\n// ///\n"
    )
    long = render_contract(replace(contract, sizes=tuple({"length": n} for n in range(1, 20))))
    assert "// sizes = [\n//   { length = 1 },\n" in long
    assert max(map(len, long.split("\n"))) < 120


# ------------------------------------------------------------------------------------------------------ fuzzing

GOOD = render_contract(
    Contract(
        "k",
        ({"n": 8, "m": 3}, {"n": 1, "m": 1}),
        ("cdiv(n, block)", "m"),
        ("32", "8"),
        (
            Argument("x", "in", "float32", ("n", "m"), "uniform(-1, 1)"),
            Argument("y", "out", "float32", ("n",)),
            Argument("n", None, "int32"),
            Argument("alpha", None, "float32", value="0.5"),
        ),
        shared="block * 4",
        reference="np.exp(x)",
        tolerance=Tolerance(1e-5, 0.0),
        instances=("k<float, 4>",),
        options=("-DX",),
        require=("n > 0",),
    )
)
MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, len(GOOD)),
        st.integers(0, 12),
        st.text(alphabet="[]{}\"'=,.~#\n/ 0123456789nxk-+*()inouté\0\\_<>:", max_size=6)
        | st.sampled_from(
            ["sizes", "[args]", "// ///", "true", "1e999", "inf", "[[", '"""', "-", "in ", "99999999999"]
        ),
    ),
    min_size=1,
    max_size=4,
)


def error_of(text: str) -> ContractError | None:
    """Returns the ContractError that parsing the one kernel's contract raises; any other exception fails the test."""
    for kernel in find_kernels(text_unit(text, "k.cu")):
        try:
            parse_contract(kernel)
        except ContractError as error:
            return error
    return None


def check_error(text: str) -> None:
    error = error_of(text)
    if error is None:
        return
    lines = text.replace("\r\n", "\n").split("\n")
    assert error.file == "k.cu"
    assert error.hint
    assert error.line is not None
    assert 1 <= error.line <= len(lines)
    assert error.column is not None
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1


@given(MUTATIONS)
@settings(max_examples=400)
def test_a_damaged_contract_gives_a_contract_or_a_contract_error_with_place_and_fix(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = GOOD
    for start, length, new in mutations:
        text = text[:start] + new + text[start + length :]
    check_error(text + KERNEL)


VALUES = st.recursive(
    st.integers(-3, 2**70)
    | st.floats()
    | st.booleans()
    | st.sampled_from(
        ['"n"', '""', '"cdiv(n, 0)"', '"in float32[n]"', "'x'", '"""\na"""', "1979-05-27", "0x1F", '"int32 = n"']
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: "[" + ", ".join(map(str, v)) + "]")
        | st.lists(inner, max_size=2).map(lambda v: "{" + ", ".join(f"k{i} = {x}" for i, x in enumerate(v)) + "}")
    ),
    max_leaves=5,
).map(lambda v: str(v).lower() if isinstance(v, bool | float) else str(v))


@given(
    st.sampled_from(
        [
            "kernel",
            "sizes",
            "grid",
            "block",
            "shared",
            "reference",
            "tolerance",
            "instances",
            "options",
            "require",
            "inputs",
            "accumulate",
            "deterministic",
            "cooperative",
            "cluster",
            "args",
            "x",
            "y",
            "n",
            "alpha",
        ]
    ),
    VALUES,
)
@settings(max_examples=400)
def test_any_value_of_any_key_gives_a_contract_or_a_contract_error(key: str, value: str) -> None:
    lines = [line for line in GOOD.split("\n") if not line.startswith(f"// {key} =")]
    position = 1 if key not in ("x", "y", "n", "alpha") else lines.index("// [args]") + 1
    lines[position:position] = [f"// {line}" for line in f"{key} = {value}".split("\n")]
    check_error("\n".join(lines) + KERNEL)


@given(MUTATIONS)
def test_positions_are_those_of_the_values(mutations: list[tuple[int, int, str]]) -> None:
    text = "\n".join(line[3:] for line in GOOD.split("\n")[1:-2])
    for start, length, new in mutations:
        text = text[:start] + new + text[start + length :]
    spans = toml_spans(text)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        return
    assume("\r" not in text)
    for path, span in spans.items():
        value = data
        for part in path:
            value = value[part]  # type: ignore[index,assignment]
        if span.end > span.value:
            written = text[span.value : span.end]
            assert tomllib.loads(f"v = {written}")["v"] == value or value != value
