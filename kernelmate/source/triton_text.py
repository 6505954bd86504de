"""Text of the constants and jitted functions that a Triton kernel's compilation executes: without anything that runs the user's code."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kernelmate.source.triton import dotted_name, is_constexpr, literal


def targets(node: ast.stmt) -> list[str]:
    """Returns the names that an assignment assigns; none of other statements."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def constant(value: ast.expr | None) -> str | None:
    """Returns the text of a literal, or of `tl.constexpr` of one; None for any other expression."""
    if isinstance(value, ast.Call) and is_constexpr(value.func) and len(value.args) == 1:
        inner = _number(value.args[0])
        return None if inner is None else f"{dotted_name(value.func)}({inner})"
    return _number(value)


def _number(value: ast.expr | None) -> str | None:
    """Returns the text of a literal, `float("-inf")` included."""
    negative = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    call = value.operand if isinstance(value, ast.UnaryOp) else value
    if isinstance(call, ast.Call) and dotted_name(call.func) == "float" and len(call.args) == 1 and not call.keywords:
        inner = literal(call.args[0])
        known = inner is not None and re.fullmatch(r"'[+-]?(?:inf|infinity|nan)'", inner, re.IGNORECASE)
        return f"{'-' * negative}float({inner})" if known else None
    text = literal(value)
    return f"float('{text}')" if text in ("inf", "-inf") else text  # 1e999


def constant_lines(node: ast.stmt) -> dict[int, str]:
    """Returns the line of an assignment of a literal, by its number."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return {node.lineno: f"{' = '.join(targets(node))} = {constant(value)}"}


def function_lines(node: ast.FunctionDef, source: Sequence[str]) -> dict[int, str]:
    """Returns a jitted function's lines, with one decorator and without defaults and annotations that would be run.

    A function of a branch loses its indentation.
    """
    arguments = [*node.args.posonlyargs, *node.args.args]
    parameters = [one.arg + (": _kernelmate_constexpr" if is_constexpr(one.annotation) else "") for one in arguments]
    offset = len(arguments) - len(node.args.defaults)
    for number, default in enumerate(node.args.defaults):
        text = literal(default)
        parameters[offset + number] += f" = {text if text is not None else 'None'}"
    if node.args.vararg or node.args.kwonlyargs:
        parameters.append(f"*{node.args.vararg.arg if node.args.vararg else ''}")
        for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            text = literal(value)
            kind = ": _kernelmate_constexpr" if is_constexpr(one.annotation) else ""
            parameters.append(f"{one.arg}{kind}" + ("" if value is None else f" = {text}"))
    head = f"def {node.name}({', '.join(parameters)}):"
    decorator = {one.lineno: "@_kernelmate_jit" for one in node.decorator_list[:1]}
    first = node.body[0]
    if source[first.lineno - 1].encode()[: first.col_offset].strip():
        # The body begins on the last line of the head, so that all of it is on that line.
        return decorator | {node.lineno: f"{head} " + "; ".join(ast.unparse(one) for one in node.body)}
    margin = " " * node.col_offset
    numbers = range(first.lineno, (node.end_lineno or first.lineno) + 1)
    body = {number: source[number - 1].removeprefix(margin) for number in numbers}
    return decorator | body | {node.lineno: head}
