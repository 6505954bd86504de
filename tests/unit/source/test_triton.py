"""Triton functions are found in Python files, with parameters, contracts and launches, and nothing of the file is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.errors import ContractError, SourceError
from kernelmate.records import Kernel
from kernelmate.source import contract_for, load_kernel, load_kernels, parse_contract
from kernelmate.source.triton import function_of, same_elsewhere, with_launch_values
from kernelmate.source.triton_contract import skeleton
from kernelmate.source.triton_modules import library_names, module_text

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\nraise SystemExit('this file is run')\n\n"
CONTRACT = """# /// kernelmate
# sizes = [{ n = 100 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=128", "num_warps=2"]
# reference = "x * 2"
# [args]
# x = "in float32[n]"
# y = "out float32[n]"
# n = "int32"
# ///
"""
KERNEL = """@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, double(tl.load(x + i, mask=i < n)), mask=i < n)
"""
HELPER = "\n\n@triton.jit\ndef double(v):\n    return v * FACTOR\n\n\nFACTOR = tl.constexpr(2)\n"
LAUNCH = "\n\ndef run(x, y):\n    twice[(1,)](x, y, x.numel(), BLOCK=128, num_warps=2)\n"


def kernel_of(tmp_path: Path, text: str, name: str = "") -> Kernel:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    return load_kernel(f"{path}::{name}" if name else str(path))


@pytest.fixture
def twice(tmp_path: Path) -> Kernel:
    return kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + HELPER + LAUNCH)


def test_a_jitted_function_is_a_kernel_and_one_that_it_calls_is_none(twice: Kernel) -> None:
    assert twice.unit.language == "triton"
    assert [one.name for one in load_kernels(twice.unit.path)] == ["twice"]
    assert twice.source == KERNEL.rstrip("\n")
    assert twice.unit.text.split("\n")[twice.line - 1].startswith("def twice")
    assert [(one.name, one.pointer) for one in twice.signature.parameters] == [("x", True), ("y", True), ("n", False)]


def test_its_contract_takes_constants_from_options(twice: Kernel) -> None:
    contract = contract_for(twice)
    assert (contract.grid, contract.block) == (("cdiv(n, 128)",), ("64",))
    assert contract.options == ("BLOCK=128", "num_warps=2", "num_stages=3")
    assert [one.align for one in contract.args] == [16, 16, None]


def test_constants_come_from_configurations_and_defaults_where_options_name_none(tmp_path: Path) -> None:
    tuned = "@triton.autotune([triton.Config({'BLOCK': 512}, num_warps=8), triton.Config({'BLOCK': 64})], key=['n'])\n"
    text = HEAD + CONTRACT.replace('# options = ["BLOCK=128", "num_warps=2"]\n', "") + tuned + KERNEL
    kernel = kernel_of(tmp_path, text)
    assert contract_for(kernel).options == ("BLOCK=512", "num_warps=8", "num_stages=3")
    assert [dict(one) for one in function_of(kernel).configurations] == [
        {"BLOCK": "512", "num_warps": "8"},
        {"BLOCK": "64"},
    ]
    default = text.replace(tuned, "").replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 32")
    assert contract_for(kernel_of(tmp_path, default)).grid == ("cdiv(n, 32)",)


def test_configurations_of_comprehensions_are_read(tmp_path: Path) -> None:
    tuned = (
        "WARPS = [8, 4]\nSTAGES = choose()\n\n@triton.autotune(configs=[\n"
        "    triton.Config({'BLOCK': size}, num_warps=warps, num_stages=stages)\n"
        "    for size in (64, 256) for warps in WARPS for stages in STAGES\n], key=['n'])\n"
    )
    text = HEAD + CONTRACT.replace('# options = ["BLOCK=128", "num_warps=2"]\n', "") + tuned + KERNEL
    kernel = kernel_of(tmp_path, text.replace(CONTRACT, "").replace(tuned, CONTRACT + tuned))
    assert [dict(one) for one in function_of(kernel).configurations] == [
        {"BLOCK": size, "num_warps": warps} for size in ("64", "256") for warps in ("8", "4")
    ]
    filtered = text.replace("for stages in STAGES", "for stages in STAGES if size > stages")
    assert function_of(kernel_of(tmp_path, filtered)).configurations == ()


@pytest.mark.parametrize(("options", "value"), [('["BLOCK=128", "bias=None"]', "False"), ('["BLOCK=128"]', "True")])
def test_a_constant_follows_from_a_parameter_that_heuristics_compare_with_none(
    tmp_path: Path, options: str, value: str
) -> None:
    heuristics = "@triton.heuristics({'HAS_BIAS': lambda args: args['bias'] is not None})\n"
    contract = CONTRACT.replace('["BLOCK=128", "num_warps=2"]', options)
    if value == "True":
        contract = contract.replace('# n = "int32"', '# bias = "in float32[n]"\n# n = "int32"')
    parameters = "(x, y, bias, n, HAS_BIAS: tl.constexpr, BLOCK"
    kernel = kernel_of(tmp_path, HEAD + contract + heuristics + KERNEL.replace("(x, y, n, BLOCK", parameters))
    assert f"HAS_BIAS={value}" in contract_for(kernel).options


def test_a_constant_that_heuristics_compute_from_others_follows_and_one_of_sizes_is_asked_for(tmp_path: Path) -> None:
    tables = "@triton.heuristics({'HALF': lambda args: args['BLOCK'] // 2, 'WIDE': lambda a: a['BLOCK'] > 64})\n"
    kernel = KERNEL.replace("n, BLOCK", "n, HALF: tl.constexpr, WIDE: tl.constexpr, BLOCK")
    options = contract_for(kernel_of(tmp_path, HEAD + CONTRACT + tables + kernel)).options
    assert {"HALF=64", "WIDE=True"} <= {*options}
    even = "@triton.heuristics({'EVEN': lambda args: args['n'] % args['BLOCK'] == 0})\n"
    kernel = KERNEL.replace("n, BLOCK", "n, EVEN: tl.constexpr, BLOCK")
    with pytest.raises(ContractError, match=r"EVEN of .* is n % BLOCK == 0 at each launch") as caught:
        contract_for(kernel_of(tmp_path, HEAD + CONTRACT + even + kernel))
    assert "EVEN=False" in (caught.value.hint or "")


def test_the_contract_to_complete_has_truth_values_for_flags(tmp_path: Path) -> None:
    flagged = (
        KERNEL.replace("n, BLOCK", "n, CAUSAL: tl.constexpr, BLOCK") + "    if not CAUSAL and n > 1:\n        return\n"
    )
    assert 'options = ["CAUSAL=False", "BLOCK=128"]' in skeleton(kernel_of(tmp_path, HEAD + flagged))


def test_a_parameter_that_is_none_is_no_argument(tmp_path: Path) -> None:
    text = (
        (HEAD + CONTRACT + KERNEL)
        .replace("(x, y, n, BLOCK", "(x, y, bias, n, BLOCK")
        .replace('["BLOCK', '["bias=None", "BLOCK')
    )
    contract = contract_for(kernel_of(tmp_path, text))
    assert [one.name for one in contract.args] == ["x", "y", "n"]
    assert "bias=None" in contract.options


def test_arguments_are_arrays_where_the_contract_says_so(tmp_path: Path) -> None:
    text = (HEAD + CONTRACT + KERNEL).replace("(x, y, n, BLOCK", "(x, y, unused, n, BLOCK")
    kernel = kernel_of(tmp_path, text.replace('# n = "int32"', '# unused = "in float32[n]"\n# n = "int32"'))
    assert contract_for(kernel).args[2].shape == ("n",)


def test_the_contract_to_complete_is_read(tmp_path: Path) -> None:
    bare = kernel_of(tmp_path, HEAD + KERNEL)
    written = skeleton(bare)
    assert '# x = "in float32[n]"' in written
    assert '# y = "out float32[n]"' in written
    complete = written.replace('# reference = "reference.py:reference"\n', "")
    contract = parse_contract(kernel_of(tmp_path, HEAD + complete + KERNEL))
    assert contract is not None
    assert contract.grid == ("cdiv(n, 128)",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("num_warps=2", "num_warps=3"), "num_warps is 3, which"),
        (("BLOCK=128", "BLOK=128"), "BLOK is not a constexpr parameter"),
        (("BLOCK=128", "BLOCK=open('x')"), "not a number, text"),
        (('"BLOCK=128", ', ""), "BLOCK of twice has no value"),
        (("# options", "# block = 64\n# options"), "block does not belong to a Triton kernel"),
        (("cdiv(n, BLOCK)", "cdiv(n, block)"), "block"),
    ],
)
def test_a_wrong_contract_is_refused_at_its_place(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    kernel = kernel_of(tmp_path, HEAD + CONTRACT.replace(*change) + KERNEL)
    with pytest.raises(ContractError, match="(?i)" + said.replace("(", r"\(")) as caught:
        parse_contract(kernel)
    assert caught.value.line is not None
    assert caught.value.hint


def test_a_kernel_without_a_contract_says_that_its_parameters_have_no_types(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no types until a contract gives them"):
        contract_for(kernel_of(tmp_path, HEAD + KERNEL))


def test_only_definitions_that_the_kernel_uses_are_compiled_each_on_its_own_line(twice: Kernel) -> None:
    text = module_text(twice)
    lines, source = text.split("\n"), twice.unit.text.split("\n")
    written = {number: line for number, line in enumerate(lines) if line}
    assert not any(word in text for word in ("SystemExit", "import", "torch", "def run", "tl.constexpr,"))
    assert "FACTOR = tl.constexpr(2)" in lines
    for number, line in written.items():
        if line.startswith(" "):
            assert line == source[number], "a function's lines stand where they stand in the file"
    assert library_names(twice) == {"triton": ("triton",), "tl": ("triton.language",)}


def test_a_name_that_is_imported_for_several_versions_has_several_meanings(tmp_path: Path) -> None:
    new, old = "triton.language.extra.libdevice", "triton.language.math"
    branches = f"try:\n    from {new} import tanh\nexcept ImportError:\n    from {old} import tanh\n"
    kernel = kernel_of(tmp_path, HEAD + branches + CONTRACT + KERNEL)
    assert library_names(kernel)["tanh"] == (f"{new}.tanh", f"{old}.tanh")


@pytest.mark.parametrize(
    "body",
    [
        "    x.__class__\n",
        "    getattr(x, 'numpy')\n",
        "    open('/etc/passwd')\n",
        "    twice.fn.__globals__\n",
        "    __import__('os')\n",
    ],
)
def test_names_that_lead_to_pythons_own_objects_are_refused(tmp_path: Path, body: str) -> None:
    kernel = kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + body)
    with pytest.raises(SourceError, match="may not be used") as caught:
        module_text(kernel)
    assert caught.value.line == kernel.line + 3


def test_local_variables_may_have_names_that_triton_looks_up_nowhere(tmp_path: Path) -> None:
    body = "    input = 1\n    type = input\n"
    assert "input = 1" in module_text(kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + body))
    with pytest.raises(SourceError, match="getattr may not be used"):
        module_text(kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + "    getattr = 1\n"))


def test_names_of_parameters_of_functions_in_defaults_are_no_parameters(tmp_path: Path) -> None:
    named = KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = (lambda getattr: 0)")
    with pytest.raises(SourceError, match="getattr may not be used"):
        module_text(kernel_of(tmp_path, HEAD + named + "    getattr(x, 'numpy')\n"))


def test_decorators_may_use_any_name_since_they_are_left_out(tmp_path: Path) -> None:
    decorated = KERNEL.replace("@triton.jit", "@triton.heuristics({'N': lambda args: type(args['x'])})\n@triton.jit")
    assert "type" not in module_text(kernel_of(tmp_path, HEAD + decorated))


def test_parameters_may_have_names_of_pythons_functions(tmp_path: Path) -> None:
    named = KERNEL.replace("(x, y,", "(input, y,").replace("x + i", "input + i")
    assert "tl.load(input + i" in module_text(kernel_of(tmp_path, HEAD + named))


def test_defaults_and_annotations_that_would_be_run_are_left_out(tmp_path: Path) -> None:
    text = HEAD + CONTRACT + KERNEL.replace("n, BLOCK: tl.constexpr", "n: print(1), BLOCK: tl.constexpr = print(2)")
    compiled = module_text(kernel_of(tmp_path, text.replace("@triton.jit", "@print\n@triton.jit")))
    assert "print" not in compiled


@pytest.mark.parametrize("helper", ["def double(v): return v * 2", "def double(\n    v\n): return v * 2"])
def test_a_function_whose_body_stands_in_its_head_is_defined_whole(tmp_path: Path, helper: str) -> None:
    compiled = module_text(kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + f"\n\n@triton.jit\n{helper}\n"))
    scope = {"_kernelmate_jit": lambda one: ("jitted", one), "_kernelmate_constexpr": int}
    exec(compile(compiled, "module", "exec"), scope)
    kind, double = scope["double"]
    assert (kind, double(3)) == ("jitted", 6)


def test_files_are_read_without_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    kernel_of(tmp_path, HEAD + CONTRACT + KERNEL + "\nPATTERN = '\\d'\n")
    assert not list(recwarn)


def test_literals_of_launches_follow(twice: Kernel) -> None:
    changed = with_launch_values(twice.unit.text, "twice", {"BLOCK": "256", "num_warps": "8"})
    assert "twice[(1,)](x, y, x.numel(), BLOCK=256, num_warps=8)" in changed


def test_a_version_that_changes_more_than_its_kernel_is_told(tmp_path: Path, twice: Kernel) -> None:
    text = twice.unit.text
    for new, same in (
        (text.replace("i < n", "i <= n"), True),
        (text.replace("BLOCK=128", "BLOCK=256"), True),
        (text.replace("import torch", "import os"), False),
        (text.replace("return v * FACTOR", "return v"), False),
        (text.replace("x.numel()", "print()"), False),
    ):
        assert same_elsewhere(twice, kernel_of(tmp_path, new, "twice")) is same


@pytest.mark.parametrize(
    "text", ["import triton\n@triton.jit\ndef f(x:\n", "@numba.jit\ndef f(x):\n    return x\n# triton? no\n"]
)
def test_files_that_hold_no_triton_kernel_are_said_to_hold_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    with pytest.raises(SourceError):
        load_kernels(path)


def test_a_function_that_returns_a_value_is_no_kernel(tmp_path: Path) -> None:
    path = tmp_path / "helpers.py"
    path.write_text(
        "import triton\n\n\n@triton.jit\ndef doubled(value):\n    return value * 2\n\n\n@triton.jit\ndef early(x, n):\n    if n == 0:\n        return\n"
    )
    assert [one.name for one in load_kernels(path)] == ["early"]
    path.write_text("import triton\n\n\n@triton.jit\ndef doubled(value):\n    return value * 2\n")
    with pytest.raises(SourceError) as refused:
        load_kernels(path)
    assert "which may be in other files" in (refused.value.hint or "")


BLOCK = '# /// kernelmate\n# sizes = [{ n = 64 }]\n# grid = "cdiv(n, 64)"\n# [args]\n# x = "inout float32[n]"\n# n = "int32"\n# ///\n'
OUTER = "@triton.jit\ndef outer(x, n):\n    i = tl.arange(0, 64)\n    tl.store(x + i, 2.0, mask=i < n)\n"


@pytest.mark.parametrize(
    "before",
    [
        '    code = f"""extern "C" __global__ void k(float* x, int n) {{ x[0] = {width}; }}"""\n    return cupy.RawKernel(code, "k")\n',
        '    return build("__global__ void k(float* x, int n) { x[0] = 1; }" % width)\n',
        "    code = read(width)\n    return cupy.RawKernel(code, 'k')\n",
        "    return build(width)\n",
    ],
)
def test_a_contract_in_a_function_without_triton_kernels_belongs_to_none(tmp_path: Path, before: str) -> None:
    inside = "".join(f"    {line}\n" for line in BLOCK.splitlines())
    head = "import cupy\nimport triton\nimport triton.language as tl\n\n"
    kernel = kernel_of(tmp_path, f"{head}def make(width):\n{inside}{before}\n\n{BLOCK}{OUTER}", "outer")
    contract = parse_contract(kernel)
    assert contract is not None
    assert contract.args[0].name == "x"
    nested = "".join(f"    {line}\n" for line in f"{BLOCK}{OUTER}".splitlines())
    kernel = kernel_of(tmp_path, f"{head}def make(width):\n{nested}    return outer\n", "outer")
    assert parse_contract(kernel) is not None


def test_a_contract_above_a_kernel_in_a_string_is_not_that_of_a_triton_kernel_below(tmp_path: Path) -> None:
    text = f'import triton\nimport triton.language as tl\n{BLOCK}CODE = """__global__ void k(float* x, int n) {{}}"""\n\n{OUTER}'
    assert parse_contract(kernel_of(tmp_path, text, "outer")) is None
