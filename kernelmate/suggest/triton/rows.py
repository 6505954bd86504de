"""Rewrites of Triton kernels with one row per program: one pass over a row that fits, several rows per program."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from kernelmate.source import Edit
from kernelmate.source.expressions import evaluate
from kernelmate.suggest.triton.bounds import IndexBounds
from kernelmate.suggest.triton.program import TritonProgram, TritonRewrite
from kernelmate.suggest.triton.settings import MOST_WARPS

LONGEST = 16384
"""Elements of the longest row that one program holds: 64 KB of float32, a quarter of the registers of an SM."""

THREAD_ELEMENTS = 16
"""Elements of a row per thread, by which the number of warps is chosen."""

MOST_ROWS = 8
TILE = 1024
"""Elements of a tile of several short rows."""


# ---------------------------------------------------------------------------------------------------- one pass


def one_pass(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with a block as long as a row in place of loops over blocks, so that each array is loaded once.

    If `require` does not bound the length of a row, the contract gets the bound of the longest listed one.
    """
    loops = [one for one in program.function.body if isinstance(one, ast.For)]
    found = _row_loop(program, loops)
    if found is None:
        return
    size, block = found
    bound = IndexBounds(program).most(size)
    longest = bound or max(int(evaluate(size, one)) for one in program.contract.sizes)
    length = 1 << max(longest - 1, 15).bit_length()
    if length > LONGEST or not _passes_literally(program, block):
        return
    changed = program.edited([*_unlooped(program, loops), *program.default_edits(block, str(length))])
    merged, arrays = _merged_loads(changed)
    if not arrays:
        return
    merged = _plain_sums(_without_repeats(merged))
    warps = max(int(program.values["num_warps"]), min(length // (32 * THREAD_ELEMENTS), MOST_WARPS))
    loads = " and ".join(f"{name} once in place of {count} times" for name, count in arrays.items())
    why = f"a row of up to {longest} elements stays in registers, {length // (32 * warps)} per thread: a program reads {loads}"
    require = () if bound is not None else (f"{size} <= {length}",)
    if require:
        why += f"; rows of more than {length} elements are excluded by require"
    edit = (program.kernel.start, program.kernel.end, merged.kernel.source)
    options = {
        name: value
        for name, value in ((block, str(length)), ("num_warps", str(warps)))
        if program.values[name] != value
    }
    yield TritonRewrite([edit], why, options, require=require)


def _row_loop(program: TritonProgram, loops: Sequence[ast.For]) -> tuple[str, str] | None:
    """Returns the size and the constant n and B of the loops over blocks of a row; None unless all are alike.

    They are `for ... in range(0, n, B)`, or `for i in range(tl.cdiv(n, B))` with `i` as a factor of B alone.
    """
    if len(loops) < 2 or len({ast.dump(one.iter) for one in loops}) != 1:
        return None
    turns = loops[0].iter
    if not (isinstance(turns, ast.Call) and ast.unparse(turns.func) in ("range", program.function_name("range"))):
        return None
    bounds = _blocks_of(program, turns, loops)
    if bounds is None:
        return None
    first, end, step = bounds
    size = program.size(end)
    simple = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
    if any(
        one.orelse or not isinstance(one.target, ast.Name) or not all(isinstance(part, simple) for part in one.body)
        for one in loops
    ):
        return None
    own = isinstance(step, ast.Name) and program.number(step) is not None and step.id in program.values
    if (first is not None and program.number(first) != 0) or size is None or not size.isidentifier() or not own:
        return None
    assert isinstance(step, ast.Name)
    return size, step.id


def _blocks_of(
    program: TritonProgram, turns: ast.Call, loops: Sequence[ast.For]
) -> tuple[ast.expr | None, ast.expr, ast.expr] | None:
    """Returns first, end and step of a range over elements, None as first for 0; None for any other range."""
    if len(turns.args) == 3:
        first, end, step = turns.args
        return first, end, step
    count = turns.args[-1] if turns.args else None
    named = [name for name in (program.function_name("cdiv"), "triton.cdiv") if name]
    if not (isinstance(count, ast.Call) and ast.unparse(count.func) in named and len(count.args) == 2):
        return None
    for loop in loops:
        for node in (one for statement in loop.body for one in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(loop.target, ast.Name) and node.id == loop.target.id:
                parent = program.file.parents[node]
                if not (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult)):
                    return None
                if ast.dump(count.args[1]) not in (ast.dump(parent.left), ast.dump(parent.right)):
                    return None
    return (turns.args[0] if len(turns.args) == 2 else None), count.args[0], count.args[1]


def _unlooped(program: TritonProgram, loops: Sequence[ast.For]) -> list[Edit]:
    """Returns edits that leave the body of each loop alone, with 0 for its variable."""
    edits: list[Edit] = []
    for loop in loops:
        assert isinstance(loop.target, ast.Name)
        edits.append((program.line_start(loop), program.file.starts[loop.iter.end_lineno or loop.lineno], ""))
        outer, inner = program.indent(loop), program.indent(loop.body[0])
        for number in range((loop.iter.end_lineno or loop.lineno) + 1, (loop.end_lineno or loop.lineno) + 1):
            if program.file.lines[number - 1].startswith(inner):
                start = program.file.starts[number - 1]
                edits.append((start, start + len(inner) - len(outer), ""))
        for node in (one for statement in loop.body for one in ast.walk(statement)):
            if isinstance(node, ast.Name) and node.id == loop.target.id:
                edits.append(_as_zero(program, node))
    return edits


def _as_zero(program: TritonProgram, node: ast.expr) -> Edit:
    """Returns an edit that replaces a whole number by 0, or the sum or product that it is part of by what that is then."""
    parent = program.file.parents[node]
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
        return _as_zero(program, parent)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub) and parent.right is node:
        return program.replaced(parent, program.written(parent.left))
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
        return program.replaced(parent, program.written(parent.right if parent.left is node else parent.left))
    return program.replaced(node, "0")


def _merged_loads(program: TritonProgram) -> tuple[TritonProgram, dict[str, int]]:
    """Returns a program that loads equal elements only once, and the former number of loads of each array."""
    stored = {program.array(call.args[0]) for call in program.calls("store") if call.args}
    groups: dict[tuple[str, str], list[ast.Call]] = {}
    for call in program.calls("load"):
        address, mask = program.given(call, "pointer"), program.given(call, "mask")
        if address is not None and program.array(address) not in stored | {None}:
            key = (program.meaning(address), "" if mask is None else program.meaning(mask))
            groups.setdefault(key, []).append(call)
    edits: list[Edit] = []
    arrays: dict[str, int] = {}
    for calls in groups.values():
        others = [other for call in calls if (other := program.given(call, "other")) is not None]
        if len(calls) < 2 or len({ast.dump(one) for one in others}) > 1:
            continue
        address = program.given(calls[0], "pointer")
        array = None if address is None else program.array(address)
        assert array is not None
        arrays[array] = arrays.get(array, 0) + len(calls)
        missing = f", other={program.written(others[0])}" if others and program.given(calls[0], "other") is None else ""
        name = _name_of(program, calls[0], calls)
        if name is None:
            name = program.fresh(re.sub(r"_?ptr_?", "", array) + "_row")
            first = program.file.statement(calls[0])
            start = program.line_start(first)
            text = program.written(calls[0])
            edits.append((start, start, f"{program.indent(first)}{name} = {text[:-1]}{missing})\n"))
            edits.append(program.replaced(calls[0], name))
        elif missing:
            edits.append(program.added(calls[0], missing[2:]))
        for call in calls[1:]:
            line = program.file.statement(call)
            own = program.without_line(line) if program.pairs(line) == [(name, call)] else None
            edits.append(own or program.replaced(call, name))
    return program.edited(edits), arrays


def _name_of(program: TritonProgram, call: ast.Call, same: Sequence[ast.Call]) -> str | None:
    """Returns the name whose only value, at every assignment, is this load; None if there is none."""
    for name, value in program.pairs(program.file.statement(call)):
        if value is call and all(bound in same for bound in program.bound(name)):
            return name
    return None


def _without_repeats(program: TritonProgram) -> TritonProgram:
    """Returns a program without assignments that repeat an earlier one of its only value."""
    seen: set[str] = set()
    edits = []
    for statement in program.function.body:
        for name, _ in program.pairs(statement)[:1]:
            edit = (
                program.without_line(statement)
                if program.definition(name) is not None and ast.dump(statement) in seen
                else None
            )
            edits += [] if edit is None else [edit]
        seen.add(ast.dump(statement))
    return program.edited(edits)


def _plain_sums(program: TritonProgram) -> TritonProgram:
    """Returns a program with `s = x` in place of a zero and `s += x`, where all arrays are float32 as the zero is."""
    if any(one.dtype != "float32" for one in program.contract.args if one.shape is not None):
        return program
    edits: list[Edit] = []
    for statement in program.function.body:
        if not (
            isinstance(statement, ast.AugAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(statement.op, ast.Add)
        ):
            continue
        name = statement.target.id
        zero = [one for one in program.function.body if [own for own, _ in program.pairs(one)] == [name]]
        line = program.without_line(zero[0]) if len(zero) == 1 else None
        if line is None or len(program.bound(name)) != 2 or not _is_zero(program, program.pairs(zero[0])[0][1]):
            continue
        edits += [line, (program.file.span(statement.target)[1], program.file.span(statement.value)[0], " = ")]
    return program.edited(edits)


def _is_zero(program: TritonProgram, node: ast.expr) -> bool:
    return program.called(node) == "zeros" or (isinstance(node, ast.Constant) and node.value in (0, 0.0))


# ------------------------------------------------------------------------------------------------ several rows


def rows_of_resident_programs(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with as many programs as the GPU holds at once, each in steps over rows, loading what rows share once."""
    found = _row_name(program)
    if found is None:
        return
    row, statement, rows, size = found
    programs, resident = program.programs(), program.resident
    after = program.function.body[program.function.body.index(statement) + 1 :]
    before = program.function.body[: program.function.body.index(statement)]
    if (
        resident is None
        or programs <= 2 * resident
        or not after
        or any(name in program.arguments for name in program.changed_names())
    ):
        return
    hoisted = [one for one in after if _is_hoistable(program, one)]
    shared = [
        call
        for call in program.calls("load")
        if not _depends(program, call) and program.file.statement(call) not in before
    ]
    launches = _launch_edits(program, lambda grid: f"min({grid}, {resident})")
    if not shared or launches is None or any(_is_stored(program, call) for call in shared):
        return
    names = _names_of_loads(program, [call for call in shared if program.file.statement(call) not in hoisted])
    if names is None:
        return
    edits = [program.replaced(call, name) for name, call in names.items()]
    indent = program.indent(statement)
    rest = [one for one in after if one not in hoisted]
    lines = [program.without_line(one, comments=True) for one in hoisted]
    if not rest or None in lines or program.without_line(statement) is None:
        return
    moved = "".join(program.kernel.unit.text[start:end] for start, end, _ in filter(None, lines))
    number, count = program.function_name("program_id"), program.function_name("num_programs")
    loads = "".join(f"{indent}{name} = {program.written(call)}\n" for name, call in names.items())
    head = f"{moved}{loads}{indent}for {row} in range({number}(0), {rows}, {count}(0)):\n"
    edits.append((program.line_start(statement), program.file.starts[statement.end_lineno or statement.lineno], head))
    edits += [one for one in lines if one is not None]
    gone = [(start, end) for start, end, _ in filter(None, lines)]
    for line in range((statement.end_lineno or 0) + 1, (program.function.end_lineno or 0) + 1):
        at = program.file.starts[line - 1]
        if program.file.lines[line - 1].strip() and not any(start <= at < end for start, end in gone):
            edits.append((at, at, "    "))
    yield TritonRewrite(
        [*edits, *launches],
        f"{resident:,} programs, which the GPU holds at once, in place of {programs:,}: what all rows share is loaded "
        f"{programs // resident} times less often",
        grid=(f"min({size}, {resident})",),
    )


def _names_of_loads(program: TritonProgram, calls: Sequence[ast.Call]) -> dict[str, ast.Call] | None:
    """Returns loads by new names after their arrays; None if an array is not certain, or has several loads."""
    names: dict[str, ast.Call] = {}
    for call in calls:
        address = program.given(call, "pointer")
        array = None if address is None else program.array(address)
        name = program.fresh(re.sub(r"_?ptr_?", "", array or "") + "_values")
        if array is None or name in names:
            return None
        names[name] = call
    return names


def _row_name(program: TritonProgram) -> tuple[str, ast.stmt, str, str] | None:
    """Returns the name of `row = tl.program_id(0)`, its statement, the parameter with the number of rows, and its size."""
    if program.axes_used() != [0] or not program.contract.grid[0].strip().isidentifier():
        return None
    size = program.contract.grid[0].strip()
    rows = next(
        (one.name for one in program.contract.args if one.shape is None and (one.value or one.name) == size), None
    )
    found = [node for node in program.nodes if program.called(node) == "program_id"]
    if (
        rows is None
        or program.is_changed(rows)
        or len(found) != 1
        or program.axis(found[0]) != 0
        or program.calls("num_programs")
    ):
        return None
    statement = program.file.statement(found[0])
    pairs = program.pairs(statement)
    plain = len(pairs) == 1 and pairs[0][1] is found[0] and statement in program.function.body
    return (pairs[0][0], statement, rows, size) if plain and program.definition(pairs[0][0]) is not None else None


def _depends(program: TritonProgram, node: ast.expr) -> bool:
    """Returns True if an expression's value depends on the number of the program, or changes within the kernel."""
    changed = program.changed_names()
    return any(
        program.called(one) == "program_id" or (isinstance(one, ast.Name) and one.id in changed)
        for one in program.closure(node)
    )


def _is_hoistable(program: TritonProgram, statement: ast.stmt) -> bool:
    pairs = program.pairs(statement)
    return bool(pairs) and all(
        program.definition(name) is not None and len(program.bound(name)) == 1 and not _depends(program, value)
        for name, value in pairs
    )


def _is_stored(program: TritonProgram, call: ast.Call) -> bool:
    address = program.given(call, "pointer")
    return address is None or program.array(address) in {
        program.array(one.args[0]) for one in program.calls("store") if one.args
    }


# ---------------------------------------------------------------------------------------------------- short rows

_ELEMENTWISE = frozenset(
    {
        "load", "store", "program_id", "arange", "where", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sqrt_rn", "abs", "maximum",
        "minimum", "sigmoid", "erf", "fma", "cos", "sin", "cdiv", "float32", "float16", "bfloat16", "math.exp", "math.log", "math.sqrt",
        "math.rsqrt", "math.abs", "div_rn",
    }
)  # fmt: skip
_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin"})
_SCANS = frozenset({"cumsum", "cumprod"})


def tile_of_rows(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with a tile of several short rows per program: rows along the first axis, columns along the second."""
    found, length = _row_name(program), _short_row(program)
    if found is None or length is None:
        return
    row, statement, rows, size = found
    count = min(TILE // length, MOST_ROWS)
    while count > 1 and program.programs() < count * program.target.sms:
        count //= 2
    launches = _launch_edits(program, lambda grid: f"triton.cdiv({grid}, {count})")
    if launches is None or count < 2:
        return
    name, arange = program.fresh("ROWS"), program.function_name("arange")
    number = program.pairs(statement)[0][1]
    edits: list[Edit] = [
        program.replaced(number, f"({program.written(number)} * {name} + {arange}(0, {name}))[:, None]")
    ]
    edits += [program.replaced(call, f"{program.written(call)}[None, :]") for call in program.calls("arange")]
    for call in program.calls(*_REDUCTIONS, *_SCANS):
        axis = call.args[1] if len(call.args) == 2 else program.given(call, "axis")
        edits.append(program.added(call, "axis=1") if axis is None else program.replaced(axis, "1"))
    edits = _joined(edits + [program.added(call, "keep_dims=True") for call in program.calls(*_REDUCTIONS)])
    inside = program.fresh("exists")
    edits += _masked(program, inside)
    end = program.file.starts[statement.end_lineno or statement.lineno]
    edits.append((end, end, f"{program.indent(statement)}{inside} = {row} < {rows}\n"))
    edits.append(program.new_parameter(f"{name}: {program.function_name('constexpr')} = {count}"))
    yield TritonRewrite(
        [*edits, *launches],
        f"{count} rows of {length} elements per program in place of 1, so that {int(program.values['num_warps']) * 32} threads have "
        f"{length * count} elements to work on, and {-(-program.programs() // count):,} programs in place of {program.programs():,}",
        grid=(f"cdiv({size}, {name})",),
    )


def _short_row(program: TritonProgram) -> int | None:
    """Returns the number of elements of a row's only block; None unless every operation also works on a tile of rows."""
    lengths = {program.number(call.args[1]) for call in program.calls("arange") if len(call.args) == 2}
    length = lengths.pop() if len(lengths) == 1 else None
    along = program.calls(*_REDUCTIONS, *_SCANS)
    if length is None or length * 2 > TILE or not along or any(len(call.args) > 2 for call in along):
        return None
    known = _ELEMENTWISE | _REDUCTIONS | _SCANS
    for node in program.nodes:
        if isinstance(node, ast.For | ast.While | ast.If | ast.Subscript | ast.AugAssign):
            return None
        if isinstance(node, ast.Call) and not (program.called(node) in known or _is_plain(node)):
            return None
    return length


def _masked(program: TritonProgram, condition: str) -> list[Edit]:
    """Returns edits that add a condition to the masks of the loads and stores that depend on the number of the program."""
    edits: list[Edit] = []
    for call in program.calls("load", "store"):
        mask, address = program.given(call, "mask"), program.given(call, "pointer")
        if address is None or not _depends(program, address):
            continue
        if mask is None:
            edits.append(program.added(call, f"mask={condition}"))
        else:
            own = program.written(mask)
            edits.append(program.replaced(mask, f"{condition} & {own if isinstance(mask, ast.Name) else f'({own})'}"))
    return edits


def _is_plain(node: ast.Call) -> bool:
    """Returns True for `float(...)` and the cast `x.to(type)`."""
    if isinstance(node.func, ast.Name):
        return node.func.id == "float"
    return isinstance(node.func, ast.Attribute) and node.func.attr == "to"


def _joined(edits: Sequence[Edit]) -> list[Edit]:
    """Returns the edits, with insertions at the same offset joined into one."""
    found: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        found[start, end] = found.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in found.items()]


# --------------------------------------------------------------------------------------------------------- launches


def _launches(program: TritonProgram) -> Iterator[tuple[ast.Call, ast.expr]]:
    for node in program.file.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and ast.unparse(node.func.value) == program.kernel.name
        ):
            yield node, node.func.slice


def _launch_edits(program: TritonProgram, changed: Callable[[str], str]) -> list[Edit] | None:
    """Returns edits of the grids of the file's launches `kernel[(rows,)](...)`; None if one is written otherwise."""
    edits = []
    for _, grid in _launches(program):
        if not (isinstance(grid, ast.Tuple) and len(grid.elts) == 1 and program.module_name("triton") == "triton"):
            return None
        edits.append(program.replaced(grid.elts[0], changed(program.written(grid.elts[0]))))
    return edits


def _passes_literally(program: TritonProgram, constant: str) -> bool:
    """Returns True if every launch gives a constant as a literal keyword, and no configuration of `autotune` sets it."""
    given = [next((one.value for one in call.keywords if one.arg == constant), None) for call, _ in _launches(program)]
    return all(isinstance(one, ast.Constant) for one in given) and not program.is_tuned(constant)
