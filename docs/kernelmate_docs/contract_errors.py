"""Generates the page of all contract errors: messages from the code, causes from a table beside this module."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULES = (
    "kernelmate.source.arguments",
    "kernelmate.source.blocks",
    "kernelmate.source.contract",
    "kernelmate.source.distributions",
    "kernelmate.source.document",
    "kernelmate.source.dtypes",
    "kernelmate.source.entries",
    "kernelmate.source.expressions",
    "kernelmate.source.infer",
    "kernelmate.source.instances",
    "kernelmate.source.launch",
    "kernelmate.source.arguments",
    "kernelmate.source.pipelines",
    "kernelmate.source.reference",
    "kernelmate.source.tensor_maps",
    "kernelmate.source.textures",
    "kernelmate.source.triton_contract",
    "kernelmate.flags",
)
"""The modules that read contracts."""

CAUSES = Path(__file__).with_name("contract_errors.toml")

_MESSAGE_PLACE = {
    "ContractError": 0,
    "ExpressionError": 0,
    "RefusedOption": 0,
    "_fail_at_opening": 1,
    "document.fail": 1,
    "self.document.fail": 1,
    "self.fail": 0,
}
"""The position of the message among the arguments of each function that reports an error."""

HEAD = """# Errors of contracts

A mistake in a contract is reported with its file, line and column, and with a hint. This page lists every message. A word in angle
brackets stands for a name or a value of your contract, and an ellipsis for a part that depends on it. Where an expression fails at
one size only, the message ends with that size.

"""


@dataclass(frozen=True, slots=True)
class Cause:
    """An error message, the part of the contract that it concerns, and its cause."""

    about: str
    message: str
    cause: str


def pages() -> dict[str, str]:
    """The page, by its path."""
    groups: dict[str, list[Cause]] = {}
    for one in causes():
        groups.setdefault(one.about, []).append(one)
    parts = [f"## {about}\n\n" + "\n".join(_entry(one) for one in group) for about, group in groups.items()]
    return {"contract-errors.md": HEAD + "\n".join(parts)}


def _entry(one: Cause) -> str:
    mark = "``" if "`" in one.message else "`"
    return f"{mark}{one.message}{mark}\n:   {one.cause}\n"


def causes() -> tuple[Cause, ...]:
    """The table of causes, in its order."""
    table = tomllib.loads(CAUSES.read_text(encoding="utf-8"))
    return tuple(Cause(about, message, cause) for about, entries in table.items() for message, cause in entries.items())


def messages() -> dict[str, str]:
    """Returns every contract error message with its module."""
    found: dict[str, str] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        constants = {key: str(value) for key, value in vars(module).items() if key.isupper() and isinstance(value, int)}
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(function, ast.FunctionDef):
                for text in _messages_of(function):
                    shown = re.sub(r"<([A-Z_]+)>", lambda match: constants[match[1]], text)  # noqa: B023 -- used at once
                    found.setdefault(shown, name)
    return found


def _messages_of(function: ast.FunctionDef) -> Iterator[str]:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or function.name == "error":
            continue
        name = ast.unparse(call.func)
        if name == "self.error":
            yield from (f"<expression> {_text(one)} at <values>." for one in _values(call.args[1], function))
        place = _MESSAGE_PLACE.get(name)
        if place is not None and len(call.args) > place:
            yield from (_text(one) for one in _values(call.args[place], function) if _is_text(one))


def _values(node: ast.expr, function: ast.FunctionDef) -> list[ast.expr]:
    """Returns the possible expressions of a message.

    Itself, branches of a conditional, or all values assigned to its name.
    """
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if not isinstance(node, ast.Name):
        return [node]
    return [
        statement.value
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == node.id for target in statement.targets)
    ]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(_part(part) for part in node.values)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    shown = _placeholder(part.value)
    return f"'{shown}'" if part.conversion == ord("r") else shown


def _placeholder(value: ast.expr) -> str:
    if isinstance(value, ast.Name):
        return f"<{value.id}>"
    if isinstance(value, ast.Attribute):
        owner = ast.unparse(value.value)
        return f"<{owner}>" if value.attr == "name" and owner.isidentifier() else f"<{value.attr}>"
    return "…"
