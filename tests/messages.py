"""Messages that users see, collected from the syntax trees of the packages; `python -m tests.messages` prints them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "kernelmate",
    "lsp/kernelmate_lsp",
    "widgets/kernelmate_widgets",
    "pytorch/kernelmate_torch",
    "training/kernelmate_training",
)

KEYWORDS = {"hint": "hint", "advice": "hint", "help": "help", "why": "why", "caution": "why"}
"""Kinds of the texts that are passed or assigned by these names."""

CALLS = {
    "Finding": ("finding", 2),
    "Rewrite": ("why", 2),
    "note": ("note", 0),
    "print_note": ("note", 0),
    "remark": ("note", 0),
    "fail": ("error", -1),
}
"""Kinds of the texts that these functions take, and their positions; of `fail`, each is a message."""

SENTENCE = re.compile(r"(?![A-Z ]+ |#)[A-Za-z`'{][^\n;=<>*]*$(?<=[A-Za-z0-9.:,!?`'})])")
"""A text on one line that can be part of a sentence, as code cannot."""


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A text that users see; `kind` is error, clause (an error that stands within a sentence), hint, help and so on."""

    path: str
    line: int
    kind: str
    text: str


def texts_of(node: ast.expr) -> Iterator[str]:
    """Returns the texts that an expression can have, with `{code}` in place of what is only known at run time."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
            for part in node.values
        )
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (f"{left}{right}" for left in texts_of(node.left) for right in texts_of(node.right))


def bases_of(trees: list[ast.Module]) -> dict[str, str]:
    """Returns the first base of each class that is an exception of the packages."""
    found = {
        node.name: ast.unparse(node.bases[0])
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.bases
    }
    return {
        name: base for name, base in found.items() if _root(name, found) in {"Exception", "ValueError", "RuntimeError"}
    }


def _root(name: str, bases: dict[str, str]) -> str:
    return _root(bases[name], bases) if name in bases else name


def _passed(node: ast.AST, errors: dict[str, str]) -> Iterator[tuple[str, ast.expr]]:
    """Kinds and expressions of the texts that one call or assignment passes on."""
    if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
        kind = KEYWORDS.get(target.id.strip("_").lower().split("_")[-1])
        yield from [(kind, node.value)] if kind else []
    if not isinstance(node, ast.Call):
        return
    yield from ((KEYWORDS[one.arg], one.value) for one in node.keywords if one.arg in KEYWORDS)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in errors:
        kind = "error" if _root(name, errors | {"KernelmateError": "said"}) == "said" else f"clause {name}"
        yield from ((kind, one) for one in node.args)
    elif name in CALLS:
        kind, position = CALLS[name]
        yield from ((kind, one) for number, one in enumerate(node.args) if position in (-1, number))


def _in_module(path: str, tree: ast.Module, errors: dict[str, str]) -> Iterator[Message]:
    """Messages that calls and assignments pass on, then other sentences (kind `text`) that are no docstrings."""
    seen: set[int] = set()
    for node in ast.walk(tree):
        for kind, value in _passed(node, errors):
            seen |= {id(part) for part in ast.walk(value)}
            yield from (Message(path, value.lineno, kind, text) for text in texts_of(value) if " " in text)
        if isinstance(node, ast.Expr):
            seen |= {id(part) for part in ast.walk(node)} if isinstance(node.value, ast.Constant) else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in seen:
            seen |= {id(part) for part in ast.walk(node)}
            yield from (
                Message(path, node.lineno, "text", text)
                for text in texts_of(node)
                if len(text.split()) > 3 and SENTENCE.match(text)
            )


def messages() -> list[Message]:
    """Returns every message of the packages that stands in the code as a text, sorted by module and line."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    trees = [ast.parse(file.read_text()) for file in files]
    errors = bases_of(trees)
    paths = [file.relative_to(ROOT).as_posix() for file in files]
    return sorted(one for path, tree in zip(paths, trees, strict=True) for one in _in_module(path, tree, errors))


def main() -> None:
    """Print all messages, those of each module below its path."""
    path = ""
    for message in messages():
        if message.path != path:
            path = message.path
            sys.stdout.write(f"\n{path}\n")
        sys.stdout.write(f"{message.line:5} {message.kind}: {message.text}\n")


if __name__ == "__main__":
    main()
