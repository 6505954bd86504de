"""Rewrites of matrix products of Triton kernels: precision of operands and sums, order of programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelmate.source import Edit
from kernelmate.suggest.triton.program import TritonProgram, TritonRewrite

GROUP = 8
"""Rows of blocks whose programs run together, as in Triton's tutorial of matrix products."""


def faster_precision(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with TF32 operands of `tl.dot` in place of IEEE float32; the tolerance decides."""
    edits: list[Edit] = []
    for call in program.calls("dot"):
        for keyword in call.keywords:
            slow = (
                keyword.arg == "input_precision"
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value in ("ieee", "tf32x3")
            )
            if slow:
                edits.append(program.replaced(keyword.value, '"tf32"'))
            elif (
                keyword.arg == "allow_tf32" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                edits.append(program.replaced(keyword.value, "True"))
    if edits:
        yield TritonRewrite(
            edits,
            "products of TF32 operands on tensor cores, 10 bits of mantissa in place of 23, where the tolerance permits it",
        )


def exact_products(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with operands of `tl.dot` of more bits: three TF32 products, then IEEE float32."""
    calls = [
        call
        for call in program.calls("dot")
        if not any(one.arg in ("input_precision", "allow_tf32") for one in call.keywords) and _is_float32(program, call)
    ]
    for precision, words in (
        ("tf32x3", "three TF32 products for each, with about 21 bits"),
        ("ieee", "float32 products, with 24 bits"),
    ):
        edits = [program.added(call, f'input_precision="{precision}"') for call in calls]
        if edits:
            yield TritonRewrite(edits, f"operands of tl.dot have 11 significant bits as TF32: {words}")


def _is_float32(program: TritonProgram, call: ast.Call) -> bool:
    """Returns True if both operands of a product come from float32 arrays."""
    for operand in call.args[:2]:
        names = {node.id for node in program.closure(operand) if isinstance(node, ast.Name)}
        arrays = [one for one in program.contract.args if one.name in names and one.shape is not None]
        if {one.dtype for one in arrays} != {"float32"}:
            return False
    return len(call.args) >= 2


def wider_sums(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields the kernel with float32 in place of float16 as type of sums: of `tl.zeros`, of `tl.dot` and of casts within `tl.sum`."""
    edits: list[Edit] = []
    for call in program.calls("zeros", "full", "dot"):
        kinds = [*call.args[1:], *(one.value for one in call.keywords if one.arg in ("dtype", "out_dtype"))]
        edits += [edit for kind in kinds if (edit := _widened(program, kind)) is not None]
    for call in program.calls("sum"):
        for node in (one for operand in call.args[:1] for one in ast.walk(operand) if isinstance(one, ast.Call)):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
                edits += [edit for edit in [_widened(program, node.args[0])] if edit is not None]
    if edits:
        yield TritonRewrite(edits, "sums in float32, of 24 significant bits, in place of 11 or 8")


def _widened(program: TritonProgram, kind: ast.expr) -> Edit | None:
    wide = program.function_name("float32")
    narrow = {program.function_name(name) for name in ("float16", "bfloat16")} - {None}
    return program.replaced(kind, wide) if wide is not None and ast.unparse(kind) in narrow else None


def grouped_order(program: TritonProgram) -> Iterator[TritonRewrite]:
    """Yields a matrix product whose programs run in groups of rows of blocks, so that they share operands in L2."""
    swizzle, count = program.function_name("swizzle2d"), program.function_name("num_programs")
    loads = [call for call in program.calls("load") if _in_loop(program, call)]
    if swizzle is None or not loads or not program.calls("dot") or program.calls("swizzle2d"):
        return
    axes = program.axes_used()
    if axes == [0, 1]:
        if {frozenset(_axes(program, call)) for call in loads} < {frozenset({0}), frozenset({1})}:
            return
        down, across = (program.grid_side(axis) for axis in (1, 0))
        sizes = (f"{count}(1)", f"{count}(0)")
        place = _two_axes(program)
    elif axes == [0]:
        found = _one_axis(program)
        if found is None:
            return
        place, across = found[:4], found[4]
        down = program.grid_side(0) // max(across, 1)
        sizes = (f"{count}(0) // {_operand(found[5])}", found[5])
    else:
        return
    if place is None or down <= GROUP or across * down <= program.target.sms:
        return
    edits, offset, indent, (y, x) = place
    calls = ("program_id(1)", "program_id(0)") if edits else ("", "")
    given = [f"{program.function_name(call)}" if call else name for name, call in zip((y, x), calls, strict=True)]
    text = (
        f"{indent}# {GROUP} rows of blocks at a time, so that programs that run together share operands in L2.\n"
        f"{indent}{y}, {x} = {swizzle}({given[0]}, {given[1]}, {sizes[0]}, {sizes[1]}, {GROUP})\n"
    )
    reason = _why_grouped(program, across, down)
    if reason is not None:
        yield TritonRewrite([*edits, (offset, offset, text)], reason)


def _why_grouped(program: TritonProgram, across: int, down: int) -> str | None:
    """Returns the reason: strips of the operands that the programs of one wave read; None if they do not get fewer."""
    wave = min(program.target.sms, across * down)
    before = -(-wave // across) + min(across, wave)
    after = -(-wave // (GROUP * across)) * GROUP + min(-(-wave // GROUP), across)
    text = (
        f"the first {wave} of {across * down:,} programs read {after} strips of the operands in place of {before}, "
        f"in groups of {GROUP} rows of blocks"
    )
    return text if after < before else None


_Place = tuple[list[Edit], int, str, tuple[str, str]]
"""Edits of the calls of `program_id`, if they are not named; the offset and indentation of a new line; names of row and column."""


def _two_axes(program: TritonProgram) -> _Place | None:
    """Returns where the two numbers of a program can be exchanged for others; None unless each is read once."""
    found = [[node for node in program.nodes if program.axis(node) == axis] for axis in (1, 0)]
    if any(len(nodes) != 1 for nodes in found):
        return None
    calls = [nodes[0] for nodes in found]
    named = [_named(program, call) for call in calls]
    statements = [program.file.statement(call) for call in calls]
    if any(one not in program.function.body for one in statements):
        return None
    if named[0] is not None and named[1] is not None:
        place = _after(program, statements, (named[0], named[1]))
        return None if place is None else ([], *place)
    first = min(statements, key=lambda one: one.lineno)
    names = (program.fresh("block_y"), program.fresh("block_x"))
    edits = [
        (*program.file.span(call), name) for call, name in zip(calls, names, strict=True) if isinstance(call, ast.Call)
    ]
    return edits, program.line_start(first), program.indent(first), names


def _one_axis(program: TritonProgram) -> tuple[list[Edit], int, str, tuple[str, str], int, str] | None:
    """Returns facts about `row = pid // n` and `column = pid % n` in a program; None without both.

    The facts are an empty list of edits, the offset and indentation for statements after both, the names of row and
    column, and n as a number and as text.
    """
    found: dict[type[ast.operator], tuple[str, ast.BinOp, ast.stmt]] = {}
    for statement in program.function.body:
        for name, value in program.pairs(statement):
            if (
                isinstance(value, ast.BinOp)
                and isinstance(value.op, ast.FloorDiv | ast.Mod)
                and program.axis(program.resolved(value.left)) == 0
            ):
                if type(value.op) in found or program.definition(name) is None:
                    return None
                found[type(value.op)] = (name, value, statement)
    if set(found) != {ast.FloorDiv, ast.Mod}:
        return None
    (y, row, one), (x, column, other) = found[ast.FloorDiv], found[ast.Mod]
    across = program.value(row.right)
    if across is None or ast.dump(row.right) != ast.dump(column.right):
        return None
    place = _after(program, [one, other], (y, x))
    return None if place is None else ([], *place, across, program.written(row.right))


def _after(
    program: TritonProgram, statements: list[ast.stmt], names: tuple[str, str]
) -> tuple[int, str, tuple[str, str]] | None:
    """Returns the offset and indentation of the line after some statements; None if the names are read before it."""
    last = max(statements, key=lambda one: one.lineno)
    before = (node for node in program.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    if any(node.id in names and node.lineno <= last.lineno for node in before):
        return None
    return program.file.starts[last.end_lineno or last.lineno], program.indent(last), names


def _operand(text: str) -> str:
    return text if text.isidentifier() or (text.endswith(")") and "/" not in text) else f"({text})"


def _named(program: TritonProgram, call: ast.AST) -> str | None:
    """Returns the name whose only value is this call; None if there is none."""
    found = [name for name, value in program.pairs(program.file.statement(call)) if value is call]
    return found[0] if found and program.definition(found[0]) is not None else None


def _axes(program: TritonProgram, call: ast.Call) -> set[int]:
    address = program.given(call, "pointer")
    axes = {program.axis(node) for node in program.closure(address)} if address is not None else set()
    return {axis for axis in axes if axis is not None}


def _in_loop(program: TritonProgram, node: ast.AST) -> bool:
    while node is not program.function:
        node = program.file.parents[node]
        if isinstance(node, ast.For | ast.While):
            return True
    return False
