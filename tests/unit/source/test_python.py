from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelmate.errors import ContractError, SourceError
from kernelmate.records import Kernel, Unit
from kernelmate.source import (
    apply_edits,
    change_launch,
    file_text,
    find_kernels,
    infer_contract,
    load_kernel,
    load_kernels,
    parse_contract,
    read_units,
    with_text,
    write_contract,
)
from kernelmate.source.python import PythonFile, read_python, refused_strings
from kernelmate.source.python_launches import calls_of

CODE = "__global__ void k(const float *x, float *y, int n) {}"

TOML = (
    "/// kernelmate",
    "sizes = [{ n = 8 }]",
    "grid = 1",
    "block = 32",
    "[args]",
    'x = "in float32[n]"',
    'y = "out float32[n]"',
    'n = "int32"',
    "///",
)


def only(text: str) -> Unit:
    (unit,) = read_python("k.py", text)
    return unit


def found_at(unit: Unit, text: str, offset: int) -> tuple[int, int | None]:
    """Returns the place that `Unit.locate` gives for an offset of the unit's text."""
    line = unit.text.count("\n", 0, offset) + 1
    return unit.locate(line, offset - (unit.text.rfind("\n", 0, offset) + 1) + 1)


# ----------------------------------------------------------------------------------------------- finding strings


@pytest.mark.parametrize(
    "text",
    [
        f"import cupy\nk = cupy.RawKernel('{CODE}', 'k')\n",
        f"import cupy as xp\nk = xp.RawKernel(r'{CODE}', 'k')\n",
        f"from pycuda.compiler import SourceModule\nk = SourceModule('{CODE}').get_function('k')\n",
        f"from cupy import RawKernel\nk = RawKernel(name='k', code='{CODE}')\n",
        f"from cupy import RawModule as M\nm = M(code='{CODE}')\n",
        f"import cupy as cp\nsource = '{CODE}'\nk = cp.RawKernel(source, 'k')\n",
        f"import cupy as cp\nsource: str = '{CODE}'\nm = cp.RawModule(code=source, options=('-DX=1',))\n",
        f"import cupy as cp\ndef f():\n    source = '{CODE}'\n    def g():\n        return cp.RawKernel(source, 'k')\n",
        f"import cupy as cp\nclass A:\n    def f(self):\n        self.k = cp.RawKernel(SOURCE, 'k')\nSOURCE = '{CODE}'\n",
        f"import cupy as cp\nsource = 'old'\nsource = '{CODE}'\nk = cp.RawKernel(source, 'k')\nsource = 'new'\n",
        f"def f():\n    import cupy\n    @cupy.memoize()\n    def g():\n        return cupy.RawKernel((\n'{CODE}'), 'k')\n",
    ],
)
def test_the_string_given_to_cupy_is_the_unit(text: str) -> None:
    unit = only(text)
    assert (unit.text, unit.language, unit.file_text) == (CODE, "python", text)
    line, column = found_at(unit, text, unit.text.index("k("))
    assert column is not None
    assert text.split("\n")[line - 1][column - 1 :].startswith("k(const")


def test_one_string_used_twice_is_one_unit() -> None:
    text = f"import cupy as cp\ns = '{CODE}'\na = cp.RawKernel(s, 'k')\nb = cp.RawKernel(s, 'k')\n"
    assert len(read_python("k.py", text)) == 1


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("f'__global__ void k() {{}} {n}'", "f-string"),
        ("'__global__ void %s() {}' % name", "formatted with %"),
        ("'__global__ void {}() {{}}'.format(name)", "made by .format()"),
        ("HEADER + '__global__ void k() {}'", "operator"),
        ("read('k.cu')", "computed"),
        ("missing", "not a literal in this file"),
        ("self.code", "computed"),
    ],
)
def test_a_computed_string_is_passed_over_and_refused_by_name(tmp_path: Path, code: str, what: str) -> None:
    path = tmp_path / "k.py"
    path.write_text(
        f"import cupy as cp\nj = cp.RawKernel(r'__global__ void j() {{}}', 'j')\nk = cp.RawKernel({code}, 'k')\n"
    )
    assert [kernel.name for kernel in load_kernels(path)] == ["j"]
    with pytest.raises(SourceError) as caught:
        load_kernel(f"{path}::k")
    assert what in caught.value.message
    assert (caught.value.line, caught.value.column) == (3, 18)
    assert "string literal" in (caught.value.hint or "")
    (refused,) = refused_strings(str(path), path.read_text())
    assert refused.kernel == "k"


def test_a_python_file_without_kernels_says_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("x = 1\n")
    with pytest.raises(SourceError, match=r"no kernel in this Python file.*cupy\.RawKernel"):
        load_kernels(path)
    path.write_text("from numba import cuda\n@cuda.jit\ndef k(x):\n    x[0] = 1\n")
    with pytest.raises(SourceError, match=r"Numba compiles its kernels itself: `kernelmate capture`"):
        load_kernels(path)
    path.write_text("x = (\n")
    with pytest.raises(SourceError, match=r"k\.py:1:.*not Python"):
        read_units(path)


def test_nothing_of_the_file_is_executed(tmp_path: Path) -> None:
    path, made = tmp_path / "k.py", tmp_path / "made"
    path.write_text(f"import cupy\nopen({str(made)!r}, 'w')\nk = cupy.RawKernel('{CODE}', 'k')\n")
    load_kernel(f"{path}::k")
    assert not made.exists()


# ----------------------------------------------------------------------------------------------------- positions

CHARACTERS = st.text(alphabet="ab \n\t\\\"'é大\U0001f600\0\r", max_size=30)
STYLES = st.sampled_from(['"', "'", '"""', "'''", 'r"', "r'", 'r"""', "R'''", "u'"])


def spell(value: str, style: str) -> str | None:
    """A literal with this value in this style, or None where there is none."""
    quote = style.lstrip("rRu")
    if style[0] in "rR":
        text = f"{style}{value}{quote}"
    else:
        escaped = (
            value.replace("\\", "\\\\").replace("\0", "\\0").replace("\r", "\\r").replace(quote[0], f"\\{quote[0]}")
        )
        escaped = escaped.replace("a", "\\x61").replace("b", "\\\nb")
        text = f"{style}{escaped if len(quote) == 3 else escaped.replace(chr(10), chr(92) + 'n')}{quote}"
    try:
        return text if "\r" not in text and "\0" not in text and ast.literal_eval(text) == value else None
    except (SyntaxError, ValueError):
        return None


@given(st.lists(st.tuples(CHARACTERS, STYLES), min_size=1, max_size=4), st.sampled_from([" ", "\n", "  # why\n"]))
def test_every_character_of_every_kind_of_literal_maps_to_its_place(
    pieces: Sequence[tuple[str, str]], between: str
) -> None:
    spelled = [spell(value, style) for value, style in pieces]
    assume(all(text is not None for text in spelled))
    literal = between.join(text for text in spelled if text)
    text = f"import cupy\né = 1; k = cupy.RawKernel(({literal}), 'k')\n"
    unit = only(text)
    assert unit.text == "".join(value for value, _ in pieces)
    lines = text.split("\n")
    for offset, character in enumerate(unit.text):
        line, column = found_at(unit, text, offset)
        assert column is not None
        rest = (lines[line - 1] + "\n")[column - 1 :]
        assert rest.startswith((character, "\\")), (character, rest)


# --------------------------------------------------------------------------------------------------- write-back


@given(st.tuples(CHARACTERS, STYLES), CHARACTERS, st.sampled_from(["\n", "\r\n"]))
def test_changed_text_reads_back_and_the_rest_of_the_file_is_untouched(
    old: tuple[str, str], new: str, end: str
) -> None:
    literal = spell(*old)
    assume(literal is not None)
    before, after = "import cupy  # größe\nk = cupy.RawKernel(", ", 'k')  # end\nx = 'a\\x61'\n"
    text = f"{before}{literal}{after}".replace("\n", end)
    unit = with_text(only(text), new)
    assert unit.text == new
    assert unit.file_text is not None
    assert unit.file_text.startswith(before.replace("\n", end))
    assert unit.file_text.endswith(after.replace("\n", end))
    assert only(unit.file_text).text == new


def kernel_of(text: str) -> Kernel:
    return find_kernels(only(text))[0]


def edited(text: str, old: str, new: str) -> str:
    kernel = kernel_of(text)
    start = kernel.unit.text.index(old)
    return file_text(apply_edits(kernel, [(start, start + len(old), new)]))


def test_an_edit_keeps_the_spelling_of_everything_else() -> None:
    text = (
        "import cupy as cp\n"
        'k = cp.RawKernel("#define A \\x41\\n"  # first\n'
        "    '__global__ void k(float *x) {\\n'\n"
        "    r'''  x[0] = 1; // \\n\n"
        "}''', 'k')\n"
    )
    assert edited(text, "x[0] = 1", "x[0] = 2") == text.replace("x[0] = 1", "x[0] = 2")
    assert edited(text, "k(float", "k(\n  float") == text.replace("k(float", "k(\\n  float")
    assert edited(text, "A A", "A 'B\"") == text.replace("A \\x41", "A 'B\\\"")


def test_an_edit_across_pieces_gives_an_equal_single_literal() -> None:
    text = "import cupy as cp\nk = cp.RawKernel('__global__ void k(float *x)'\n  ' { x[0] = 1; }', 'k')\n"
    changed = edited(text, "*x) { x", "*y) { y")
    assert only(changed).text == "__global__ void k(float *y) { y[0] = 1; }"
    assert changed.startswith('import cupy as cp\nk = cp.RawKernel(r"""__global__')


def test_a_raw_string_that_cannot_hold_its_quotes_is_spelled_otherwise() -> None:
    text = f"import cupy as cp\nk = cp.RawKernel(r'{CODE}', 'k')\n"
    assert only(edited(text, "{}", "{ '\\n'; }")).text == CODE.replace("{}", "{ '\\n'; }")


def test_positions_in_the_changed_unit_are_those_of_the_changed_file() -> None:
    text = f"import cupy as cp\nk = cp.RawKernel('''\n{CODE}\n''', 'k')\n"
    kernel = kernel_of(text)
    changed = apply_edits(kernel, [(kernel.start, kernel.start, "// one\n// two\n")])
    assert changed.unit.locate(changed.line, changed.column) == (5, 17)


# ---------------------------------------------------------------------------------------------------- contracts


def test_the_contract_may_stand_in_the_string_or_above_the_statement() -> None:
    inside = "".join(f"// {line}\n" for line in TOML)
    above = "".join(f"# {line}\n" for line in TOML)
    for text in (
        f"import cupy as cp\nk = cp.RawKernel('''\n{inside}{CODE}\n''', 'k')\n",
        f"import cupy as cp\n\n{above}k = cp.RawKernel('''\n{CODE}\n''', 'k')\n",
        f"import cupy as cp\n{above}\nsource = '{CODE}'\nk = cp.RawKernel(source, 'k')\n",
        f"import cupy as cp\nsource = '{CODE}'\nx = 1\n{above}k = cp.RawKernel(source, 'k')\n",
        "import cupy as cp\ndef f():\n"
        + "".join(f"    {line}\n" for line in above.splitlines())
        + f"    return cp.RawKernel('{CODE}', 'k')\n",
    ):
        contract = parse_contract(kernel_of(text))
        assert contract is not None
        assert contract.block == ("32",)
        assert contract.line == text[: text.index("/// kernelmate")].count("\n") + 1


def test_a_mistake_in_either_is_at_its_place_in_the_file() -> None:
    for marker, text in (
        ("# ", "import cupy as cp\ndef f():\n    BLOCKreturn cp.RawKernel('" + CODE + "', 'k')\n"),
        ("// ", "import cupy as cp\nk = cp.RawKernel('''\n    BLOCK" + CODE + "\n''', 'k')\n"),
        ("// ", "import cupy as cp\nk = cp.RawKernel('\\nBLOCK" + CODE + "', 'k')\n"),
    ):
        end = "\\n" if "('\\n" in text else "\n"
        indent = "" if "('\\n" in text else "    "
        block = f"{end}{indent}".join(f"{marker}{line}" for line in TOML) + end + indent
        text = text.replace("BLOCK", block.replace("in float32", "in float23"))
        with pytest.raises(ContractError) as caught:
            parse_contract(kernel_of(text))
        assert caught.value.line is not None
        assert caught.value.column is not None
        assert text.split("\n")[caught.value.line - 1][caught.value.column - 1 :].startswith("float23")


def test_a_contract_above_the_statement_is_replaced_there() -> None:
    above = "".join(f"    # {line}\n" for line in TOML)
    text = f"import cupy as cp\nif 1:\n    # prose\n{above}    k = cp.RawKernel('{CODE}', 'k')\n"
    kernel = kernel_of(text)
    contract = parse_contract(kernel)
    assert contract is not None
    from dataclasses import replace

    changed = write_contract(kernel, replace(contract, block=("64",), shared="8"))
    assert file_text(changed) == text.replace("block = 32\n", "block = 64\n    # shared = 8\n")
    whole = write_contract(kernel, replace(contract, sizes=({"n": 9},)))
    assert file_text(whole) == text.replace("{ n = 8 }", "{ n = 9 }")
    again = parse_contract(whole)
    assert again is not None
    assert again.sizes == ({"n": 9},)


def test_a_new_contract_goes_into_the_string_above_the_kernel() -> None:
    inside = "".join(f"// {line}\n" for line in TOML)
    text = f"import cupy as cp\nk = cp.RawKernel('''\n{inside}{CODE}\n''', 'k')\n"
    contract = parse_contract(kernel_of(text))
    assert contract is not None
    assert file_text(write_contract(kernel_of(text.replace(inside, "")), contract)) == text


# ------------------------------------------------------------------------------------------------------ launches

CALLED = (
    "import cupy as cp\nimport numpy as np\n"
    "k = cp.RawKernel(r'''\n"
    + "".join(f"// {line}\n" for line in TOML)
    .replace("block = 32", "block = 256")
    .replace("grid = 1", 'grid = "cdiv(n, block)"')
    + f"{CODE}\n''', 'k')\n"
    "def f(x, y, count):\n    threads = 256\n    blocks = (count + threads - 1) // threads\n    CALL\n"
)


@pytest.mark.parametrize(
    ("call", "becomes"),
    [
        (
            "k((blocks,), (threads,), (x, y, np.int32(count)))",
            "k(((count + 63) // 64,), (64,), (x, y, np.int32(count)))",
        ),
        ("k((blocks,), (threads,), [x, y, x.size])", "k(((x.size + 63) // 64,), (64,), [x, y, x.size])"),
        ("k(grid=g, block=b, args=(x, y, 10),)", "k(grid=((10 + 63) // 64,), block=(64,), args=(x, y, 10),)"),
        ("j = k; k(g, b, (x, y, a or b))", "j = k; k((((a or b) + 63) // 64,), (64,), (x, y, a or b))"),
        ("other((blocks,), (threads,), (x, y, count))", "other((blocks,), (threads,), (x, y, count))"),
    ],
)
def test_calls_of_the_kernel_follow_a_changed_block(call: str, becomes: str) -> None:
    text = CALLED.replace("CALL", call)
    changed = change_launch(kernel_of(text), block="64")
    assert file_text(changed) == CALLED.replace("CALL", becomes).replace("block = 256", "block = 64")
    assert parse_contract(changed) is not None


@pytest.mark.parametrize(
    ("call", "becomes"),
    [
        (
            "k(x, y, np.int32(count), block=(256, 1, 1), grid=(blocks, 1))",
            "k(x, y, np.int32(count), block=(64, 1, 1), grid=((count + 63) // 64, 1), shared=512)",
        ),
        (
            "k(cuda.In(x), cuda.Out(y), count, grid=g, block=b, shared=0)",
            "k(cuda.In(x), cuda.Out(y), count, grid=((count + 63) // 64, 1), block=(64, 1, 1), shared=512)",
        ),
    ],
)
def test_calls_by_pycuda_follow_a_changed_launch(call: str, becomes: str) -> None:
    text = CALLED.replace("cupy.RawKernel(", "SourceModule(").replace(", 'k')", ").get_function('k')")
    changed = file_text(change_launch(kernel_of(text.replace("CALL", call)), block="64", shared="512"))
    assert becomes in changed
    assert '// shared = "512"\n' in changed or "// shared = 512\n" in changed


def test_calls_of_the_kernel_follow_a_block_that_depends_on_a_size() -> None:
    text = CALLED.replace("CALL", "k((blocks,), (threads,), (x, y, np.int32(count)))")
    changed = change_launch(kernel_of(text), block="512 if n >= 4096 else 64")
    namespace = {"k": lambda grid, block, _: (grid, block), "np": np}
    called = file_text(changed).partition("def f(x, y, count):")[2].replace("k((", "return k((")
    exec("def f(x, y, count):" + called, namespace)
    assert namespace["f"](None, None, 4097) == ((9,), (512,))  # type: ignore[operator]
    assert namespace["f"](None, None, 65) == ((2,), (64,))  # type: ignore[operator]


def test_shared_memory_of_a_call_follows_too() -> None:
    text = CALLED.replace("CALL", "k(g, b, (x, y, count))\n    k(g, b, (x, y, count), shared_mem=0)")
    changed = file_text(change_launch(kernel_of(text), shared="block * 4"))
    assert "k(g, b, (x, y, count), shared_mem=256 * 4)\n    k(g, b, (x, y, count), shared_mem=256 * 4)" in changed
    assert '// shared = "block * 4"\n' in changed


def test_a_call_that_does_not_say_its_arguments_is_refused_at_its_line() -> None:
    text = CALLED.replace("CALL", "k(g, b, args)")
    with pytest.raises(SourceError, match="does not give grid, block and arguments plainly") as caught:
        change_launch(kernel_of(text), block="64")
    assert (caught.value.line, caught.value.column) == (text[: text.index("k(g, b")].count("\n") + 1, 5)


def test_functions_of_modules_and_attributes_are_followed() -> None:
    code = f"'''__global__ void other() {{}}\n{CODE}'''"
    for text in (
        f"import cupy\nm = cupy.RawModule(code={code})\nk = m.get_function('k')\nk((2,), (64,), (x, y, 5))\n",
        f"import cupy\nclass A:\n    def __init__(self):\n        self.k = cupy.RawKernel({code}, 'k')\n"
        "    def f(self):\n        self.k((2,), (64,), (x, y, 5))\n",
        f"import cupy\ncupy.RawKernel({code}, 'k')((2,), (64,), (x, y, 5))\n",
    ):
        kernel = next(kernel for kernel in find_kernels(only(text)) if kernel.name == "k")
        changed = change_launch(kernel, block="128", contract=infer_contract(kernel))
        assert "((2,), (128,), (x, y, 5))" in file_text(changed)


def test_a_call_in_the_file_gives_the_guessed_launch() -> None:
    text = CALLED.replace("CALL", "k((blocks,), (threads,), (x, y, np.int32(count)), shared_mem=4 * threads)")
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//"))
    contract = infer_contract(kernel_of(text))
    assert (contract.grid, contract.block, contract.shared) == (("cdiv(n, block)",), ("256",), "4 * block")


def test_strings_assigned_in_branches_are_all_found_and_changed_names_are_not_guessed() -> None:
    text = (
        "import cupy as cp\ndef f(half):\n    if half:\n        code = '__global__ void a() {}'\n    else:\n"
        "        code = '__global__ void b() {}'\n    return cp.RawKernel(code, 'k')\n"
    )
    assert [unit.text for unit in read_python("k.py", text)] == ["__global__ void a() {}", "__global__ void b() {}"]
    for other in (
        f"import cupy as cp\ncode = '{CODE}'\ndef f(code):\n    return cp.RawKernel(code, 'k')\n",
        f"import cupy as cp\ncode = '{CODE}'\ncode += 'x'\ncp.RawKernel(code, 'k')\n",
        f"import cupy as cp\ncode, name = '{CODE}', 'k'\ncp.RawKernel(code, 'k')\n",
    ):
        assert read_python("k.py", other) == ()


def test_of_several_kernels_of_a_string_the_one_with_the_block_above_is_meant(tmp_path: Path) -> None:
    above = "".join(f"# {line}\n" for line in TOML)
    path = tmp_path / "k.py"
    path.write_text(f"import cupy as cp\n{above}m = cp.RawModule(code='''{CODE}\n__global__ void j() {{}}''')\n")
    assert load_kernel(str(path)).name == "k"
    assert [parse_contract(kernel) is not None for kernel in load_kernels(path)] == [True, False]


def test_launches_of_numba_are_read_with_their_conversions() -> None:
    text = (
        "k[1, 2](a)\ndef f():\n    k[3, 4](b)\nfor _ in range(3):\n    k[(g, 1), 64, stream, 4 * n](x.T, np.float32(2))\n"
        "k[7](c)\nk[1, 2](*some)\nother[1, 2](c)\n"
    )
    found = calls_of(PythonFile("<notebook>", text), "k")
    said = [
        [None if one is None else ast.unparse(one) for one in (each.grid, each.block, each.shared)] for each in found
    ]
    assert [each.arguments for each in found] == [("a",), ("x.T", "np.float32(2)"), ("c",)]
    assert said == [["1", "2", None], ["(g, 1)", "64", "4 * n"], [None, None, None]]
