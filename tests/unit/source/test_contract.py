from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Kernel, Tolerance
from kernelmate.source import find_kernels, merge_contract, parse_contract, text_unit

Parse = Callable[..., Contract]
Mistake = Callable[..., ContractError]

ONE = "__global__ void k(const float* x, float* y, int n) {}\n"
ONE_TOML = """\
sizes = [{ n = 8 }]
grid = "cdiv(n, block)"
block = 4
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""


def test_every_key_of_the_block_is_read(contract_of: Parse) -> None:
    contract = contract_of(
        """\
kernel = "reduce"   # which one
sizes = [
  { n = 64, m = 2 },
  { m = 3, n = 7 },
]
grid = ["cdiv(n, block_x)", "m", 1]
block = [32, 8]
shared = "block * 4"
reference = "np.sum(x.reshape(m, n), axis=1)"
tolerance = { rtol = 1e-5 }
instances = ["reduce<float, 256>"]
options = ["-DTILE=32", "--use_fast_math"]
require = ["n % 1 == 0", "m < n"]
inputs = "reference.py:make"
accumulate = "float32"
deterministic = true
cooperative = true
cluster = 1
weights = [3, 0.5]
slowdown = 0.25
[args]
x = "in float32[m, n] align 16 ~ uniform(-1, 1)"
y = "inout bfloat16[m] align 2"
n = "uint32"
m = "int64 = m + 1 fixed"
s = "float64 = -inf fixed"
flag = "bool = 1"
""",
        "template <typename T, int B> __global__ void reduce("
        "const T* x, __nv_bfloat16* y, unsigned n, long long m, double s, bool flag) {}",
    )
    assert contract == Contract(
        kernel="reduce",
        sizes=({"n": 64, "m": 2}, {"n": 7, "m": 3}),
        grid=("cdiv(n, block_x)", "m", "1"),
        block=("32", "8"),
        args=(
            Argument("x", "in", "float32", ("m", "n"), distribution="uniform(-1, 1)", align=16),
            Argument("y", "inout", "bfloat16", ("m",), align=2),
            Argument("n", None, "uint32"),
            Argument("m", None, "int64", value="m + 1", fixed=True),
            Argument("s", None, "float64", value="-inf", fixed=True),
            Argument("flag", None, "bool", value="1"),
        ),
        shared="block * 4",
        reference="np.sum(x.reshape(m, n), axis=1)",
        reference_kind="expression",
        tolerance=Tolerance(rtol=1e-5, atol=0.0),
        instances=("reduce<float, 256>",),
        options=("-DTILE=32", "--use_fast_math"),
        require=("n % 1 == 0", "m < n"),
        inputs="reference.py:make",
        accumulate="float32",
        deterministic=True,
        cooperative=True,
        cluster=(1,),
        weights=(3.0, 0.5),
        slowdown=0.25,
        line=1,
    )


def test_a_kernel_without_a_block_has_no_contract(only: Callable[[str], Kernel]) -> None:
    assert parse_contract(only(ONE)) is None


def test_the_line_is_that_of_the_block_in_the_file(only: Callable[[str], Kernel], softmax_toml: str) -> None:
    block = "".join(f"//{line}\n" for line in (" /// kernelmate", *ONE_TOML.splitlines(), " ///"))
    contract = parse_contract(only("int x;\n\n" + block + ONE))
    assert contract is not None
    assert contract.line == 3


@pytest.mark.parametrize(
    ("old", "new", "line", "at", "says", "fix"),
    [
        # [args] against the signature
        ("alpha =", "alhpa =", 12, 'alhpa = "float', "no parameter 'alhpa'", "alpha"),
        ('alpha = "float32 = 0.5"\n', "", 7, "[args]", "lacks alpha (float)", 'alpha = "float32 = 1"'),
        (
            'rows = "int32"\ncols = "int32"',
            'cols = "int32"\nrows = "int32"',
            10,
            'cols = "int32"',
            "cols stands where",
            "x, y, rows, cols",
        ),
        ('"in float32[rows, cols]"', '"in float32"', 8, '"in float32"', "no shape", 'x = "in float32[rows, cols]"'),
        ('"in float32[rows, cols]"', '"in float32[]"', 8, ']"', "no shape", "[1]"),
        ('"in float32[rows, cols]"', '"in float32[rows, cols"', 8, '[rows, cols"', "not closed", "float32[rows, cols]"),
        ('"in float32[rows, cols]"', '"float32[rows, cols]"', 8, '"float32[rows,', "no direction", 'x = "in float32'),
        (
            '"in float32[rows, cols]"',
            '"inn float32[rows, cols]"',
            8,
            "inn float32[ro",
            "not a direction",
            "Did you mean in?",
        ),
        ('"in float32[rows, cols]"', '"in[rows, cols]"', 8, '[rows, cols]"', "dtype must follow", 'x = "in float32'),
        (
            '"in float32[rows, cols]"',
            '"in float23[rows, cols]"',
            8,
            "float23[rows,",
            "'float23' is not a dtype",
            "float32",
        ),
        ('"in float32[rows, cols]"', '"in half[rows, cols]"', 8, "half[rows, col", "'half' is not a dtype", "float16"),
        (
            '"in float32[rows, cols]"',
            '"in float64[rows, cols]"',
            8,
            "float64[rows,",
            "disagrees with const float *",
            "Write float32",
        ),
        (
            '"in float32[rows, cols]"',
            '"out float32[rows, cols]"',
            8,
            '"out float32[r',
            "cannot write it",
            "Write in instead of out",
        ),
        ('"in float32[rows, cols]"', '"in float32[rows, colz]"', 8, 'colz]"', "'colz' is not defined", "cols"),
        ('"in float32[rows, cols]"', '"in float32[rows, ]"', 8, ']"', "empty", "number or an expression"),
        (
            '"in float32[rows, cols]"',
            '"in float32[rows - 40, cols]"',
            8,
            "rows - 40, col",
            "dimension 0 of x is -3",
            "Change the shape",
        ),
        (
            '"in float32[rows, cols]"',
            '"in float32[rows / 2, cols]"',
            8,
            "rows / 2, cols",
            "18.5, which is not a whole",
            "`//`",
        ),
        (
            '"in float32[rows, cols]"',
            '"in float32[rows] ~ normall"',
            8,
            'normall"',
            "'normall' is not a distribution",
            "normal",
        ),
        (
            '"in float32[rows, cols]"',
            '"in float32[rows] ~ uniform(1)"',
            8,
            'uniform(1)"',
            "does not take 1 arguments",
            "uniform(low, high)",
        ),
        ('"in float32[rows, cols]"', '"in float32[rows] ~ integers(0, m)"', 8, 'm)"', "'m' is not defined", "rows"),
        (
            '"in float32[rows, cols]"',
            '"in float32[rows] ~ file(x.npz)"',
            8,
            'file(x.npz)"',
            "quoted path",
            "file('inputs.npz')",
        ),
        ('"in float32[rows, cols]"', '"in float32[rows] = 1"', 8, '= 1"', "takes no value", "ones"),
        ('"in float32[rows, cols]"', '"in float32[rows] normal"', 8, 'normal"', "does not belong", "after ~"),
        ('"in float32[rows, cols]"', "3", 8, "3", "must be a string", 'x = "in float32[n]"'),
        ('"out float32[rows, cols]"', '"out float32[rows] ~ normal"', 9, '~ normal"', "only written", "inout"),
        ('cols = "int32"', 'cols = "in int32[rows]"', 11, '[rows]"', "is a scalar (int)", 'cols = "int32"'),
        ('cols = "int32"', 'cols = "int32[rows]"', 11, '[rows]"', "is a scalar (int)", 'cols = "int32"'),
        ('cols = "int32"', 'cols = "int64"', 11, 'int64"', "disagrees with int cols", "Write int32"),
        ('cols = "int32"', 'cols = "int32 = 1.5"', 11, '1.5"', "1.5, which is not a whole", "Write a whole number"),
        ('cols = "int32"', 'cols = "int32 = 2**31"', 11, '2**31"', "does not fit int32", "Change the value"),
        ('cols = "int32"', 'cols = "int32 ~ normal"', 11, '~ normal"', "does not belong", "no distribution"),
        ('"float32 = 0.5"', '"float32"', 12, '"float32"', "not a size and has no value", 'alpha = "float32 = 1"'),
        ('"float32 = 0.5"', "0.5", 12, "0.5", "must be a string", 'alpha = "float32 = 0.5"'),
        ('"float32 = 0.5"', '"float32 = "', 12, '"', "empty", "number or an expression"),
        (
            '"float32 = 0.5"',
            '"float32 = 1 // (rows - 1)"',
            12,
            "1 // (rows - 1",
            "divides by zero at rows = 1",
            "divisor",
        ),
        # the launch
        ('grid = "rows"\n', "", 0, "/// kernelmate", "no grid", 'grid = "cdiv(rows, block)"'),
        ("block = 256\n", "", 0, "/// kernelmate", "no block", "block = 256"),
        (
            'grid = "rows"',
            'grid = "rows // (cols - 853)"',
            2,
            "rows // (cols",
            "divides by zero at rows = 37, cols = 853",
            "divisor",
        ),
        ('grid = "rows"', 'grid = "rows // 2"', 2, 'rows // 2"', "grid is 0: at least 1", "leave this size out"),
        ('grid = "rows"', 'grid = "1 - rows"', 2, '1 - rows"', "grid is -4095", "at least one is launched"),
        ('grid = "rows"', 'grid = "(rows + 255) / 256"', 2, "(rows + 255) /", "not a whole number", "cdiv(a, b)"),
        ('grid = "rows"', 'grid = ["rows", "bolck_y"]', 2, 'bolck_y"]', "'bolck_y' is not defined", "block_y"),
        (
            'grid = "rows"',
            'grid = ["1", "rows * 16"]',
            2,
            'rows * 16"]',
            "grid.y is 65536, which is over the limit of 65535",
            "axis",
        ),
        ('grid = "rows"', 'grid = "rows * cols * 1024"', 2, "rows * cols *", "over the limit of 2147483647", "axis"),
        ('grid = "rows"', "grid = []", 2, "[]", "0 sides", "one to three"),
        ('grid = "rows"', "grid = [1, 1, 1, 1]", 2, "[1, 1, 1, 1]", "4 sides", "one to three"),
        ('grid = "rows"', "grid = 1.5", 2, "1.5", "whole number or an expression", "Write 256"),
        ('grid = "rows"', "grid = true", 2, "true", "whole number or an expression", "Write 256"),
        ('grid = "rows"', 'grid = "len(rows)"', 2, 'len(rows)"', "'len' is not a function", "cdiv"),
        ('grid = "rows"', 'grid = "rows.real"', 2, 'rows.real"', "not arithmetic", "cdiv"),
        ('grid = "rows"', 'grid = "rows +"', 2, 'rows +"', "not an expression", "cdiv(n, block)"),
        ('grid = "rows"', 'grid = "2 ** 64"', 2, '2 ** 64"', "over 2^63 - 1", "smaller"),
        ("block = 256", "block = 2048", 3, "2048", "over the 1024", "1024 or less"),
        ("block = 256", "block = [64, 32]", 3, "[64, 32]", "2048 threads", "1024 or less"),
        ("block = 256", "block = [1, 1, 65]", 3, "65]", "block.z is 65", "64 or less"),
        ("block = 256", "block = 0", 3, "0", "block is 0", "at least one"),
        ("block = 256", 'block = "block"', 3, 'block"', "'block' is not defined", "cols, rows"),
        ('"block * 4"', '"block * -4"', 4, 'block * -4"', "-1024 bytes", "Change the expression"),
        # sizes
        ("rows = 1,", "", 1, "{  cols = 1 }]", "lacks rows", "same names"),
        ("rows = 37", "rows = -37", 1, "-37, cols = 85", "negative", "at least 0"),
        ("rows = 37", 'rows = "37"', 1, '"37", cols = 8', "whole number", "without quotes"),
        ("rows = 37", "rows = 37.0", 1, "37.0, cols = 8", "whole number", "without quotes or a point"),
        ("rows = 37", "rows = true", 1, "true, cols = 8", "whole number", "without quotes"),
        (
            "rows = 37, cols",
            "rows = 37, block = 1, cols",
            1,
            "block = 1, col",
            "already means something",
            "another name",
        ),
        ("rows = 37, cols", "rows = 37, a-b = 1, cols", 1, "a-b = 1, cols", "cannot be the name", "letters"),
        # other keys
        ("tolerance =", "tolerence =", 6, "tolerence = {", "not a key", "tolerance"),
        ("rtol = 1e-5", "rtol = -1e-5", 6, "-1e-5, atol =", "at least 0", "rtol = 1e-5"),
        ("rtol = 1e-5", "rtol = nan", 6, "nan, atol = 1e", "finite", "rtol = 1e-5"),
        ("rtol = 1e-5", 'rtol = "1e-5"', 6, '"1e-5", atol =', "must be a number", "rtol = 1e-5"),
        ("rtol = 1e-5", "rtoll = 1e-5", 6, "rtoll = 1e-5,", "not part of a tolerance", "rtol = 1e-5"),
        ("reference.py:softmax", "reference.py", 5, '"reference.py"', "not path:function", '"reference.py:function"'),
        (
            "reference.py:softmax",
            "reference.py:soft max",
            5,
            '"reference.py:',
            "not path:function",
            '"reference.py:function"',
        ),
        ("reference.py:softmax", "np.exp(z)", 5, 'z)"', "'z' is neither", "x"),
        ("reference.py:softmax", "softmax", 5, '"softmax"', "its own reference", "another kernel"),
        ("reference.py:softmax", "softmax naive", 5, '"softmax naive', "nor an expression", "reference.py:function"),
        ("block = 256\n", 'block = 256\ninputs = "make"\n', 4, '"make"', "not path:function", '"reference.py:make"'),
        ("block = 256\n", "block = 256\ntorch = 3\n", 4, "3", "3 is not path:function", '"reference.py:softmax_torch"'),
        (
            "block = 256\n",
            'block = 256\ntorch = "a\\u0000.py:f"\n',
            4,
            '"a\\u0000.py:f"',
            "not path:function",
            '"reference.py:softmax_torch"',
        ),
        ("block = 256\n", 'block = 256\naccumulate = "double"\n', 4, '"double"', "not a dtype", "float64"),
        ("block = 256\n", "block = 256\ndeterministic = 1\n", 4, "1", "true or false", "deterministic = true"),
        ("block = 256\n", 'block = 256\noptions = "-DX"\n', 4, '"-DX"', "must be a list", 'options = ["-DX"]'),
        ("block = 256\n", 'block = 256\noptions = ["-DX", "Y"]\n', 4, '"Y"]', "not a compiler option", "-DY"),
        ("block = 256\n", 'block = 256\nrequire = ["cols % 4 = 0"]\n', 4, '= 0"]', "not an expression", "cdiv"),
        (
            "block = 256\n",
            'block = 256\ninstances = ["softmax<float>"]\n',
            4,
            'instances = ["',
            "not a template",
            "Remove",
        ),
        ("block = 256\n", "block = 256\ncluster = [2, 16]\n", 4, "[2, 16]", "32 blocks is over", "at most 8"),
        ("block = 256\n", "block = 256\ncluster = 0\n", 4, "0", "at least 1", "cluster = [2]"),
        (
            "block = 256\n",
            "block = 256\ncluster = 2\n",
            4,
            "2",
            "not a multiple of the cluster's 2",
            "Round the grid up",
        ),
        ("block = 256\n", "block = 256\nweights = 8\n", 4, "8", "list of numbers", "weights = [1, 1, 1]"),
        ("block = 256\n", "block = 256\nweights = [8, 1]\n", 4, "[8, 1]", "2 weights for 3 sizes", "one weight"),
        ("block = 256\n", "block = 256\nweights = [8, -1, 0]\n", 4, "-1, 0]", "at least 0", "weights = [1, 1, 1]"),
        ("block = 256\n", "block = 256\nweights = [8, inf, 0]\n", 4, "inf, 0]", "finite", "weights = [1, 1, 1]"),
        ("block = 256\n", 'block = 256\nweights = ["8", 1, 0]\n', 4, '"8", 1', "A weight must be", "weights ="),
        ("block = 256\n", "block = 256\nweights = [0, 0, 0]\n", 4, "[0, 0, 0]", "No weight is positive", "over 0"),
        ("block = 256\n", "block = 256\nslowdown = -0.1\n", 4, "-0.1", "at least 0", "slowdown = 0.1"),
        ("block = 256\n", 'block = 256\nslowdown = "10%"\n', 4, '"10%"', "fraction", "slowdown = 0.1"),
        # what arguments promise
        ('cols]"\ny', 'cols] align"\ny', 8, '"', "number of bytes", "align 16"),
        ('cols]"\ny', 'cols] align = 16"\ny', 8, '= 16"', "number of bytes", "align 16"),
        ('cols]"\ny', 'cols] align 12"\ny', 8, '12"', "not a power of two", "align 16"),
        ('cols]"\ny', 'cols] align 512"\ny', 8, '512"', "of at most 256", "align 16"),
        ('cols]"\ny', 'cols] align 2"\ny', 8, '2"', "not a multiple of the 4 bytes of float32", "align 16"),
        ('cols]"\ny', 'cols] ~ normal align 16"\ny', 8, 'align 16"', "after the distribution", "before the ~"),
        ('cols]"\ny', 'cols] fixed"\ny', 8, 'fixed"', "Only a scalar", "Remove it"),
        ('"float32 = 0.5"', '"float32 fixed"', 12, 'fixed"', "has no value", 'alpha = "float32 = 1 fixed"'),
        ('"float32 = 0.5"', '"float32 = 0.5 align 16"', 12, 'align 16"', "no alignment", "Remove align"),
        ('"float32 = 0.5"', '"float32 align 16"', 12, 'align 16"', "does not belong", "Only an array"),
        ('rows = "int32"', 'rows = "int32 fixed"', 10, 'fixed"', "takes the value of the size", "Remove fixed"),
        # TOML
        ('grid = "rows"', "grid = rows", 2, "rows", "not TOML", 'grid = "rows"'),
        ('grid = "rows"', 'grid = "rows', 2, "", "a string is not closed", "quotes"),
        ("block = 256", "block = 256\nblock = 128", 4, "block = 128", "a key is written twice", "once"),
        ('alpha = "float32 = 0.5"', "alpha", 12, "", "not TOML", "quotes"),
    ],
)
def test_a_mistake_is_reported_at_its_place_with_the_fix(
    mistake_in: Mistake, softmax_toml: str, old: str, new: str, line: int, at: str, says: str, fix: str
) -> None:
    assert old in softmax_toml
    toml = softmax_toml.replace(old, new, 1)
    error = mistake_in(toml)
    assert says in error.message
    assert fix in (error.hint or "")
    assert error.line == line
    written = ["/// kernelmate", *toml.splitlines()][line]
    assert error.column is not None
    assert written[error.column - 1 :].startswith(at) if at else error.column == len(written) + 1


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("sizes = []\ngrid = 1\nblock = 1", "list of at least one"),
        ("sizes = { n = 1 }\ngrid = 1\nblock = 1", "list of at least one"),
        ("sizes = [1]\ngrid = 1\nblock = 1", "must be a table"),
        ("grid = 1\nblock = 1", "no sizes"),
        ("", "no sizes"),
        ("args = 3\nsizes = [{ n = 1 }]\ngrid = 1\nblock = 1", "args must be a table"),
        ("sizes = [{ n = 99999999999999999999 }]\ngrid = 1\nblock = 1", "over 2^63"),
    ],
)
def test_a_block_without_usable_sizes_is_refused(mistake_in: Mistake, toml: str, says: str) -> None:
    assert says in mistake_in(toml, ONE).message


def test_a_contract_key_below_args_is_told_to_move_up(mistake_in: Mistake) -> None:
    error = mistake_in(ONE_TOML + "tolerance = { rtol = 1e-3 }\n", ONE)
    assert "Move it above the line [args]" in (error.hint or "")
    assert (error.line, error.column) == (8, 1)


def test_a_size_of_zero_is_legal_where_the_launch_is(contract_of: Parse, mistake_in: Mistake) -> None:
    legal = ONE_TOML.replace("cdiv(n, block)", "max(1, cdiv(n, block))").replace("[{ n = 8 }]", "[{ n = 0 }]")
    assert contract_of(legal, ONE).sizes == ({"n": 0},)
    assert "grid is 0" in mistake_in(ONE_TOML.replace("[{ n = 8 }]", "[{ n = 0 }]"), ONE).message


def test_sizes_may_be_written_as_an_array_of_tables(contract_of: Parse, mistake_in: Mistake) -> None:
    toml = ONE_TOML.replace("sizes = [{ n = 8 }]\n", "") + "[[sizes]]\nn = 8\n[[sizes]]\nn = 9\n"
    assert contract_of(toml, ONE).sizes == ({"n": 8}, {"n": 9})
    error = mistake_in(toml.replace("n = 9", "n = -9"), ONE)
    assert (error.line, error.column) == (10, 5)


def test_a_size_that_require_excludes_is_not_evaluated(contract_of: Parse) -> None:
    toml = ONE_TOML.replace("[{ n = 8 }]", "[{ n = 8 }, { n = 0 }]").replace(
        "block = 4", 'block = 4\nrequire = ["n > 0"]'
    )
    assert len(contract_of(toml, ONE).sizes) == 2


# ------------------------------------------------------------------------------------- dtypes and C types


@pytest.mark.parametrize(
    ("c_type", "dtype", "fits"),
    [
        ("float", "float32", True),
        ("double", "float32", False),
        ("unsigned char", "float8_e4m3fn", True),
        ("unsigned short", "bfloat16", True),
        ("unsigned short", "float32", False),
        ("unsigned int", "int32", False),
        ("void", "float64", True),
        ("my_handle", "int64", True),
        ("float4", "float32", True),
        ("float4", "float64", False),
        ("float2", "complex64", True),
        ("float4", "complex64", False),
        ("__half2", "float16", True),
        ("__nv_fp8_e4m3", "float8_e4m3fn", True),
        ("__nv_fp8_e4m3", "float8_e5m2", False),
        ("bool", "bool", True),
        ("thrust::complex<float>", "complex64", True),
        ("char", "float32", True),
    ],
)
def test_a_dtype_must_be_what_the_c_type_holds(
    contract_of: Parse, mistake_in: Mistake, c_type: str, dtype: str, fits: bool
) -> None:
    kernel = ONE.replace("const float*", f"const {c_type}*")
    toml = ONE_TOML.replace("in float32", f"in {dtype}")
    if fits:
        assert contract_of(toml, kernel).args[0].dtype == dtype
    else:
        assert "disagrees" in mistake_in(toml, kernel).message


def test_aliases_of_the_file_are_followed(mistake_in: Mistake, contract_of: Parse) -> None:
    kernel = "using real = double;\n" + ONE.replace("float", "real")
    assert "disagrees" in mistake_in(ONE_TOML, kernel).message
    assert contract_of(ONE_TOML.replace("float32", "float64"), kernel).args[0].dtype == "float64"


def test_pointers_to_pointers_and_vectors_by_value_are_no_plain_numbers(mistake_in: Mistake) -> None:
    assert "pointer to pointers" in mistake_in(ONE_TOML, ONE.replace("const float*", "float**")).message
    error = mistake_in(ONE_TOML, ONE.replace("int n", "int2 n"))
    assert "not a plain number" in error.message
    assert error.hint == 'Write n = { x = "int32 = 1", y = "int32 = 1" }.'


# ----------------------------------------------------------------------------------------------- templates

TEMPLATE = "template <typename T, int B> __global__ void k(const T* x, float* y, T n) {}\n"


def test_a_template_without_instances_is_told_what_to_add(mistake_in: Mistake) -> None:
    error = mistake_in(ONE_TOML, TEMPLATE)
    assert "is a template" in (error.hint or "")
    assert 'instances = ["k<float, 1>"]' in (error.hint or "")


def test_the_instances_that_the_file_launches_are_proposed(mistake_in: Mistake) -> None:
    error = mistake_in(ONE_TOML, TEMPLATE + "void f() { k<int, 64><<<1, 64>>>(x, y, 1); k<T, 2><<<1, 64>>>(x, y, 1); }")
    assert 'instances = ["k<int, 64>"]' in (error.hint or "")


@pytest.mark.parametrize(
    ("instances", "says"),
    [
        ("[]", "instances is empty"),
        ('["k"]', "not an instance of k"),
        ('["j<float, 1>"]', "j is not k"),
        ('["k<int, 1>", "k<int, 1>"]', "twice"),
        ('["k<int, 1, 2>"]', "3 template arguments"),
        ('["k<double, 1>"]', "makes x hold float64"),
    ],
)
def test_instances_are_held_against_the_template(mistake_in: Mistake, instances: str, says: str) -> None:
    toml = ONE_TOML.replace("block = 4", f"block = 4\ninstances = {instances}").replace("float32[n]", "int32[n]", 1)
    error = mistake_in(toml, TEMPLATE)
    assert says in error.message
    assert error.line == 4


# ---------------------------------------------------------------------------------------- which block is whose

BLOCK = "// /// kernelmate\n" + "".join(f"// {line}\n" for line in ONE_TOML.splitlines()) + "// ///\n"


def kernels(text: str) -> tuple[Kernel, ...]:
    return find_kernels(text_unit(text, "k.cu"))


def test_a_block_belongs_to_the_next_kernel_below() -> None:
    first, second = kernels("__global__ void a() {}\n" + BLOCK + "// prose\n__device__ int f();\n" + ONE)
    assert first.contract_span is None
    assert parse_contract(first) is None
    assert second.unit.text[slice(*second.contract_span or (0, 0))] == BLOCK
    assert parse_contract(second) is not None


def test_a_block_may_name_its_kernel() -> None:
    named = BLOCK.replace("// sizes", '// kernel = "k"\n// sizes')
    for text in (ONE + named, named + "__global__ void a() {}\n" + ONE, "namespace ns {\n" + ONE + "}\n" + named):
        kernel = next(kernel for kernel in kernels(text) if kernel.name.endswith("k"))
        contract = parse_contract(kernel)
        assert contract is not None
        assert contract.kernel == kernel.name


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        (ONE + BLOCK, 2, 1, "no kernel below it"),
        (BLOCK.replace("// sizes", '// kernel = "kk"\n// sizes') + ONE, 2, 13, "no kernel 'kk'"),
        (BLOCK.replace("// ///\n", "") + ONE, 1, 1, "never closed"),
        (BLOCK + BLOCK + ONE, 10, 1, "already has a contract at line 1"),
        ("  " + BLOCK.replace("\n", "\n  ") + "\n" + ONE + BLOCK, 12, 1, "no kernel below it"),
    ],
)
def test_a_block_in_the_wrong_place_is_reported(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_contract(kernels(text)[0])
    assert says in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_block_in_a_string_or_a_block_comment_is_no_contract() -> None:
    for text in (f"/*\n{BLOCK}*/\n" + ONE, f'const char* s = R"(\n{BLOCK})";\n' + ONE):
        assert parse_contract(kernels(text)[0]) is None


# ---------------------------------------------------------------------------------------------- references


def test_references_are_told_apart(contract_of: Parse) -> None:
    for reference, kind in (
        ("ref.py:f", "function"),
        ("sub dir/ref.py:f_1", "function"),
        ("C:\\\\kernels\\\\ref.py:f", "function"),
        ("np.exp(x) + n", "expression"),
        ("x", "expression"),
        ("np.array([v for v in x])", "expression"),
    ):
        toml = ONE_TOML.replace("block = 4", f'block = 4\nreference = "{reference}"')
        assert contract_of(toml, ONE).reference_kind == kind
    text = BLOCK.replace("block = 4", 'block = 4\n// reference = "naive"') + ONE + "__global__ void naive() {}"
    contract = parse_contract(kernels(text)[0])
    assert contract is not None
    assert (contract.reference, contract.reference_kind) == ("naive", "kernel")


def test_an_argument_that_is_a_word_of_python_takes_an_underscore(contract_of: Parse, mistake_in: Mistake) -> None:
    kernel = ONE.replace("* x", "* in")
    toml = ONE_TOML.replace('x = "in', 'in = "in').replace("block = 4", 'block = 4\nreference = "np.exp(in_)"')
    assert contract_of(toml, kernel).reference == "np.exp(in_)"
    assert "write in_" in (mistake_in(toml.replace("in_", "in"), kernel).hint or "")


# ---------------------------------------------------------------------------------------------- candidates


def test_a_candidate_changes_only_its_launch_and_its_requirements(contract_of: Parse) -> None:
    baseline = contract_of(ONE_TOML, ONE)
    own = contract_of(
        ONE_TOML.replace("[{ n = 8 }]", "[{ n = 4 }]")
        .replace("block = 4", 'block = 2\nshared = 8\nrequire = ["n > 2"]\ntolerance = { rtol = 1.0 }')
        .replace("cdiv(n, block)", "n"),
        ONE,
    )
    merged = merge_contract(baseline, own)
    assert (merged.grid, merged.block, merged.shared, merged.require) == (("n",), ("2",), "8", ("n > 2",))
    assert (merged.sizes, merged.tolerance, merged.args) == (baseline.sizes, None, baseline.args)
    assert merge_contract(baseline, None) == baseline


def test_a_candidates_block_may_say_only_what_it_changes(only: Callable[[str], Kernel], contract_of: Parse) -> None:
    baseline = contract_of(ONE_TOML, ONE)
    merged = parse_contract(only("// /// kernelmate\n// block = 2\n// ///\n" + ONE), baseline)
    assert merged is not None
    assert merged.block == ("2",)
    assert (merged.grid, merged.sizes, merged.args) == (baseline.grid, baseline.sizes, baseline.args)
    with pytest.raises(ContractError, match="'m' is not defined"):
        parse_contract(only('// /// kernelmate\n// grid = "m"\n// ///\n' + ONE), baseline)


def test_a_candidate_that_uses_a_size_of_its_own_is_refused(contract_of: Parse) -> None:
    baseline = contract_of(ONE_TOML, ONE)
    own = contract_of(ONE_TOML.replace("n = 8", "n = 8, m = 1").replace("cdiv(n, block)", "n * m"), ONE)
    with pytest.raises(ContractError, match="'m' is not defined"):
        merge_contract(baseline, own)


def test_a_candidate_keeps_the_baselines_weights_and_promises(
    only: Callable[[str], Kernel], contract_of: Parse
) -> None:
    toml = ONE_TOML.replace("block = 4", "block = 4\nweights = [2]\nslowdown = 0.5")
    baseline = contract_of(toml, ONE)
    merged = parse_contract(
        only("// /// kernelmate\n// block = 2\n// weights = [7]\n// slowdown = 9\n// ///\n" + ONE), baseline
    )
    assert merged is not None
    assert (merged.block, merged.weights, merged.slowdown) == (("2",), (2.0,), 0.5)


def test_words_of_the_grammar_may_still_be_names(contract_of: Parse) -> None:
    toml = """\
sizes = [{ n = 4, fixed = 2, align = 3 }]
grid = 1
block = 1
[args]
x = "in float32[n] ~ file('a align 2.npz')"
a = "int32 = fixed"
b = "int32 = align"
"""
    args = contract_of(toml, "__global__ void k(const float* x, int a, int b) {}").args
    assert [(one.value, one.distribution, one.fixed, one.align) for one in args] == [
        (None, "file('a align 2.npz')", False, None),
        ("fixed", None, False, None),
        ("align", None, False, None),
    ]


BLANKS = """\
// /// kernelmate
// sizes = [{ n = 8 }]

// grid = "cdiv(n, block)"


// block = 4

// [args]
// x = "in float32[n]"

// y = "out float3[n]"
// n = "int32"
// ///
"""


def test_blank_lines_inside_a_block_are_allowed_and_counted() -> None:
    kernel = find_kernels(text_unit(BLANKS.replace("\n\n\n", "\n \t\n\n").replace("float3[", "float32[") + "\n" + ONE))[
        0
    ]
    contract = parse_contract(kernel)
    assert contract is not None
    assert contract.grid == ("cdiv(n, block)",)
    assert len(contract.args) == 3
    with pytest.raises(ContractError) as raised:
        parse_contract(find_kernels(text_unit(BLANKS + ONE))[0])
    assert (raised.value.line, raised.value.column) == (12, 13)


def test_a_block_that_is_not_closed_ends_at_a_blank_line() -> None:
    text = BLANKS.replace("// ///\n", "") + "\n// An ordinary comment.\n" + ONE
    with pytest.raises(ContractError, match="never closed"):
        parse_contract(find_kernels(text_unit(text))[0])
    following = BLANKS.replace("// ///\n", "int x;\n// ///\n") + ONE
    with pytest.raises(ContractError, match="never closed"):
        parse_contract(find_kernels(text_unit(following))[0])


def test_a_type_of_branches_takes_the_dtype_of_any(contract_of: Parse) -> None:
    branches = "#ifdef WIDE\n#define real double\n#else\n#define real float\n#endif\n"
    for dtype in ("float32", "float64"):
        contract = contract_of(ONE_TOML.replace("float32", dtype), branches + ONE.replace("float", "real"))
        assert contract.args[0].dtype == dtype
